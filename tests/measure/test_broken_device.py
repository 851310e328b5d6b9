"""A contender that leaves its process a device on which nothing works any more; and how a fault is put into words
(statistics.md 16)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripted import CONTENDERS, MEANS, PLACES, WILD, blocks_of, faults, judged, outcomes

from fakes import ERRORS, FakeWorker, begin, continue_run, fake_run, header, noisy
from groundspeed.evidence.record import Record
from groundspeed.measure import bench, gate
from groundspeed.measure.channel import Message
from groundspeed.measure.fault import Unsupported, describe, device_is_broken

STICKY = {"status": "ERROR", "reason": "AcceleratorError: CUDA error: device-side assert triggered", "broken": True}
ELSEWHERE = "b2-"


class StaysBroken(FakeWorker):
    """After a broken device everybody fails on this worker, as in a real process."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        sound, spoilt = self.fault, False

        def fault(name: str, case: str, block: int | None) -> Any:
            nonlocal spoilt
            found = STICKY if spoilt else sound(name, case, block)
            spoilt |= isinstance(found, dict) and found.get("broken", False)
            return found

        self.fault = fault


def run(folder: Path, script: dict[tuple[str, int | None], Message | Exception], **changes: Any) -> Record:
    begin(folder, header(CONTENDERS, **{"processes": 2, **changes})).close()
    workers: list[FakeWorker] = []
    fault = faults(script, case="b1-s64")
    record = judged(continue_run(folder, noisy(MEANS, WILD), fault, workers, worker_type=StaysBroken))
    assert all(worker.closed for worker in workers)
    assert len(workers) == sum(process.workers for process in record.processes)
    return record


@pytest.mark.parametrize("who", ["fast", "base"])
@pytest.mark.parametrize("place", PLACES)
def test_it_costs_its_contender_the_case_and_nobody_else_a_sample(tmp_path: Path, place: str, who: str) -> None:
    block = PLACES[place]
    record = run(tmp_path, {(who, block): STICKY})
    assert record.complete
    assert [process.workers for process in record.processes] == [2, 1]

    first, second = (o for o in outcomes(record, who) if not o.case.startswith(ELSEWHERE))
    assert (first.status, first.reason, first.block) == ("ERROR", STICKY["reason"], block)
    assert first.lost_worker
    assert (second.status, second.reason) == ("SKIPPED", f"not tried again: {STICKY['reason']} in process 1")
    assert block is None or blocks_of(record, first) == set(range(block + 1)), "its samples are evidence"

    others = [o for o in record.outcomes if o not in (first, second)]
    assert {o.status for o in others} == {"PASSED"}
    blocks = {(stop.process, stop.case): stop.blocks for stop in record.stops}
    for outcome in others:
        missing = set(range(blocks[outcome.process, outcome.case])) - blocks_of(record, outcome)
        hit = outcome.process == 0 and not outcome.case.startswith(ELSEWHERE)
        assert missing <= ({block} if hit else set()), "only of the block that broke off"


def test_the_others_go_on_with_the_blocks_that_are_left(tmp_path: Path) -> None:
    """Not from the start: what the first worker measured stays."""
    record = run(tmp_path, {("fast", 4): STICKY}, processes=1, shapes=("B=1,S=64,causal=0",))
    (base,) = outcomes(record, "base")
    columns = record.samples
    own = (columns["contender"] == record.contender_index["base"]) & (columns["phase"] == 1)
    of_worker = [set(columns["block"][own & (columns["worker"] == worker)].tolist()) for worker in (0, 1)]
    assert of_worker[0] | of_worker[1] == blocks_of(record, base)
    assert set(range(4)) <= of_worker[0] <= set(range(5))
    assert min(of_worker[1]) == 5


def test_two_that_break_it_cost_two_workers(tmp_path: Path) -> None:
    record = run(tmp_path, {("fast", 2): STICKY, ("slow", 4): STICKY}, processes=1)
    assert record.processes[0].workers == 3
    fell = {o.contender: o.block for o in record.outcomes if o.status == "ERROR"}
    assert fell == {"fast": 2, "slow": 4}
    assert {o.status for o in outcomes(record, "base")} == {"PASSED"}


