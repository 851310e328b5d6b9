"""Study the whole procedure by simulation: how often it errs, and how often it finds a real difference
(docs/simulation.md).

python tools/simulate.py           everything, on all cores: about a quarter of an hour on two
python tools/simulate.py --page    only the page and the charts, from docs/simulation.json
python tools/simulate.py --check   exit 1 if page or charts are not those of docs/simulation.json"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")
ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "statistics"), str(ROOT / "tools")]

import simulation_page  # noqa: E402
import study  # noqa: E402
from noise import MODELS, STRESS, TYPICAL  # noqa: E402
from procedure import PLANS, plan  # noqa: E402
from real import bundles, control, rare, real  # noqa: E402

SEED = 20261115
RUNS = 3000
SINGLE = 3
"""Factor on the runs of a single comparison, whose figures lie closer to their bounds."""
PRESETS = ("quick", "standard", "paper")
RESULT = ROOT / "docs" / "simulation.json"


@dataclass(frozen=True)
class Job:
    part: str
    noise: str
    plan: str
    runs: int
    together: int = 1

    @cached_property
    def cost(self) -> float:
        """Estimated time in seconds on one core."""
        chosen = PLANS.get(self.plan, PLANS["standard"])
        blocks = chosen.most * chosen.protocol.looks[-1] * (1e-7 if self.noise in SYNTHETIC else 5e-9)
        comparisons = {"single": 10, "family": 60, "power": 60, "needed": 0}[self.part]
        judging = {"single": 1.2e-3, "family": 8e-3, "power": 8e-3, "needed": 3e-4}[self.part]
        return self.runs * (comparisons * blocks + judging * len(chosen.stages))

    def __call__(self) -> tuple[Job, dict[str, Any]]:
        if self.part == "needed":
            plans = {n: plan("standard", processes=n) for n in study.NUMBERS}
            return self, study.needed(NOISES[self.noise], plans, self.runs, self.together, SEED)
        work: Callable[..., dict[str, Any]] = {
            "single": study.single,
            "family": study.family,
            "power": study.family_power,
        }[self.part]
        return self, work(NOISES[self.noise], PLANS[self.plan], self.runs, SEED)


SYNTHETIC = {**MODELS, TYPICAL.name: TYPICAL, **STRESS}
CENTRED, SWAPPED, RARE = real(), real(swap=True), rare()
CONTROLS = {c.name: c for c in (control(), control(swap=True), control(smooth=False))}
NOISES: dict[str, study.Noise] = {**SYNTHETIC, **CENTRED, **SWAPPED, **RARE, **CONTROLS}


def jobs(share: float) -> Iterator[Job]:
    runs = max(20, int(RUNS * share))
    for name in (*SYNTHETIC, *SWAPPED):
        for preset in PLANS:
            yield Job("single", name, preset, SINGLE * runs)
    for name in (*CENTRED, *RARE, *CONTROLS):
        for preset in PRESETS:
            yield Job("single", name, preset, SINGLE * runs)
    for name in MODELS:
        for preset in PLANS:
            yield Job("family", name, preset, runs * 2 // 3 if preset == "standard" else runs // 20)
    for name in (*SWAPPED, *RARE, control(swap=True).name):
        yield Job("family", name, "standard", runs // 2)
    for name in RARE:
        for preset in PLANS:
            if preset != "standard":
                yield Job("family", name, preset, runs // 6)
    for name in (*CENTRED, control().name):
        yield Job("family", name, "standard", runs // 6)
    for name in (TYPICAL.name, "normal", "long cudnn/portable"):
        for preset in PRESETS:
            yield Job("power", name, preset, runs // 6)
    for name in CENTRED:
        for together in (1, study.FAMILY):
            yield Job("needed", name, "standard", runs, together)


def call(job: Job) -> tuple[Job, dict[str, Any]]:
    return job()


def simulate(share: float) -> dict[str, Any]:
    todo = sorted(jobs(share), key=lambda job: -job.cost)
    total, done, started = sum(job.cost for job in todo), 0.0, time.monotonic()
    found: dict[str, list[tuple[Job, dict[str, Any]]]] = {"single": [], "family": [], "power": [], "needed": []}
    with multiprocessing.get_context("spawn").Pool() as pool:
        for i, (job, figures) in enumerate(pool.imap_unordered(call, todo), 1):
            found[job.part].append((job, figures))
            done += job.cost
            left = (time.monotonic() - started) * (total - done) / done / 60
            print(f"{i} of {len(todo)}, {left:.0f} min left: {job.part}, {job.noise}, {job.plan}", flush=True)
    order = {job: i for i, job in enumerate(jobs(share))}
    parts = {part: [f for _, f in sorted(made, key=lambda x: order[x[0]])] for part, made in found.items()}
    words = {name: noise.words for name, noise in NOISES.items()}
    minutes = round((time.monotonic() - started) / 60, 1)
    facts = {"seed": SEED, "minutes": minutes, "bundles": [found.identity for found in bundles()], "noises": words}
    return {**facts, "as_measured": study.as_measured(), **parts}


def dump(result: dict[str, Any]) -> str:
    """Return JSON with a line for each entry of each list, so that a diff can be read."""
    lines = []
    for key, value in result.items():
        entries = [json.dumps(entry, ensure_ascii=False) for entry in value] if isinstance(value, list) else []
        body = "[\n  " + ",\n  ".join(entries) + "\n ]" if entries else json.dumps(value, ensure_ascii=False)
        lines.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    arguments = sys.argv[1:]
    if not {"--page", "--check"} & set(arguments):
        shares = [float(a) for a in arguments]
        RESULT.write_text(dump(simulate(shares[0] if shares else 1.0)))
    stale = []
    for path, content in simulation_page.made(json.loads(RESULT.read_text()), ROOT / "docs"):
        if not path.exists() or path.read_text() != content:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in arguments:
                path.write_text(content)
    if stale and "--check" in arguments:
        sys.exit(f"out of date: {', '.join(stale)}; run python tools/simulate.py --page")


if __name__ == "__main__":
    main()
