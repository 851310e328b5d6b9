"""What compiles in a first call does so in several processes at once, before anything is looked at or timed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fakes import protocol
from groundspeed.case import Contender
from groundspeed.measure.ahead import at_once, compile_ahead, kinds_of
from groundspeed.measure.channel import Died, Message, Silence
from groundspeed.measure.runner import Plan
from groundspeed.measure.survey import call_once
from groundspeed.suites.registry import suite_module

ATTENTION = suite_module("attention")
CASES = [
    case
    for D in (16, 32, 64)
    for S in (8, 16)
    for causal in (0, 1)
    for case in ATTENTION.shape_cases(f"B=1,H=1,S={S},D={D},causal={causal}", ("fp32",))
]
START = {"loader": "none", "with_files": ["own.py"], "sources": {"one": "1", "own": "2"}}


class Compiler:
    """A worker that answers at once, or as `answer` says."""

    def __init__(self, answer: Callable[[], Message] = lambda: {"kind": "compiled"}) -> None:
        self.sent: list[Message] = []
        self.answer, self.closed = answer, threading.Event()

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def receive(self, timeout_s: float) -> Message:
        return self.answer() if "ahead" in self.sent[-1] else {"kind": "hello"}

    def close(self) -> None:
        self.closed.set()

    @property
    def calls(self) -> list[tuple[str, Sequence[str]]]:
        asked = [call for message in self.sent if "ahead" in message for call in message["ahead"]["calls"]]
        return [(ATTENTION.case_of_params(params).name, names) for params, names in asked]


def compiled(answers: Sequence[Callable[[], Message]], processes: int = 3, **plan: Any) -> list[Compiler]:
    left, workers = list(answers), []

    def spawn() -> Compiler:
        workers.append(Compiler(left.pop()) if left else Compiler())
        return workers[-1]

    kinds = kinds_of(CASES, ATTENTION.COMPILED_BY)
    compile_ahead(Plan(protocol(), CASES, ("one", "own"), 7, START, **plan), spawn, ["one"], kinds, processes)
    assert all(worker.closed.is_set() for worker in workers)
    return workers


def test_every_case_is_called_once_and_cases_of_a_kind_in_one_process() -> None:
    workers = compiled([])
    assert len(workers) == 3
    assert sorted(name for worker in workers for name, _ in worker.calls) == sorted(case.name for case in CASES)
    for worker in workers:
        assert {len(names) for _, names in worker.calls} == {1}
    by_worker = [{name.rsplit("-s", 1)[0] + name.split("-d")[1] for name, _ in worker.calls} for worker in workers]
    assert sum(map(len, by_worker)) == len(set().union(*by_worker))


def test_no_file_of_a_user_is_imported() -> None:
    (worker,) = compiled([], processes=1)
    assert (worker.sent[0]["with_files"], worker.sent[0]["sources"]) == ([], {"one": "1"})


def test_what_a_preset_leaves_out_is_not_called() -> None:
    (worker,) = compiled([], processes=1, refused={(CASES[0].name, "one"): ("SKIPPED", "too slow")})
    assert dict(worker.calls)[CASES[0].name] == []


@pytest.mark.parametrize("fate", [Died("it died", out_of_memory=False), Silence(), BlockingIOError("no process left")])
def test_whoever_dies_or_hangs_is_left_to_the_line_up(fate: Exception) -> None:
    def answer() -> Message:
        raise fate

    assert len(compiled([answer])) == 3


def test_ctrl_c_ends_all_of_them() -> None:
    def interrupted() -> Message:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compiled([interrupted])


def test_once_more_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the others are being closed."""
    interrupted: list[Compiler] = []
    close = Compiler.close

    def close_later(self: Compiler) -> None:
        if self not in interrupted:
            interrupted.append(self)
            raise KeyboardInterrupt
        close(self)

    monkeypatch.setattr(Compiler, "close", close_later)
    assert len(compiled([])) == 3


@pytest.mark.parametrize(("cores", "kinds", "processes"), [(16, 6, 4), (8, 6, 2), (64, 3, 3), (2, 6, 0)])
def test_processes_by_cores_and_kinds(cores: int, kinds: int, processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groundspeed.measure.ahead.usable_cores", lambda: cores)
    assert at_once(kinds) == processes


def test_each_contender_is_called_whatever_the_others_do() -> None:
    called: list[str] = []

    def contender(name: str, *, fails: bool = False, absent: bool = False) -> Contender:
        def build(case: Any) -> Callable[..., Any]:
            def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **arguments: Any) -> torch.Tensor:
                called.append(name)
                if fails:
                    raise RuntimeError("no")
                return q

            return call

        return Contender("attention", name, "", build, supports=lambda case, device: "no" if absent else None)

    both = [contender("fails", fails=True), contender("absent", absent=True), contender("good")]
    suite = SimpleNamespace(module=ATTENTION, contenders={one.name: one for one in both})
    said: list[str] = []
    call_once(suite, "cpu", lambda kind, **_: said.append(kind), [(dict(CASES[0].params), list(suite.contenders))])
    assert called == ["fails", "good"]
    assert said[-1] == "compiled"
