"""Cheats that only a GPU makes possible are refused by name, and whoever is odd but honest there is not. All at once:
each in runs of its own, which do not know of each other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CHEATS = HERE.parent / "cheats" / "cheats_gpu.py"
HONEST = HERE / "honest_contenders.py"
LONG = "B=4,H=16,S=4096,D=128,causal=0 bf16 default sdpa-flash"
GRAPH = "B=2,H=8,S=1024,D=64,causal=0 bf16 graph sdpa-flash"
FP32 = "B=2,H=8,S=1024,D=64,causal=0 fp32 default sdpa-math"
FP16 = "B=2,H=8,S=1024,D=64,causal=0 fp16 default sdpa-flash"
"""Shape, dtype, clock and the rival beside it."""
UNSEEN = "returned NaN|over the tolerance"

REFUSED = {
    "cheat-gpu-side-stream": (FP16, "worked before its inputs were ready|that its call does not wait for"),
    "cheat-gpu-late-join": (LONG, "was not done when its turn was over"),
    "cheat-gpu-current-stream": (LONG, "left PyTorch's current stream at"),
    "cheat-gpu-event": (LONG, "replaced torch.cuda.Event.elapsed_time"),
    "cheat-gpu-event-record": (LONG, "replaced torch.cuda.Event"),
    "cheat-gpu-synchronize": (LONG, "replaced torch.cuda.synchronize"),
    "cheat-gpu-graph-of-nothing": (GRAPH, UNSEEN),
    "cheat-gpu-graph-only": (GRAPH, UNSEEN),
    "cheat-gpu-tf32": (FP32, "left PyTorch's cuda.matmul"),
    "cheat-gpu-reduced-precision": (FP16, "left PyTorch's cuda.matmul.allow_fp16_accumulation at True"),
    "cheat-gpu-warm-cache": (LONG, "replaced torch.sum"),
}
HARMLESS = {"cheat-gpu-kept-by-sample": LONG}
ODD = {"honest": LONG, "honest-by-graph": GRAPH}
CAPTURED = {"stream-joined", "streams-by-events", "workspace", "view", "slow-first-call"}
"""The others wait on the host, at times or always, or have a graph of their own: a capture may break off."""

Outcomes = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcomes]:
    """By run, contender → status, reason and least time (µs)."""
    base = tmp_path_factory.mktemp("cheats")
    asked = {name: (CHEATS, how) for name, (how, _) in REFUSED.items()}
    asked |= {name: (CHEATS, how) for name, how in HARMLESS.items()}
    asked |= {name: (HONEST, how) for name, how in ODD.items()}
    running = {name: _start(name, file, how, base / name) for name, (file, how) in asked.items()}
    try:
        for process in running.values():
            process.wait(240)
    finally:  # one that hangs would use the GPU beside the tests that come after
        for process in running.values():
            process.kill()
    return {name: _read(base / name) for name in running}


def _start(name: str, file: Path, how: str, folder: Path) -> subprocess.Popen[bytes]:
    """A lock for the device keeps runs apart that could disturb each other; these time nothing that counts."""
    folder.mkdir()
    env = {**os.environ, "GS_CHEATS": name, "TMPDIR": str(folder)}
    shape, dtype, clock, rival = how.split()
    command = [sys.executable, "-m", "groundspeed", "run", "attention", "--preset", "quick", "--processes", "1"]
    command += ["--only", rival, "--baseline", rival, "--shape", shape, "--dtype", dtype, "--clock", clock]
    command += ["--with", str(file), "--out", str(folder)]
    with (folder / "log.txt").open("w") as log:
        return subprocess.Popen(command, env=env, stdout=log, stderr=log)


def _read(folder: Path) -> Outcomes:
    bundles = [path.parent for path in folder.glob("*/facts.json")]
    assert bundles, (folder / "log.txt").read_text()[-2000:]
    table = json.loads((bundles[0] / "facts.json").read_text())["outcomes"]
    return {(one := dict(zip(table["columns"], row, strict=True)))["contender"]: one for row in table["rows"]}


@pytest.mark.parametrize("name", REFUSED)
def test_d6_a_cheat_is_refused_by_name(name: str, outcomes: dict[str, Outcomes]) -> None:
    found = outcomes[name][name]
    assert found["status"] == "INCORRECT"
    assert re.search(REFUSED[name][1], found["reason"])


@pytest.mark.parametrize("name", [*REFUSED, *HARMLESS])
def test_and_its_rivals_keep_their_samples(name: str, outcomes: dict[str, Outcomes]) -> None:
    rivals = {rival: one["status"] for rival, one in outcomes[name].items() if rival.startswith("sdpa-")}
    assert set(rivals.values()) == {"PASSED"}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_kept_never_comes_again(name: str, outcomes: dict[str, Outcomes]) -> None:
    assert outcomes[name][name]["status"] == "PASSED"


def test_d6_whoever_is_honest_passes(outcomes: dict[str, Outcomes]) -> None:
    found = {name: one["reason"] for name, one in outcomes["honest"].items() if name.startswith("honest-")}
    assert len(found) == 10
    assert set(found.values()) == {None}, found


def test_also_when_captured(outcomes: dict[str, Outcomes]) -> None:
    found = {name: one for name, one in outcomes["honest-by-graph"].items() if name.startswith("honest-")}
    assert "INCORRECT" not in {one["status"] for one in found.values()}, found
    assert {found[f"honest-{name}"]["status"] for name in CAPTURED} == {"PASSED"}, found
