"""The quantities in which a line can be shown, and its figures in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from groundspeed.judge.claims import ratio_text, ratios_text
from groundspeed.judge.history import Figure, Run
from groundspeed.judge.lines import Kind, Line
from groundspeed.report import text

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class View:
    name: str
    kind: Kind
    better: int
    """1 if more is better, -1 if less is."""
    words: tuple[str, str]
    """The words for a line that went up, and for one that went down."""
    unit: Callable[[float], tuple[float, str]]
    """Takes the largest value of a line; returns the size of its unit and the unit's name."""
    meaning: str
    sign: int = 1
    """-1 if the quantity is inverse to the values of the line."""

    def shows(self, line: Line) -> bool:
        return line.kind == self.kind and (self is not RATE or bool(line.counted and line.latest.flops))

    def of(self, line: Line, figure: Figure) -> tuple[float, float | None, float | None]:
        """Return value, low and high of one of the line's figures."""
        if self is not RATE:
            return figure.value, figure.low, figure.high
        low, high = (line.latest.flops / end if end else None for end in (figure.high, figure.low))
        return line.latest.flops / figure.value, low, high


TIME = View(
    name="time",
    kind="time",
    better=-1,
    words=("slower", "faster"),
    unit=text.time_unit,
    meaning="Median time of a call. Whatever affects the machine affects it: clocks, temperature, driver, other "
    "programs. A change here may come from the machine; the speed-up shows whether it does.",
)
RATE = View(
    name="FLOP/s",
    kind="time",
    better=1,
    words=("faster", "slower"),
    unit=text.flop_rate_unit,
    meaning="The same times as a rate, counting the work that the maths needs. What affects the machine affects it "
    "too.",
    sign=-1,
)
SPEED_UP = View(
    name="speed-up",
    kind="speed-up",
    better=1,
    words=("higher", "lower"),
    unit=lambda largest: (1.0, "×"),
    meaning="Baseline time over contender time, measured side by side in each run, block by block, so that whatever "
    "affects both alike, such as drift of the machine, cancels. A change here comes from the contender or its "
    "baseline.",
)
VIEWS = (SPEED_UP, TIME, RATE)
"""In the order of the page. Speed-ups come first, because changes of the machine do not move them."""
EARLY = "too few runs to tell"


def latest(view: View, line: Line) -> str:
    """Return the latest figure of a line, `1.38 ms (1.36–1.39)`, or the status of a contender that failed."""
    from markupsafe import Markup

    figure, status = line.points[-1].figure, line.points[-1].status
    if figure is None:
        return Markup('<span data-word="{0}">{0}</span>').format("no pair" if status == "PASSED" else status)
    value, low, high = view.of(line, figure)
    size, unit = view.unit(value)
    if view is SPEED_UP:
        said = [*ratios_text(value, low, high)] if low and high else [ratio_text(value)]
    else:
        said = [text.significant(x / size) for x in (value, low, high) if x]
        unit = f" {unit}"
    return f"{said[0]}{unit}{f' ({said[1]}–{said[2]})' if len(said) == 3 else ''}"


def percent(shift: float, digits: int | None = None) -> str:
    """Return a shift on the log scale as a percentage. It has one decimal below 10% and none above, unless `digits` is
    given."""
    share = math.expm1(min(shift, 700.0))
    digits = digits if digits is not None else 1 if abs(share) < 0.1 else 0
    return f"{100 * share:+.{digits}f}%" if share < 10 else f"×{text.significant(share + 1)}"


def shifted(view: View, shift: float, *, beyond: bool = True) -> Markup:
    """Return a shift in its colour, `+5.8% (slower)`. If it is not beyond chance, it has neither word nor colour."""
    from markupsafe import Markup

    shift *= view.sign
    if not beyond:
        return Markup('<span class="quiet">{}</span>').format(percent(shift))
    kind = "good" if shift * view.better > 0 else "bad"
    return Markup('<span class="{}">{} ({})</span>').format(kind, percent(shift), view.words[0 if shift > 0 else 1])


def since_previous(view: View, line: Line) -> str:
    from markupsafe import Markup

    if line.step is None:
        return text.NOTHING
    said = shifted(view, line.step.shift, beyond=line.step.beyond)
    return said + Markup('<span class="quiet"> ({})</span>').format(EARLY) if line.step.early else said


def last_change(view: View, line: Line, runs: Sequence[Run]) -> str:
    if not line.changes:
        return text.NOTHING
    return shifted(view, line.changes[-1].shift) + f", {changed_on(line, runs)}"


def changed_on(line: Line, runs: Sequence[Run]) -> str:
    """Return the day of the first run after the line's last change."""
    return runs[line.counted[line.changes[-1].at][0].run].started[:10]


def when(run: Run) -> str:
    return run.started[:16].replace("T", " ")
