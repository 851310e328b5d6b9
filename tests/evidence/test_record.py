"""A record out of foreign facts: names and numbers that refer to each other do, and no run is described that could not
have been. Absurd values are as likely as wrong ones."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bundles import empty_samples

from fakes import protocol
from groundspeed.errors import BadInput
from groundspeed.evidence.coherence import LONGEST_S, SHORTEST_S, from_facts
from groundspeed.evidence.protocol import MAX_BLOCKS, MAX_LOOKS, MAX_NUMBER, derive_seed, draw
from groundspeed.evidence.record import Outcome, Record
from groundspeed.evidence.samples import COLUMNS, TIMED
from groundspeed.evidence.tables import to_facts

Change = Callable[[Any], Any]


def refused(record: Record, said: str, change: Change | None = None, samples: dict[str, Any] | None = None) -> None:
    facts = copy.deepcopy(to_facts(record))
    if change:
        change(facts)
    with pytest.raises(BadInput, match="file") as failure:
        from_facts(facts, samples or record.samples, "file")
    assert said in str(failure.value)


def test_what_was_kept_comes_back(record: Record) -> None:
    assert to_facts(from_facts(to_facts(record), record.samples, "file")) == to_facts(record)


class TestReferences:
    @pytest.mark.parametrize(
        ("said", "change"),
        [
            ("a case appears twice", lambda f: f["cases"].append(f["cases"][0])),
            ("a contender appears twice", lambda f: f["contenders"].append(f["contenders"][0])),
            ("baseline 'nobody' is not among the measured", lambda f: f["run"].update(baseline="nobody")),
            ("judged contender 'nobody'", lambda f: f["run"].update(judged=["nobody"])),
            ("judged twice", lambda f: f["run"].update(judged=["ours", "ours"])),
            ("the baseline against itself", lambda f: f["run"].update(judged=["ours", "base"])),
            ("unknown case 'elsewhere'", lambda f: f["outcomes"][0].update(case="elsewhere")),
            ("unknown case 'elsewhere'", lambda f: f["stops"][0].update(case="elsewhere")),
            ("unknown contender 'nobody'", lambda f: f["outcomes"][0].update(contender="nobody")),
            ("process 1, attempt 5 was never started", lambda f: f["stops"][1].update(attempt=5)),
            ("process 7, attempt 0 was never started", lambda f: f["outcomes"][0].update(process=7)),
            ("two outcomes on one case", lambda f: f["outcomes"].append(f["outcomes"][0])),
            ("the attempts of a process are not numbered", lambda f: f["processes"].append(f["processes"][0])),
            ("a process finished twice", lambda f: f["processes"].append({**f["processes"][0], "attempt": 1})),
            ("a process has an impossible duration", lambda f: f["processes"][0].update(finished=1e300)),
            ("a process has an impossible duration", lambda f: f["processes"][0].update(finished=-1.0)),
            ("an impossible start", lambda f: f["processes"][0].update(started=-1e300)),
            ("an impossible start", lambda f: f["processes"][0].update(started=1e300, finished=1e300)),
            ("a stop has an impossible time", lambda f: f["stops"][0].update(elapsed_s=1e300)),
            ("first call of 'base' has an impossible duration", lambda f: f["outcomes"][0].update(prepare_s=1e300)),
            ("a process number is out of range", lambda f: f["processes"][1].update(process=2)),
            ("a process number is out of range", lambda f: f["processes"][0].update(process=-1)),
            ("that was never started", lambda f: f["processes"][0].update(workers=0)),
        ],
    )
    def test_to_what_does_not_exist(self, record: Record, said: str, change: Change) -> None:
        refused(record, said, change)

    @pytest.mark.parametrize("status", ["ABSENT", "SKIPPED"])
    def test_the_baseline_must_have_been_measured(self, record: Record, status: str) -> None:
        refused(record, "baseline", lambda f: f["contenders"][0].update(status=status, reason="it was not there"))


class TestValues:
    @pytest.mark.parametrize(
        ("said", "change"),
        [
            (
                "every status but PASSED needs a reason, and PASSED has none",
                lambda f: f["outcomes"][0].update(status="ERROR"),
            ),
            (
                "every status but PASSED needs a reason, and PASSED has none",
                lambda f: f["outcomes"][0].update(reason="so"),
            ),
            ("cannot have dropped out", lambda f: f["outcomes"][0].update(block=3)),
            ("cannot have dropped out", lambda f: f["outcomes"][0].update(lost_worker=True)),
            ("INVALID", lambda f: f["outcomes"][0].update(status="INVALID", reason="beyond physics")),
            ("is negative", lambda f: f["outcomes"][0].update(max_abs=-1.0)),
            ("is negative", lambda f: f["outcomes"][0].update(host_peak_bytes=-1)),
            ("is negative", lambda f: f["cases"][0].update(flops=-1)),
            ("is negative", lambda f: f["cases"][0].update(bytes=-1)),
            ("is negative", lambda f: f["cases"][0]["counts"].update(tokens=-1)),
            ("unknown error measure 'status'", lambda f: f["cases"][0]["tolerance"].update(status=1.0)),
            ("name of a parameter", lambda f: f["cases"][0]["params"].update(B="9" * 4000)),
            ("name of a parameter", lambda f: f["cases"][0]["params"].update({"\x1b": 1})),
            ("name of a case", lambda f: f["cases"][0].update(aliases=["a\tb"])),
            ("a contender that is not measured needs a reason", lambda f: f["contenders"][1].update(status="ABSENT")),
            ("a contender that is not measured needs a reason", lambda f: f["contenders"][1].update(reason="so")),
            ("out of range", lambda f: f["processes"][0].update(workers=10**18)),
            ("out of range", lambda f: f["processes"][0].update(workers=-1)),
            ("out of range", lambda f: f["processes"][0].update(attempt=-1)),
            ("out of range", lambda f: f["processes"][0].update(attempt=10**6)),
            ("not one of width, last look, budget, no pair left", lambda f: f["stops"][0].update(why="bored")),
            ("not one of declared, asked", lambda f: f["run"].update(baseline_origin="dreamt")),
            ("and not chosen afterwards", lambda f: f["run"].update(baseline_origin="chosen afterwards")),
        ],
    )
    def test_that_no_run_leaves(self, record: Record, said: str, change: Change) -> None:
        refused(record, said, change)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"processes": 0}, "at least 1"),
            ({"processes": MAX_NUMBER + 1}, "at most"),
            ({"threads": 0}, "at least 1"),
            ({"input_sets": -1}, "at least 1"),
            ({"looks": ()}, "looks must increase"),
            ({"looks": (0, 10)}, "looks must increase"),
            ({"looks": (10, 10)}, "looks must increase"),
            ({"looks": (20, 10)}, "looks must increase"),
            ({"looks": tuple(range(1, MAX_LOOKS + 2))}, "looks"),
            ({"looks": (10, MAX_BLOCKS + 1)}, "looks"),
            ({"half_width": 0.0}, "above 0"),
            ({"timeout_s": -1.0}, "above 0"),
            ({"warmup_s": 0.0}, "above 0"),
        ],
    )
    def test_that_no_protocol_has(self, record: Record, changes: dict[str, Any], said: str) -> None:
        with pytest.raises(ValueError, match=said):
            protocol(**changes)
        refused(record, said, lambda f: f["protocol"].update({k: _plain(v) for k, v in changes.items()}))


class TestSamples:
    @pytest.mark.parametrize(
        ("column", "value", "said"),
        [
            ("case", 1, "case number 1, which does not exist"),
            ("case", -1, "case number -1"),
            ("contender", 2, "contender number 2"),
            ("contender", -3, "contender number -3"),
            ("process", 2, "never started"),
            ("process", -1, "never started"),
            ("attempt", 1, "never started"),
            ("worker", 1, "never started"),
            ("worker", -1, "never started"),
            ("launches", 0, "impossible block, position or number of launches"),
            ("block", -1, "impossible block"),
            ("position", -1, "impossible block"),
            ("seconds", 0.0, "impossible duration"),
            ("seconds", -1e-3, "impossible duration"),
            ("seconds", float("nan"), "impossible duration"),
            ("seconds", float("inf"), "impossible duration"),
            ("seconds", 5e-324, "impossible duration"),
            ("seconds", SHORTEST_S * 0.99, "impossible duration"),
            ("seconds", LONGEST_S * 1.01, "impossible duration"),
            ("start", float("nan"), "impossible start"),
            ("start", float("inf"), "impossible start"),
            ("phase", 3, "unknown phase or mark"),
            ("checked", 255, "unknown phase or mark"),
        ],
    )
    def test_that_nobody_took(self, record: Record, column: str, value: float, said: str) -> None:
        for row in (0, -1):
            changed = record.samples[column].copy()
            changed[row] = value
            refused(record, said, samples={**record.samples, column: changed})

    def test_a_time_is_that_of_one_call(self, record: Record) -> None:
        """2^31 launches in an interval of a hundred years are fine; in one of a picosecond they are not."""
        many = {**record.samples, "launches": np.full_like(record.samples["launches"], 2**31 - 1)}
        long = {**many, "seconds": np.full_like(record.samples["seconds"], 3e9)}
        assert len(from_facts(to_facts(record), long, "file").samples["launches"]) == 16
        refused(
            record, "impossible duration", samples={**many, "seconds": np.full_like(record.samples["seconds"], 1e-12)}
        )

    def test_a_contender_timed_twice_in_one_block(self, record: Record) -> None:
        timed = np.flatnonzero(record.samples["phase"] == TIMED)
        twice = {name: np.append(column, column[timed[2]]) for name, column in record.samples.items()}
        refused(record, "timed twice in one block", samples=twice)

    def test_warm_up_samples_may_repeat(self, record: Record) -> None:
        warm = np.flatnonzero(record.samples["phase"] != TIMED)
        more = {name: np.append(column, column[warm]) for name, column in record.samples.items()}
        from_facts(to_facts(record), more, "file")

    def test_other_columns(self, record: Record) -> None:
        fewer = {name: column for name, column in record.samples.items() if name != "start"}
        refused(record, "the samples have the columns", samples=fewer)
        refused(record, "the samples have the columns", samples={**record.samples, "extra": record.samples["start"]})


class TestRecord:
    def test_seconds_of_finished_attempts_by_process_case_contender_and_block(self, record: Record) -> None:
        (case,) = record.cases
        assert set(record.seconds) == {(p, case.name, c) for p in (0, 1) for c in ("base", "ours")}
        assert all(set(blocks) == {0, 1} for blocks in record.seconds.values())
        values = sorted(value for blocks in record.seconds.values() for value in blocks.values())
        timed = record.samples["seconds"][record.samples["phase"] == TIMED]
        assert values == sorted(timed.tolist())

    def test_a_warm_up_is_no_block(self, record: Record) -> None:
        never_timed = {**record.samples, "phase": np.zeros_like(record.samples["phase"])}
        assert replace(record, samples=never_timed).seconds == {}

    def test_an_unfinished_attempt_does_not_count(self, record: Record) -> None:
        processes = (replace(record.processes[0], finished=None), record.processes[1])
        part = replace(record, processes=processes)
        assert {process for process, _, _ in part.seconds} == {1}
        assert not part.complete
        assert part.finished_attempts == {1: 0}

    def test_the_latest_attempt_counts_where_the_first_was_interrupted(self, record: Record) -> None:
        first, second = record.processes
        processes = (replace(first, finished=None), replace(first, attempt=1), second)
        attempt = np.where(record.samples["process"] == 0, 1, 0).astype(np.int16)
        again = replace(record, processes=processes, samples={**record.samples, "attempt": attempt})
        assert again.finished_attempts == {0: 1, 1: 0}
        assert again.seconds == record.seconds

    def test_without_samples(self, record: Record) -> None:
        assert replace(record, processes=(), samples=empty_samples()).seconds == {}
        assert {str(column.dtype) for column in empty_samples().values()} == {
            str(np.dtype(d)) for d in COLUMNS.values()
        }

    def test_measured_are_those_without_a_status(self, record: Record) -> None:
        absent = replace(record.contenders[1], status="ABSENT", reason="not installed")
        assert [c.name for c in replace(record, contenders=(record.contenders[0], absent)).measured] == ["base"]

    def test_outcomes_by_case_and_by_contender(self, record: Record) -> None:
        (case,) = record.cases
        assert len(record.outcomes_of_case[0, 0, case.name]) == 2
        assert [o.process for o in record.outcomes_of_contender[case.name, "ours"]] == [0, 1]

    def test_a_status_needs_its_reason(self) -> None:
        with pytest.raises(ValueError, match="reason"):
            Outcome(0, 0, "case", "ours", "TIMEOUT", None, None)


class TestDraws:
    """The draws can be made again by anybody: a sort by sha256, and no library's generator."""

    def test_by_hand(self) -> None:
        names = ["a", "b", "c", "d"]
        digests = {name: hashlib.sha256(f"7:0:1:case:5:{name}".encode()).hexdigest() for name in names}
        assert draw(7, names, 0, 1, "case", 5) == sorted(names, key=lambda name: digests[name])
        assert derive_seed(7, 0, "x") == int(hashlib.sha256(b"7:0:x").hexdigest()[:16], 16) // 2

    def test_do_not_depend_on_the_order_of_the_names(self) -> None:
        assert draw(1, ["x", "y", "z"], 3) == draw(1, ["z", "x", "y"], 3)

    def test_every_order_comes_up_about_as_often(self) -> None:
        orders = [tuple(draw(1, "abc", block)) for block in range(600)]
        counts = {order: orders.count(order) for order in set(orders)}
        assert len(counts) == 6
        assert all(60 <= count <= 140 for count in counts.values())

    def test_seeds_are_positive_and_fit_63_bits(self) -> None:
        seeds = {derive_seed(1, i) for i in range(200)}
        assert len(seeds) == 200
        assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_budget_is_divided_among_the_processes() -> None:
    assert protocol(budget_s=60.0, processes=4).process_budget_s == 15.0
    assert protocol(budget_s=None).process_budget_s is None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
