"""`groundspeed report`: the report for people, and the data for machines."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from groundspeed.cli.flags import checked_price
from groundspeed.cli.written import check_twice, is_file, write_all, write_to
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
    nvbench: Path = typer.Option(None, help="JSON for nvbench's scripts; GPU only.", show_default=False),
    hud: Path = typer.Option(None, help="JSON lines for PyTorch's benchmark HUD.", show_default=False),
    bencher: Path = typer.Option(None, help="JSON for `bencher run --adapter json`.", show_default=False),
    price_per_hour: float = typer.Option(None, help="Of the device: what the run cost.", show_default=False),
    svg: Path = typer.Option(
        None, help="The chart, for light pages; beside it, as FILE-dark.svg, for dark ones.", show_default=False
    ),
) -> None:
    """Write the report of a bundle to files (`-` is the terminal); without a flag, Markdown to the terminal."""
    from groundspeed.evidence import store
    from groundspeed.evidence.integrity import PROFILE, kind_of
    from groundspeed.lab import check
    from groundspeed.lab import profile as profiles
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
            (
                svg.with_name(f"{svg.stem}-dark{svg.suffix}") if svg and is_file(svg) else None,
                partial(charts.to_svg, dark=True),
            ),
        )
        if path is not None
    ] or [(terminal, partial(markdown.to_markdown, price_per_hour=price))]
    if svg is not None and svg.suffix and svg.suffix != ".svg":
        raise BadInput(f"--svg {svg}: the chart is an SVG; name the file {svg.with_suffix('.svg')}")
    check_twice([path for path, _ in wanted])
    where = store.find(bundle)
    if kind_of(where) is PROFILE:
        if others := [path for path, _ in wanted if path not in (html, md, json, terminal)]:
            raise BadInput(f"{others[0]}: a profile is told by --html, --md and --json; it has no samples for others")
        profile, picture, _ = profiles.verify(where)
        nowhere = terminal if all(path is None for path in (html, md, json)) else None
        write_all(picture, profile.identity, html=html, markdown=md or nowhere, json=json)
        return
    found, replay = check.verify(where)
    made: list[tuple[Path, str]] = []
    for path, make in wanted:
        if path is md and is_file(md):
            files = illustrated(replay.judgement, found.identity, md.name, price)
            made += [(md.with_name(name), content) for name, content in files.items()]
        else:
            made.append((path, make(replay.judgement, found.identity)))
    check_twice([path for path, _ in made])
    for path, content in made:
        write_to(path, content)
