"""`groundspeed claims`: checks that every speed number in a text is one that a bundle has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from groundspeed.cli.console import output, write_file

if TYPE_CHECKING:
    from groundspeed.lab.texts import Outcome

NAME = "claims"
FILES = typer.Argument(help="Markdown files; their bundles are in the nearest `evidence/` beside or above them.")

app = typer.Typer(
    help="Check the speed numbers in texts against the bundles that they come from.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command("check", epilog="Example: groundspeed claims check README.md docs/*.md")
def check(
    files: list[Path] = FILES,
    rebuild: bool = typer.Option(
        False, "--rebuild", help="Compile kernels whose code changed; identical machine code is no change."
    ),
    release: bool = typer.Option(
        False, "--release", help="Treat a kernel that changed since its bundle as an error; implies --rebuild."
    ),
) -> None:
    """Check that every speed number is tied to a bundle and agrees with it.

    Exits 1 if one does not, 2 for a file that cannot be read, 3 if machine code could not be compared."""
    from groundspeed.lab import texts

    if rebuild or release:
        print("compiling the kernels whose code changed, if any: this may take a few minutes", file=sys.stderr)
    _tell(texts.check(files, rebuild or release), release)


@app.command("write", epilog="Example: groundspeed claims write README.md")
def write(files: list[Path] = FILES) -> None:
    """Fill in tied numbers, generated blocks and charts from the bundles, then check."""
    from groundspeed.lab import texts

    outcome = texts.write(files, write_file)
    for path in outcome.written:
        print(f"written to {path}", file=sys.stderr)
    _tell(outcome)


def _tell(outcome: Outcome, release: bool = False) -> None:
    from rich.text import Text

    from groundspeed.report.text import safe
    from groundspeed.report.tied import summary

    console = output()
    for path, findings in outcome.findings.items():
        for finding in findings:
            said = f"{safe(path)}:{finding.line}: {finding.kind}: {finding.sentence}"
            console.print(Text(said, style="red"), soft_wrap=True)
    for sentence in outcome.stale:
        word = "stale" if release else "warning"
        console.print(Text(f"{word}: {safe(sentence)}", style="red" if release else "yellow"), soft_wrap=True)
    for sentence in outcome.not_compared:
        word = "stale" if release else "not compared"
        console.print(Text(f"{word}: {safe(sentence)}", style="red" if release else "yellow"), soft_wrap=True)
    for sentence in outcome.notes:
        console.print(Text(f"note: {safe(sentence)}"), soft_wrap=True)
    not_compared = len(outcome.not_compared)
    stale = len(outcome.stale) + not_compared if release else 0
    unreadable = len(outcome.unreadable)
    said = summary.line(outcome.findings, outcome.counts, outcome.bundles, stale, unreadable, not_compared)
    console.print(said, soft_wrap=True)
    for error in outcome.unreadable:
        print(f"groundspeed: {safe(error)}", file=sys.stderr)
    if stale or any(outcome.findings.values()):
        raise typer.Exit(1)
    if outcome.unreadable:
        raise typer.Exit(2)
    if not_compared:
        raise typer.Exit(3)
