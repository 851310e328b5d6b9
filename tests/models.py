"""Scripted runs of whole models (B4, B5), by clocks and over lengths: what they take is up to the test."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from fakes import FakeWorker, begin, continue_run, header
from groundspeed.case import Case, with_clock
from groundspeed.evidence.launched import Launched
from groundspeed.evidence.record import Record
from groundspeed.lab.declare import case_facts
from groundspeed.suites.registry import suite_module

NAMES = ("naive", "sdpa", "sdpa-compiled", "ours")
SHAPES = ("L=1,d=64,H=4,B=8,S=32", "L=1,d=64,H=4,B=8,S=64", "L=1,d=64,H=4,B=8,S=128")
EAGER_S = {"naive": 9e-4, "sdpa": 6e-4, "sdpa-compiled": 4e-4, "ours": 3e-4}
GRAPH_S = {"naive": 3e-4, "sdpa": 2.4e-4, "sdpa-compiled": 2.05e-4, "ours": 2e-4}
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"

Memory = Callable[[str, int], int | None]
"""Of a contender at a length."""


def scores(contender: str, length: int) -> int:
    """Matrices of scores for `naive`, and of others what grows with the length."""
    return 4096 * length + (8 * length * length * 64 if contender == "naive" else 0)


def cases_of(shapes: Sequence[str] = SHAPES, clocks: Sequence[str] = ()) -> list[Case]:
    plain = [case for shape in shapes for case in suite_module("inference").shape_cases(shape, ("bf16",))]
    return [*plain, *(with_clock(case, clock) for clock in clocks for case in plain)]


def run(
    folder: Path,
    shapes: Sequence[str] = SHAPES,
    clocks: Sequence[str] = ("eager", "graph"),
    *,
    memory: Memory = scores,
    gpu: str | None = "Unknown GPU",
    names: Sequence[str] = NAMES,
    fault: Callable[[str, Any, int | None], Any] = lambda contender, case, block: None,
    noise: float = 0.003,
    **changes: Any,
) -> Record:
    """On a GPU unless there is none."""

    class Worker(FakeWorker):
        """Knows a case by all its parameters, and tells of memory."""

        def prepare(self, request: Mapping[str, Any]) -> None:
            super().prepare(request)
            self.case = request["params"]
            for message in self.outbox:
                if isinstance(message, dict) and message["kind"] == "ready":
                    extra = memory(message["contender"], int(self.case["S"]))
                    where, elsewhere = ("device", "host") if gpu else ("host", "device")
                    message.update({f"{where}_peak_bytes": extra, f"{where}_extra_bytes": extra})
                    message.update({f"{elsewhere}_extra_bytes": None})

    generator = random.Random(5)

    def seconds(contender: str, case: Any, block: int) -> float:
        table = EAGER_S if case.get("clock") == "eager" else GRAPH_S
        return table[contender] * generator.lognormvariate(0.0, noise)

    facts = header(list(names), **{"processes": 4, "looks": (4,), "baseline": "sdpa", **changes})
    facts["run"] |= {"suite": "inference", "baseline_origin": "asked"}
    facts["cases"] = [case_facts(case) for case in cases_of(shapes, clocks if gpu else ())]
    if gpu:
        facts["run"]["device"], facts["environment"]["gpu"] = "cuda", {"name": gpu}
    with mock.patch("os.fsync"):
        begin(folder, facts).close()
        return continue_run(folder, seconds, fault, worker_type=Worker)


def watched(record: Record, seen: Mapping[str, Mapping[str, tuple[int, float]]]) -> Record:
    """With what each contender did in a call: name → how often, and how long in all."""
    launched = []
    for case in record.cases:
        if "clock" not in case.params:
            for contender, of in seen.items():
                kernels, moves = (tuple(n for n in of if n.startswith("Mem") is moved) for moved in (False, True))
                times, lengths = zip(*(of[name] for name in (*kernels, *moves)), strict=True)
                launched.append(Launched(case.name, contender, kernels, (), (), moves, times, lengths))
    return replace(record, launched=tuple(launched))


SEEN: dict[str, dict[str, tuple[int, float]]] = {
    "sdpa": {"nvjet": (4, 9e-5), COPY: (2, 6e-6), "Memset (Device)": (1, 4e-6)},
    "ours": {"nvjet": (4, 9e-5), "norm_forward_kernel": (3, 1e-5)},
}
