"""A contender that fails loses its case, and nobody loses anything else (statistics.md 16)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scripted import (
    CALM,
    CONTENDERS,
    DIES,
    HANGS,
    KINDS,
    MEANS,
    PLACES,
    WILD,
    WRONG,
    blocks_of,
    faults,
    judged,
    outcomes,
)

from fakes import FakeWorker, Silence, begin, continue_run, fake_run, header, noisy, seed_of
from groundspeed.evidence.protocol import draw
from groundspeed.measure.channel import Message


@pytest.mark.parametrize("who", ["fast", "base"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_costs_its_contender_that_case_and_nobody_else(tmp_path: Path, kind: str, place: str, who: str) -> None:
    what, status, reason, replaced = KINDS[kind]
    block = PLACES[place]
    workers: list[FakeWorker] = []
    begin(tmp_path, header(CONTENDERS, processes=2)).close()
    fault = faults({(who, block): what}, case="b1-s64")
    record = judged(continue_run(tmp_path, noisy(MEANS, WILD), fault, workers))
    assert record.complete

    hit = [o for o in outcomes(record, who) if o.case.startswith("b1-")]
    assert hit[0].status == status
    assert reason in (hit[0].reason or "")
    assert hit[0].block == block
    assert hit[0].lost_worker is replaced
    if replaced:
        assert hit[1].status == "SKIPPED"
        assert (hit[1].reason or "").startswith("not tried again: ")
        assert "in process 1" in (hit[1].reason or "")
    else:
        assert hit[1].status == status
    assert [p.workers for p in record.processes] == [2 if replaced else 1, 1]
    assert all(worker.closed for worker in workers)

    others = [o for o in record.outcomes if o not in hit]
    assert {o.status for o in others} == {"PASSED"}
    stops = {(s.process, s.case): s for s in record.stops}
    for outcome in others:
        blocks = set(range(stops[outcome.process, outcome.case].blocks))
        missing = blocks - blocks_of(record, outcome)
        assert missing <= ({block} if outcome.case.startswith("b1-") and outcome.process == 0 else set())
    if block is not None:  # what it did before it fell is evidence
        assert set(range(block)) <= blocks_of(record, hit[0])


def test_a_contender_wrong_on_a_timed_call_keeps_that_sample_as_evidence(tmp_path: Path) -> None:
    record = judged(fake_run(tmp_path, noisy(MEANS), CONTENDERS, faults({("fast", 3): WRONG})))
    assert {o.status for o in outcomes(record, "fast")} == {"INCORRECT"}
    assert all(blocks_of(record, o) == {0, 1, 2, 3} for o in outcomes(record, "fast"))


def test_a_hang_costs_its_time_limit_ten_times_that_while_it_may_compile(tmp_path: Path) -> None:
    fault = faults({("fast", None): HANGS, ("slow", 4): HANGS}, case="b1-s64")
    record = judged(fake_run(tmp_path, noisy(MEANS), CONTENDERS, fault, processes=1, timeout_s=5.0))
    reasons = {o.contender: o.reason for o in record.outcomes if o.status == "TIMEOUT"}
    assert reasons == {"fast": "no answer within 50 s", "slow": "no answer within 5 s"}
    stop = next(s for s in record.stops if s.case.startswith("b1-"))
    assert 55 < stop.elapsed_s < 60


def test_a_hang_after_the_first_call_has_the_limit_of_a_sample(tmp_path: Path) -> None:
    class HangsWarmingUp(FakeWorker):
        def prepare(self, request: Any) -> None:
            name = request["contenders"][0]
            self.outbox.extend([{"kind": "at", "contender": name}, {"kind": "called"}, {"kind": "alive"}, Silence()])

    begin(tmp_path, header(CONTENDERS, ("S=64,causal=0",), processes=1, timeout_s=5.0)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), worker_type=HangsWarmingUp))
    assert {(o.status, o.reason) for o in record.outcomes} == {("TIMEOUT", "no answer within 5 s")}


def test_the_oracle_of_a_timed_call_has_more_time_than_a_sample(tmp_path: Path) -> None:
    """Its comparison with the oracle is not the contender's doing: only ten times the limit is a hang."""

    class HangsInTheCheck(FakeWorker):
        def block(self, block: int, order: Any) -> None:
            super().block(block, order)
            if block == 4 and len(order) == len(CONTENDERS):
                self.outbox[-3] = Silence()  # in the place of the last "checked"

    begin(tmp_path, header(CONTENDERS, ("S=64,causal=0",), processes=1, timeout_s=5.0)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), worker_type=HangsInTheCheck))
    last = draw(seed_of(record), CONTENDERS, 0, 0, record.cases[0].name, 4)[-1]
    assert [(o.contender, o.reason) for o in record.outcomes if o.status == "TIMEOUT"] == [
        (last, "no answer within 50 s")
    ]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_all_contenders_fail(tmp_path: Path, kind: str, place: str) -> None:
    what, status, _, replaced = KINDS[kind]
    block = PLACES[place]
    fault = faults({(name, block): what for name in CONTENDERS}, case="b1-s64")
    record = judged(fake_run(tmp_path, noisy(MEANS, WILD), CONTENDERS, fault, processes=2))
    hit = [o for o in record.outcomes if o.case.startswith("b1-")]
    first = [o for o in hit if o.process == 0]
    if block is None or not replaced:
        assert {o.status for o in first} == {status}
    else:  # the block that lost its worker is not taken again, so the others do not come to fail in it
        assert Counter(o.status for o in first) == {status: 1, "PASSED": 2}
    stops = [s for s in record.stops if s.case.startswith("b1-")]
    if block is None:
        assert {(s.blocks, s.why) for s in stops} == {(0, "no pair left")}
    elif not replaced:
        assert {(s.blocks, s.why) for s in stops} == {(block + 1, "no pair left")}
    assert {o.status for o in record.outcomes if o not in hit} == {"PASSED"}


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("block", [0, 9, 39])
def test_two_contenders_fail_in_the_same_block(tmp_path: Path, first: str, second: str, block: int) -> None:
    fault = faults({("fast", block): KINDS[first][0], ("slow", block): KINDS[second][0]}, case="b1-s64")
    record = judged(fake_run(tmp_path, noisy(MEANS, WILD), CONTENDERS, fault, processes=1))
    ended = {o.contender: o for o in record.outcomes if o.case.startswith("b1-")}
    order = draw(seed_of(record), CONTENDERS, 0, 0, record.cases[0].name, block)
    kinds = {"fast": first, "slow": second}
    leading, trailing = sorted(kinds, key=order.index)
    assert ended[leading].status == KINDS[kinds[leading]][1]
    if KINDS[kinds[leading]][3]:  # it took the worker away before the other's turn in this block
        assert ended[trailing].status == "PASSED"
    else:
        assert ended[trailing].status == KINDS[kinds[trailing]][1]
    assert ended["base"].status == "PASSED"


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("block", [0, 4, 9, 14, 19, 39])
def test_one_falls_when_it_is_prepared_again_on_the_new_worker(tmp_path: Path, second: str, block: int) -> None:
    """`slow` takes the worker away in a block; `fast`, measured until then, fails to be prepared on the next one."""
    what, status, _, replaced = KINDS[second]
    prepared: Counter[str] = Counter()

    def fault(name: str, case: str, at: int | None) -> Message | Exception | None:
        if at is None:
            prepared[name] += 1
            return what if name == "fast" and prepared[name] == 2 else None
        return DIES if (name, at) == ("slow", block) else None

    facts = header(CONTENDERS, ("B=1,S=64,causal=0",), processes=1)
    begin(tmp_path, facts).close()
    record = judged(continue_run(tmp_path, noisy(MEANS, WILD), fault))
    ended = {o.contender: o for o in record.outcomes}
    assert ended["slow"].status == "ERROR"
    assert ended["base"].status == "PASSED"
    if block == 39:
        assert ended["fast"].status == "PASSED"  # all its blocks are taken: there is nothing to prepare it for
        assert prepared["fast"] == 1
    else:
        assert ended["fast"].status == status
        assert ended["fast"].block == block  # it was measured up to here, and is judged at the looks before
        assert ended["fast"].lost_worker is replaced


