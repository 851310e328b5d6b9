"""C2: revisions whose dependencies differ are measured each with its own, in one run; and nothing is left behind."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from groundspeed.errors import BadInput
from groundspeed.evidence.revision import installed_of
from groundspeed.lab import check, compare, revisions, venvs
from groundspeed.lab.request import Request
from repositories import commit, write
from wheels import installers_ask, wheel

SPEEDLIB = """
import os
from pathlib import Path

import torch


def attend(q, k, v, causal, scale):
    with Path(os.environ["LEFT_BY_SPEEDLIB"]).open("a") as out:
        out.write(f"{os.getpid()} VERSION\\n")
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
"""
CONTENDER = """
import groundspeed as gs
import speedlib


@gs.contender("attention")
def mine(q, k, v, *, causal, scale):
    return speedlib.attend(q, k, v, causal, scale)
"""
PROJECT = '[project]\nname = "project"\nversion = "1"\ndependencies = ["numpy", "speedlib=={}"]\n'


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a project that took another release of a package in its last commit; neither of them is installed."""
    for version in ("1.0", "2.0"):
        wheel(tmp_path / "wheels", "speedlib", version, SPEEDLIB.replace("VERSION", version))
    installers_ask(monkeypatch, links=tmp_path / "wheels")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "theirs"))  # of no account here
    monkeypatch.setenv("LEFT_BY_SPEEDLIB", str(tmp_path / "left"))
    top = tmp_path / "repository"
    commit(top, {"bench.py": CONTENDER, "pyproject.toml": PROJECT.format("1.0")})
    commit(top, {"pyproject.toml": PROJECT.format("2.0")})
    monkeypatch.chdir(top)
    return top


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where worktrees and environments lie; in the end nothing may, and no process may be about it."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []
    about = [one for one in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(one.info["cmdline"] or ())]
    assert about == []


def nothing(stage: str, text: str) -> None:
    pass


@pytest.mark.slow
def test_each_side_runs_its_own_release_in_one_run(repository: Path, scratch: Path, tmp_path: Path) -> None:
    request = Request(
        "attention",
        "quick",
        shape=("S=16,causal=0",),
        with_files=("bench.py",),
        device="cpu",
        processes=1,
        calibration="none",
        out=tmp_path / "runs",
    )
    with revisions.checked_out("HEAD~1", "HEAD") as pair:
        compared = compare.measured(pair, request, ())
    (made,) = compared.bundles
    record = check.verify(made.path)[0].record
    assert {(outcome.contender, outcome.status) for outcome in record.outcomes} == {
        ("mine@base", "PASSED"),
        ("mine@head", "PASSED"),
    }
    calls = {tuple(line.split()) for line in (tmp_path / "left").read_text().splitlines()}
    assert sorted(version for _, version in calls) == ["1.0", "2.0"], "a process each"
    had = installed_of(record.environment)
    assert {name: one.packages for name, one in had.items()} == {
        "mine@base": {"speedlib": "1.0"},
        "mine@head": {"speedlib": "2.0"},
    }
    assert {one.met for one in had.values()} == {"venv"}
    assert [c.version.partition(" with ")[2] for c in record.measured] == ["speedlib 1.0", "speedlib 2.0"]
    assert compared.result.packages == (("speedlib", "1.0", "2.0"),)
    asked = "the dependencies differ (base speedlib==1.0; head speedlib==2.0)"
    assert f"{asked}: each was measured in its own virtual environment" in compared.result.notes
    assert not any("same Python code" in note for note in compared.result.notes)
    assert str(tmp_path) not in (made.path / "facts.json").read_text()


