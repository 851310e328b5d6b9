"""Writes the files of commands, each to where the user asked for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from groundspeed.cli.console import write_file, write_out
from groundspeed.errors import BadInput

if TYPE_CHECKING:
    from groundspeed.judge.profile import Picture


def check_twice(paths: list[Path]) -> None:
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise BadInput(f"two reports cannot both go to {twice[0]}; give each its own file")


def is_file(path: Path) -> bool:
    """Return whether other files can lie beside it, unlike beside the terminal, a pipe or a device."""
    return str(path) != "-" and (path.is_file() or not path.exists())


def write_to(path: Path, content: str) -> None:
    """Write to a file, or with `-` to the terminal."""
    if str(path) == "-":
        write_out(content)
    else:
        write_file(path, content)
        print(f"written to {path}", file=sys.stderr)  # stdout may have the data


def write_all(picture: Picture, identity: str, *, html: Path | None, markdown: Path | None, json: Path | None) -> None:
    from groundspeed.report.profile import to_html, to_json, to_markdown

    wanted = [
        (path, make) for path, make in ((html, to_html), (markdown, to_markdown), (json, to_json)) if path is not None
    ]
    check_twice([path for path, _ in wanted])
    for path, content in [(path, make(picture, identity)) for path, make in wanted]:
        write_to(path, content)
