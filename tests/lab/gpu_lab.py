"""A run on a GPU without one: `session` with a scripted device and scripted workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes import FakeClock, SurveyWorker, no_fault, noisy
from groundspeed.errors import GroundspeedError
from groundspeed.evidence.bundle import Bundle
from groundspeed.evidence.record import Outcome
from groundspeed.lab import declare, session
from groundspeed.lab.request import Request
from groundspeed.measure import environment
from groundspeed.measure.channel import Message
from groundspeed.measure.gpu import identity_of, only_run_on
from groundspeed.measure.runner import Progress

FIRST, OTHER, TESLA = "GPU-aaaa", "GPU-bbbb", "GPU-cccc"
NAMES = {FIRST: "NVIDIA H200", OTHER: "NVIDIA H200", TESLA: "Tesla T4"}
BEGAN = 5000.0
"""When a worker began, on the clock that it shares with the readings."""

MEANS = {"sdpa-cudnn": 1e-3, "sdpa-flash": 2e-3, "mine": 3e-3}
KERNELS = {"sdpa-cudnn": ["cudnn_sm90_sdpa"], "sdpa-flash": ["pytorch_FLASH_fwd"], "mine": ["mine_a", "mine_b"]}
MINE = "import groundspeed as gs\n\n@gs.contender('attention')\ndef mine(q, k, v, *, causal, scale): ...\n"
SHORT, LONG = "b1-h8-s16-d64-full-bf16", "b16-h16-s1024-d128-full-bf16"
CLOCKS = [SHORT, f"{SHORT}@graph", f"{SHORT}@eager"]


class FakeGpu:
    """Tells of every sample when it began and how long it took, so that one can see whose reading it got."""

    def __init__(self, lab: Lab, uuid: str) -> None:
        self.lab, self.uuid, self.state = lab, uuid, "new"
        self.identity = identity_of(uuid)
        lab.gpus.append(self)

    def __enter__(self) -> FakeGpu:
        self.state = "on"
        return self

    def __exit__(self, *exception: object) -> None:
        self.state = "off"

    def other_users(self) -> list[str]:
        assert all(worker.closed for worker in self.lab.workers if worker.started), "or our own would be a stranger"
        return self.lab.users

    def readings(self, start: float, seconds: float) -> list[float | None] | None:
        assert self.state == "on"
        since_start_ms = (start - BEGAN) * 1e3
        return None if since_start_ms < 1.5 else [since_start_ms, None, seconds * 1e6, 4]


class Lab:
    """`session` on a machine with a GPU, of which nothing is real but the lock."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs, self.locks = folder / "runs", folder / "locks"
        self.file = folder / "mine.py"
        self.file.write_text(MINE)
        self.locks.mkdir()
        self.uuid: str | None = FIRST
        self.users: list[str] = []
        self.kernels: Mapping[str, Sequence[str]] = KERNELS
        self.odd: Mapping[int, Mapping[str, Sequence[str]]] = {}
        """By batch size: kernels that are others there."""
        self.fault: Any = no_fault
        self.stop_after: tuple[str, int] | None = None
        """Kind of message, and how many of them until Ctrl-C."""
        self.seen: dict[str, int] = {}
        self.gpus: list[FakeGpu] = []
        self.workers: list[SurveyWorker] = []
        self.early: list[Message] = []
        self.started: list[tuple[Message, str | None]] = []
        """The first message of every worker, and its GPU."""
        self.prepared: list[tuple[dict[str, Any], list[str]]] = []
        self.was_free = False
        """Whether another run could have had the GPU while a worker was at work."""
        self.told: list[Progress] = []
        torch = folder / "torch"
        (torch / "lib").mkdir(parents=True)
        (torch / "lib" / "libtorch_cuda.so").touch()
        find_spec = declare.importlib.util.find_spec
        with_cuda = SimpleNamespace(submodule_search_locations=[str(torch)])
        monkeypatch.setattr(
            declare.importlib.util, "find_spec", lambda name: with_cuda if name == "torch" else find_spec(name)
        )
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(self.locks))
        for module in (declare, session):
            monkeypatch.setattr(module, "visible_uuid", lambda: self.uuid)
        monkeypatch.setattr(environment, "gpu_environment", self.gpu_environment)
        monkeypatch.setattr(session, "Gpu", lambda uuid: FakeGpu(self, uuid))
        monkeypatch.setattr(session, "ProcessWorker", self.spawn)
        monkeypatch.setattr(session, "as_many", lambda processes: processes)  # whatever memory this machine has

    def gpu_environment(self) -> dict[str, Any] | None:
        if self.uuid is None:
            return None
        return {"name": NAMES[self.uuid], "id": identity_of(self.uuid), "compute_capability": "9.0"}

    def spawn(self, command: list[str], threads: int, gpu: str | None) -> SurveyWorker:
        lab = self

        class Worker(SurveyWorker):
            def send(self, message: Message) -> None:
                lab.look_at_the_lock()
                if "early" in message:
                    lab.early.append(message)
                if "loader" in message:
                    lab.started.append((message, gpu))
                if "prepare" in message:
                    lab.prepared.append((message["prepare"]["params"], message["prepare"]["contenders"]))
                super().send(message)

            def kernels(self, name: str, params: Mapping[str, Any]) -> list[str]:
                return list(lab.odd.get(params["B"], {}).get(name, lab.kernels[name]))

            def receive(self, timeout_s: float) -> Message:
                message = super().receive(timeout_s)
                kind = message["kind"]
                lab.seen[kind] = lab.seen.get(kind, 0) + 1
                if lab.stop_after and lab.seen.get(lab.stop_after[0], 0) > lab.stop_after[1]:
                    raise KeyboardInterrupt
                return {**message, "began": BEGAN} if kind == "hello" else message

        self.workers.append(Worker(FakeClock(), noisy(MEANS, 0.003), self.fault))
        return self.workers[-1]

    def look_at_the_lock(self) -> None:
        assert self.uuid is not None
        try:
            with only_run_on(self.uuid):
                self.was_free = True
        except GroundspeedError:
            pass

    def run(self, shape: Sequence[str] = ("S=16,causal=0",), **changes: Any) -> Bundle:
        request = Request(
            "attention",
            "quick",
            shape=tuple(shape),
            dtype=("bf16",),
            only=("sdpa-flash",),
            with_files=(str(self.file),),
            processes=3,
            out=self.runs,
            **changes,
        )
        return session.run(request, self.told.append)

    def resume(self, path: Path) -> Bundle:
        """In a process of its own, as it were: with other workers and without an interrupt."""
        self.stop_after, self.workers, self.started, self.prepared = None, [], [], []
        return session.resume(path, self.told.append)

    @property
    def asked(self) -> list[tuple[int, list[str]]]:
        """Batch size and contenders of every survey."""
        return [(s["params"]["B"], s["contenders"]) for worker in self.workers for s in worker.surveys]


def passed(outcomes: Sequence[Outcome]) -> set[tuple[str, str]]:
    return {(o.case, o.contender) for o in outcomes if o.status == "PASSED"}


def everywhere(*names: str) -> set[tuple[str, str]]:
    return {(case, name) for case in CLOCKS for name in names}
