"""Makes the tables and the chart of docs/simulation.md from docs/simulation.json."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from noise import MODELS, STRESS, TYPICAL
from procedure import PLANS
from real import control, rare, real
from study import (
    AA_AT_MOST,
    COVERAGE_AT_LEAST,
    FALSE_AT_MOST,
    FAMILY,
    FAMILY_AT_MOST,
    POWER_AT_LEAST,
    Figures,
    Share,
    misses,
)

from groundspeed.report.charts import svg
from groundspeed.report.charts.frame import DARK, LIGHT, WIDTH, Spec, Theme, framed

PART = re.compile(r"(<!-- simulation: (?P<what>\w+) -->\n)(?P<text>.*?)(<!-- end -->\n)", re.DOTALL)
PRESETS = ("quick", "standard", "paper")
HELD = (*MODELS, *real(swap=True))
"""The noise on which the required figures must hold."""
REQUIRED = {
    "false positives": "at most 5%",
    "coverage": "at least 93%",
    "family-wise error": "at most 1% at standard",
    "A/A": "at most one false verdict per 1,000",
    "power": "at least 90% for 3% at typical noise, alone and (standard, paper) in a family of 60",
}
OTHER_FLOORS = {
    "strict": "floor by A/A alone, Holm at 1%",
    "without_outliers": "without outliers",
    "aa_alone": "floor by A/A alone",
}
"""Other procedures that were counted in a family, and their labels."""
CHANCE = 0.025
"""Probability that a figure exactly at its bound is called missed."""
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down")
ROW = 34
"""Height of one noise in the chart, in pixels."""

Result = dict[str, Any]


def made(result: Result, docs: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of the page, each with its content."""
    page = docs / "simulation.md"
    yield (
        page,
        PART.sub(lambda part: part[1] + "\n".join(PARTS[part["what"]](result)) + "\n" + part[4], page.read_text()),
    )
    for name, theme in (("simulation.svg", LIGHT), ("simulation-dark.svg", DARK)):
        yield docs / name, svg.render(chart(result, theme))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|---|{'---:|' * (len(head) - 1)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _find(result: Result, part: str, noise: str, plan: str) -> Figures:
    return next(f for f in result[part] if (f["noise"], f["plan"]) == (noise, plan))


def _said(count: int, trials: int, *, most: float | None = None, least: float | None = None) -> str:
    """Return the share in per cent: in italics if it is worse than its bound, bold if chance does not explain that."""
    share = Share(count, trials)
    worse = (most is not None and share.value > most) or (least is not None and share.value < least)
    missed = (most is not None and share.over(most, CHANCE)) or (least is not None and share.under(least, CHANCE))
    text = f"{share.value:.2%}" if most is not None and most <= FAMILY_AT_MOST else f"{share.value:.1%}"
    return f"**{text}**" if missed else f"*{text}*" if worse else text


def _one(result: Result) -> Iterator[str]:
    rows = []
    for noise in HELD:
        row = [_label(noise)]
        for plan in PLANS:
            f = _find(result, "single", noise, plan)
            false = _said(f["false"], f["runs"], most=FALSE_AT_MOST)
            row.append(f"{false} / {_said(f['covered'], f['runs'], least=COVERAGE_AT_LEAST)}")
        rows.append(row)
    yield from _table(["false positives / coverage", *PLANS], rows)


def _family(result: Result) -> Iterator[str]:
    rows = []
    for noise in (*HELD, control(swap=True).name):
        f = _find(result, "family", noise, "standard")
        runs = f["runs"]
        rows.append(
            [
                _label(noise),
                _said(f["family_36"], runs, most=FAMILY_AT_MOST),
                _said(f["family_60"], runs, most=FAMILY_AT_MOST),
                f"{f['verdicts'] / runs / FAMILY * 1000:.2f}",
                f"{f['without_floor'] / runs:.1%}",
                _said(f["strict"], runs, most=FAMILY_AT_MOST),
                _said(f["without_outliers"], runs),
                _said(f["aa_alone"], runs),
            ]
        )
    head = ["standard", "36 cases", "60 cases", "false verdicts per 1,000", "60 without floor"]
    yield from _table([*head, *(f"60, {words}" for words in OTHER_FLOORS.values())], rows)


def _power(result: Result) -> Iterator[str]:
    rows = []
    studied = {
        TYPICAL.name: "typical noise",
        "normal": "with 15% bad cases",
        "long cudnn/portable": "H200, cudnn/portable",
    }
    for noise, words in studied.items():
        alone = [_find(result, "single", noise, plan) for plan in PRESETS]
        family = [_find(result, "power", noise, plan) for plan in PRESETS]
        rows.append([f"{words}, one case", *(_said(f["power"], f["runs"]) for f in alone)])
        rows.append([f"{words}, one of 60", *(_said(f["power"], f["runs"]) for f in family)])
        for key, change in OTHER_FLOORS.items():
            rows.append([f"{words}, one of 60, {change}", *(_said(f[key], f["runs"]) for f in family)])
    least = [max(_find(result, "single", noise, plan)["false_same"] for noise in MODELS) for plan in PRESETS]
    runs = result["single"][0]["runs"]
    rows.append(["2% called SAME, worst of the six models", *(f"{count / runs:.2%}" for count in least)])
    yield from _table(["a slow-down of 3% is found", *PRESETS], rows)


def _real(result: Result) -> Iterator[str]:
    rows = []
    for noise in real():
        alone = [_find(result, "single", noise, plan) for plan in PRESETS]
        needed = [f["processes"] for f in result["needed"] if f["noise"] == noise]
        rows.append(
            [
                _label(noise),
                *(f"{f['power'] / f['runs']:.0%}" for f in alone),
                *(f"{n}" if n else "over 128" for n in needed),
            ]
        )
    yield from _table(["3% on an H200", *PRESETS, "processes for 90%", "the same in a family of 60"], rows)


def _mean(result: Result) -> Iterator[str]:
    rows = []
    for noise in (*real(), *rare(), control().name, control(smooth=False).name):
        alone = [_find(result, "single", noise, plan) for plan in PRESETS]
        row = [_label(noise)]
        for f in alone:
            false = _said(f["false"], f["runs"], most=FALSE_AT_MOST)
            row.append(f"{false} / {_said(f['covered'], f['runs'], least=COVERAGE_AT_LEAST)}")
        family = [f for f in result["family"] if f["noise"] == noise]
        for key in ("family_60", "without_outliers", "aa_alone"):
            row.append(_said(family[0][key], family[0]["runs"], most=FAMILY_AT_MOST) if family else "")
        rows.append(row)
    for noise in STRESS:
        alone = [_find(result, "single", noise, plan) for plan in PRESETS]
        said = (f"{f['false'] / f['runs']:.1%} / {f['covered'] / f['runs']:.1%}" for f in alone)
        rows.append([STRESS[noise].words, *said, "", "", ""])
    others = [OTHER_FLOORS[key] for key in ("without_outliers", "aa_alone")]
    yield from _table(["false positives / coverage", *PRESETS, "60 cases, standard", *others], rows)


def _missed(result: Result) -> Iterator[str]:
    found: dict[str, list[str]] = {
        "false positives": [],
        "coverage": [],
        "family-wise error": [],
        "A/A": [],
        "power": [],
    }
    for noises, which in ((HELD, ""), ((*real(), *rare()), " (about the mean)")):
        held = [f for f in (*result["single"], *result["family"]) if f["noise"] in noises]
        for f in held:
            if "covered" in f or f["plan"] == "standard":
                for figure in dict.fromkeys(figure for figure, _ in misses(f, CHANCE)):
                    said = ", ".join(value for name, value in misses(f, CHANCE) if name == figure)
                    found[figure].append(f"{_label(f['noise'])}{which}, {f['plan']}: {said}")
            if "verdicts" in f and Share(f["verdicts"], f["runs"] * FAMILY).over(AA_AT_MOST, CHANCE):
                said = f"{f['verdicts'] / f['runs'] / FAMILY * 1000:.1f} per 1,000"
                found["A/A"].append(f"{_label(f['noise'])}{which}, {f['plan']}: {said}")
    for plan in PRESETS:
        for part in ("single", *(("power",) if plan != "quick" else ())):
            f = _find(result, part, TYPICAL.name, plan)
            if Share(f["power"], f["runs"]).under(POWER_AT_LEAST, CHANCE):
                found["power"].append(f"{plan}, {part}: {f['power'] / f['runs']:.0%}")
    rows = [(f"{name}: {REQUIRED[name]}", "; ".join(missed) or "nowhere") for name, missed in found.items()]
    yield "| required | missed |"
    yield "|---|---|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _bundles(result: Result) -> Iterator[str]:
    measured, minutes = result["as_measured"], result["minutes"]
    yield (
        f"Seed {result['seed']}; bundles {', '.join(f'`{identity[:12]}`' for identity in result['bundles'])}; "
        f"{minutes:.0f} minutes on two cores shared with other work. As measured, without any resampling, "
        f"{measured['covered']} of {measured['comparisons']} intervals of a contender against itself contain 1 "
        f"(long, short and graph), and {measured['verdicts']} verdicts say that they differ."
    )


PARTS: dict[str, Callable[[Result], Iterator[str]]] = {
    "one": _one,
    "family": _family,
    "power": _power,
    "real": _real,
    "mean": _mean,
    "missed": _missed,
    "bundles": _bundles,
}


def _label(noise: str) -> str:
    return noise.removesuffix(", swapped").replace("normal control", "normal, drawn again")


def chart(result: Result, theme: Theme) -> Spec:
    """Return the chart of false positives and coverage of one comparison, with binomial intervals and the bounds."""
    values = [
        {
            "noise": _label(f["noise"]),
            "plan": f["plan"],
            "what": what,
            "share": share.value,
            "low": share.low,
            "high": share.high,
        }
        for f in result["single"]
        if f["noise"] in HELD
        for what, share in (("false", Share(f["false"], f["runs"])), ("covered", Share(f["covered"], f["runs"])))
    ]
    names, width = [_label(noise) for noise in HELD], (WIDTH - 190) // 2
    panels = [
        _panel(theme, names, width, "false", "false positives, with the floor", FALSE_AT_MOST, [0, 0.07]),
        _panel(theme, names, width, "covered", "coverage of the 95% interval", COVERAGE_AT_LEAST, [0.91, 0.98]),
    ]
    panels[1]["layer"][1]["encoding"]["y"]["axis"] = None
    runs = result["single"][0]["runs"]
    return framed(
        theme,
        title="The whole procedure on noise with known truth",
        subtitle=[f"{runs:,} comparisons for each point, with 95% binomial intervals; dashed: what is required"],
        caption=["long, short, graph, eager: noise of an H200, resampled; either may be called the contender"],
        values=values,
        chart={"hconcat": panels, "spacing": 20},
    )


def _panel(
    theme: Theme, names: Sequence[str], width: int, what: str, title: str, bound: float, domain: Sequence[float]
) -> Spec:
    x = {
        "field": "share",
        "type": "quantitative",
        "scale": {"domain": list(domain), "nice": False, "zero": False},
        "axis": {"format": ".0%", "title": title, "tickCount": 7, "grid": True, "orient": "top"},
    }
    y = {
        "field": "noise",
        "type": "nominal",
        "scale": {"domain": list(names), "paddingInner": 0.25},
        "axis": {"title": None, "labelLimit": 160, "labelFontSize": 12, "labelColor": theme.ink},
    }
    offset = {"field": "plan", "type": "nominal", "scale": {"domain": list(PLANS)}}
    colour = {
        "field": "plan",
        "type": "nominal",
        "scale": {"domain": list(PLANS), "range": [theme.ours[0], *theme.rivals[:4]]},
        "legend": {"orient": "bottom", "direction": "horizontal", "offset": 6},
    }
    shape = {"field": "plan", "type": "nominal", "scale": {"domain": list(PLANS), "range": list(SHAPES)}}
    place = {"y": y, "yOffset": offset, "color": colour}
    only = [{"filter": f"datum.what == '{what}'"}]
    return {
        "width": width,
        "height": ROW * len(names),
        "layer": [
            {
                "data": {"values": [{"bound": bound}]},
                "mark": {"type": "rule", "color": theme.quiet, "strokeDash": [4, 3]},
                "encoding": {"x": {**x, "field": "bound"}},
            },
            {
                "transform": only,
                "mark": {"type": "rule", "strokeWidth": 1.5, "clip": True},
                "encoding": {**place, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
            },
            {
                "transform": only,
                "mark": {"type": "point", "filled": True, "size": 26, "opacity": 1, "clip": True},
                "encoding": {**place, "x": x, "shape": shape},
            },
        ],
    }
