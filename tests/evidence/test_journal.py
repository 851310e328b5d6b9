"""The journal: on disk before the next block; a torn last line is dropped, other damage is an error."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from bundles import MEANS, same, small_record

from fakes import Died, begin, continue_run, header, noisy
from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import journal
from groundspeed.evidence.journal import FILE, Journal, from_record, read_events, restore, to_record
from groundspeed.evidence.record import Record
from groundspeed.judge.replay import replay


def lines_of(record: Record) -> list[bytes]:
    return [json.dumps(event).encode() + b"\n" for event in from_record(record)]


def put(folder: Path, content: bytes) -> Path:
    (folder / FILE).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def eventful() -> Record:
    """A contender dies in the first process and is not tried again: workers replaced, statuses of all kinds."""

    def fault(contender: str, case: str, block: int | None) -> Exception | None:
        return Died("killed") if (contender, block) == ("ours", 1) else None

    return small_record(fault, processes=3)


class TestTornLine:
    def test_at_every_byte_of_the_last_line(self, record: Record, tmp_path: Path) -> None:
        """The machine may go down at any moment of a write: what was complete before it stays."""
        *whole, last = lines_of(record)
        expected = to_record([json.loads(line) for line in whole], "journal")
        for length in range(len(last)):
            put(tmp_path, b"".join(whole) + last[:length])
            assert same(to_record(read_events(tmp_path), "journal"), expected)
        put(tmp_path, b"".join(whole) + last)
        assert not same(to_record(read_events(tmp_path), "journal"), expected)

    @pytest.mark.parametrize("torn", [b"", b"{", b'{"kind":"stop"', b"\x00\x00\x00", b"\xff"])
    def test_is_cut_off_before_the_journal_goes_on(self, record: Record, tmp_path: Path, torn: bytes) -> None:
        whole = b"".join(lines_of(record))
        put(tmp_path, whole + torn)
        log = Journal(tmp_path)
        log.write("interrupted", date="later")
        log.close()
        assert (tmp_path / FILE).read_bytes() == whole + b'{"kind":"interrupted","date":"later"}\n'

    def test_nothing_but_a_torn_line(self, tmp_path: Path) -> None:
        put(tmp_path, b'{"kind":"run"')
        with pytest.raises(BadInput, match="nothing was measured yet"):
            read_events(tmp_path)
        Journal(tmp_path).close()
        assert (tmp_path / FILE).read_bytes() == b""


class TestDamage:
    @pytest.mark.parametrize("line", [b"{\n", b"\n", b"garbage\n", b"[1]\n", b"{}\n", b'{"kind":7}\n', b"\xff\xfe\n"])
    @pytest.mark.parametrize("number", [2, 5])
    def test_in_the_middle_names_the_line(self, record: Record, tmp_path: Path, line: bytes, number: int) -> None:
        lines = lines_of(record)
        lines[number - 1] = line
        put(tmp_path, b"".join(lines))
        with pytest.raises(BadInput, match=f"line {number}"):
            read_events(tmp_path)

    def test_two_lines_run_into_each_other(self, record: Record, tmp_path: Path) -> None:
        lines = lines_of(record)
        lines[2] = lines[2].rstrip(b"\n")
        put(tmp_path, b"".join(lines))
        with pytest.raises(BadInput, match=r"line 3.*Extra data"):
            read_events(tmp_path)

    def test_without_its_head(self, record: Record, tmp_path: Path) -> None:
        put(tmp_path, b"".join(lines_of(record)[1:]))
        with pytest.raises(BadInput, match="nothing was measured yet"):
            read_events(tmp_path)

    @pytest.mark.parametrize("content", [None, b""])
    def test_missing_or_empty(self, tmp_path: Path, content: bytes | None) -> None:
        if content is not None:
            put(tmp_path, content)
        with pytest.raises(BadInput, match=FILE):
            read_events(tmp_path)

    def test_an_unknown_event(self, record: Record) -> None:
        events = [*from_record(record), {"kind": "holiday"}]
        with pytest.raises(BadInput, match="unknown event 'holiday'"):
            to_record(events, "journal")

    @pytest.mark.parametrize(
        "event",
        [
            {"kind": "worker", "process": 9, "attempt": 0, "environment": {}},
            {"kind": "process end", "process": 9, "attempt": 0, "finished": 1.0, "date": "x"},
            {"kind": "process", "process": 1},
            {"kind": "process", "process": [], "attempt": 0},
            {"kind": "stop"},
            {"kind": "outcome", "process": 0, "attempt": 0, "case": "b1-h8-s8-d64-full-fp32"},
            {"kind": "block", "process": 0, "attempt": 0, "worker": 0, "case": "nowhere", "block": 0, "samples": []},
            {"kind": "interrupted"},
        ],
    )
    def test_an_event_without_its_parts(self, record: Record, event: dict[str, Any]) -> None:
        with pytest.raises(BadInput, match="journal"):
            to_record([*from_record(record), event], "journal")

    @pytest.mark.parametrize(
        "sample",
        [
            ["nobody", 0, 0.0, 1.0, 1, 0],
            ["base", 0, 0.0, 1.0, 1, None],
            ["base", 0, 0.0, 1.0, 1, 0, 0, None],
            ["base", 10**9, 0.0, 1.0, 1, 0, None],
            ["base", 0, 0.0, 1.0, 2**40, 0, None],
            ["base", 0, 0.0, -1.0, 1, 0, None],
            ["base", 0, 0.0, 1.0, 0, 0, None],
            ["base", 0, None, 1.0, 1, 0, None],
            ["base", 0, 0.0, "soon", 1, 0, None],
            [["base"], 0, 0.0, 1.0, 1, 0, None],
            ["base", 0, 0.0, 1.0, 1, 0, []],
            ["base", 0, 0.0, 1.0, 1, 0, [1980.0, 40.0, 300.0]],
            ["base", 0, 0.0, 1.0, 1, 0, [1980.0, 40.0, 300.0, 0, 0]],
            ["base", 0, 0.0, 1.0, 1, 0, [-1980.0, 40.0, 300.0, 0]],
            ["base", 0, 0.0, 1.0, 1, 0, [[1980.0], 40.0, 300.0, 0]],
            ["base", 0, 0.0, 1.0, 1, 0, ["fast", "hot", "much", "no"]],
            ["base", 0, 0.0, 1.0, 1, 0, [None, None, None, 2**63]],
            ["base", 0, 0.0, 1.0, 1, 0, "none"],
            ["base", 0, 0.0, 1.0, 1, 0, 7],
            "base",
            7,
        ],
    )
    def test_a_damaged_sample(self, record: Record, sample: Any) -> None:
        events = from_record(record)
        block = {**next(e for e in events if e["kind"] == "block"), "block": 99, "samples": [sample]}
        with pytest.raises(BadInput, match="journal"):
            to_record([*events, block], "journal")

    @pytest.mark.parametrize("facts", [None, [], {}, {"run": {}}, 7])
    def test_a_damaged_head(self, facts: Any) -> None:
        with pytest.raises(BadInput, match="journal"):
            to_record([{"kind": "run", "facts": facts}], "journal")


class TestRoundTrip:
    """The bundle is the journal in its final form and nothing else."""

    def test_a_complete_record(self, record: Record) -> None:
        assert same(to_record(from_record(record), "journal"), record)

    def test_an_eventful_record(self, eventful: Record) -> None:
        assert max(p.workers for p in eventful.processes) == 2
        assert {o.status for o in eventful.outcomes} == {"PASSED", "ERROR", "SKIPPED"}
        assert same(to_record(from_record(eventful), "journal"), eventful)

    def test_after_every_event_of_a_run(self, eventful: Record) -> None:
        """Wherever a run is interrupted, its unfinished bundle holds what its journal held."""
        events = from_record(eventful)
        for length in range(1, len(events) + 1):
            interrupted = [*events[:length], {"kind": "interrupted", "date": "2026-01-02"}]
            left = to_record(interrupted, "journal")
            assert left.run.finished == "2026-01-02"
            assert same(to_record(from_record(left), "journal"), left)

    def test_through_a_file(self, eventful: Record, tmp_path: Path) -> None:
        restore(tmp_path, eventful)
        assert same(to_record(read_events(tmp_path), "journal"), eventful)
        assert [path.name for path in tmp_path.iterdir()] == [FILE]

    def test_a_run_goes_on_from_every_event(self, tmp_path: Path) -> None:
        """--resume: finished processes stay, the others are begun again, and the whole verifies."""
        whole = small_record(processes=3)
        events = from_record(whole)
        for length in range(1, len(events)):
            folder = tmp_path / str(length)
            log = begin(folder, events[0]["facts"])
            for event in events[1:length]:
                log.write(**event)
            log.close()
            resumed = continue_run(folder, noisy(MEANS))
            assert resumed.complete
            replay(resumed)
            before = {e["process"] for e in events[:length] if e["kind"] == "process end"}
            again = {p.process for p in resumed.processes if p.attempt > 0}
            assert before.isdisjoint(again)
            assert all(resumed.finished_attempts[process] == 0 for process in before)


class TestWriting:
    def test_every_event_is_on_disk_when_write_returns(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        synced: list[bytes] = []
        monkeypatch.setattr(journal.os, "fsync", lambda descriptor: synced.append((tmp_path / FILE).read_bytes()))
        log = Journal(tmp_path)
        log.write("process", process=0, attempt=0, started=1.0)
        log.write("interrupted", date="now")
        log.close()
        assert [content.count(b"\n") for content in synced] == [1, 2]
        assert synced[-1] == (tmp_path / FILE).read_bytes()

    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(GroundspeedError, match="choose another folder with --out") as failure:
            Journal(tmp_path / "file")
        assert failure.value.exit_code == 4

    def test_a_full_disk_keeps_what_was_measured(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = begin(tmp_path, header(list(MEANS)))

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(journal.os, "fsync", full)
        with pytest.raises(GroundspeedError, match=r"No space left on device.*--resume") as failure:
            log.write("interrupted", date="now")
        log.close()
        assert failure.value.exit_code == 4
        assert read_events(tmp_path)[0]["kind"] == "run"

    def test_closing_after_a_failed_write_says_nothing_more(self, tmp_path: Path) -> None:
        """What the failed write left in the buffer cannot be written by closing either."""
        full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
        log = Journal(tmp_path)
        with mock.patch.object(log, "_file", mock.Mock(flush=full, close=full)):
            with pytest.raises(GroundspeedError, match="No space left"):
                log.write("interrupted", date="now")
            log.close()
        assert full.call_count == 2
        log.close()

    def test_a_number_that_is_none_never_reaches_the_disk(self, tmp_path: Path) -> None:
        log = Journal(tmp_path)
        with pytest.raises(ValueError, match="JSON"):
            log.write("stop", elapsed_s=float("nan"))
        log.close()
        assert (tmp_path / FILE).read_bytes() == b""
