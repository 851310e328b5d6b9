"""Workers that come before their turn: they import what they will measure, and wait."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from fakes import Died, FakeClock, FakeWorker, Silence, no_fault, noisy
from groundspeed.measure import spares
from groundspeed.measure.channel import Message, ProcessWorker, worker_command
from groundspeed.measure.greeting import greeted
from groundspeed.measure.spares import Spares, come_early, early
from groundspeed.suites.registry import load, suite_module

PARAMS = dict(suite_module("attention").shape_cases("B=1,H=1,S=16,D=16,causal=0", ("fp32",))[0].params)
START = {"loader": "groundspeed.suites:load", "suite": "attention", "device": "cpu", "with_files": [], "sources": {}}
NUMBERS = {
    "threads": 1,
    "warmup_s": 0.0,
    "first_look": 2,
    "thorough": False,
    "check_one_in": [(10, 10)],
    "memory_limit_bytes": 0,
}


class Spare(FakeWorker):
    def __init__(self, answer: str | BaseException | None = None) -> None:
        super().__init__(FakeClock(), noisy({}), no_fault)
        self.answer, self.sent = answer, list[Message]()

    def send(self, message: Message) -> None:
        self.sent.append(message)
        if self.answer == "gone":
            raise Died("the process exited with code 1")
        super().send(message)

    def receive(self, timeout_s: float) -> Message:
        if isinstance(self.answer, Died | Silence | KeyboardInterrupt):
            raise self.answer
        return super().receive(timeout_s)


def spawner(*workers: Spare) -> Callable[[], Spare]:
    left = list(workers)
    return lambda: left.pop(0)


def test_they_are_taken_in_turn_and_then_new_ones_come() -> None:
    first, second, new = Spare(), Spare(), Spare()
    take = Spares(spawner(first, second, new), {"suite": "attention"}, 2)
    assert take.settle() == 0
    assert [take(), take(), take()] == [first, second, new]
    assert [worker.sent for worker in (first, second, new)] == [[{"early": {"suite": "attention"}}]] * 2 + [[]]
    take.close()
    assert not any(worker.closed for worker in (first, second, new))  # they are whose they are now


@pytest.mark.parametrize("fate", ["gone", Died("it died"), Silence()], ids=["is gone", "dies", "hangs"])
def test_who_does_not_get_there_is_let_go(fate: str | Exception) -> None:
    lost, well, new = Spare(fate), Spare(), Spare()
    take = Spares(spawner(lost, well, new), {}, 2)
    assert take.settle() == 1
    assert lost.closed
    assert [take(), take()] == [well, new]


def test_who_died_in_its_sleep_is_passed_over() -> None:
    dead, well = Spare(), Spare()
    take = Spares(spawner(dead, well), {}, 2)
    take.settle()
    dead.ended = True
    assert take() is well
    assert dead.closed


def test_who_is_on_the_gpu_before_its_turn_is_let_go() -> None:
    early_bird, new = Spare(), Spare()
    take = Spares(spawner(early_bird, new), {}, 1)
    early_bird.outbox[0] = {"kind": "early", "on_gpu": True}
    assert take.settle() == 1
    assert early_bird.closed
    assert take() is new


def test_all_together_have_the_time_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    class Slow(Spare):
        def receive(self, timeout_s: float) -> Message:
            waited.append(timeout_s)
            now[0] += timeout_s
            raise Silence

    now = [0.0]
    monkeypatch.setattr(spares.time, "monotonic", lambda: now[0])
    Spares(spawner(*(Slow() for _ in range(8))), {}, 8).settle()
    assert sum(waited) < spares.START_LIMIT_S + 1


def test_all_are_closed_whatever_comes_in_between() -> None:
    workers = Spare(), Spare(KeyboardInterrupt()), Spare()
    take = Spares(spawner(*workers), {}, 3)
    with pytest.raises(KeyboardInterrupt):
        take.settle()
    take.close()
    assert all(worker.closed for worker in workers)
    begun = Spare()
    with pytest.raises(IndexError):
        Spares(spawner(begun), {}, 2)
    assert begun.closed


def test_no_more_of_them_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10 * spares.EACH_BYTES))
    assert [spares.as_many(processes) for processes in (0, 4, 12)] == [0, 4, 5]


def test_what_is_built_is_imported_and_what_it_changes_is_put_back() -> None:
    built: list[str] = []

    def build(name: str) -> Callable[[Any], Any]:
        def of(case: Any) -> Any:
            built.append(name)
            torch.set_float32_matmul_precision("medium")
            raise ImportError("no such library")

        return of

    contenders = {name: SimpleNamespace(supports=lambda case, device: None, build=build(name)) for name in "ab"}
    contenders["c"] = SimpleNamespace(supports=lambda case, device: "not on this device", build=build("c"))
    suite = SimpleNamespace(module=suite_module("attention"), contenders=contenders)
    before = torch.get_float32_matmul_precision()
    come_early(lambda files: suite, "cpu", PARAMS, ["a", "b", "c", "of a file"])
    assert sorted(built) == ["a", "b"]
    assert torch.get_float32_matmul_precision() == before


def test_who_asks_for_the_gpu_when_it_is_imported_is_answered_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """xFormers and FlashAttention 4 do: a worker that got onto the GPU then would be let go, and all start anew."""

    def on_the_gpu(*_: Any) -> Any:
        raise AssertionError("got onto the GPU")

    monkeypatch.setattr(torch.cuda, "get_device_capability", on_the_gpu)
    answers: list[Any] = []

    def build(case: Any) -> Any:
        answers.extend([torch.cuda.get_device_capability(), torch.cuda.get_device_capability("cuda:0")])
        raise ImportError("and no such library")

    suite = SimpleNamespace(
        module=suite_module("attention"),
        contenders={"a": SimpleNamespace(supports=lambda case, device: None, build=build)},
    )
    come_early(lambda files: suite, "cuda", PARAMS, ["a"], "9.0")
    assert answers == [(9, 0), (9, 0)]
    assert torch.cuda.get_device_capability is on_the_gpu


def test_a_real_one_that_is_killed_has_ended() -> None:
    take = Spares(lambda: ProcessWorker(worker_command(), 1), early(START, PARAMS, [], None), 1)
    take.settle()
    (asleep,) = take._asleep
    assert not asleep.ended
    assert isinstance(asleep, ProcessWorker)
    asleep._process.kill()
    asleep._process.wait()
    assert asleep.ended
    take.close()


def test_pytorchs_compiler_is_alone_in_whoever_comes_early() -> None:
    """FlexAttention imports it, and it asks once for how many processes there may be."""
    asked = json.dumps(
        {"early": {**START, "device": "cuda", "params": PARAMS, "contenders": ["flex"], "capability": "9.0"}}
    )
    source = f"""
import io, torch
from groundspeed.measure import worker
try:
    worker.serve(io.StringIO({asked!r} + chr(10)), lambda kind, **_: print(kind))
except ValueError:
    pass  # it was told no more
import torch._inductor.config
print(torch._inductor.config.compile_threads, torch.cuda.is_initialized())
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["early", "1", "False"], done.stderr


def test_a_real_one_serves_when_its_turn_comes(tmp_path: Path) -> None:
    take = Spares(lambda: ProcessWorker(worker_command(), 1), early(START, PARAMS, ["sdpa-math", "naive"], None), 1)
    take.settle()
    sources = {name: digest for name, c in load("attention").contenders.items() if (digest := c.source_hash())}
    worker, hello, _ = greeted(take, {**START, **NUMBERS, "sources": sources})
    try:
        assert hello["kind"] == "hello"
        worker.send({"prepare": {"params": PARAMS, "contenders": ["sdpa-math"], "seeds": [1, 2, 3]}})
        kinds = []
        while (message := worker.receive(60))["kind"] != "prepared":
            kinds.append(message["kind"])
        assert "ready" in kinds
    finally:
        worker.close()
        take.close()
