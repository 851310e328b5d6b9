"""`groundspeed report`: the report for people, and the data for machines."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from groundspeed.errors import GroundspeedError

NAME = "report"
EXAMPLE = "Example: groundspeed report latest --md report.md --csv results.csv"


def command(
    bundle: str = typer.Argument(help="A folder, the start of a bundle's identity, or `latest`."),
    md: Path = typer.Option(None, help="Markdown for people.", show_default=False),
    csv: Path = typer.Option(None, help="One row per case and contender.", show_default=False),
    json: Path = typer.Option(None, help="Everything that was computed.", show_default=False),
    jsonl: Path = typer.Option(None, help="The rows of --csv as JSON lines.", show_default=False),
) -> None:
    """Write the report of a bundle; `-` writes to the terminal, and without any flag Markdown goes there."""
    from groundspeed.evidence import store
    from groundspeed.lab import check
    from groundspeed.report import export, markdown

    found, replay = check.verify(store.find(bundle))
    makers = {
        md: markdown.to_markdown,
        csv: export.to_csv,
        json: export.to_json,
        jsonl: export.to_jsonl,
    }
    wanted = {path: make for path, make in makers.items() if path is not None} or {Path("-"): markdown.to_markdown}
    for path, make in wanted.items():
        content = make(replay.judgement, found.identity)
        if str(path) == "-":
            sys.stdout.write(content)
            continue
        try:
            path.write_text(content, encoding="utf-8")
        except OSError as error:
            raise GroundspeedError(f"cannot write {path}: {error.strerror}") from None
        print(path)
