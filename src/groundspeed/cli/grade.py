"""`groundspeed grade`: how runs compare with a specification."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from groundspeed.cli.console import output
from groundspeed.cli.flags import Names, flag, split
from groundspeed.cli.written import check_twice, is_file, write_to

NAME = "grade"
EXAMPLE = "Example: groundspeed grade latest --suite attention"
EXIT_CODES = {"passed": 0, "failed": 1, "not determined": 3}


def command(
    bundles: Annotated[
        list[str],
        typer.Argument(help="Runs and profiles of one device: folders, starts of identities, or `latest`."),
    ],
    targets: Annotated[
        Path | None, flag("TOML file with targets, gates and grades (default: the built-in one).")
    ] = None,
    contender: Annotated[Names, flag("Contenders to grade (default: those that the bundles judge).")] = None,
    suite: Annotated[Names, flag("Grade only these suites; others do not count.")] = None,
    reference: Annotated[
        str | None, flag("What speed is measured against: baseline (default), spec, or a contender by name.")
    ] = None,
    markdown: Annotated[Path | None, flag("Write the grade as Markdown; - is standard output.")] = None,
    json: Annotated[Path | None, flag("Write all results as JSON; - is standard output.")] = None,
) -> None:
    """Compare runs with the targets of a specification: gates, a letter grade, a checklist, a diagnosis.

    Exits 0 if all gates passed, 1 if one failed, 3 if one is not determined."""
    from groundspeed.lab import grade
    from groundspeed.report import grade_json, grade_markdown, grade_screen
    from groundspeed.report.escape import way_to

    check_twice([path for path in (markdown, json) if path is not None])
    graded, folders = grade.grade(bundles, targets, split(contender), split(suite), reference)
    page = markdown.resolve().parent if markdown and is_file(markdown) else None  # a pipe has no folder
    ways = {identity: way_to(folder, page) for identity, folder in folders.items()} if page else {}
    files = ((markdown, partial(grade_markdown.to_markdown, ways=ways)), (json, grade_json.to_json))
    if not any(str(path) == "-" for path, _ in files):
        grade_screen.show(output(), graded)
    for path, make in files:
        if path is not None:
            write_to(path, make(graded))
    raise typer.Exit(EXIT_CODES[graded.answer])
