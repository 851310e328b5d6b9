"""C2: the site of a folder of bundles: verified ones only, made once, kept up to date, and nothing else touched."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import index, profile_bundle, store
from groundspeed.evidence.integrity import FACTS, SAMPLES
from groundspeed.lab import history
from groundspeed.lab.history import INDEX, Built
from groundspeed.lab.site import MARK, REPORTS
from groundspeed.report.history import LIBRARY
from histories import bundle_of

DAYS = 3


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    for day in range(DAYS):
        bundle_of(folder, day)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Path(shutil.copytree(made, tmp_path / "runs"))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


def files(site: Path) -> dict[str, bytes]:
    return {str(path.relative_to(site)): path.read_bytes() for path in sorted(site.rglob("*")) if path.is_file()}


def counts(built: Built) -> tuple[int, int, int]:
    return len(built.runs), built.read, built.reports


def content(site: Path) -> dict[str, list[object]]:
    page = (site / INDEX).read_text()
    island = page.partition('id="history">')[2].partition("</script>")[0]
    value = json.loads(island)
    assert isinstance(value, dict)
    return value


def test_a_site_has_a_page_and_a_report_for_every_bundle(folder: Path, site: Path) -> None:
    assert counts(history.build(folder, site)) == (DAYS, DAYS, DAYS)
    reports = {path.stem for path in (site / REPORTS).iterdir()}
    assert reports == {store.identity_of(path) for path in folder.iterdir()}
    assert {name.partition("/")[0] for name in files(site)} == {INDEX, LIBRARY, MARK, REPORTS}
    assert [len(line["points"]) for line in content(site)["lines"].values()] == [DAYS] * 5  # type: ignore[attr-defined]


def test_only_what_is_new_is_read(folder: Path, site: Path) -> None:
    history.build(folder, site)
    before = files(site)
    assert counts(history.build(folder, site)) == (DAYS, 0, 0)
    assert files(site) == before
    bundle_of(folder, 9)
    assert counts(history.build(folder, site)) == (DAYS + 1, 1, 1)


def test_another_site_of_the_same_bundles_needs_reports_of_its_own(folder: Path, site: Path) -> None:
    history.build(folder, site)
    assert counts(history.build(folder, site.with_name("other"))) == (DAYS, DAYS, DAYS)


@pytest.mark.parametrize("damage", ["lost", "damaged", "wrong", "older"])
def test_without_its_index_the_site_is_the_same(
    folder: Path, site: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.build(folder, site)
    before, path = files(site), index.path_of(folder)
    if damage == "lost":
        path.unlink()
    if damage == "damaged":
        path.write_bytes(b"SQLite format 3\0" + b"x" * 4096)
    if damage == "wrong":
        kept = index.load(path, history._program())
        assert len(kept) == DAYS
        index.save(path, history._program(), {name: one._replace(value={}) for name, one in kept.items()})
    if damage == "older":
        monkeypatch.setattr(index, "SCHEMA", index.SCHEMA + 1)
    assert counts(history.build(folder, site)) == (DAYS, DAYS, 0)
    assert files(site) == before
    assert counts(history.build(folder, site)) == (DAYS, 0, 0)


def test_another_program_makes_everything_again(folder: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Better statistics judge old evidence again."""
    history.build(folder, site)
    monkeypatch.setattr(history, "_program", lambda: "another")
    assert counts(history.build(folder, site)) == (DAYS, DAYS, DAYS)


def test_a_report_that_is_gone_is_made_again_and_one_without_a_bundle_goes(folder: Path, site: Path) -> None:
    history.build(folder, site)
    first, second, _ = sorted(folder.iterdir())
    (site / REPORTS / f"{store.identity_of(first)}.html").unlink()
    shutil.rmtree(second)
    (site / REPORTS / "mine.html").write_text("not yours")
    assert counts(history.build(folder, site)) == (DAYS - 1, 1, 1)
    left = {path.stem for path in (site / REPORTS).iterdir()}
    assert left == {*map(store.identity_of, folder.iterdir()), "mine"}


