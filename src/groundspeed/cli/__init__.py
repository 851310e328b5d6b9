"""The command line: one file per command, which parses, calls and prints.

Nothing slow is imported here, so that `groundspeed --help` answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import typer

from groundspeed.cli import (
    calibrate,
    claims,
    compare,
    doctor,
    grade,
    history,
    list_,
    profile,
    report,
    run,
    show,
    verify,
)
from groundspeed.cli.console import hush, prepare
from groundspeed.errors import GroundspeedError, VerificationFailed

EPILOG = (
    "Exit codes: 0 yes or done · 1 the answer is no · 2 wrong usage or bad input · 3 inconclusive · "
    "4 the tool or the environment failed"
)
INTERRUPTED = 130
"""Typer's exit code for Ctrl-C; here it becomes a 3, inconclusive."""

LONGEST_USAGE = 160

UsageError: Any = typer.BadParameter.__base__
"""Click's own class, or that of the copy of click that newer versions of typer carry."""

app = typer.Typer(
    name="groundspeed",
    help="Fast GPU kernels in Python, and the evidence that they are fast.",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, list_, show, verify, compare, report, grade, profile, history, doctor, calibrate):
    app.command(command.NAME, epilog=command.EXAMPLE)(command.command)
app.add_typer(claims.app, name=claims.NAME)


def _version(wanted: bool) -> None:
    if wanted:
        from groundspeed import __version__

        typer.echo(f"groundspeed {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def main() -> None:
    """Run the command line; an error becomes one sentence and an exit code."""
    prepare()
    code = _run()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        hush()
    sys.exit(code)


def _run() -> int:
    try:
        code = app(prog_name="groundspeed", standalone_mode=False) or 0
        return _fail("interrupted", 3) if code == INTERRUPTED else code
    except VerificationFailed as error:  # only `verify` answers with it, and handles it itself; here it is bad input
        return _fail(f"{error}; nothing is shown of a bundle that does not verify", 2)
    except GroundspeedError as error:
        return _fail(str(error), error.exit_code)
    except UsageError as error:
        return _fail(_usage(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", 3)
    except Exception as error:
        if os.environ.get("GROUNDSPEED_DEBUG"):
            traceback.print_exc()
        if isinstance(error, OSError) and error.strerror:  # the disk is full, a device is gone: no bug of ours
            where = f" ({error.filename})" if error.filename else ""
            return _fail(f"operating system error: {error.strerror}{where}", 4)
        return _fail(f"a bug in groundspeed: {type(error).__name__}: {error} (GROUNDSPEED_DEBUG=1 shows where)", 4)


def _usage(error: Any) -> str:
    """Return click's message in our form: `no such option: --nosuch; …`. It is cut because click repeats all
    superfluous arguments, and a pattern that the shell expanded may give a whole folder of them."""
    said = error.format_message().rstrip(".")
    if len(said) > LONGEST_USAGE:
        said = f"{said[:LONGEST_USAGE]} …{')' if said.endswith(')') else ''}"
    command = error.ctx.command_path if error.ctx else "groundspeed"
    return f"{said[:1].lower()}{said[1:]}{'' if said.endswith('?') else ';'} `{command} --help` shows the usage"


def _fail(sentence: str, code: int) -> int:
    from groundspeed.report.text import safe

    print(f"groundspeed: {safe(' '.join(sentence.splitlines()))}", file=sys.stderr)
    return code
