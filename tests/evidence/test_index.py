"""The index of a history: a cache that may be lost, damaged or another program's, and then begins empty."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from groundspeed.evidence import index
from groundspeed.evidence.index import Kept

VALUE = {"a": [1, 2.5, None, "x"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cache" / "x.sqlite"
    index.save(path, "program", {"one": Kept("stamp", VALUE)})
    return path


def test_what_was_kept_is_there_again(path: Path) -> None:
    assert index.load(path, "program") == {"one": Kept("stamp", VALUE)}


def test_only_what_was_kept_last_is_there(path: Path) -> None:
    index.save(path, "program", {"two": Kept("s", 2)})
    assert index.load(path, "program") == {"two": Kept("s", 2)}
    assert [p.name for p in path.parent.iterdir()] == ["x.sqlite"]


def test_what_another_program_made_is_not_taken(path: Path) -> None:
    assert index.load(path, "another") == {}


def test_another_schema_is_not_taken(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("UPDATE origin SET schema = schema + 1")
    assert index.load(path, "program") == {}


@pytest.mark.parametrize("damage", ["lost", "cut", "noise", "empty", "no table", "no json", "a folder"])
def test_what_is_damaged_is_empty_and_made_again(path: Path, damage: str) -> None:
    content = path.read_bytes()
    if damage in ("no table", "no json"):
        with sqlite3.connect(path) as other:
            other.execute("DROP TABLE kept" if damage == "no table" else "UPDATE kept SET value = '{'")
    else:
        path.unlink()
    if damage in ("cut", "noise", "empty"):
        path.write_bytes({"cut": content[: len(content) // 2], "noise": b"x" * 5000, "empty": b""}[damage])
    if damage == "a folder":
        path.mkdir()
    assert index.load(path, "program") == {}
    index.save(path, "program", {"two": Kept("s", 2)})
    assert index.load(path, "program") == ({} if damage == "a folder" else {"two": Kept("s", 2)})


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    index.save(tmp_path / "file" / "x.sqlite", "program", {})
    assert index.load(tmp_path / "file" / "x.sqlite", "program") == {}


def test_every_folder_has_an_index_of_its_own_among_the_users_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never in the folder itself: somebody else's bundles would bring figures of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    one, other = index.path_of(tmp_path / "a"), index.path_of(tmp_path / "b")
    assert one != other
    assert one.is_relative_to(tmp_path / "cache")
    assert index.path_of(tmp_path / "b" / ".." / "a") == one


def test_whoever_changes_a_bundle_changes_its_stamp(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "a").write_text("abc")
    seen = [index.stamp_of(folder)]
    state = (folder / "a").stat()
    (folder / "a").write_text("abd")
    os.utime(folder / "a", ns=(state.st_atime_ns, state.st_mtime_ns))  # as if it were the old one
    seen.append(index.stamp_of(folder))
    (folder / "b").write_text("")
    seen.append(index.stamp_of(folder))
    (folder / "b").unlink()
    (folder / "a").rename(folder / "c")
    seen.append(index.stamp_of(folder))
    assert index.stamp_of(folder) == seen[-1]
    assert len({*seen, None}) == 5
    assert index.stamp_of(tmp_path / "nosuch") is None
