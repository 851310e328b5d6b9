"""A cache of what was computed from the bundles of a folder. The bundles are the truth: if the cache is lost, damaged
or made by another program, it starts empty.

It lies with the user's own files, not beside a site or a folder of bundles: those are passed on to other people, and
the cache would bring along figures that no bundle backs.
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
    """Stamp of the bundle that the value was computed from."""
    value: Any
    """Anything that JSON can hold."""


def path_of(folder: Path) -> Path:
    """Return the path of the index of a folder of bundles."""
    cache = os.environ.get("XDG_CACHE_HOME")
    parent = (Path(cache) if cache else Path.home() / ".cache") / "groundspeed" / "history"
    return parent / f"{sha256(os.fsencode(folder.resolve()))[:16]}.sqlite"


def stamp_of(bundle: Path) -> str | None:
    """Return a hash of a bundle's name, which ends in its identity, and of the metadata of its files. It changes with
    any change to a file. None if the files cannot be listed."""
    try:
        with os.scandir(bundle) as entries:
            states = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return None
    seen = sorted((n, s.st_mode, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev) for n, s in states)
    return sha256(repr([bundle.name, *seen]).encode())


def load(path: Path, program: str) -> dict[str, Kept]:
    """Return bundle name → what is kept of the bundle; empty if there is no index made by `program`."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as index:
            if index.execute("SELECT schema, program FROM origin").fetchall() != [(SCHEMA, program)]:
                return {}
            rows = index.execute("SELECT bundle, stamp, value FROM kept").fetchall()
            return {bundle: Kept(stamp, json.loads(value)) for bundle, stamp, value in rows}
    except (sqlite3.Error, ValueError, TypeError):
        return {}


def save(path: Path, program: str, kept: dict[str, Kept]) -> None:
    """Replace the index, whole or not at all. If it cannot be written, the next call only takes longer."""
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
