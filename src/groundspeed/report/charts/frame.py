"""What the charts share: colours for a light and a dark page, which contenders stand out, title and caption."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from groundspeed.evidence.record import Record
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.report import text

Spec = dict[str, Any]
Role = Literal["ours", "baseline", "rival"]

WIDTH = 880
"""The width of a README on GitHub, in pixels."""
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""The first three have the same widths. vl-convert carries the first, so it sets text alike on every machine."""
LETTER = 6.0
"""A generous width of a letter at the size of labels and captions, in pixels."""

NOTHING = "there is nothing to draw: no contender passed in a finished process, or only the baseline did"

_SHAPES = ("diamond", "triangle-up", "cross", "triangle-down", "square")
_FAILED = {
    "SKIPPED": "left out",
    "INCORRECT": "incorrect",
    "ERROR": "failed",
    "OOM": "out of memory",
    "TIMEOUT": "timed out",
    "INVALID": "faster than the device can be",
}


@dataclass(frozen=True)
class Theme:
    ink: str
    quiet: str
    grid: str
    page: str
    """The background of the page; drawn around labels that cross a line and inside hollow points."""
    bad: str
    ours: tuple[str, ...]
    rivals: tuple[str, ...]


# After Okabe and Ito, whose colours colour-blind readers can tell apart, made darker or lighter to suit the page. Where
# colours are not enough, the shape of the points distinguishes the contenders.
LIGHT = Theme(
    ink="#1f2328",
    quiet="#59636e",
    grid="#e4e8ec",
    page="#ffffff",
    bad="#cf222e",
    ours=("#d55e00", "#d99000"),
    rivals=("#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#8c7a00", "#7b5ea7"),
)
DARK = Theme(
    ink="#f0f6fc",
    quiet="#9198a1",
    grid="#2a313a",
    page="#0d1117",
    bad="#ff7b72",
    ours=("#ff7f2a", "#ffb733"),
    rivals=("#4aa3df", "#1dbf91", "#e08fbd", "#9ad7ff", "#f0e442", "#b39ddb"),
)


@dataclass(frozen=True)
class Style:
    contender: str
    role: Role
    colour: str
    shape: str


def styles(judgement: Judgement, theme: Theme) -> list[Style]:
    """Return the style of every measured contender in the order of a legend: ours, the baseline, the rivals, from fast
    to slow. Without kernels of ours, the judged contenders may take their place. Colours go by the order in the record,
    so that a contender keeps its colour from run to run."""
    run = judgement.record.run
    names = [contender.name for contender in judgement.record.measured]
    emphasised = [name for name in names if name.startswith("ours-") and name != run.baseline]
    if not emphasised and (len(names) == 2 or set(run.judged) != set(names) - {run.baseline}):
        emphasised = [name for name in names if name in run.judged]
    rivals = [name for name in names if name not in (*emphasised, run.baseline)]
    found = [Style(run.baseline, "baseline", theme.ink, "square")] if run.baseline in names else []
    for i, name in enumerate(emphasised):
        found.append(Style(name, "ours", theme.ours[i % len(theme.ours)], "circle"))
    for i, name in enumerate(rivals):
        found.append(Style(name, "rival", theme.rivals[i % len(theme.rivals)], _SHAPES[i % len(_SHAPES)]))
    rank = {"ours": 0, "baseline": 1, "rival": 2}
    return sorted(found, key=lambda style: (rank[style.role], -_speed(judgement, style.contender)))


def _speed(judgement: Judgement, contender: str) -> float:
    """Return the mean log speed-up over the cases that have one."""
    compared = [case.result(contender).comparison for case in judgement.cases]
    return statistics.fmean([c.interval.mean for c in compared if c] or [float("-inf")])


def columns_for(widths: Sequence[float], room: float) -> int:
    """Return the number of columns in which items of these widths fit, with as few rows as possible and rows of about
    the same length."""
    for rows in range(1, len(widths) + 1):
        columns = math.ceil(len(widths) / rows)
        if sum(max(widths[i::columns]) for i in range(columns)) <= room:
            return columns
    return 1


def framed(
    theme: Theme, *, title: str, subtitle: Sequence[str], caption: Sequence[str], values: list[Spec], chart: Spec
) -> Spec:
    """Return the chart with its title above and its caption below."""
    under = [line for part in caption for line in _wrapped(text.safe(part))]
    if under:
        chart["title"] = {
            "text": under,
            "orient": "bottom",
            "anchor": "start",
            "fontSize": 11,
            "fontWeight": "normal",
            "color": theme.quiet,
            "lineHeight": 15,
            "offset": 14,
            "limit": WIDTH,
        }
    return {
        "background": None,
        "padding": 8,
        "title": {
            "text": text.safe(title),
            "subtitle": [text.safe(line) for line in subtitle],
            "anchor": "start",
            "fontSize": 16,
            "color": theme.ink,
            "subtitleColor": theme.quiet,
            "subtitleFontSize": 12,
            "subtitleLineHeight": 16,
            "subtitlePadding": 6,
            "offset": 14,
            "limit": WIDTH,
        },
        "data": {"values": values},
        "vconcat": [chart],
        "config": _config(theme),
    }


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, int(WIDTH / LETTER), max_lines=4, placeholder=" …")


def _config(theme: Theme) -> Spec:
    label = {"labelColor": theme.quiet, "labelFontSize": 11, "titleColor": theme.quiet, "titleFontSize": 11}
    return {
        "font": FONT,
        "aria": False,  # a README has alt text instead; here it would double the size of the file
        "view": {"stroke": None},
        "axis": {
            **label,
            "titleFontWeight": "normal",
            "gridColor": theme.grid,
            "domain": False,
            "ticks": False,
            "labelPadding": 6,
        },
        "legend": {**label, "labelColor": theme.ink, "labelFontSize": 12, "title": None},
        "header": {"labelColor": theme.ink, "labelFontSize": 12, "labelFontWeight": "bold", "title": None},
    }


def missing(cases: Sequence[CaseJudgement], contenders: Sequence[str]) -> Iterator[str]:
    """Yield `sdpa-math: left out above S = 1024` and the like for each contender that is not drawn on all cases."""
    for name in contenders:
        passed = [case for case in cases if case.result(name).status == "PASSED"]
        failed = [case for case in cases if case.result(name).status != "PASSED"]
        if failed:
            said = dict.fromkeys(_FAILED.get(status, status) for status in (c.result(name).status for c in failed))
            yield f"{name}: {' or '.join(said)} {_where(passed, failed)}"


def same_kernels(record: Record) -> Iterator[str]:
    """Yield `xformers launched the kernels of sdpa-flash` and the like, for contenders whose lines coincide."""
    seen: dict[str, dict[str, tuple[str, ...]]] = {}
    for launched in record.launched:
        if launched.kernels:
            seen.setdefault(launched.contender, {})[launched.case] = launched.kernels
    names = list(seen)
    for i, name in enumerate(names):
        if first := next((other for other in names[:i] if seen[other] == seen[name]), None):
            yield f"{name} launched the kernels of {first}"


def _where(passed: Sequence[CaseJudgement], failed: Sequence[CaseJudgement]) -> str:
    if not passed:
        return "on every case"
    lengths = [[case.facts.params.get("S") for case in cases] for cases in (passed, failed)]
    below, above = ([n for n in found if isinstance(n, int)] for found in lengths)
    if len(below) == len(passed) and len(above) == len(failed) and max(below) < min(above):
        return f"above S = {max(below)}"
    return f"on {len(failed)} of {len(passed) + len(failed)} cases"
