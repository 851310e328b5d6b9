"""`groundspeed report`: the report for people, and the data for machines."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import typer

from groundspeed.cli.console import checked_price, write_file, write_out
from groundspeed.errors import BadInput

NAME = "report"
EXAMPLE = "Example: groundspeed report latest --html report.html --csv results.csv"


def command(
    bundle: str = typer.Argument(help="A folder, the start of a bundle's identity, or `latest`."),
    html: Path = typer.Option(None, help="One page with everything, for a browser.", show_default=False),
    md: Path = typer.Option(None, help="Markdown for people; beside it its charts.", show_default=False),
    csv: Path = typer.Option(None, help="One row per case and contender.", show_default=False),
    json: Path = typer.Option(None, help="Everything that was computed.", show_default=False),
    jsonl: Path = typer.Option(None, help="The rows of --csv as JSON lines.", show_default=False),
    pytest_benchmark: Path = typer.Option(None, help="JSON for `pytest-benchmark compare`.", show_default=False),
    nvbench: Path = typer.Option(None, help="JSON for nvbench's scripts; of a GPU.", show_default=False),
    hud: Path = typer.Option(None, help="JSON lines for PyTorch's benchmark HUD.", show_default=False),
    bencher: Path = typer.Option(None, help="JSON for `bencher run --adapter json`.", show_default=False),
    price_per_hour: float = typer.Option(None, help="Of the device: what the run cost.", show_default=False),
    svg: Path = typer.Option(
        None, help="The chart, for light pages; beside it, as FILE-dark.svg, for dark ones.", show_default=False
    ),
) -> None:
    """Write the report of a bundle to files, or with `-` to the terminal, as Markdown goes without any flag."""
    from groundspeed.evidence import store
    from groundspeed.lab import check
    from groundspeed.report import charts, export, formats, markdown
    from groundspeed.report.html import to_html
    from groundspeed.report.illustrated import illustrated

    price = checked_price(price_per_hour)
    terminal = Path("-")
    wanted = [
        (path, make)
        for path, make in (
            (html, partial(to_html, price_per_hour=price)),
            (md, partial(markdown.to_markdown, price_per_hour=price)),
            (csv, export.to_csv),
            (json, partial(export.to_json, price_per_hour=price)),
            (jsonl, export.to_jsonl),
            (pytest_benchmark, formats.to_pytest_benchmark),
            (nvbench, formats.to_nvbench),
            (hud, formats.to_hud),
            (bencher, formats.to_bencher),
            (svg, charts.to_svg),
            (svg and _beside(svg, svg.with_name(f"{svg.stem}-dark{svg.suffix}")), partial(charts.to_svg, dark=True)),
        )
        if path is not None
    ] or [(terminal, partial(markdown.to_markdown, price_per_hour=price))]
    if svg is not None and svg.suffix and svg.suffix != ".svg":
        raise BadInput(f"--svg {svg}: the chart is an SVG; name the file {svg.with_suffix('.svg')}")
    _check_twice([path for path, _ in wanted])
    found, replay = check.verify(store.find(bundle))
    made: list[tuple[Path, str]] = []
    for path, make in wanted:
        if path is md and _beside(md, md):
            files = illustrated(replay.judgement, found.identity, md.name, price)
            made += [(md.with_name(name), content) for name, content in files.items()]
        else:
            made.append((path, make(replay.judgement, found.identity)))
    _check_twice([path for path, _ in made])
    for path, content in made:
        if path == terminal:
            write_out(content)
        else:
            write_file(path, content)
            print(f"written to {path}", file=sys.stderr)  # stdout may be the data


def _check_twice(paths: list[Path]) -> None:
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise BadInput(f"two reports cannot both go to {twice[0]}; give each its own file")


def _beside(path: Path, other: Path) -> Path | None:
    """What goes beside a file: nowhere if that goes to the terminal, a pipe or a device."""
    return None if str(path) == "-" or (path.exists() and not path.is_file()) else other