@pytest.mark.parametrize("broken", [{}, {"broken": False}], ids=["not said", "no"])
def test_where_the_device_works_the_worker_stays(tmp_path: Path, broken: Message) -> None:
    fault: Message = {"status": "ERROR", "reason": "ValueError: no", **broken}
    record = run(tmp_path, {("fast", 4): fault})
    assert [process.workers for process in record.processes] == [1, 1]
    assert {(o.status, o.lost_worker) for o in outcomes(record, "fast") if not o.case.startswith(ELSEWHERE)} == {
        ("ERROR", False)
    }, "and it is tried again"


def test_the_errors_of_one_that_was_wrong_and_broke_the_device_are_told(tmp_path: Path) -> None:
    errors = {**ERRORS, "max_rel": 0.5}
    fault = {"status": "INCORRECT", "reason": "max_rel error 0.5", "broken": True, "errors": errors}
    record = run(tmp_path, {("fast", 4): fault}, processes=1)
    (hit,) = (o for o in outcomes(record, "fast") if o.status == "INCORRECT")
    assert hit.max_rel == 0.5


def test_one_that_breaks_it_in_the_sequence_costs_nobody_a_verdict(tmp_path: Path) -> None:
    taken = {"blocks": 0}

    def fault(name: str, case: str, block: int | None) -> Message | None:
        taken["blocks"] += name == "slow" and block == 3  # once in a block, then in the sequence
        return STICKY if name == "slow" and block == 3 and taken["blocks"] == 2 else None

    record = judged(
        fake_run(tmp_path, noisy(MEANS), CONTENDERS, fault, shapes=("B=1,S=64,causal=0",), processes=1, sequential=10)
    )
    assert {o.contender: o.status for o in record.outcomes} == {"base": "PASSED", "fast": "PASSED", "slow": "ERROR"}
    (slow,) = outcomes(record, "slow")
    assert slow.block == record.stops[0].blocks
    assert blocks_of(record, slow) == set(range(slow.block))


class TestBench:
    """What a worker does about it; torch is not needed to see that."""

    @pytest.fixture
    def said(self) -> list[Message]:
        return []

    @pytest.fixture
    def sick(self, said: list[Message], monkeypatch: pytest.MonkeyPatch) -> Any:
        suite = SimpleNamespace(own=[], contenders={"mine": SimpleNamespace(source=None, written=None)})
        made = bench.Bench(
            suite, "cuda", 0.0, 10, lambda kind, **message: said.append({"kind": kind, **message}), setting=None
        )
        monkeypatch.setattr(made, "_restore", lambda: said.append({"kind": "restored"}))
        return made

    @pytest.mark.parametrize(("broken", "after"), [(True, []), (False, ["restored"])])
    def test_nothing_is_asked_of_a_broken_device(
        self, sick: Any, said: list[Message], monkeypatch: pytest.MonkeyPatch, broken: bool, after: list[str]
    ) -> None:
        monkeypatch.setattr(bench, "device_is_broken", lambda device: device == "cuda" and broken)
        sick.fault("mine", ValueError("no"), block=3)
        assert [message["kind"] for message in said] == ["fault", *after]
        assert said[0] == {
            "kind": "fault",
            "contender": "mine",
            "broken": broken,
            "block": 3,
            "status": "ERROR",
            "reason": "ValueError: no",
            "errors": {},
            "gate_s": 0.0,
        }


def test_a_cpu_does_not_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not asked: importing torch would cost a second."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert device_is_broken("cpu") is False


