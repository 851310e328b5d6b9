"""`groundspeed history`: what it says, and what it says no to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from invocation import BundleOf, Cli, Done


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_without_a_folder_it_takes_where_runs_go(cli: Cli, bundle_of: BundleOf) -> None:
    bundle_of(seed=1)
    bundle_of(seed=2)
    said = "2 runs with 8 results in 6 lines; {} read, {} written\nopen      site/index.html\n"
    assert cli("history", "--out", "site") == Done(0, said.format("2 bundles", "2 reports"), "")
    assert cli("history", "--out", "site") == Done(0, said.format("0 bundles", "0 reports"), "")
    assert Path("site/index.html").read_text().startswith("<!doctype html>")


def test_what_is_left_out_is_said_without_escapes(cli: Cli, bundle_of: BundleOf, tmp_path: Path) -> None:
    bundle = bundle_of()
    shutil.copytree(bundle.path, tmp_path / "runs" / "a\x1b[31m")
    shutil.copytree(bundle.path, tmp_path / "runs" / bundle.path.name)
    done = cli("history", "runs", "--out", "site")
    assert done.code == 0
    assert "left out  a\N{REPLACEMENT CHARACTER}[31m: " in done.out
    assert "\x1b" not in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nosuch", "--out", "site"], "nosuch holds no bundles: No such file or directory"),
        (["--out", "site"], ".groundspeed/runs holds no bundles: No such file or directory"),
        (["empty", "--out", "site"], "there is no bundle in empty; make one with: groundspeed run"),
        (["empty"], "missing option '--out'"),
    ],
)
def test_where_there_is_nothing_it_is_one_sentence(cli: Cli, arguments: list[str], said: str) -> None:
    Path("empty").mkdir()
    done = cli("history", *arguments)
    assert done.code == 2
    assert said in done.sentence
    assert not Path("site").exists()


def test_a_folder_that_is_not_ours_is_refused(cli: Cli, bundle_of: BundleOf) -> None:
    bundle_of()
    Path("site").mkdir()
    Path("site/x").write_text("mine")
    done = cli("history", "--out", "site")
    assert done.code == 2
    assert "site is not empty, and not a site that groundspeed made" in done.sentence
    assert [path.name for path in Path("site").iterdir()] == ["x"]
