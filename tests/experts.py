"""Scripted runs of cases that have experts, and profiles beside them (B2): what is told there is up to the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from fakes import FakeWorker, begin, continue_run, header, noisy
from groundspeed.evidence.profile import Call, Event, Profile
from groundspeed.evidence.record import CaseFacts, Record
from groundspeed.lab.declare import case_facts
from groundspeed.suites.registry import suite_module
from profiles import contender, gpu_profile

SHAPE = "T=8,H=16,I=16,E=4,K=2,act=gelu"
CASE = "t8-h16-i16-e4-k2-gelu-fp32"
EVEN: list[Any] = [[4, 4, 4, 4], 1.0]
SKEWED: list[Any] = [[10, 4, 2, 0], 1.5]
MEANS = {"expert-loop": 2e-3, "ours-portable": 1e-3}


class Telling(FakeWorker):
    """Says of each case what stands in `told`, one after the other; the last one again and again."""

    told: Sequence[Any] = (EVEN,)
    asked: list[int]
    """How often, of all workers: a list, for it is shared."""

    def prepare(self, request: Mapping[str, Any]) -> None:
        self.outbox.append({"kind": "usage", "of": self.told[min(len(self.asked), len(self.told) - 1)]})
        self.asked.append(1)
        super().prepare({**request, "params": {"B": 1, "S": 1}})


def telling(*told: Any) -> Any:
    return type("Telling", (Telling,), {"told": told, "asked": []})


def declared(shapes: Sequence[str] = (SHAPE,), **changes: Any) -> dict[str, Any]:
    """The declaration of a run of `moe`; PyTorch's loop is the baseline."""
    facts = header(list(MEANS), **{"processes": 2, "looks": (2,), **changes})
    cases = [case for shape in shapes for case in suite_module("moe").shape_cases(shape, ("fp32",))]
    facts["run"] |= {"suite": "moe", "baseline_origin": "declared"}
    return {**facts, "cases": [case_facts(case) for case in cases]}


def run(folder: Path, *told: Any, shapes: Sequence[str] = (SHAPE,), **changes: Any) -> Record:
    with mock.patch("os.fsync"):
        begin(folder, declared(shapes, **changes)).close()
        return continue_run(folder, noisy(MEANS), worker_type=telling(*told))


def on_gpu(record: Record) -> Record:
    """As if an H200 had been measured, by those who stand in `routed_profile`."""
    environment = {**record.environment, "gpu": {"name": "NVIDIA H200"}}
    contenders = tuple(contender(name) for name in MEANS)
    run = replace(record.run, device="cuda")
    return replace(record, run=run, environment=environment, contenders=contenders)


def routed_profile(case: CaseFacts, *kernels: tuple[str, float], left_out: int = 0) -> Profile:
    """Of `ours-portable`, of which each call ran these kernels, for so many microseconds, and a copy of one."""
    name, told = "ours-portable", gpu_profile(counted=False)
    events, at = [], 1e-5
    for kind, kernel, length in (*(("kernel", *one) for one in kernels), ("copy", "Memcpy", 1.0)):
        rest = (at, length * 1e-6, 0, None, None, None, None, None)
        events += [Event(name, call, kind, kernel, *rest) for call in range(2)]  # type: ignore[arg-type]
        at += length * 1e-6
    seen = replace(told.seen[0], contender=name, left_out=left_out)
    return replace(
        told,
        suite="moe",
        case=case,
        contenders=(contender(name),),
        seen=(seen,),
        calls=tuple(Call(name, call, 1.0) for call in range(2)),
        events=tuple(events),
    )
