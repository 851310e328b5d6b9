"""Who takes part in a case, in a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from groundspeed.case import Contender
from groundspeed.measure.cores import CoreUse


@dataclass
class Entrant:
    """A contender that passed the gate on the case at hand."""

    contender: Contender
    function: Callable[..., Any]
    calls: list[Callable[[], Any]]
    """On each set of inputs by itself; for a timed sample on inputs that are drawn for it. A clock knows it again."""
    launches: int = 1
    cursor: int = 0
    checked: bool = False
    use: CoreUse = field(default_factory=CoreUse)
