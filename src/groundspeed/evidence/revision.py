"""Which commit the code of a contender is from, where two revisions of a project were compared in one run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from groundspeed.errors import BadInput
from groundspeed.evidence.decode import decode
from groundspeed.evidence.names import check_names

Side = Literal["base", "head"]
SIDES: tuple[Side, ...] = get_args(Side)
KEY = "revisions"
"""In the environment of a record: by contender its revision."""
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


def short(commit: str) -> str:
    """`0123456789ab`, or `0123456789ab+changes`."""
    return commit[:12] + (CHANGES if commit.endswith(CHANGES) else "")


def revisions_of(environment: Mapping[str, Any], where: str = "environment") -> dict[str, Revision]:
    """By contender, of a record's environment; none where no revisions were compared. BadInput for what is neither."""
    told = environment.get(KEY, {})
    if not isinstance(told, dict):
        raise BadInput(f"{where}.{KEY}: expected an object, found {type(told).__name__}")
    found = {name: decode(Revision, value, f"{where}.{KEY}.{name:.80}") for name, value in told.items()}
    for name, revision in found.items():
        if revision.name != name:
            raise BadInput(f"{where}.{KEY}: {name!r:.80} is told as {revision.name!r:.80}")
    return found
