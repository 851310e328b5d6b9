"""Which commit the code of a contender is from, where two revisions of a project were compared in one run; and with
which packages each was measured, where they asked for different ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from groundspeed.errors import BadInput
from groundspeed.evidence.decode import decode
from groundspeed.evidence.names import check_names

T = TypeVar("T")
Side = Literal["base", "head"]
SIDES: tuple[Side, ...] = get_args(Side)
KEY = "revisions"
"""In the environment of a record: by contender its revision."""
INSTALLED = "installed"
"""In the environment of a record: by contender what its revision asked for, and what it had."""
CHANGES = "+changes"
"""What ends the commit of a working tree that has changes of its own."""

_COMMIT = re.compile(rf"[0-9a-f]{{40,64}}({re.escape(CHANGES)})?")


@dataclass(frozen=True)
class Revision:
    contender: str
    """As its suite or its file calls it; in the record it is this and `@base` or `@head`."""
    side: Side
    asked: str
    """What the user named: `main`, `HEAD~1`, `.` for the working tree."""
    commit: str

    def __post_init__(self) -> None:
        check_names("contender", self.contender)
        check_names("revision", self.asked)
        if not _COMMIT.fullmatch(self.commit):
            raise ValueError(f"{self.commit!r:.80} is no commit")

    @property
    def name(self) -> str:
        return f"{self.contender}@{self.side}"

    @property
    def short(self) -> str:
        return short(self.commit)


@dataclass(frozen=True)
class Installed:
    """The packages of a contender whose revision asks for others than the other one does."""

    asked: tuple[str, ...]
    """Requirements that the other revision does not have."""
    met: Literal["here", "venv", "unknown"]
    """By what is installed on the machine, by a virtual environment of its own, or nobody looked or could build one: it
    then had what is installed on the machine."""
    packages: dict[str, str]
    """Versions of what was installed for either revision, as far as this one had it."""

    def __post_init__(self) -> None:
        check_names("requirement", *self.asked)
        check_names("package", *self.packages)
        check_names("version", *self.packages.values())


def short(commit: str) -> str:
    """`0123456789ab`, or `0123456789ab+changes`."""
    return commit[:12] + (CHANGES if commit.endswith(CHANGES) else "")


def revisions_of(environment: Mapping[str, Any], where: str = "environment") -> dict[str, Revision]:
    """By contender, of a record's environment; none where no revisions were compared. BadInput for what is neither."""
    found = _told(Revision, environment, KEY, where)
    for name, revision in found.items():
        if revision.name != name:
            raise BadInput(f"{where}.{KEY}: {name!r:.80} is told as {revision.name!r:.80}")
    return found


def installed_of(environment: Mapping[str, Any], where: str = "environment") -> dict[str, Installed]:
    """By contender; none where revisions asked for the same, or none were compared. BadInput for what is neither."""
    return _told(Installed, environment, INSTALLED, where)


def packages_of(environment: Mapping[str, Any], contender: str) -> dict[str, str]:
    """Those of the manifest, in the versions that this contender was measured with."""
    shared, own = environment.get("packages"), installed_of(environment).get(contender)
    known = {k: v for k, v in shared.items() if isinstance(v, str)} if isinstance(shared, Mapping) else {}
    return {**known, **own.packages} if own else known


def _told(cls: type[T], environment: Mapping[str, Any], key: str, where: str) -> dict[str, T]:
    told = environment.get(key, {})
    if not isinstance(told, dict):
        raise BadInput(f"{where}.{key}: expected an object, found {type(told).__name__}")
    return {name: decode(cls, value, f"{where}.{key}.{name:.80}") for name, value in told.items()}
