"""The replay: a record is one that its own protocol would have produced, or verification fails and says where (D3).

Every tampering here keeps the record well-formed: hashes over it would agree."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import Died, Silence, fake_run, noisy, seed_of
from groundspeed.errors import BadInput, VerificationFailed
from groundspeed.evidence.protocol import FIRST_NAME, draw
from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import TIMED
from groundspeed.judge.replay import replay
from groundspeed.lab.check import declared
from records import MEANS, interrupted, run

THREE = {**MEANS, "other": 0.9e-3}


@pytest.fixture(scope="module")
def record() -> Record:
    """All processes stop at the first look."""
    return run(THREE)


@pytest.fixture(scope="module")
def wild() -> Record:
    """So noisy that processes go on to the last look."""
    return run(noisy(THREE, 0.1), list(THREE))


def fails(record: Record, *said: str) -> None:
    with pytest.raises(VerificationFailed) as failure:
        replay(record, declared)
    for words in said:
        assert words in str(failure.value)


def with_stop(record: Record, index: int, **changes: Any) -> Record:
    stops = list(record.stops)
    stops[index] = replace(stops[index], **changes)
    return replace(record, stops=tuple(stops))


def with_outcome(record: Record, index: int, **changes: Any) -> Record:
    outcomes = list(record.outcomes)
    outcomes[index] = replace(outcomes[index], **changes)
    return replace(record, outcomes=tuple(outcomes))


def with_case(record: Record, **changes: Any) -> Record:
    return replace(record, cases=(replace(record.cases[0], **changes), *record.cases[1:]))


def with_column(record: Record, name: str, change: Callable[[np.ndarray], None]) -> Record:
    column = record.samples[name].copy()
    change(column)
    return replace(record, samples={**record.samples, name: column})


def rows(record: Record, **where: int) -> np.ndarray:
    """Indices of the timed samples with these values."""
    keep = record.samples["phase"] == TIMED
    for name, value in where.items():
        keep = keep & (record.samples[name] == value)
    return np.flatnonzero(keep)


def without_rows(record: Record, drop: np.ndarray) -> Record:
    return replace(record, samples={name: np.delete(column, drop) for name, column in record.samples.items()})


class TestHonest:
    def test_counts_what_it_recomputed(self, record: Record) -> None:
        result = replay(record, declared)
        assert (result.blocks, result.stops) == (4 * 2 * 10, 8)
        assert result.figures > 300
        assert result.judgement.grids[0].verdicts["FASTER"] == 2

    def test_to_the_last_look(self, wild: Record) -> None:
        assert {stop.blocks for stop in wild.stops} == {40}
        assert replay(wild, declared).blocks == 4 * 2 * 40

    def test_stopped_at_its_budget(self) -> None:
        short = run(noisy(THREE, 0.1), list(THREE), budget_s=0.45)
        assert "budget" in {stop.why for stop in short.stops}
        replay(short, declared)

    def test_only_the_baseline(self) -> None:
        alone = run({"base": 1e-3})
        assert {(stop.why, stop.blocks) for stop in alone.stops} == {("no pair left", 10)}
        replay(alone, declared)

    @pytest.mark.parametrize("finished", range(4))
    def test_interrupted(self, record: Record, finished: int) -> None:
        part = interrupted(record, finished)
        assert not part.complete
        replay(part, declared)

    def test_everyone_fell(self) -> None:
        def fault(contender: str, case: str, block: int | None) -> dict[str, str] | None:
            return {"status": "ERROR", "reason": "broken"} if block == 3 else None

        fallen = run(THREE, fault=fault)
        assert {(stop.blocks, stop.why) for stop in fallen.stops} == {(4, "no pair left")}
        replay(fallen, declared)

    @given(st.integers(0, 2**32), st.sampled_from([0.002, 0.01, 0.05]), st.sampled_from([0.01, 0.05, 0.1]))
    @settings(max_examples=25, deadline=None)
    def test_whatever_happens_to_the_contenders(self, seed: int, rate: float, noise: float) -> None:
        """Raising, wrong, hanging, dying, out of memory, at any moment: what the runner leaves verifies."""
        dice = random.Random(seed)

        def fault(contender: str, case: str, block: int | None) -> Any:
            if dice.random() > (rate if block is not None else 5 * rate):
                return None
            status = dice.choice(["ERROR", "INCORRECT", "OOM", "TIMEOUT", "DIED"])
            if status == "TIMEOUT":
                return Silence()
            return Died("killed") if status == "DIED" else {"status": status, "reason": "scripted"}

        replay(run(noisy(THREE, noise, seed), list(THREE), fault=fault, processes=2), declared)

    def test_a_suite_that_this_version_does_not_know(self, record: Record) -> None:
        """Its cases cannot be compared with a declaration, and verify does not pretend that they were."""
        other = replace(record, run=replace(record.run, suite="sorting"))
        with pytest.raises(BadInput, match="unknown suite 'sorting'"):
            replay(other, declared)

    def test_without_declarations(self, record: Record) -> None:
        assert replay(with_case(record, flops=1)).stops == 8


class TestOrder:
    """D1: random interleaved blocks, drawn from the seed and recorded."""

    def test_positions_of_two_samples_swapped(self, record: Record) -> None:
        first, second, *_ = rows(record, process=1, case=0, block=4)

        def swap(position: np.ndarray) -> None:
            position[[first, second]] = position[[second, first]]

        fails(with_column(record, "position", swap), "process 1, b1-", "block 4", "order")

    def test_the_times_of_two_contenders_swapped_with_their_names(self, record: Record) -> None:
        first, second, *_ = rows(record, process=1, case=0, block=4)

        def swap(contender: np.ndarray) -> None:
            contender[[first, second]] = contender[[second, first]]

        fails(with_column(record, "contender", swap), "process 1, b1-", "block 4", "order")

    def test_rows_that_are_not_in_the_order_they_were_taken(self, record: Record) -> None:
        first, second, *_ = rows(record, process=1, case=0, block=4)
        swapped = np.arange(len(record.samples["process"]))
        swapped[[first, second]] = swapped[[second, first]]
        fails(replace(record, samples={n: column[swapped] for n, column in record.samples.items()}), "block 4", "order")

    def test_the_seed_changed(self, record: Record) -> None:
        fails(replace(record, protocol=replace(record.protocol, seed=8)), "order", "seed")

    def test_samples_moved_to_another_process(self, record: Record) -> None:
        """The same measurement cannot count twice."""
        moved = rows(record, process=0), rows(record, process=1)

        def copy(column: np.ndarray) -> None:
            column[moved[1]] = column[moved[0]]

        copied = record
        for name in ("case", "contender", "block", "position", "seconds"):
            copied = with_column(copied, name, copy)
        fails(copied, "process 1", "order")

    def test_a_sample_of_a_contender_that_was_not_measured(self, record: Record) -> None:
        absent = tuple(
            replace(c, status="SKIPPED", reason="not wanted") if c.name == "other" else c for c in record.contenders
        )
        fails(replace(record, contenders=absent), "order")

    def test_the_order_of_the_cases(self, record: Record) -> None:
        stops = record.stops
        fails(replace(record, stops=(stops[1], stops[0], *stops[2:])), "process 0", "order of its cases")
        names = [case.name for case in record.cases]
        assert [s.case for s in stops[:2]] == draw(seed_of(record), names, 0, 0, "cases")


class TestStops:
    def test_a_stop_later_than_the_samples(self, record: Record) -> None:
        fails(with_stop(record, 0, blocks=20), "process 0", "10 blocks were taken", "stopped after 20")

    def test_a_stop_earlier_than_the_samples(self, wild: Record) -> None:
        fails(with_stop(wild, 0, blocks=20), "40 blocks were taken", "stopped after 20")

    @pytest.mark.parametrize("blocks", [-1, 2**62])
    def test_an_absurd_number_of_blocks(self, record: Record, blocks: int) -> None:
        fails(with_stop(record, 0, blocks=blocks), f"stopped after {blocks}")

    def test_a_wrong_reason(self, record: Record) -> None:
        fails(with_stop(record, 0, why="last look"), "stopped at block 10 for 'last look'", "says 'width'")

    @pytest.mark.parametrize("why", ["width", "budget", "no pair left"])
    def test_a_wrong_reason_at_the_last_look(self, wild: Record, why: str) -> None:
        fails(with_stop(wild, 0, why=why), f"'{why}'", "says 'last look'")

    def test_stopped_between_the_looks(self, wild: Record) -> None:
        """A run that stops when it likes what it sees."""
        part = without_rows(wild, np.flatnonzero(wild.samples["block"] >= 15))
        for i, stop in enumerate(part.stops):
            part = with_stop(part, i, blocks=15, why="width")
            assert stop.blocks == 40
        fails(part, "stopped at block 15 for 'width'", "says 'go on'")

    def test_stopped_at_a_look_while_too_wide(self, wild: Record) -> None:
        part = without_rows(wild, np.flatnonzero(wild.samples["block"] >= 20))
        for i in range(len(part.stops)):
            part = with_stop(part, i, blocks=20, why="width")
        fails(part, "stopped at block 20 for 'width'", "says 'go on'")

    def test_went_on_after_it_was_narrow(self) -> None:
        """Sampling on until the result pleases: with another width declared, the first look would have been enough.
        Draws of the first protocol do not depend on the width, so this is what gives it away."""
        wild = run(noisy(THREE, 0.1), list(THREE), name=FIRST_NAME)
        fails(replace(wild, protocol=replace(wild.protocol, half_width=10.0)), "stops it at block 10 (width)", "to 40")

    def test_went_on_after_the_budget_was_spent(self) -> None:
        """Time only grows: what the case before had used up was used up at every look of this one."""
        long = run(noisy(THREE, 0.1), list(THREE), name=FIRST_NAME)
        spent = long.stops[0].elapsed_s
        limited = replace(long, protocol=replace(long.protocol, budget_s=4 * spent * 0.99))
        fails(limited, "process 0", "stops it at block 10 (budget)", "to 40")

    @pytest.mark.parametrize(("elapsed_s", "why"), [(-3600.0, "time ran backwards"), (1e6, "longer than it lasted")])
    def test_time_that_no_process_can_have_spent(self, record: Record, elapsed_s: float, why: str) -> None:
        """The time budget can end a process early, so it is not free to be claimed."""
        fails(with_stop(record, 1, elapsed_s=elapsed_s), why)

    def test_a_case_taken_out_afterwards(self, record: Record) -> None:
        """D7: the losing case cannot be deleted from the evidence."""
        gone = record.case_index[record.cases[1].name]
        keep = record.samples["case"] != gone
        rest = {name: column[keep] for name, column in record.samples.items()}
        name = record.cases[1].name
        fails(
            replace(
                record,
                cases=record.cases[:1],
                samples=rest,
                outcomes=tuple(o for o in record.outcomes if o.case != name),
                stops=tuple(s for s in record.stops if s.case != name),
            ),
            "the order is not the one its seed draws",
        )

    def test_a_process_finished_without_stops(self, record: Record) -> None:
        fails(replace(record, stops=record.stops[:6]), "process 3 is marked as finished but never stopped")

    def test_one_stop_missing(self, record: Record) -> None:
        fails(replace(record, stops=record.stops[1:]), f"never stopped on {record.stops[0].case}")

    def test_stopped_twice(self, record: Record) -> None:
        fails(replace(record, stops=(record.stops[0], *record.stops)), "process 0 stopped twice")


class TestOutcomes:
    @pytest.mark.parametrize("index", [0, 1, 2, 13, 23])
    def test_removed(self, record: Record, index: int) -> None:
        gone = record.outcomes[index]
        left = (*record.outcomes[:index], *record.outcomes[index + 1 :])
        fails(
            replace(record, outcomes=left),
            f"process {gone.process}, {gone.case}, {gone.contender}: its outcome is missing",
        )

    @pytest.mark.parametrize("name", ["max_abs", "mean_abs", "max_rel", "rms_rel"])
    def test_an_error_over_the_tolerance_with_passed(self, record: Record, name: str) -> None:
        """Promise 1: it never times a wrong kernel."""
        fails(with_outcome(record, 0, **{name: 1.0}), f"PASSED, but its {name} 1.0 exceeds the tolerance")

    def test_an_error_that_was_never_taken_with_passed(self, record: Record) -> None:
        fails(with_outcome(record, 0, rms_rel=None), "PASSED, but its rms_rel is missing")

    def test_a_rival_declared_broken_after_it_was_measured(self, record: Record) -> None:
        """Hiding a contender that won: its samples show that it went on."""
        index = next(i for i, o in enumerate(record.outcomes) if o.contender == "other")
        fails(with_outcome(record, index, status="ERROR", reason="it broke"), "other: ERROR, but timed after that")
        fails(with_outcome(record, index, status="ERROR", reason="it broke", block=4), "ERROR, but timed after that")

    def test_checks_cleared(self, record: Record) -> None:
        fails(with_column(record, "checked", lambda checked: checked.fill(0)), "no timed call was checked")

    def test_checks_cleared_for_one_contender_of_one_process(self, record: Record) -> None:
        def clear(checked: np.ndarray) -> None:
            checked[rows(record, process=2, case=1, contender=2)] = 0

        fails(with_column(record, "checked", clear), "process 2, b2-", "other: no timed call was checked")

    def test_a_check_of_the_warm_up_does_not_count(self, record: Record) -> None:
        """The gate is repeated on timed calls: a warm-up may be served from elsewhere."""
        columns = record.samples
        fails(
            with_column(record, "checked", lambda checked: np.copyto(checked, columns["phase"] != TIMED)),
            "no timed call was checked",
        )

    @pytest.mark.parametrize("block", [0, 5, 9])
    def test_a_sample_removed(self, record: Record, block: int) -> None:
        """The slowest, say."""
        fails(without_rows(record, rows(record, process=1, case=0, contender=2, block=block)), "samples are missing")

    def test_a_sample_removed_in_a_block_where_another_failed_harmlessly(self) -> None:
        """Only a contender that takes the worker with it cuts a block short for the others."""

        def fault(contender: str, case: str, block: int | None) -> dict[str, str] | None:
            wrong = (contender, case, block) == ("other", "b1-s64", 4)
            return {"status": "INCORRECT", "reason": "wrong"} if wrong else None

        part = run(THREE, fault=fault)
        fails(without_rows(part, rows(part, process=1, case=0, contender=1, block=4)), "samples are missing")

    def test_a_block_cut_short_by_a_death_lacks_samples_rightly(self) -> None:
        def fault(contender: str, case: str, block: int | None) -> Exception | None:
            return Died("killed") if (contender, block) == ("other", 4) else None

        cut = run(THREE, fault=fault)
        assert any(len(rows(cut, process=0, case=case, block=4)) < 3 for case in (0, 1))
        replay(cut, declared)


class TestDeclaration:
    """A bundle cannot buy TFLOP/s by claiming more work, or a pass by a looser tolerance."""

    def test_flops_changed(self, record: Record) -> None:
        fails(with_case(record, flops=2 * record.cases[0].flops), "b1-", "flops 16777216, its shape declares 8388608")

    def test_bytes_changed(self, record: Record) -> None:
        fails(with_case(record, bytes=1), "bytes 1, its shape declares")

    def test_counts_changed(self, record: Record) -> None:
        fails(with_case(record, counts={**record.cases[0].counts, "tokens": 10**9}), "counts")

    def test_tolerance_loosened(self, record: Record) -> None:
        bound = record.cases[0].tolerance["max_abs"]
        loose = with_case(record, tolerance={**record.cases[0].tolerance, "max_abs": 1.0})
        fails(loose, f"b1-h8-s64-d64-full-fp32: the record tolerates a max_abs of 1.0, its shape only {bound}")

    def test_tolerance_left_out(self, record: Record) -> None:
        fails(with_case(record, tolerance={}), "the record tolerates a max_abs of inf")

    def test_a_tolerance_that_was_stricter_then_is_no_harm(self, record: Record) -> None:
        """A later version may find that a tolerance was too tight: bundles from before it still verify."""
        strict = {name: bound / 2 for name, bound in record.cases[0].tolerance.items()}
        replay(with_case(record, tolerance=strict), declared)

    def test_another_shape_under_the_same_work(self, record: Record) -> None:
        fails(with_case(record, params={**record.cases[0].params, "S": 128}), "is not the name of this shape")


@pytest.mark.parametrize("name", ["paired-blocks/6", "", "mine"])
def test_another_protocol_cannot_be_replayed(record: Record, name: str) -> None:
    other = replace(record, protocol=replace(record.protocol, name=name))
    fails(other, "is unknown here; this version replays paired-blocks/1")


def test_a_case_goes_by_a_name_of_its_shape(tmp_path: Path) -> None:
    """D4: a bundle cannot pass a small shape off as a large one."""
    record = fake_run(tmp_path, noisy({"a": 1e-3, "b": 9e-4}), ["a", "b"])
    facts = replace(record.cases[0], aliases=("ref-128-full-fp16",))
    forged = replace(record, cases=(facts, *record.cases[1:]))
    with pytest.raises(VerificationFailed, match="is not the name of this shape"):
        replay(forged, declared)
    extra = replace(record.cases[0], params={**record.cases[0].params, "direction": "backward"})
    with pytest.raises(VerificationFailed, match="the record has params"):
        replay(replace(record, cases=(extra, *record.cases[1:])), declared)