def test_a_stop_that_is_due_needs_no_new_preparation(tmp_path: Path) -> None:
    """The worker is lost in the last block before a look at which all is narrow enough."""
    prepared: Counter[str] = Counter()

    def fault(name: str, case: str, at: int | None) -> Message | Exception | None:
        prepared[name] += at is None
        return DIES if (name, at) == ("slow", 9) else None

    begin(tmp_path, header(CONTENDERS, ("B=1,S=64,causal=0",), processes=1)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS, CALM), fault))
    assert [(s.blocks, s.why) for s in record.stops] == [(10, "width")]
    assert prepared == {"base": 1, "fast": 1, "slow": 1}


def test_a_contender_with_no_checked_call_does_not_pass(tmp_path: Path) -> None:
    """Every block loses its worker before `base` or `fast` is checked: what is not checked has no time."""

    class NeverChecks(FakeWorker):
        def block(self, block: int, order: Any) -> None:
            super().block(block, order)
            for message in [m for m in self.outbox if isinstance(m, dict)]:
                if message["kind"] == "sample":
                    message["check"] = False
                if message["kind"] == "checked":
                    self.outbox.remove(message)

    begin(tmp_path, header(CONTENDERS, ("B=1,S=64,causal=0",), processes=1)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS, CALM), worker_type=NeverChecks))
    assert {o.status for o in record.outcomes} == {"ERROR"}
    assert {o.reason for o in record.outcomes} == {"no timed call could be checked before the case stopped"}
