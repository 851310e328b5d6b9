"""The folder of a site. Only files that groundspeed made are ever replaced or deleted there, and nothing outside it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from groundspeed.errors import BadInput, GroundspeedError

MARK = "groundspeed-history.json"
"""Marks a folder as a site of ours, and says what each of its files was made from."""
REPORTS = "reports"

_NAME = re.compile(rf"{REPORTS}/[0-9a-f]{{64}}\.html|[a-z]+\.(html|js)")
"""The names of a site's files. Whatever a mark says, no other file is ever deleted."""


def report_name(identity: str) -> str:
    """Return the file of the report of a bundle."""
    return f"{REPORTS}/{identity}.html"


class Site:
    """The folder of a site. BadInput for a folder that holds something else, GroundspeedError for one that cannot be
    written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            if folder.exists() and not folder.is_dir():
                raise BadInput(f"{folder} is not a folder; choose another with --out")
            if folder.exists() and not (folder / MARK).exists() and any(folder.iterdir()):
                raise BadInput(
                    f"{folder} is not empty, and not a site made by groundspeed: it has no {MARK}; choose another "
                    "folder with --out, or empty this one"
                )
            if (folder / REPORTS).is_symlink():
                raise BadInput(f"{folder / REPORTS} is a symbolic link, which would lead out of the site; remove it")
            (folder / REPORTS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused(error) from None
        self._made_from = self._read_mark()
        self._mark()  # from here on the folder is ours, whatever happens next

    def has(self, name: str, source: str) -> bool:
        """Whether this file exists and was made from this source."""
        return self._made_from.get(name) == source and (self.folder / name).is_file()

    def write(self, name: str, source: str, content: str) -> None:
        """Write a file, and remember what it was made from."""
        assert _NAME.fullmatch(name)
        self._write(self.folder / name, content)
        self._made_from[name] = source

    def finish(self, wanted: set[str]) -> None:
        """Keep these files, and delete the others that were made here."""
        try:
            for name in self._made_from.keys() - wanted:
                (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from None
        self._made_from = {name: source for name, source in self._made_from.items() if name in wanted}
        self._mark()

    def _read_mark(self) -> dict[str, str]:
        try:
            said = json.loads((self.folder / MARK).read_text("utf-8"))["files"]
            return {name: str(source) for name, source in said.items() if _NAME.fullmatch(name)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}  # then all files are made again

    def _mark(self) -> None:
        said = {"made by": "groundspeed history, which may replace or delete these", "files": self._made_from}
        self._write(self.folder / MARK, json.dumps(said, indent=1) + "\n")

    def _write(self, path: Path, content: str) -> None:
        """Write a file completely, or leave what was there. A link in the place of the file is replaced and not
        followed."""
        scratch = path.with_name(f".{path.name}-{os.getpid()}.unfinished")
        try:
            scratch.unlink(missing_ok=True)
            try:
                with open(scratch, "x", encoding="utf-8") as file:
                    file.write(content)
                os.replace(scratch, path)
            finally:
                scratch.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> GroundspeedError:
        return GroundspeedError(f"cannot write to {self.folder}: {error.strerror}; choose another folder with --out")
