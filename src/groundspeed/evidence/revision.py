"""Which commit the code of a contender is from, if one run compared two revisions of a project; and which packages
each was measured with, if the revisions asked for different ones."""

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
"""Key in the environment of a record: contender → its revision."""
INSTALLED = "installed"
"""Key in the environment of a record: contender → what its revision asked for, and what it had."""
CHANGES = "+changes"
"""Suffix of the commit of a working tree that has uncommitted changes."""

_COMMIT = re.compile(rf"[0-9a-f]{{40,64}}({re.escape(CHANGES)})?")


@dataclass(frozen=True)
class Revision:
    contender: str
    """The name in its suite or file; the record appends `@base` or `@head`."""
    side: Side
    asked: str
    """What the user named: `main`, `HEAD~1`, `.` for the working tree."""
    commit: str

    def __post_init__(self) -> None:
        check_names("contender", self.contender)
        check_names("revision", self.asked)
        if not _COMMIT.fullmatch(self.commit):
            raise ValueError(f"{self.commit!r:.80} is not a commit")

    @property
    def name(self) -> str:
        return f"{self.contender}@{self.side}"

    @property
    def short(self) -> str:
        return short(self.commit)


@dataclass(frozen=True)
class Installed:
    """The packages of a contender whose revision asks for different ones than the other revision."""

    asked: tuple[str, ...]
    """Requirements that the other revision does not have."""
    met: Literal["here", "venv", "unknown"]
    """What met them: the packages installed on the machine, or a virtual environment of its own. `unknown` if this was
    not checked or no environment could be built: the contender then had what is installed on the machine."""
    packages: dict[str, str]
    """Versions of everything that was installed for either revision, as far as this contender had it."""

    def __post_init__(self) -> None:
        check_names("requirement", *self.asked)
        check_names("package", *self.packages)
        check_names("version", *self.packages.values())


def short(commit: str) -> str:
    """`0123456789ab`, or `0123456789ab+changes`."""
    return commit[:12] + (CHANGES if commit.endswith(CHANGES) else "")


def revisions_of(environment: Mapping[str, Any], where: str = "environment") -> dict[str, Revision]:
    """Return the revision of each contender in a record's environment; empty if no revisions were compared. BadInput
    for entries that are no revisions."""
    found = _told(Revision, environment, KEY, where)
    for name, revision in found.items():
        if revision.name != name:
            raise BadInput(f"{where}.{KEY}: {name!r:.80} is the key of {revision.name!r:.80}")
    return found


def installed_of(environment: Mapping[str, Any], where: str = "environment") -> dict[str, Installed]:
    """Return the packages of each contender in a record's environment; empty if no revisions were compared or they
    asked for the same. BadInput for malformed entries."""
    return _told(Installed, environment, INSTALLED, where)


def packages_of(environment: Mapping[str, Any], contender: str) -> dict[str, str]:
    """Return the recorded packages in the versions that this contender was measured with."""
    shared, own = environment.get("packages"), installed_of(environment).get(contender)
    known = {k: v for k, v in shared.items() if isinstance(v, str)} if isinstance(shared, Mapping) else {}
    return {**known, **own.packages} if own else known


def _told(cls: type[T], environment: Mapping[str, Any], key: str, where: str) -> dict[str, T]:
    told = environment.get(key, {})
    if not isinstance(told, dict):
        raise BadInput(f"{where}.{key}: expected an object, found {type(told).__name__}")
    return {name: decode(cls, value, f"{where}.{key}.{name:.80}") for name, value in told.items()}
