"""What was made of the bundles of a folder, kept so that it need not be made again. Bundles are the truth, this is a
cache: where it is lost, damaged or another program's, it begins empty.

It lies with the user's own files, and not beside a site or a folder of bundles: those are passed on, and with them
figures would come in that no bundle backs.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from groundspeed.evidence.integrity import sha256

SCHEMA = 1


class Kept(NamedTuple):
    stamp: str
    """Of the files of the bundle that it was made of."""
    value: Any
    """What JSON can hold."""


def path_of(folder: Path) -> Path:
    """Where the index of a folder of bundles is."""
    cache = os.environ.get("XDG_CACHE_HOME")
    parent = (Path(cache) if cache else Path.home() / ".cache") / "groundspeed" / "history"
    return parent / f"{sha256(os.fsencode(folder.resolve()))[:16]}.sqlite"


def stamp_of(bundle: Path) -> str | None:
    """What a bundle looks like from outside: its name, which ends in its identity, and the state of its files. Whoever
    changes one of them changes that. None where they cannot be seen."""
    try:
        with os.scandir(bundle) as entries:
            states = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return None
    seen = sorted((n, s.st_mode, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev) for n, s in states)
    return sha256(repr([bundle.name, *seen]).encode())


def load(path: Path, program: str) -> dict[str, Kept]:
    """By the name of a bundle what is kept of it; nothing where there is no index that `program` made."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as index:
            if index.execute("SELECT schema, program FROM origin").fetchall() != [(SCHEMA, program)]:
                return {}
            rows = index.execute("SELECT bundle, stamp, value FROM kept").fetchall()
            return {bundle: Kept(stamp, json.loads(value)) for bundle, stamp, value in rows}
    except (sqlite3.Error, ValueError, TypeError):
        return {}


def save(path: Path, program: str, kept: dict[str, Kept]) -> None:
    """The index anew, whole or not at all. Where it cannot be written the next time takes longer, and that is all."""
    scratch = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(scratch)) as index, index:
            index.execute("CREATE TABLE origin (schema INTEGER NOT NULL, program TEXT NOT NULL)")
            index.execute("CREATE TABLE kept (bundle TEXT PRIMARY KEY, stamp TEXT NOT NULL, value TEXT NOT NULL)")
            index.execute("INSERT INTO origin VALUES (?, ?)", (SCHEMA, program))
            rows = [(name, one.stamp, json.dumps(one.value, allow_nan=False)) for name, one in kept.items()]
            index.executemany("INSERT INTO kept VALUES (?, ?, ?)", rows)
        os.replace(scratch, path)
    except (OSError, sqlite3.Error):
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
