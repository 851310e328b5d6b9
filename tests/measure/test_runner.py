"""The runner with scripted workers and a clock that only they move: orders, stopping, going on
(D1; statistics.md 4, 5 and 8).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scripted import (
    CALM,
    CONTENDERS,
    DIES,
    HANGS,
    MEANS,
    RAISES,
    WILD,
    faults,
    interrupted_at,
    judged,
    outcomes,
)

from fakes import FakeWorker, begin, continue_run, fake_run, header, no_fault, noisy, seed_of
from groundspeed.evidence import journal
from groundspeed.evidence.protocol import draw
from groundspeed.evidence.samples import TIMED
from groundspeed.measure.channel import Message
from groundspeed.measure.runner import Progress, _ahead
from groundspeed.suites.registry import suite_module


def test_d1_every_block_is_taken_in_the_order_its_seed_draws(tmp_path: Path) -> None:
    record = judged(fake_run(tmp_path, noisy(MEANS), CONTENDERS))
    columns = record.samples
    taken: dict[tuple[int, str, int], list[str]] = {}
    for i in (columns["phase"] == TIMED).nonzero()[0]:
        key = int(columns["process"][i]), record.cases[columns["case"][i]].name, int(columns["block"][i])
        taken.setdefault(key, []).append(CONTENDERS[columns["contender"][i]])
    assert len(taken) == sum(stop.blocks for stop in record.stops)
    for (process, case, block), order in taken.items():
        assert order == draw(seed_of(record), CONTENDERS, process, 0, case, block)
    assert len(set(map(tuple, taken.values()))) == 6  # all orders of three occur


def test_d1_processes_differ_in_the_order_of_cases_and_of_preparation(tmp_path: Path) -> None:
    asked: list[Message] = []

    class Recording(FakeWorker):
        def send(self, message: Message) -> None:
            asked.append(message)
            super().send(message)

    shapes = tuple(f"S={s},causal=0" for s in (16, 32, 64, 128, 256))
    begin(tmp_path, header(CONTENDERS, shapes)).close()
    judged(continue_run(tmp_path, noisy(MEANS), worker_type=Recording))
    requests = [message["prepare"] for message in asked if "prepare" in message]
    cases = [tuple(r["params"]["S"] for r in requests[i : i + 5]) for i in range(0, 20, 5)]
    assert len(set(cases)) > 1
    assert all(sorted(order) == [16, 32, 64, 128, 256] for order in cases)
    assert len({tuple(r["contenders"]) for r in requests}) > 1
    seeds = [seed for r in requests for seed in r["seeds"]]
    assert len(seeds) == len(set(seeds)) == 4 * 5 * 3  # fresh inputs for every process and case


def test_d1_each_process_has_a_worker_of_its_own_and_all_are_closed(tmp_path: Path) -> None:
    begin(tmp_path, header(CONTENDERS)).close()
    workers: list[FakeWorker] = []
    record = judged(continue_run(tmp_path, noisy(MEANS), workers=workers))
    assert len(workers) == 4
    assert all(worker.closed for worker in workers)
    assert record.complete
    assert [p.workers for p in record.processes] == [1] * 4


@pytest.mark.parametrize(
    ("noise", "changes", "why", "blocks"),
    [
        (CALM, {}, "width", 10),
        (WILD, {}, "last look", 40),
        (WILD, {"budget_s": 0.4}, "budget", 10),
        (WILD, {"budget_s": 1e6}, "last look", 40),
        (CALM, {"budget_s": 0.4}, "width", 10),
    ],
)
def test_d1_a_process_stops_on_width_last_look_or_budget(
    tmp_path: Path, noise: float, changes: dict[str, Any], why: str, blocks: int
) -> None:
    slow = {name: 20 * seconds for name, seconds in MEANS.items()}
    record = judged(fake_run(tmp_path, noisy(slow, noise), CONTENDERS, **changes))
    assert {(stop.why, stop.blocks) for stop in record.stops} == {(why, blocks)}
    assert len(record.stops) == 4 * 2


class Slow(FakeWorker):
    """`slow` takes 2 s a call already while it warms up."""

    def warm_up(self, name: str) -> list[list[float]]:
        return [[self.spend(2.0), 2.0, 1]] if name == "slow" else super().warm_up(name)


@pytest.mark.parametrize(("budget_s", "status"), [(60.0, "SKIPPED"), (None, "PASSED"), (1e6, "PASSED")])
def test_a_contender_that_would_not_fit_the_time_budget_is_left_out(
    tmp_path: Path, budget_s: float | None, status: str
) -> None:
    """A call of 2 s, ten blocks of it and the warm-up: more than a third of 60 s over 4 processes and 2 cases."""
    begin(tmp_path, header(CONTENDERS, budget_s=budget_s)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), worker_type=Slow))
    outcomes = [o for o in record.outcomes if o.contender == "slow"]
    assert {o.status for o in outcomes} == {status}
    assert {o.status for o in record.outcomes if o.contender != "slow"} == {"PASSED"}
    if status == "SKIPPED":
        assert "60 s" in str(outcomes[0].reason)
        assert "--preset standard" in str(outcomes[0].reason)


class Slowish(FakeWorker):
    """A call takes a bit more than an equal share of the budget allows; from the second process on, ten times that."""

    def warm_up(self, name: str) -> list[list[float]]:
        if name != "slow":
            return super().warm_up(name)
        call_s = 2.0 if self.case in self.warmed else 0.2
        self.warmed.add(self.case)
        return [[self.spend(call_s), call_s, 1]]

    warmed: ClassVar[set[str]] = set()


def test_a_contender_may_take_what_the_others_do_not_need_and_stays_in(tmp_path: Path) -> None:
    """15 calls of 0.2 s: more than 2.5 s, a sixth of 15, but the others take milliseconds. What was admitted once is
    admitted in later processes too."""
    Slowish.warmed.clear()
    begin(tmp_path, header(CONTENDERS, budget_s=60.0)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), worker_type=Slowish))
    assert {o.status for o in record.outcomes} == {"PASSED"}


class Stalls(FakeWorker):
    """The machine does, for seconds, in one call of each warm-up."""

    def warm_up(self, name: str) -> list[list[float]]:
        return [*super().warm_up(name), [self.spend(2.0), 2.0, 1]]


def test_a_stall_in_a_warm_up_costs_no_contender_the_case(tmp_path: Path) -> None:
    begin(tmp_path, header(CONTENDERS, budget_s=60.0)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), worker_type=Stalls))
    assert {o.status for o in record.outcomes} == {"PASSED"}


@pytest.mark.parametrize("budget_s", [60.0, 1e6])
def test_a_contender_that_hangs_does_not_spend_the_time_of_a_preset_twice(tmp_path: Path, budget_s: float) -> None:
    """It hangs on every case. With a minute for all, it is not tried on a second one once the minute is over."""
    fault = faults({("slow", None): HANGS})
    begin(tmp_path, header(CONTENDERS, budget_s=budget_s)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), fault))
    ended = [o.status for o in record.outcomes if o.contender == "slow" and o.process == 0]
    assert ended == (["TIMEOUT", "SKIPPED"] if budget_s == 60.0 else ["TIMEOUT", "TIMEOUT"])
    assert {o.status for o in record.outcomes if o.contender != "slow"} == {"PASSED"}


def test_d1_a_process_goes_on_past_a_look_at_which_it_is_too_wide(tmp_path: Path) -> None:
    """Log ratios of ±2.3% have a 95% half-width of 3.4% after 10 blocks and of 2.0% after 20 (Yuen)."""

    def seconds(contender: str, case: str, block: int) -> float:
        return 1e-3 * (math.exp(0.023 * (-1) ** block) if contender == "fast" else 1.0)

    record = judged(fake_run(tmp_path, seconds, ("base", "fast")))
    assert {(stop.why, stop.blocks) for stop in record.stops} == {("width", 20)}


def test_d1_a_large_but_wide_difference_does_not_stop_a_process(tmp_path: Path) -> None:
    means = {"base": 1.0, "fast": 0.01}
    record = judged(fake_run(tmp_path, noisy(means, WILD), ("base", "fast")))
    assert {stop.blocks for stop in record.stops} == {40}


def test_the_budget_is_the_runs_and_is_shared_by_its_processes(tmp_path: Path) -> None:
    """Two cases of 40 blocks of 7 ms each take about 0.6 s: a budget of 4 × 0.3 s ends each process half way."""
    record = judged(fake_run(tmp_path, noisy(MEANS, WILD), CONTENDERS, budget_s=4 * 0.3))
    by_process = [{s.why for s in record.stops if s.process == p} for p in range(4)]
    assert by_process == [{"last look", "budget"}] * 4


def test_warm_up_samples_are_kept_and_marked(tmp_path: Path) -> None:
    record = judged(fake_run(tmp_path, noisy(MEANS), CONTENDERS))
    assert int((record.samples["phase"] != TIMED).sum()) == 2 * len(CONTENDERS) * 2 * 4


def test_progress_increases_to_the_total(tmp_path: Path) -> None:
    told: list[Progress] = []
    begin(tmp_path, header(CONTENDERS)).close()
    fault = faults({("fast", 4): HANGS, ("slow", None): RAISES, ("base", 15): DIES})
    judged(continue_run(tmp_path, noisy(MEANS, WILD), fault, progress=told.append))
    done = [p.done for p in told]
    assert done == sorted(done)
    assert done[0] == 0
    assert done[-1] == told[-1].total == 4 * 2
    assert {p.process for p in told} == {0, 1, 2, 3}
    assert any(p.done % 1 for p in told)


def test_progress_is_weighted_by_work() -> None:
    """A long case may take a hundred times as long as a short one: by their number, the time left went from minutes to
    hours."""
    short, long = (suite_module("attention").shape_cases(f"S={s},causal=0", ("fp32",))[0] for s in (64, 4096))
    ahead = _ahead([short, short, long, short], "cpu")
    assert (ahead[0], ahead[4]) == (0.0, 1.0)
    assert ahead[2] < 0.1
    assert ahead[3] > 0.9
    assert _ahead([short, long], "cuda")[1] == pytest.approx(0.5, abs=0.01), "on a GPU both are short"


@pytest.mark.parametrize("samples", [0, 1, 45, 90, 100, 200])
def test_d1_a_run_goes_on_with_the_processes_that_are_missing(tmp_path: Path, samples: int) -> None:
    begin(tmp_path, header(CONTENDERS)).close()
    with pytest.raises(KeyboardInterrupt):
        continue_run(tmp_path, noisy(MEANS, CALM), worker_type=interrupted_at(samples))
    before = judged(journal.to_record(journal.read_events(tmp_path), "journal"))
    assert not before.complete
    workers: list[FakeWorker] = []
    after = judged(continue_run(tmp_path, noisy(MEANS, CALM), workers=workers))
    assert after.complete
    assert len(workers) == 4 - len(before.finished_attempts)
    assert after.finished_attempts == {p: int(p == samples // 60) for p in range(4)}
    for name, column in before.samples.items():
        assert np.array_equal(after.samples[name][: len(column)], column, equal_nan=True)


def test_a_contender_that_took_a_worker_is_not_tried_there_again_after_a_resume(tmp_path: Path) -> None:
    begin(tmp_path, header(CONTENDERS)).close()
    fault = faults({("fast", 4): HANGS})
    with pytest.raises(KeyboardInterrupt):
        continue_run(tmp_path, noisy(MEANS), fault, worker_type=interrupted_at(60))
    record = judged(continue_run(tmp_path, noisy(MEANS), no_fault))
    later = [o for o in outcomes(record, "fast") if o.process > 0]
    assert len(later) >= 3 * 2
    assert {(o.status, o.reason) for o in later} == {
        ("SKIPPED", "not tried again: no answer within 30 s in process 1"),
    }


def test_a_resumed_process_is_drawn_anew(tmp_path: Path) -> None:
    """Its first attempt is kept and not judged; the second has orders and inputs of its own."""
    begin(tmp_path, header(CONTENDERS, ("S=64,causal=0",), processes=1)).close()
    with pytest.raises(KeyboardInterrupt):
        continue_run(tmp_path, noisy(MEANS), worker_type=interrupted_at(20))
    record = judged(continue_run(tmp_path, noisy(MEANS)))
    orders: dict[int, list[int]] = {0: [], 1: []}
    columns = record.samples
    for i in (columns["phase"] == TIMED).nonzero()[0]:
        orders[int(columns["attempt"][i])].append(int(columns["contender"][i]))
    assert orders[0] != orders[1][: len(orders[0])]
    assert len(record.seconds[0, record.cases[0].name, "base"]) == 10
