"""How it is asked for: one file per command that parses, calls and prints.

Nothing slow is imported here: `groundspeed --help` answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback

import typer

from groundspeed.cli import doctor, list_, report, run, show, verify
from groundspeed.errors import GroundspeedError

EPILOG = (
    "Exit codes: 0 yes or done · 1 the answer is no · 2 wrong usage or bad input · 3 inconclusive · "
    "4 the tool or the environment failed"
)

app = typer.Typer(
    name="groundspeed",
    help="Fast GPU kernels in Python, and the evidence that they are fast.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, list_, show, verify, report, doctor):
    app.command(command.NAME, epilog=command.EXAMPLE)(command.command)


def _version(wanted: bool) -> None:
    if wanted:
        from groundspeed import __version__

        typer.echo(f"groundspeed {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def main() -> None:
    """The entry point: errors become one sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without × or µ shows ? instead of a traceback
    try:
        app()
    except GroundspeedError as error:
        sys.exit(_fail(str(error), error.exit_code))
    except KeyboardInterrupt:
        sys.exit(_fail("interrupted", 4))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("GROUNDSPEED_DEBUG"):
            traceback.print_exc()
        sys.exit(_fail(f"a bug in groundspeed: {type(error).__name__}: {error} (GROUNDSPEED_DEBUG=1 shows where)", 4))


def _fail(sentence: str, code: int) -> int:
    from groundspeed.report.text import safe

    print(f"groundspeed: {safe(sentence)}", file=sys.stderr)
    return code
