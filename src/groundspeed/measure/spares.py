"""Workers that are started before their turn. While nothing is timed, each imports what it will measure, which takes as
long as measuring some cases, and then sleeps until its first message. None of them is on the GPU before its turn."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from groundspeed.measure.channel import Died, Message, Silence, Worker
from groundspeed.measure.gate import Incorrect
from groundspeed.measure.greeting import START_LIMIT_S
from groundspeed.measure.setting import Setting

EACH_BYTES = 2 << 30
"""Host memory set aside per worker: PyTorch, its compiler and the libraries of all rivals take about half of it."""


def as_many(processes: int) -> int:
    """Return how many workers to start early: at most one for each process, and as many as half of the free memory
    holds."""
    import psutil

    return min(processes, psutil.virtual_memory().available // 2 // EACH_BYTES)


class Spares:
    """Workers that are started early. A call returns the next of them, or a new worker when they are used up."""

    def __init__(self, spawn: Callable[[], Worker], early: Message, count: int) -> None:
        self._spawn = spawn
        self._asleep: list[Worker] = []
        self._awake: list[Worker] = []
        self._let_go = 0
        try:
            for _ in range(count):
                self._awake.append(spawn())
                try:
                    self._awake[-1].send({"early": early})
                except Died:
                    self._awake.pop().close()
                    self._let_go += 1
        except BaseException:
            self.close()
            raise

    def settle(self) -> int:
        """Wait until all are asleep. Let go of those that do not get there or are on the GPU, and return how many these
        were."""
        deadline = time.monotonic() + START_LIMIT_S
        while self._awake:
            try:
                message = self._awake[0].receive(max(0.1, deadline - time.monotonic()))
            except (Died, Silence):
                message = {}
            worker = self._awake.pop(0)
            if message.get("kind") == "early" and not message.get("on_gpu"):
                self._asleep.append(worker)
            else:
                worker.close()
                self._let_go += 1
        return self._let_go

    def __call__(self) -> Worker:
        while self._asleep:
            worker = self._asleep.pop(0)
            if not worker.ended:  # the kernel may have killed it for its memory
                return worker
            worker.close()
        return self._spawn()

    def close(self) -> None:
        for worker in (*self._asleep, *self._awake):
            worker.close()
        self._asleep, self._awake = [], []


@contextmanager
def _answered(capability: str | None) -> Iterator[None]:
    """Answer queries for the GPU's compute capability, which libraries make when they are imported. PyTorch would
    initialize the GPU to answer; the runner knows the capability from the driver."""
    import torch

    if capability is None:
        yield
        return
    known = tuple(map(int, capability.split(".")))
    asked = torch.cuda.get_device_capability
    torch.cuda.get_device_capability = lambda device=None: known
    try:
        yield
    finally:
        torch.cuda.get_device_capability = asked


def come_early(
    load: Callable[[list[str]], Any],
    device: str,
    params: dict[str, Any],
    contenders: Sequence[str],
    capability: str | None = None,
) -> None:
    """In a worker: build the contenders that are not from `--with` for one case, without calling them, so that their
    libraries are imported. Settings that an import changed are restored; what fails here will fail again in its
    turn."""
    setting = Setting.now()
    suite = load([])
    case = suite.module.case_of_params(params)
    for name in random.SystemRandom().sample(contenders, len(contenders)):
        with suppress(Exception), _answered(capability):
            contender = suite.contenders[name]
            if contender.supports(case, device) is None:
                contender.build(case)
        with suppress(Incorrect):
            setting.check()


def early(
    start: Mapping[str, Any], params: dict[str, Any], contenders: Sequence[str], capability: str | None
) -> Message:
    """Return the first message to a worker that is started before its turn: the suite, a case, the contenders to build
    for it, and the compute capability of its GPU."""
    told = {key: start[key] for key in ("loader", "suite", "device")}
    return {**told, "params": params, "contenders": contenders, "capability": capability}
