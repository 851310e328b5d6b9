"""`groundspeed history`: what it says, and what it says no to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from invocation import BundleOf, Cli, Done

from groundspeed.evidence import profile_bundle
from groundspeed.report import page
from profiles import gpu_profile


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_without_a_folder_it_takes_where_runs_go(cli: Cli, bundle_of: BundleOf) -> None:
    bundle_of(seed=1)
    bundle_of(seed=2)
    said = "2 runs with 8 results in 4 lines; {} read, {} written\nopen      site/index.html\n"
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
        (["empty", "--out", "site"], "there is no bundle of a run in empty; make one with: groundspeed run"),
        (["empty"], "missing option '--out'"),
    ],
)
def test_where_there_is_nothing_it_is_one_sentence(cli: Cli, arguments: list[str], said: str) -> None:
    Path("empty").mkdir()
    done = cli("history", *arguments)
    assert done.code == 2
    assert said in done.sentence
    assert not Path("site").exists()


def test_bundles_of_which_none_can_be_shown_make_no_site(cli: Cli, bundle_of: BundleOf) -> None:
    made = bundle_of()
    (made.path / "facts.json").write_bytes(b"{}")
    done = cli("history", "--out", "site")
    assert (done.code, done.out) == (2, "")
    assert "no bundle in .groundspeed/runs can be shown (attention-quick-1-" in done.sentence
    assert "was changed: its sha256 is not the one in the manifest" in done.sentence
    assert not Path("site/index.html").exists()


def test_without_the_packages_of_a_page_no_bundle_is_blamed(
    cli: Cli, bundle_of: BundleOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle_of()
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    done = cli("history", "--out", "site")
    assert (done.code, done.sentence) == (4, page.NEEDED)
    assert not Path("site").exists()


def test_profiles_are_passed_over_without_a_word(cli: Cli, bundle_of: BundleOf) -> None:
    profile_bundle.write(gpu_profile(), Path("profiles"), "profile-attention-x")
    done = cli("history", "profiles", "--out", "site")
    assert done.code == 2
    assert "there is no bundle of a run in profiles" in done.sentence
    profile_bundle.write(gpu_profile(), bundle_of().path.parent, "profile-attention-x")
    done = cli("history", "--out", "site")
    assert done.code == 0
    assert done.out.startswith("1 run with ")
    assert "left out" not in done.out


def test_a_folder_that_is_not_ours_is_refused(cli: Cli, bundle_of: BundleOf) -> None:
    bundle_of()
    Path("site").mkdir()
    Path("site/x").write_text("mine")
    done = cli("history", "--out", "site")
    assert done.code == 2
    assert "site is not empty, and not a site made by groundspeed" in done.sentence
    assert [path.name for path in Path("site").iterdir()] == ["x"]


def test_a_glob_of_many_folders_is_refused_in_one_short_sentence(cli: Cli) -> None:
    done = cli("history", *(f"evidence/{n:064}" for n in range(30)), "--out", "site")
    assert done.code == 2
    assert "unexpected extra argument" in done.sentence
    assert done.sentence.endswith(" …); `groundspeed history --help` shows the usage")
    assert len(done.sentence) < 300
