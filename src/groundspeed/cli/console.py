"""Output of commands: as wide as the terminal, never wrapped in a pipe, and without effect on the exit code."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path

from rich.console import Console

from groundspeed.errors import BadInput, GroundspeedError

PIPE_WIDTH = 10_000
"""Wide enough for any table, because a pipe has no width of its own. COLUMNS takes precedence if it is set."""

_ASCII = str.maketrans(
    {"µ": "u", "×": "x", "–": "-", "·": "|", "…": "...", "ᵀ": "^T", "\N{REPLACEMENT CHARACTER}": "?"}
)


def prepare() -> None:
    """Make a terminal that cannot show × or µ show x and u: with a ? instead, µs and ms would look the same."""
    codecs.register_error("groundspeed", _spell)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="groundspeed")


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    spelt = error.object[error.start : error.end].translate(_ASCII)
    return "".join(c if c.isascii() else "?" for c in spelt), error.end


class _Output(Console):
    def on_broken_pipe(self) -> None:
        hush()


def output() -> Console:
    """Return a console that prints text in brackets as it is: nothing is taken as markup."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return _Output(width=width, highlight=False, markup=False, emoji=False)


def hush() -> None:
    """Print nothing more because the reader has gone (`| head`); the command goes on to its exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_out(content: str) -> None:
    try:
        sys.stdout.write(content)
        sys.stdout.flush()
    except BrokenPipeError:
        hush()


def write_file(path: Path, content: str) -> None:
    """Write a file whole, or leave what was there; a pipe or a device is written to directly."""
    try:
        if path.exists() and not path.is_file():
            path.write_text(content, encoding="utf-8")
            return
        target = path.resolve()
        scratch = target.parent / f".groundspeed-{os.getpid()}.unfinished"
        try:
            scratch.write_text(content, encoding="utf-8")
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        wrong = isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError | PermissionError)
        kind = BadInput if wrong else GroundspeedError
        raise kind(f"cannot write {path}: {error.strerror}; choose another file") from None


def bundle_name(path: Path, short: str, runs: Path) -> str:
    """Return the name of a bundle for the command line: its short identity if that finds it, else its folder."""
    return short if path.resolve().parent == runs.resolve() else str(path)
