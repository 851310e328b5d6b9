"""`groundspeed history`: a static site of all bundles over time."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

NAME = "history"
EXAMPLE = "Example: groundspeed history evidence --out site"


def command(
    folder: Path = typer.Argument(
        None, help="Folder with bundles, or with folders of bundles (default .groundspeed/runs)."
    ),
    out: Path = typer.Option(..., help="Folder of the site: an empty one, or one made by this command."),
) -> None:
    """Make a site of all bundles in a folder over time, or bring it up to date. Then open its index.html.

    The site needs no server and no network. Bundles that do not verify are left out and listed with the reason."""
    from groundspeed.cli.console import output
    from groundspeed.evidence import store
    from groundspeed.lab import history
    from groundspeed.report.text import plural, safe

    def tell(done: int, of: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{done} of {plural(of, 'bundle')}", end="\n" if done == of else "", file=sys.stderr)

    built = history.build(folder or store.RUNS, out, tell)
    console = output()
    measured = sum(len(run.measured) for run in built.runs)
    console.print(
        f"{plural(len(built.runs), 'run')} with {plural(measured, 'result')} in {plural(built.lines, 'line')}; "
        f"{plural(built.read, 'bundle')} read, {plural(built.reports, 'report')} written"
    )
    for name, sentence in built.refused.items():
        console.print(f"left out  {safe(name)}: {safe(sentence)}", soft_wrap=True)
    console.print(f"open      {safe(out / 'index.html')}", soft_wrap=True)
