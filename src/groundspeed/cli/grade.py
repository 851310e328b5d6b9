"""`groundspeed grade`: how bundles stand to a specification."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from groundspeed.cli.console import output, split, write_file, write_out

NAME = "grade"
EXAMPLE = "Example: groundspeed grade latest --contender ours-hopper --suite attention"
EXIT_CODES = {"passed": 0, "failed": 1, "not determined": 3}


def _flag(help_: str, *names: str) -> Any:
    return typer.Option(*names, help=help_, show_default=False)


Names = list[str] | None


def command(
    bundles: Annotated[list[str], typer.Argument(help="Folders, starts of identities, or `latest`; of one device.")],
    targets: Annotated[Path | None, _flag("A TOML file of your own targets, gates and grades.")] = None,
    contender: Annotated[Names, _flag("Grade these (default: those that the bundles judge).")] = None,
    suite: Annotated[Names, _flag("Ask for these suites alone.")] = None,
    reference: Annotated[
        str | None, _flag("What speed is measured against: baseline (default), spec, or a contender by name.")
    ] = None,
    markdown: Annotated[Path | None, _flag("Write it as Markdown; - is standard output.")] = None,
    json: Annotated[Path | None, _flag("Write everything for machines; - is standard output.")] = None,
) -> None:
    """Targets, gates, the letter, the optimisation checklist and a diagnosis, each from what was measured.

    Exits 0 if all gates passed, 1 if one failed, 3 where one is not determined."""
    from groundspeed.lab import grade
    from groundspeed.report import grade as report

    graded = grade.grade(bundles, targets, split(contender), split(suite), reference)
    files = ((markdown, report.to_markdown), (json, report.to_json))
    if not any(str(path) == "-" for path, _ in files):
        report.show(output(), graded)
    for path, make in files:
        if str(path) == "-":
            write_out(make(graded))
        elif path is not None:
            write_file(path, make(graded))
            print(f"written to {path}", file=sys.stderr)
    raise typer.Exit(EXIT_CODES[graded.answer])
