"""`groundspeed report`: the report for people, and the data for machines."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import typer

from groundspeed.cli.console import checked_price, write_file, write_out
from groundspeed.errors import BadInput

NAME = "report"
EXAMPLE = "Example: groundspeed report latest --md report.md --csv results.csv"


def command(
    bundle: str = typer.Argument(help="A folder, the start of a bundle's identity, or `latest`."),
    md: Path = typer.Option(None, help="Markdown for people.", show_default=False),
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

    price = checked_price(price_per_hour)
    to_markdown = partial(markdown.to_markdown, price_per_hour=price)
    wanted = [
        (path, make)
        for path, make in (
            (md, to_markdown),
            (csv, export.to_csv),
            (json, partial(export.to_json, price_per_hour=price)),
            (jsonl, export.to_jsonl),
            (pytest_benchmark, formats.to_pytest_benchmark),
            (nvbench, formats.to_nvbench),
            (hud, formats.to_hud),
            (bencher, formats.to_bencher),
            (svg, charts.to_svg),
            (_dark(svg), partial(charts.to_svg, dark=True)),
        )
        if path is not None
    ] or [(Path("-"), to_markdown)]
    if svg is not None and svg.suffix and svg.suffix != ".svg":
        raise BadInput(f"--svg {svg}: the chart is an SVG; name the file {svg.with_suffix('.svg')}")
    paths = [path for path, _ in wanted]
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise BadInput(f"two reports cannot both go to {twice[0]}; give each its own file")
    found, replay = check.verify(store.find(bundle))
    made = [(path, make(replay.judgement, found.identity)) for path, make in wanted]
    for path, content in made:
        if str(path) == "-":
            write_out(content)
        else:
            write_file(path, content)
            print(f"written to {path}", file=sys.stderr)  # stdout may be the data


def _dark(svg: Path | None) -> Path | None:
    """Where the chart for dark pages goes: nowhere if the other one goes to the terminal, a pipe or a device."""
    if svg is None or str(svg) == "-" or (svg.exists() and not svg.is_file()):
        return None
    return svg.with_name(f"{svg.stem}-dark{svg.suffix}")
