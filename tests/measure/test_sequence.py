"""The sequential mode (statistics.md 4): each contender's samples in a row after the blocks, for comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import CONTENDERS, MEANS

from fakes import Died, Silence, fake_run, no_fault, noisy, seed_of
from groundspeed.errors import VerificationFailed
from groundspeed.evidence.protocol import FIRST_NAME, draw
from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import SEQUENTIAL
from groundspeed.judge.judgement import judge
from groundspeed.judge.replay import replay
from groundspeed.lab.check import declared


def run(folder: Path, fault: Any = no_fault, seconds: Any = None, **changes: Any) -> Record:
    record = fake_run(folder, seconds or noisy(MEANS), CONTENDERS, fault, **{"sequential": 10, **changes})
    replay(record, declared)
    return record


def rows(record: Record, process: int, case: int) -> list[tuple[str, int, int]]:
    """(contender, number, position) of the series, in the order of the file."""
    columns = record.samples
    keep = (columns["phase"] == SEQUENTIAL) & (columns["process"] == process) & (columns["case"] == case)
    names = [contender.name for contender in record.contenders]
    contender, block, position = (columns[key][keep].tolist() for key in ("contender", "block", "position"))
    return [(names[c], b, p) for c, b, p in zip(contender, block, position, strict=True)]


def test_each_contender_takes_its_samples_in_a_row_in_the_drawn_order(tmp_path: Path) -> None:
    record = run(tmp_path)
    for process in range(record.protocol.processes):
        for index, case in enumerate(record.cases):
            order = draw(seed_of(record), CONTENDERS, process, 0, case.name, "sequence")
            assert rows(record, process, index) == [(who, n, at) for at, who in enumerate(order) for n in range(10)]


def test_without_it_there_are_none(tmp_path: Path) -> None:
    record = run(tmp_path, sequential=0)
    assert not (record.samples["phase"] == SEQUENTIAL).any()
    assert {result.comparison.sequential for c in judge(record).cases for result in c.results if result.comparison} == {
        None
    }


def test_it_agrees_where_nothing_drifts(tmp_path: Path) -> None:
    judgement = judge(run(tmp_path))
    for case in judgement.cases:
        fast = case.result("fast").comparison
        assert fast is not None
        assert fast.sequential is not None
        assert fast.sequential.mean == pytest.approx(fast.interval.mean, abs=0.01)
    assert not [w for w in judgement.warnings if w.code == "sequential"]


def test_a_drift_that_it_falls_for_is_told_and_decides_nothing(tmp_path: Path) -> None:
    """A machine that gets slower sample by sample: all contenders are alike, and who comes first looks best."""
    taken = {"samples": 0}

    def seconds(contender: str, case: str, block: int) -> float:
        taken["samples"] += 1
        return 1e-3 * (1 + 4e-3 * (taken["samples"] % 100))

    judgement = judge(run(tmp_path, seconds=seconds, shapes=("B=1,S=64,causal=0",)))
    comparison = judgement.cases[0].result("fast").comparison
    assert comparison is not None
    assert comparison.verdict in ("SAME", "UNCLEAR")
    (warning,) = [w for w in judgement.warnings if w.code == "sequential"]
    assert warning.message.startswith("timed one after the other, fast on ")
    assert "interleaved" in warning.remedy


@pytest.mark.parametrize("how", [Silence(), Died("killed by SIGSEGV"), {"status": "ERROR", "reason": "ValueError"}])
def test_a_contender_that_fails_in_it_falls_and_the_others_keep_their_verdicts(tmp_path: Path, how: Any) -> None:
    calls: dict[str, int] = {}

    def fault(contender: str, case: str, block: int | None) -> Any:
        calls[case] = calls.get(case, 0) + (contender == "slow" and block is not None)
        return how if contender == "slow" and block == 3 and calls[case] > 10 else None

    record = run(tmp_path, fault, shapes=("B=1,S=64,causal=0",))
    (case,) = judge(record).cases
    assert case.result("slow").status in ("TIMEOUT", "ERROR")
    assert case.result("fast").status == "PASSED"
    first = next(o for o in record.outcomes if o.contender == "slow")
    assert first.block == record.stops[0].blocks


class TestTampering:
    def fails(self, record: Record) -> None:
        with pytest.raises(VerificationFailed, match="sequence is not the one"):
            replay(record, declared)

    @pytest.mark.parametrize(
        "change",
        [
            lambda rows: rows[::-1],
            lambda rows: np.roll(rows, 1),
        ],
        ids=["reversed", "rolled"],
    )
    def test_another_order(self, tmp_path: Path, change: Callable[[Any], Any]) -> None:
        record = run(tmp_path)
        columns = {name: column.copy() for name, column in record.samples.items()}
        at = np.flatnonzero((columns["phase"] == SEQUENTIAL) & (columns["process"] == 0) & (columns["case"] == 0))
        for name in ("contender", "position", "block"):
            columns[name][at] = columns[name][change(at)]
        self.fails(replace(record, samples=columns))

    def test_more_samples_than_declared(self, tmp_path: Path) -> None:
        record = run(tmp_path, name=FIRST_NAME)
        self.fails(replace(record, protocol=replace(record.protocol, sequential=9)))

    @pytest.mark.parametrize("who", [None, "fast"])
    def test_samples_taken_out(self, tmp_path: Path, who: str | None) -> None:
        record = run(tmp_path)
        gone = record.samples["phase"] == SEQUENTIAL
        if who:
            gone &= record.samples["contender"] == record.contender_index[who]
        rest = {name: column[~gone] for name, column in record.samples.items()}
        with pytest.raises(VerificationFailed, match="its sequence is incomplete"):
            replay(replace(record, samples=rest), declared)
