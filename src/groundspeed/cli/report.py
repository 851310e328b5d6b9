"""`groundspeed report`: the report for people, and the data for machines."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from groundspeed.cli.flags import checked_price
from groundspeed.cli.written import check_twice, is_file, write_all, write_to
from groundspeed.errors import BadInput

NAME = "report"
LONGEST_LOG = 1 << 18
EXAMPLE = "Example: groundspeed report latest --html report.html --csv results.csv"


def command(
    bundles: Annotated[
        list[str],
        typer.Argument(
            help="A run and any profiles of it, or one profile: folders, starts of identities, or `latest`."
        ),
    ],
    html: Path = typer.Option(None, help="One HTML page with everything, for a browser.", show_default=False),
    md: Path = typer.Option(None, help="A Markdown report, with its charts beside it.", show_default=False),
    csv: Path = typer.Option(None, help="One row per case and contender.", show_default=False),
    json: Path = typer.Option(None, help="All results.", show_default=False),
    jsonl: Path = typer.Option(None, help="The rows of --csv as JSON lines.", show_default=False),
    pytest_benchmark: Path = typer.Option(None, help="JSON for `pytest-benchmark compare`.", show_default=False),
    nvbench: Path = typer.Option(None, help="JSON for nvbench's scripts; GPU only.", show_default=False),
    hud: Path = typer.Option(None, help="JSON lines for PyTorch's benchmark HUD.", show_default=False),
    bencher: Path = typer.Option(None, help="JSON for `bencher run --adapter json`.", show_default=False),
    price_per_hour: float = typer.Option(
        None, help="Price of one device hour; adds what the run cost.", show_default=False
    ),
    log: str = typer.Option(
        None,
        metavar="FILE[#WORDS]",
        help="Markdown file on what was tried, for --html and --md: all of it, or the parts with WORDS in the heading.",
        show_default=False,
    ),
    svg: Path = typer.Option(
        None, help="The chart for light pages; FILE-dark.svg beside it is for dark pages.", show_default=False
    ),
) -> None:
    """Write the report of a bundle to files (`-` is the terminal); without a flag, Markdown to the terminal."""
    from groundspeed.lab.reported import Alone, gather
    from groundspeed.report import charts, export, formats, markdown
    from groundspeed.report.html import to_html
    from groundspeed.report.illustrated import illustrated

    price = checked_price(price_per_hour)
    if svg is not None and svg.suffix and svg.suffix != ".svg":
        raise BadInput(f"--svg {svg}: the chart is an SVG; name the file {svg.with_suffix('.svg')}")
    dark = svg.with_name(f"{svg.stem}-dark{svg.suffix}") if svg and is_file(svg) else None
    for_people = [path for path in (html, md, json) if path is not None]
    others = [path for path in (csv, jsonl, pytest_benchmark, nvbench, hud, bencher, svg, dark) if path is not None]
    check_twice([*for_people, *others])
    if not for_people and not others:
        md = Path("-")
    if log is not None and html is None and md is None:
        raise BadInput("--log is only for --html and --md; add one of them")
    tried = _tried(log) if log is not None else ""
    of = gather(bundles)
    if isinstance(of, Alone):
        if tried:
            raise BadInput("--log is only for the report of a run, and only a profile is given; leave it out")
        if others:
            raise BadInput(f"{others[0]}: a profile has no samples to export; use --html, --md or --json")
        write_all(of.picture, of.identity, html=html, markdown=md, json=json)
        return
    if of.profiles and others and not for_people:
        raise BadInput(f"{others[0]} cannot hold a profile; leave out the profile, or add --html, --md or --json")
    wanted = (
        (html, partial(to_html, price_per_hour=price, profiles=of.profiles, log=tried)),
        (md, partial(markdown.to_markdown, price_per_hour=price, profiles=of.profiles, log=tried)),
        (csv, export.to_csv),
        (json, partial(export.to_json, price_per_hour=price, profiles=of.profiles)),
        (jsonl, export.to_jsonl),
        (pytest_benchmark, formats.to_pytest_benchmark),
        (nvbench, formats.to_nvbench),
        (hud, formats.to_hud),
        (bencher, formats.to_bencher),
        (svg, charts.to_svg),
        (dark, partial(charts.to_svg, dark=True)),
    )
    made: list[tuple[Path, str]] = []
    for path, make in wanted:
        if path is None:
            continue
        if path is md and is_file(md):
            files = illustrated(of.judgement, of.identity, md.name, price, of.profiles, tried)
            made += [(md.with_name(name), content) for name, content in files.items()]
        else:
            made.append((path, make(of.judgement, of.identity)))
    check_twice([path for path, _ in made])
    for path, content in made:
        write_to(path, content)


def _tried(log: str) -> str:
    from groundspeed.report.attempts import chosen

    name, _, words = log.partition("#")
    path = Path(name)
    try:
        if not path.is_file():  # a pipe or device may never end
            raise BadInput(
                f"--log {name}: {'not a plain file' if path.exists() else 'no such file'}; name a Markdown file"
            )
        with path.open("rb") as file:
            content = file.read(LONGEST_LOG + 1)
        if len(content) > LONGEST_LOG:
            raise BadInput(
                f"--log {name}: more than {LONGEST_LOG >> 10} KiB, too much for a report; name a part: FILE#WORDS"
            )
        return chosen(content.decode(), words.strip())
    except UnicodeDecodeError:
        raise BadInput(f"--log {name}: not text in UTF-8; name a Markdown file") from None
    except OSError as error:
        raise BadInput(f"--log {name}: {error.strerror or error}; name a Markdown file") from None
