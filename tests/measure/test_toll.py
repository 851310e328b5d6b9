"""The time that the gate takes: told by the worker, believed as far as it can be true, and kept with the process."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benches import Bench, of, right
from scripted import CONTENDERS, MEANS, judged, outcomes

from fakes import FakeWorker, begin, continue_run, header, noisy
from groundspeed.errors import BadInput
from groundspeed.evidence.coherence import from_facts
from groundspeed.evidence.tables import to_facts
from groundspeed.measure import gate, toll
from groundspeed.measure.channel import Message
from groundspeed.measure.toll import Toll


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(toll, "perf_counter", lambda: now.s)
    return now


def fails(clock: SimpleNamespace) -> None:
    clock.s += 1.0
    raise gate.Incorrect("no")


def test_what_is_taken_is_told_once(clock: SimpleNamespace) -> None:
    taken = Toll()
    with taken:
        clock.s += 2.0
    clock.s += 5.0
    with pytest.raises(gate.Incorrect), taken:
        fails(clock)
    taken.again()
    assert taken.tell() == 4.0
    assert taken.tell() == 0.0


def test_a_worker_tells_what_the_oracle_took_and_not_the_calls(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = gate.ask

    def slow(*arguments: Any) -> gate.Answer:
        clock.s += 16.0
        return ask(*arguments)

    def called(*inputs: Any, **arguments: Any) -> Any:
        clock.s += 1.0
        return right(*inputs, **arguments)

    monkeypatch.setattr(gate, "ask", slow)
    bench = Bench({"one": called, "two": called})
    # Two questions are asked once for all; the call on large inputs is made for the gate alone.
    assert [ready["gate_s"] for ready in of(bench.prepare(), "ready")] == [33.0, 1.0]
    bench.session.check_one_in = [(1, 1)]
    assert [done["gate_s"] for done in of(bench.blocks(1), "done")] == [16.0, 16.0]


class Telling(FakeWorker):
    """Says of every contender that its gate took half of the sample."""

    told: Any = None

    def receive(self, timeout_s: float) -> Message:
        message = super().receive(timeout_s)
        if message["kind"] == "sample":
            self.half = message["seconds"] / 2
        if message["kind"] == "done":
            message["gate_s"] = self.half if self.told is None else self.told
        return message


def test_the_record_has_what_the_workers_told(tmp_path: Path) -> None:
    begin(tmp_path, header(CONTENDERS)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), worker_type=Telling))
    for process in record.processes:
        samples = record.samples["seconds"][
            (record.samples["process"] == process.process) & (record.samples["phase"] == 1)
        ]
        assert process.gate_s == pytest.approx(samples.sum() / 2, abs=1e-6)


@pytest.mark.parametrize("told", [-1e-9, 1e9, math.nan, math.inf, "1", True, [], 1])
def test_what_no_gate_can_have_taken_is_no_message(tmp_path: Path, told: Any) -> None:
    """A contender may write in the worker's place: it falls, and the record can be read."""
    begin(tmp_path, header(CONTENDERS)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), worker_type=type("Forging", (Telling,), {"told": told})))
    assert {o.status for name in CONTENDERS for o in outcomes(record, name)} <= {"ERROR", "SKIPPED"}
    assert any("not a message" in str(o.reason) for o in record.outcomes)
    assert all(process.gate_s is None for process in record.processes)


@pytest.mark.parametrize("told", [-1e-9, 1e9, "1", True])
def test_a_bundle_with_more_than_there_was_is_refused(tmp_path: Path, told: Any) -> None:
    begin(tmp_path, header(CONTENDERS)).close()
    record = continue_run(tmp_path, noisy(MEANS), worker_type=Telling)
    facts = to_facts(record)
    facts["processes"][0]["gate_s"] = told
    with pytest.raises(BadInput, match=r"processes\[0\]"):
        from_facts(facts, record.samples, "file")