class TestGpuThatIsAsked:
    @pytest.fixture
    def torch(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        class Ones:
            value = 1.0

            def item(self) -> float:
                return self.value

        class Fake:
            ones = staticmethod(lambda count, device: Ones())
            answer = Ones

            class cuda:  # noqa: N801 - as torch calls it
                synchronize = staticmethod(lambda: None)

        monkeypatch.setitem(sys.modules, "torch", Fake)
        return Fake

    def test_one_that_answers_is_whole(self, torch: Any) -> None:
        assert device_is_broken("cuda") is False

    def test_one_that_answers_nonsense_is_not(self, torch: Any) -> None:
        torch.answer.value = 0.0
        assert device_is_broken("cuda") is True

    @pytest.mark.parametrize("error", [RuntimeError("CUDA error"), SystemExit()])
    @pytest.mark.parametrize("where", ["synchronize", "ones"])
    def test_one_that_raises_is_not(self, torch: Any, error: BaseException, where: str) -> None:
        def fails(*arguments: Any, **options: Any) -> Any:
            raise error

        setattr(torch.cuda if where == "synchronize" else torch, where, staticmethod(fails))
        assert device_is_broken("cuda") is True


SOURCE = """
def kernel(depth):
    if depth:
        return kernel(depth - 1)  # line 4
    import json
    json.loads("not JSON")  # line 6
"""


class TestWords:
    def raised(self, path: Path, depth: int = 2) -> Exception:
        path.write_text(SOURCE)
        names: dict[str, Any] = {}
        exec(compile(SOURCE, str(path), "exec"), names)
        with pytest.raises(ValueError, match="Expecting value") as caught:
            names["kernel"](depth)
        return caught.value

    def test_the_line_is_the_innermost_of_the_contenders_own_file(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.py"
        reason = describe(self.raised(path), str(path))["reason"]
        assert reason == "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (mine.py, line 6)"

    def test_the_file_is_told_by_its_name_alone(self, tmp_path: Path) -> None:
        """A reason is published; where somebody keeps his files is not."""
        path = tmp_path / "mine.py"
        assert str(tmp_path) not in describe(self.raised(path), str(path))["reason"]

    def test_it_is_found_through_a_link_and_a_relative_path(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.py"
        error = self.raised(path)
        (tmp_path / "link.py").symlink_to(path)
        for source in (str(tmp_path / "link.py"), os.path.relpath(path)):
            assert describe(error, source)["reason"].endswith(" (mine.py, line 6)")

    def test_the_file_of_a_cell_has_a_number_for_a_name(self, tmp_path: Path) -> None:
        (tmp_path / "ipykernel_12").mkdir()
        path = tmp_path / "ipykernel_12" / "3456.py"
        assert describe(self.raised(path), str(path))["reason"].endswith(" (a cell of the notebook, line 6)")

    def test_an_error_from_elsewhere_has_no_line(self, tmp_path: Path) -> None:
        error = self.raised(tmp_path / "other.py")
        (tmp_path / "mine.py").touch()
        assert "line 6" not in describe(error, str(tmp_path / "mine.py"))["reason"]
        assert "line 6" not in describe(error, None)["reason"]

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("one\ntwo", "ValueError: one | two"),
            ("one\rtwo\x85three\u2028four", "ValueError: one | two | three | four"),
            ("", "ValueError"),
            (" \n ", "ValueError"),
            ("x" * 1000, f"ValueError: {'x' * 288}"),
            ("\udcff and \ud800", "ValueError: ? and ?"),
        ],
    )
    def test_a_reason_is_one_line_that_any_file_can_hold(self, text: str, reason: str) -> None:
        found = describe(ValueError(text))
        assert found == {"status": "ERROR", "reason": reason, "errors": {}}
        found["reason"].encode()

    def test_what_it_was_doing_stands_before_it(self) -> None:
        assert (
            describe(ValueError("no"), prefix="while making inputs: ")["reason"]
            == "while making inputs: ValueError: no"
        )

    @pytest.mark.parametrize(
        ("error", "status", "reason"),
        [
            (Unsupported("FP16 only"), "SKIPPED", "FP16 only"),
            (MemoryError(), "OOM", "MemoryError"),
            (RuntimeError("CUDA out of memory. Tried"), "OOM", "RuntimeError: CUDA out of memory. Tried"),
            (KeyboardInterrupt(), "ERROR", "KeyboardInterrupt"),
            (SystemExit(3), "ERROR", "SystemExit: 3"),
        ],
    )
    def test_the_status_is_that_of_what_happened(self, error: BaseException, status: str, reason: str) -> None:
        found = describe(error)
        assert (found["status"], found["reason"]) == (status, reason)

    def test_a_wrong_answer_comes_with_its_errors(self) -> None:
        found = describe(gate.Incorrect("max_rel error 1", {"max_rel": 1.0}))
        assert found == {"status": "INCORRECT", "reason": "max_rel error 1", "errors": {"max_rel": 1.0}}