def test_what_cannot_be_installed_is_told(repository: Path, scratch: Path) -> None:
    """While it goes on, in a note, and in the sentence with which it ends where nothing goes without it."""
    commit(repository, {"pyproject.toml": PROJECT.format("3.0")})
    commit(repository, {"pyproject.toml": PROJECT.replace(', "speedlib=={}"', "")})
    request, said = Request("attention", with_files=("bench.py",), device="cpu"), list[str]()
    with (
        revisions.checked_out("HEAD~1", "HEAD") as pair,
        pytest.raises(
            BadInput,
            match=r"No module named 'speedlib' \(in base, HEAD~1\); base lacks the dependencies that it asks f",
        ),
    ):
        compare.measured(pair, request, (), lambda at: said.append(f"{at.stage}: {at.text}"))
    assert said[0] == "environment of base: speedlib==3.0"
    assert said[-1].startswith("no separate environment for base: ")
    assert said[-1].endswith("; continuing with what is installed here")
    place = venvs.Place(("speedlib==3.0",), "unknown", {}, why="no network")
    assert list(venvs.notes({"base": place, "head": venvs.Place((), "here", {})})) == [
        "the dependencies differ (base speedlib==3.0): both were measured with what is installed here",
        "base lacks the dependencies that it asks for, because no virtual environment could be built: no network",
    ]


def test_what_is_installed_here_already_needs_no_environment(repository: Path, scratch: Path) -> None:
    commit(repository, {"pyproject.toml": PROJECT.format("2.0").replace("numpy", "numpy>=2")})
    with revisions.checked_out("HEAD~1", "HEAD") as pair:
        places = venvs.places(pair, True, nothing)
    assert places["head"].asked == ("numpy>=2",)
    assert [(place.met, place.python) for place in places.values()] == [("here", "")] * 2


def test_where_nothing_may_be_installed_nothing_is(repository: Path, scratch: Path) -> None:
    with revisions.checked_out("HEAD~1", "HEAD") as pair:
        places = venvs.places(pair, False, nothing)
        assert not list(scratch.glob("*/venv*"))
    assert [(place.met, place.python) for place in places.values()] == [("unknown", "")] * 2


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        ("venv", "venv", "each was measured in its own virtual environment"),
        ("venv", "here", "base was measured in its own virtual environment, head with what is installed here"),
        ("here", "here", "what is installed here satisfies both"),
        ("unknown", "unknown", "both were measured with what is installed here"),
    ],
)
def test_a_note_says_with_what_each_was_measured(base: Any, head: Any, said: str) -> None:
    places = {side: venvs.Place(("speedlib",), met, {}) for side, met in (("base", base), ("head", head))}
    (note,) = venvs.notes(places)
    assert note == f"the dependencies differ (base speedlib; head speedlib): {said}"


def interrupt() -> None:
    raise KeyboardInterrupt


def forget() -> None:
    pass


@pytest.mark.parametrize("answer", [interrupt, forget])
def test_an_installer_that_hangs_ends_with_ctrl_c_and_in_time(
    repository: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[], None]
) -> None:
    """With an index that never answers."""
    write(repository, {"requirements.txt": "nosuch\n"})
    monkeypatch.setattr(venvs, "LIMIT_S", 1.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        installers_ask(monkeypatch, index=f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        try:
            with revisions.checked_out("HEAD", ".") as pair:
                places = venvs.places(pair, True, lambda stage, text: answer() if text != "nosuch" else None)
        except KeyboardInterrupt:
            assert answer is interrupt
        else:
            assert answer is forget
            assert "the installation took more than" in places["head"].why


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_uv_installs_what_differs_and_nothing_that_is_here(repository: Path, scratch: Path) -> None:
    commit(repository, {"requirements.txt": "torch\n"})
    with revisions.checked_out("HEAD~2", "HEAD") as pair:
        places = venvs.places(pair, True, nothing)
    assert [place.own for place in places.values()] == [{"speedlib"}, {"speedlib"}]


def test_what_uv_would_install_is_read_from_what_it_says() -> None:
    said = """Using Python 3.11.7 environment at: v
Resolved 3 packages in 553ms
Would download 2 packages
Would uninstall 1 package
Would install 3 packages
 - torch==2.13.0
 + kept @ file:///wheels/kept-1.0-py3-none-any.whl
 + speedlib==1.0 (from file:///wheels/speedlib-1.0-py3-none-any.whl)
 + torch==2.14.0+cpu"""
    assert list(venvs.planned(said.splitlines())) == [
        "kept @ file:///wheels/kept-1.0-py3-none-any.whl",
        "speedlib @ file:///wheels/speedlib-1.0-py3-none-any.whl",
        "torch==2.14.0+cpu",
    ]
    with pytest.raises(venvs.CannotBuild, match="kept one, which groundspeed does not understand"):
        list(venvs.planned([" + kept one"]))