def test_a_bundle_that_is_changed_later_is_left_out_and_its_report_goes(folder: Path, site: Path) -> None:
    history.build(folder, site)
    changed = sorted(folder.iterdir())[1]
    state = (changed / SAMPLES).stat()
    content = bytearray((changed / SAMPLES).read_bytes())
    content[-1] ^= 1
    (changed / SAMPLES).write_bytes(content)
    os.utime(changed / SAMPLES, ns=(state.st_atime_ns, state.st_mtime_ns))
    built = history.build(folder, site)
    assert counts(built) == (DAYS - 1, 1, 0)
    assert built.refused[changed.name].startswith(f"{SAMPLES} was changed: ")
    assert not (site / REPORTS / f"{store.identity_of(changed)}.html").exists()
    assert "was changed" in (site / INDEX).read_text()


def test_damaged_and_hostile_bundles_are_listed_and_the_others_shown(
    folder: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = sorted(folder.iterdir())
    (one / FACTS).write_bytes(b"{" * 100_000)
    two.rename(folder / "<img src=x onerror=alert(1)>\x1b[31m")
    (folder / f"x-{'0' * 64}").mkdir()
    (folder / f"y-{'1' * 64}").symlink_to("/")
    (folder / "notes").mkdir()
    built = history.build(folder, site)
    assert counts(built) == (1, 5, 1)
    assert len(built.refused) == 4
    page = (site / INDEX).read_text()
    assert "<img" not in page
    assert "\x1b" not in page
    assert "&lt;img" in page
    assert str(folder) not in page, "a page that is published tells nobody where it was made"


def test_what_nobody_thought_of_in_one_bundle_does_not_stop_the_site(
    folder: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = history.check.verify

    def broken(path: Path, repeating: object) -> object:
        if path == min(folder.iterdir()):
            raise ZeroDivisionError("x" * 1000)
        return right(path)

    monkeypatch.setattr(history.check, "verify", broken)
    built = history.build(folder, site)
    assert len(built.runs) == DAYS - 1
    (said,) = built.refused.values()
    assert "ZeroDivisionError" in said
    assert len(said) < 500


def test_names_out_of_a_bundle_are_text_on_the_page(folder: Path, site: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    bundle_of(folder, 9, names={"sdpa-flash": evil}, run={"commit": "\x1b[2J<b>&"}, environment={"gpu": None})
    assert len(history.build(folder, site).runs) == DAYS + 1
    for name, raw in files(site).items():
        if name.endswith(".html"):
            page = raw.decode()
            assert evil not in page
            assert "<script>alert" not in page
            assert "<b>" not in page
            assert "\x1b" not in page
    assert evil in {line["contender"] for line in content(site)["lines"].values()}  # type: ignore[attr-defined]


def test_who_repeats_a_run_changes_the_report_of_that_run(folder: Path, site: Path) -> None:
    """The trust in its claims is another then."""
    enough = {"processes": 4, "looks": (10,)}
    first = bundle_of(folder, 8, **enough).identity
    history.build(folder, site)
    report = site / REPORTS / f"{first}.html"
    assert "cooperative, reproduced" not in report.read_text()
    bundle_of(folder, 9, run={"reproduces": first, "started": "2099-01-01T00:00:00+00:00"}, **enough)
    assert counts(history.build(folder, site)) == (DAYS + 2, 2, 2)
    assert "cooperative, reproduced" in report.read_text()
    assert counts(history.build(folder, site)) == (DAYS + 2, 0, 0)


def test_bundles_in_folders_of_the_folder_are_found_and_each_counts_once(folder: Path, site: Path) -> None:
    """As `evidence/` has them, by device."""
    above = folder.with_name("evidence")
    above.mkdir()
    folder.rename(above / "a")
    shutil.copytree(above / "a", above / "b")
    assert counts(history.build(above, site)) == (DAYS, 2 * DAYS, 2 * DAYS)


def test_many_bundles_are_read_by_several_processes(folder: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history.build(folder, site)
    before = files(site)
    index.path_of(folder).unlink()
    shutil.rmtree(site)
    monkeypatch.setattr(history, "MANY_BYTES", 0)
    monkeypatch.setattr(history, "MOST_PROCESSES", 2)
    seen: list[tuple[int, int]] = []
    assert counts(history.build(folder, site, lambda done, of: seen.append((done, of)))) == (DAYS, DAYS, DAYS)
    assert files(site) == before
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_folder_of_somebody_else_is_not_touched(folder: Path, site: Path) -> None:
    site.mkdir()
    (site / "thesis.tex").write_text("years")
    with pytest.raises(BadInput, match="not empty, and not a site"):
        history.build(folder, site)
    assert files(site) == {"thesis.tex": b"years"}
    with pytest.raises(BadInput, match="not empty"):
        history.build(folder, folder)
    with pytest.raises(BadInput, match="not a folder"):
        history.build(folder, site / "thesis.tex")


def test_nothing_is_written_through_a_link(folder: Path, site: Path, tmp_path: Path) -> None:
    """A file in whose place is a link is replaced, and a folder that is one is refused."""
    history.build(folder, site)
    before, report = files(site), next((site / REPORTS).iterdir())
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for path in (report, site / INDEX, site / LIBRARY, site / MARK):
        path.unlink()
        path.symlink_to(outside)
    history.build(folder, site)
    assert outside.read_text() == "mine"
    assert not report.is_symlink()
    assert files(site) == before
    (site / REPORTS).rename(tmp_path / "elsewhere")
    (site / REPORTS).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="is a symbolic link"):
        history.build(folder, site)


@pytest.mark.parametrize("said", ["", "[]", '{"files": 7}', '{"files": {"../runs/x.html": "y", "a": 1}}'])
def test_a_mark_that_says_nonsense_costs_time_and_nothing_else(folder: Path, site: Path, said: str) -> None:
    history.build(folder, site)
    before = files(site)
    (site / MARK).write_text(said)
    assert counts(history.build(folder, site)) == (DAYS, DAYS, DAYS)
    assert files(site) == before


def test_a_site_that_cannot_be_written_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GroundspeedError, match=r"cannot write to .*; choose another folder with --out"):
        history.build(folder, tmp_path / "file" / "site")


def test_a_folder_without_bundles_is_one_sentence(tmp_path: Path, site: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        history.build(tmp_path / "nosuch", site)
    (tmp_path / "empty" / "inside").mkdir(parents=True)
    with pytest.raises(BadInput, match="there is no bundle of a run in"):
        history.build(tmp_path / "empty", site)
    with pytest.raises(BadInput, match="is a bundle itself"):
        history.build(bundle_of(tmp_path / "runs", 1).path, site)
    assert not site.exists()


ROOT = Path(__file__).parents[2]


def test_a_profile_stands_in_the_report_of_its_run_if_it_verifies(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (run,) = ROOT.glob("evidence/nvidia-h200/*-09b7-*")
    (profile,) = (ROOT / "tests" / "measured" / "profiles").iterdir()
    for found in (run, profile):
        shutil.copytree(found, tmp_path / "runs" / found.name)
    assert counts(history.build(tmp_path / "runs", site)) == (1, 1, 1)
    (report,) = (site / REPORTS).iterdir()
    assert f"evidence: profile {store.identity_of(profile)[:12]}" in report.read_text()
    with (tmp_path / "runs" / profile.name / FACTS).open("a") as facts:
        facts.write(" ")
    built = history.build(tmp_path / "runs", site)
    assert (list(built.refused), built.reports) == ([profile.name], 1)
    assert "This run has no profile" in report.read_text()


def test_a_profile_is_read_once_for_all_reports(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each: a profile of a CPU has thousands of events."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (profile,) = (ROOT / "tests" / "measured" / "profiles").iterdir()
    for found in (profile, *(ROOT / "evidence" / "nvidia-h200").glob("attention-quick-*")):
        shutil.copytree(found, tmp_path / "runs" / found.name)
    read: list[Path] = []
    reads = profile_bundle.read
    monkeypatch.setattr(profile_bundle, "read", lambda path: read.append(path) or reads(path))
    monkeypatch.setattr(history, "usable_cores", lambda: 1)
    assert counts(history.build(tmp_path / "runs", site)) == (2, 2, 2)
    assert read == [tmp_path / "runs" / profile.name]
