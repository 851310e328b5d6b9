"""Where bundles live and how a person names one; finishing an interrupted run and going on with it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from unittest import mock

import pytest
from bundles import MEANS, facts_of, same, small_record, write

import fakes
from fakes import begin, continue_run, noisy
from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import bundle, journal, store
from groundspeed.evidence.record import Record
from groundspeed.lab.check import verify


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three bundles, the oldest first."""
    made = [write(small_record(seed=seed), tmp_path, f"attention-quick-{seed}") for seed in (3, 2, 1)]
    for age, path in enumerate(made):
        os.utime(path, ns=(10**18 + age, 10**18 + age))
    return tmp_path


def begun(folder: Path, processes: int) -> Path:
    """The journal of a run that was interrupted after so many processes."""
    events = journal.from_record(small_record())
    end = [i for i, event in enumerate(events) if event["kind"] == "process end"]
    log = begin(folder, events[0]["facts"])
    for event in events[1 : end[processes - 1] + 1 if processes else 4]:
        log.write(**event)
    log.write("interrupted", date="2026-01-02")
    log.close()
    return folder


class TestFind:
    def test_by_folder(self, runs: Path) -> None:
        path = store.finished(runs)[0]
        assert store.find(str(path), Path("elsewhere")) == path

    def test_by_the_start_of_its_identity(self, runs: Path) -> None:
        for path in store.finished(runs):
            identity = path.name[-64:]
            for length in (12, 40, 64):
                assert store.find(identity[:length], runs) == path
            assert store.find(identity[:12].upper(), runs) == path

    def test_the_latest(self, runs: Path) -> None:
        assert [path.name.split("-")[2] for path in store.finished(runs)] == ["3", "2", "1"]
        assert store.find("latest", runs) == store.finished(runs)[-1]

    def test_what_is_no_bundle_is_passed_over(self, runs: Path) -> None:
        (runs / "attention-quick-9.partial").mkdir()
        (runs / f"a-{'0' * 64}").write_text("a file")
        (runs / f"sp ace-{'0' * 64}").mkdir()
        assert len(store.finished(runs)) == 3
        with pytest.raises(BadInput, match="is not a bundle"):
            store.find("00000000", runs)

    def test_an_ambiguous_start(self, runs: Path) -> None:
        identity = store.finished(runs)[0].name[-64:]
        (runs / f"other-{identity[:8]}{identity[7::-1]}{identity[16:]}").mkdir()
        with pytest.raises(BadInput, match=f"{identity[:8]!r} matches 2 bundles"):
            store.find(identity[:8], runs)

    def test_the_digits_before_the_identity(self, runs: Path) -> None:
        path = store.finished(runs)[0]
        named = path.with_name(f"attention-quick-20261117T140012-0a0b-{path.name[-64:]}")
        path.rename(named)
        assert store.find("0a0b", runs) == named
        with pytest.raises(BadInput, match="is not a bundle"):
            store.find("20261117T140012", runs)

    @pytest.mark.parametrize("device", ["", "amd-epyc"])
    def test_a_copy_that_is_kept_as_evidence(self, runs: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is the same bundle: the run's own is taken while it is there."""
        path = store.finished(runs)[0]
        kept = runs / store.COMMITTED / device / path.name
        shutil.copytree(path, kept)
        monkeypatch.chdir(runs)
        assert store.find(path.name[-64:][:8], runs) == path
        shutil.rmtree(path)
        assert store.find(kept.name[-64:][:8], runs).resolve() == kept

    @pytest.mark.parametrize("name", ["ffffffffffff", "nothing", "", "latest.", "../..", "x" * 5000, "\x1b[2J"])
    def test_none(self, runs: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(runs)
        with pytest.raises(BadInput, match="is not a bundle") as failure:
            verify(store.find(name, runs))
        assert failure.value.exit_code == 2

    def test_three_characters_are_too_few(self, runs: Path) -> None:
        with pytest.raises(BadInput, match="is not a bundle"):
            store.find(store.finished(runs)[0].name[-64:][:3], runs)

    @pytest.mark.parametrize("exists", [True, False])
    def test_no_latest_yet(self, tmp_path: Path, exists: bool) -> None:
        runs = tmp_path / "runs"
        if exists:
            runs.mkdir()
        assert store.finished(runs) == []
        with pytest.raises(BadInput, match=r"no bundle in .* yet; make one with"):
            store.find("latest", runs)


class TestBegin:
    def test_makes_a_folder_for_the_journal(self, tmp_path: Path) -> None:
        folder = store.begin(tmp_path / "deep" / "runs", "attention-quick-1")
        assert folder.is_dir()
        assert folder.name == "attention-quick-1.partial"

    def test_does_not_take_anothers(self, tmp_path: Path) -> None:
        store.begin(tmp_path, "run")
        with pytest.raises(GroundspeedError, match="File exists"):
            store.begin(tmp_path, "run")

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        """A file in place of the folder, as a read-only one would be no obstacle to root."""
        (tmp_path / "runs").write_text("in the way")
        with pytest.raises(GroundspeedError, match="choose another folder with --out") as failure:
            store.begin(tmp_path / "runs", "run")
        assert failure.value.exit_code == 4


class TestFinish:
    def test_a_journal_becomes_a_bundle_and_goes_away(self, tmp_path: Path) -> None:
        folder = begun(tmp_path / "mine.partial", 2)
        expected = journal.to_record(journal.read_events(folder), "journal")
        made = store.finish(folder)
        assert made.path.name == f"mine-{made.identity}"
        assert list(tmp_path.iterdir()) == [made.path]
        assert same(verify(made.path)[0].record, expected)

    @pytest.mark.parametrize("processes", [0, 1])
    def test_an_interrupted_run_leaves_a_valid_bundle(self, tmp_path: Path, processes: int) -> None:
        """Issue 2: Ctrl-C leaves a valid bundle."""
        made = store.finish(begun(tmp_path / "mine.partial", processes))
        record = verify(made.path)[0].record
        assert not record.complete
        assert len(record.finished_attempts) == processes

    def test_a_disk_that_is_full_keeps_the_journal(self, tmp_path: Path) -> None:
        folder = begun(tmp_path / "mine.partial", 1)
        with (
            mock.patch.object(bundle.os, "replace", side_effect=OSError(errno.ENOSPC, "No space left on device")),
            pytest.raises(GroundspeedError, match="No space left"),
        ):
            store.finish(folder)
        assert [path.name for path in tmp_path.iterdir()] == ["mine.partial"]
        assert store.finish(folder).record.finished_attempts == {0: 0}

    def test_a_damaged_journal_is_kept_too(self, tmp_path: Path) -> None:
        folder = begun(tmp_path / "mine.partial", 1)
        content = (folder / journal.FILE).read_bytes()
        (folder / journal.FILE).write_bytes(content.replace(b'"kind":"worker"', b'"kind":"wonder"', 1))
        with pytest.raises(BadInput, match="unknown event 'wonder'"):
            store.finish(folder)
        assert (folder / journal.FILE).exists()


class TestReopen:
    def test_a_journal_is_its_own(self, tmp_path: Path) -> None:
        folder = begun(tmp_path / "mine.partial", 1)
        assert store.reopen(folder) == folder

    @pytest.mark.parametrize("processes", [0, 1])
    def test_a_bundle_becomes_the_journal_it_was(self, tmp_path: Path, processes: int) -> None:
        made = store.finish(begun(tmp_path / "mine.partial", processes))
        folder = store.reopen(made.path)
        assert folder == tmp_path / "mine.partial"
        assert same(journal.to_record(journal.read_events(folder), "journal"), made.record)
        assert store.finish(folder).identity == made.identity

    @pytest.mark.parametrize("processes", [0, 1])
    def test_a_run_goes_on_from_it(self, tmp_path: Path, processes: int) -> None:
        """--resume goes on with the processes that are missing, and the resumed bundle verifies."""
        made = store.finish(begun(tmp_path / "mine.partial", processes))
        folder = store.reopen(made.path)
        continue_run(folder, noisy(MEANS))
        whole = verify(store.finish(folder).path)[0].record
        assert whole.complete
        before = made.record.samples["process"] < processes
        kept = whole.samples["process"] < processes
        assert whole.samples["seconds"][kept].tolist() == made.record.samples["seconds"][before].tolist()

    def test_twice_it_is_the_same_journal(self, tmp_path: Path) -> None:
        """What was measured since is not overwritten by the bundle that is older."""
        made = store.finish(begun(tmp_path / "mine.partial", 1))
        folder = store.reopen(made.path)
        continue_run(folder, noisy(MEANS))
        assert store.reopen(made.path) == folder
        assert journal.to_record(journal.read_events(folder), "journal").complete

    def test_a_bundle_that_is_named_by_its_identity_alone(self, tmp_path: Path) -> None:
        made = store.finish(begun(tmp_path / "mine.partial", 1))
        bare = made.path.rename(tmp_path / made.identity)
        assert store.reopen(bare).name == "run.partial"

    def test_a_complete_run_has_nothing_missing(self, good: Path) -> None:
        with pytest.raises(BadInput, match="this run is complete"):
            store.reopen(good)

    def test_a_damaged_bundle_is_not_gone_on_with(self, tmp_path: Path) -> None:
        made = store.finish(begun(tmp_path / "mine.partial", 1))
        (made.path / "samples.npz").write_bytes(b"")
        with pytest.raises(GroundspeedError, match="was changed"):
            store.reopen(made.path)

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="there is no such folder"):
            store.reopen(tmp_path / "nowhere")

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        made = store.finish(begun(tmp_path / "mine.partial", 1))
        (tmp_path / "mine.partial").write_text("in the way")
        with pytest.raises(GroundspeedError, match="cannot write to") as failure:
            store.reopen(made.path)
        assert failure.value.exit_code == 4

    def test_a_disk_that_fills_up_leaves_no_half_journal(self, tmp_path: Path) -> None:
        made = store.finish(begun(tmp_path / "mine.partial", 1))
        with (
            mock.patch.object(journal.os, "replace", side_effect=OSError(errno.ENOSPC, "No space left on device")),
            pytest.raises(GroundspeedError, match="No space left"),
        ):
            store.reopen(made.path)
        assert not (tmp_path / "mine.partial" / journal.FILE).exists()
        assert store.reopen(made.path) == tmp_path / "mine.partial"


def test_the_date_of_an_interruption_is_kept(tmp_path: Path) -> None:
    made = store.finish(begun(tmp_path / "mine.partial", 0))
    assert facts_of(made.path)["run"]["finished"] == "2026-01-02"
    again = store.finish(store.reopen(made.path))
    assert facts_of(again.path)["run"]["finished"] == "2026-01-02"


def test_a_copy_of_a_bundle_is_found_and_verifies(good: Path, tmp_path: Path, record: Record) -> None:
    """Evidence is made to be passed on."""
    shutil.copytree(good, tmp_path / good.name)
    assert same(verify(store.find("latest", tmp_path))[0].record, record)


def test_latest_to_resume_is_what_a_killed_run_left(tmp_path: Path) -> None:
    old = tmp_path / "old.partial"
    new = tmp_path / "new.partial"
    for number, folder in enumerate((old, new)):
        fakes.begin(folder, fakes.header(["a", "b"])).close()
        os.utime(folder / journal.FILE, ns=(number, number))
    assert store.find_to_resume("latest", tmp_path) == new
    assert store.find_to_resume("old.partial", tmp_path) == old
    with pytest.raises(BadInput):
        store.find("latest", tmp_path)


class TestGathered:
    """The bundles of a folder for a history, and whatever calls itself one."""

    def test_in_it_and_in_folders_of_it(self, runs: Path, tmp_path: Path) -> None:
        above = tmp_path / "above"
        above.mkdir()
        direct, *below = store.finished(runs)
        shutil.move(direct, above / direct.name)
        for path in below:
            shutil.move(path, above / "gpu" / path.name)
        (above / "gpu" / "deeper").mkdir()
        (above / "notes.txt").write_text("")
        assert {path.name for path in store.gathered(above)} == {path.name for path in (direct, *below)}

    def test_damaged_ones_are_among_them_and_unfinished_runs_are_not(self, runs: Path) -> None:
        renamed = store.finished(runs)[0].rename(runs / "renamed")
        (runs / f"x-{'0' * 64}").mkdir()
        begun(runs / "attention.partial", 1)
        found = store.gathered(runs)
        assert renamed in found
        assert runs / f"x-{'0' * 64}" in found
        assert len(found) == 4

    def test_a_link_to_a_bundle_counts_and_one_to_other_places_is_not_followed(self, runs: Path) -> None:
        (runs / "all").mkdir()
        path = store.finished(runs)[0]
        (runs / "all" / path.name).symlink_to(path)
        (runs / "all" / "up").symlink_to(runs)
        assert [one.name for one in store.gathered(runs / "all")] == [path.name]

    def test_what_is_no_folder_is_bad_input(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for name in ("nosuch", "file"):
            with pytest.raises(BadInput, match=f"{name} holds no bundles"):
                store.gathered(tmp_path / name)


def test_what_runs_leave_in_a_project_is_not_gits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store.begin(store.RUNS, "one")
    store.begin(tmp_path / "elsewhere", "one")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob(".gitignore")] == [".groundspeed/.gitignore"]
    assert (store.OWN / ".gitignore").read_text() == "*\n"
