"""The content of a text's generated blocks and of the charts beside it, as the present code makes it from bundles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.judge.judgement import Judgement
from groundspeed.report import charts, words
from groundspeed.report.escape import escape
from groundspeed.report.overview import overview, standing
from groundspeed.report.pivot import pivot
from groundspeed.report.tied.figures import ALL
from groundspeed.report.tied.library import Library
from groundspeed.report.tied.notation import Block, Chart, NoFigure, tie_of


def made(block: Block, document: Path, library: Library) -> str:
    if block.kind == "output":
        return library.printed(block.of)
    return "".join(f"{line}\n" for line in _lines(block, document, library))


def _lines(block: Block, document: Path, library: Library) -> Iterator[str]:
    """Yield the lines of a block. An overview puts a name before each bundle: `sweep = evidence/…; small work = …`. A
    standing puts one before each mean, which is named as in a tie: `sweep = e816ba4c ours all; small = … all@graph`."""
    if block.kind == "overview":
        parts = _named(block, "NAME = BUNDLE")
        yield from overview((name, library.whole(bundle).judgement) for name, bundle in parts)
    elif block.kind == "standing":
        yield from standing(_asked(name, said, library) for name, said in _named(block, "NAME = BUNDLE CONTENDER all"))
    elif block.kind == "glance":
        yield from pivot(library.whole(block.of).judgement)
    elif block.kind == "notes":
        yield from (f"- {escape(line)}" for line in words.circumstances(library.whole(block.of).judgement))
    else:
        for name in block.of.split():
            source = library.whole(name)
            where = os.path.relpath(source.bundle.path.resolve(), document.resolve().parent)
            for _, sentence in words.claim_lines(source.judgement):
                yield f"- {escape(sentence)} ([evidence]({where}))"


def _named(block: Block, form: str) -> list[tuple[str, str]]:
    parts = [part.rpartition(" = ") for part in block.of.split("; ")]
    if any(not name.strip() for name, _, _ in parts):
        raise NoFigure("no such block", f"{block.of!r:.80} names no {block.kind}; write `{block.kind}: {form}; {form}`")
    return [(name.strip(), said.strip()) for name, _, said in parts]


def _asked(name: str, said: str, library: Library) -> tuple[str, Judgement, str, str]:
    tie = tie_of(said)
    which, _, clock = tie.case.partition("@")
    if which != ALL or tie.baseline:
        raise NoFigure("no such block", f"{said!r:.80} is no mean over all cases; write `BUNDLE CONTENDER all@CLOCK`")
    source = library.whole(tie.bundle)
    clock = clock or DEFAULT_CLOCK
    judged = [grid.contender for grid in source.judgement.grids if grid.clock == clock]
    if tie.contender not in judged:
        told = f"{tie.contender!r:.80} was not judged by this clock in {source.bundle.short}"
        raise NoFigure("no such block", f"{told}; name one of {', '.join(judged) or 'another clock'}")
    return name, source.judgement, tie.contender, clock


def drawn(chart: Chart, document: Path, library: Library) -> Iterator[tuple[Path, str]]:
    """Yield the files of a chart, for light and for dark pages, each with the content that it should have."""
    light = document.parent / chart.file
    if not light.resolve().is_relative_to(library.root.resolve()) or light.is_symlink():
        raise NoFigure(
            "no such block", f"{chart.file!r:.80} is outside of {library.root}; keep the chart beside the text"
        )
    source = library.whole(chart.bundle)
    for path, dark in ((light, False), (light.with_name(f"{light.stem}-dark.svg"), True)):
        key = (source.bundle.identity, dark)
        if key not in library.charts:
            library.charts[key] = charts.to_svg(source.judgement, source.bundle.identity, dark=dark)
        yield path, library.charts[key]
