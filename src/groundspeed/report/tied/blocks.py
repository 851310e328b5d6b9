"""The content of a text's generated blocks and of the charts beside it, as the present code makes it from bundles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from groundspeed.report import charts, words
from groundspeed.report.escape import escape
from groundspeed.report.overview import overview
from groundspeed.report.pivot import pivot
from groundspeed.report.tied.library import Library
from groundspeed.report.tied.notation import Block, Chart, NoFigure


def made(block: Block, document: Path, library: Library) -> str:
    if block.kind == "output":
        return library.printed(block.of)
    return "".join(f"{line}\n" for line in _lines(block, document, library))


def _lines(block: Block, document: Path, library: Library) -> Iterator[str]:
    """Yield the lines of a block. An overview puts a name before each bundle: `sweep = evidence/…; small work = …`."""
    if block.kind == "overview":
        parts = [part.rpartition(" = ") for part in block.of.split("; ")]
        if any(not name.strip() for name, _, _ in parts):
            raise NoFigure(
                "no such block", f"{block.of!r:.80} is not an overview; write `overview: NAME = BUNDLE; NAME = BUNDLE`"
            )
        yield from overview((name.strip(), library.whole(bundle.strip()).judgement) for name, _, bundle in parts)
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
