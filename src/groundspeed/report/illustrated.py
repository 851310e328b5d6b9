"""The Markdown report with its charts in files beside it, if vl-convert is installed to draw them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

from groundspeed.errors import BadInput
from groundspeed.judge.beside import Beside
from groundspeed.judge.judgement import Judgement
from groundspeed.report.charts import speedups, svg, sweep
from groundspeed.report.charts.frame import DARK, LIGHT, Spec, Theme
from groundspeed.report.html import curves, roofline, series, still_samples
from groundspeed.report.html.still import still
from groundspeed.report.markdown import Picture, to_markdown


class Kind(NamedTuple):
    name: str
    says: str
    draw: Callable[[Judgement, str, Theme], Spec | None]


def illustrated(
    judgement: Judgement,
    identity: str,
    name: str,
    price_per_hour: float | None = None,
    profiles: Sequence[Beside] = (),
    log: str = "",
) -> dict[str, str]:
    """Return the content of each file by its name: the report, then two charts, for light and for dark pages, of each
    kind that the run has."""
    stem = name.rpartition(".")[0] or name
    pictures, files = [], {}
    for kind in (*KINDS, *_samples(judgement)) if find_spec("vl_convert") else ():
        light, dark = f"{stem}-{kind.name}.svg", f"{stem}-{kind.name}-dark.svg"
        for file, theme in ((light, LIGHT), (dark, DARK)):
            if chart := _drawn(kind, judgement, identity, theme):
                files[file] = svg.render(chart)
        if light in files:
            pictures.append(Picture(kind.says, light, dark))
    return {name: to_markdown(judgement, identity, price_per_hour, pictures, profiles, log), **files}


def _drawn(kind: Kind, judgement: Judgement, identity: str, theme: Theme) -> Spec | None:
    try:
        return kind.draw(judgement, identity, theme)
    except BadInput:  # there is nothing to draw, and the report says why
        return None


def _sweep(judgement: Judgement, identity: str, theme: Theme) -> Spec | None:
    found = sweep.find(judgement.cases)
    return sweep.draw(judgement, found, identity, theme) if found else None


def _latencies(judgement: Judgement, identity: str, theme: Theme) -> Spec | None:
    found = series.groups(judgement)
    figure = curves.latencies(judgement, found[0]) if found else None
    return still(figure, judgement, identity, theme) if figure else None


def _memory(judgement: Judgement, identity: str, theme: Theme) -> Spec | None:
    found = series.groups(judgement)
    figure = curves.memory(judgement, found[0]) if found else None
    if figure is None:
        return None
    scores = curves.scores(figure, found[0])
    return still(figure, judgement, identity, theme, [f"dotted: {scores}"] if scores else [])


def _roofline(judgement: Judgement, identity: str, theme: Theme) -> Spec | None:
    drawn = roofline.draw(judgement)
    if drawn is None:
        return None
    told = [f"solid: measured, dashed: datasheet ({'; '.join(drawn.roofs)})"] if drawn.roofs else []
    return still(drawn.figure, judgement, identity, theme, told)


KINDS = (
    Kind("sweep", "rate by sequence length, a line for each contender", _sweep),
    Kind("speedups", "speed-up over the baseline on every case, with 95% intervals", speedups.draw),
    Kind("latencies", "median time by size, a line for each contender", _latencies),
    Kind("roofline", "rate of every contender on every case, under the roofs of the device", _roofline),
    Kind("memory", "memory that a call adds by size, beside that of storing all scores of attention", _memory),
)


def _samples(judgement: Judgement) -> Iterator[Kind]:
    for number, pair in enumerate(still_samples.widest(judgement), 1):
        name = "samples" if number == 1 else f"samples-{number}"
        yield Kind(name, still_samples.says(pair), partial(still_samples.draw, pair))
