"""A repository in a folder: bundles under evidence/, and texts that are held to them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from fakes import FakeWorker, begin, continue_run, header, noisy
from groundspeed.case import with_clock
from groundspeed.evidence import bundle
from groundspeed.judge.judgement import judge
from groundspeed.lab.declare import case_facts
from groundspeed.report.tied import check
from groundspeed.report.tied.check import Checked
from groundspeed.report.tied.figures import Source
from groundspeed.report.tied.library import Library
from groundspeed.suites.registry import suite_module

CPU = {"sdpa-math": 3e-4, "sdpa-flash": 1.5e-4, "mine": 2.0e-4}
GPU = {"sdpa-cudnn": 9e-3, "ours-portable": 6e-3, "sdpa-flash": 9.05e-3}


@functools.cache
def verified(path: Path) -> Source:
    """Integrity and judgement; the replay against the suite has its own tests."""
    found = bundle.read(path)
    return Source(found, judge(found.record))


@dataclass
class House:
    root: Path
    cpu: bundle.Bundle
    """FP32, full, B = 1 and 2 at S = 64; sdpa-flash twice as fast as sdpa-math."""
    gpu: bundle.Bundle
    """An H200, BF16, causal, S = 4096 by three clocks; ours-portable 1.5 times as fast as sdpa-cudnn, sdpa-flash
    UNCLEAR."""

    def library(self) -> Library:
        return Library(self.root, verified, lambda root, arguments: f"{' '.join(arguments)}\n1.25× faster\n")

    def check(self, text: str, name: str = "TEXT.md") -> Checked:
        return check.check(text, self.root / name, self.library())

    def write(self, text: str, name: str = "TEXT.md") -> str:
        return check.write(text, self.root / name, self.library())[0]

    def kinds(self, text: str, name: str = "TEXT.md") -> list[str]:
        return [finding.kind for finding in self.check(text, name).findings]


def build(root: Path) -> House:
    (root / "evidence").mkdir(parents=True)

    def of_cpu() -> bundle.Bundle:
        facts = header(list(CPU))
        absent = {**facts["contenders"][0], "name": "flash-attn-3", "status": "ABSENT", "reason": "needs an NVIDIA GPU"}
        facts["contenders"].append(absent)
        begin(root / "journal-cpu", facts).close()
        return bundle.write(
            continue_run(root / "journal-cpu", noisy(CPU)), root / "evidence" / "cpu", "attention-quick"
        )

    def of_gpu() -> bundle.Bundle:
        facts = header(list(GPU), judged=["ours-portable", "sdpa-flash"])
        (case,) = suite_module("attention").shape_cases("B=4,H=16,S=4096,D=128,causal=1", ("bf16",))
        cases = [case, with_clock(case, "graph"), with_clock(case, "eager")]
        (other,) = suite_module("attention").shape_cases("B=4,H=16,S=2048,D=128,causal=1", ("bf16",))
        facts["cases"] = [case_facts(each) for each in (*cases, with_clock(other, "graph"))]
        facts["run"]["device"], facts["environment"]["gpu"] = "cuda", {"name": "NVIDIA H200"}
        begin(root / "journal-gpu", facts).close()
        quiet, loud = noisy(GPU), noisy(GPU, 0.1)

        def seconds(contender: str, case: str, block: int) -> float:
            return (loud if contender == "sdpa-flash" else quiet)(contender, case, block)

        record = continue_run(root / "journal-gpu", seconds, worker_type=FakeWorker)
        return bundle.write(record, root / "evidence" / "gpu", "attention-quick")

    return House(root, of_cpu(), of_gpu())
