"""All that needs a GPU, one step after the other, as far as the time goes: tests, tuning, calibration, evidence.

    python tools/renew.py --list
    python tools/renew.py --out FOLDER [--seconds 540] [--steps 'test-*,calibrate,run-moe']

A step is a command. What it prints goes to FOLDER/NAME.log, its bundles to FOLDER, and all of it, at each end,
into FOLDER/renewed.tar.gz. A step that is expected to outlast the time is not begun, one that does is ended. What
is in FOLDER/done.json is left out: the same command again goes on where the last one ended. Exits with 1 where a step
failed, with 3 where some are left."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import NamedTuple

import torch

ROOT = Path(__file__).parents[1]
PATIENCE = 2.0
"""Times what a step is expected to take."""
SHOWN = 15
"""Lines of its end, of a step that failed."""


class Step(NamedTuple):
    seconds: float
    """That it is expected to take on an H200; a guess where nobody has seen it yet."""
    command: str
    """Of Python; {out} is a folder."""


def pytest(*parts: str) -> str:
    return "-m pytest -q " + " ".join(f"tests/gpu/test_{part}.py" for part in parts)


def run(suite: str, more: str = "") -> str:
    return f"-m groundspeed run {suite} --out {{out}}/bundles {more}".strip()


SMALL = "tiny-*,small-*,medium-*,large-*,xlarge-*,multi-head-*"
STEPS = {
    "test-laboratory": Step(340, pytest("measure", "proof", "errors", "profile", "gpu_cheats")),
    "test-rows": Step(120, pytest("rows", "linear", "paged")),
    "test-models": Step(150, pytest("transformer_on_gpu", "graphs", "memory_profile", "hf_on_gpu")),
    "test-suites": Step(90, pytest("huggingface_suite_on_gpu")),
    "tune-window": Step(
        60, "tools/tune_hopper.py --forms band:4096,window:4096 --head-dims 128 --sizes 8192,16384 --like '*lazy*'"
    ),
    "tune-odd": Step(40, "tools/tune_hopper.py --forms causal --head-dims 128 --sizes 4224 --like '*lazy*'"),
    "tune-80": Step(40, "tools/tune_hopper.py --forms full,causal --head-dims 80 --sizes 4096"),
    "tune-relay": Step(
        60, "tools/tune_decode.py --shapes 32x4x16x4096,32x4x16x1024 --like 'relay*' --out {out}/relay.json"
    ),
    "tune-linear": Step(150, "tools/tune_linear.py --out {out}/linear.json"),
    "tune-gemm": Step(90, "tools/tune_gemm.py --out {out}/gemm.json"),
    "tune-rows": Step(120, "tools/tune_rows.py --out {out}/rows.json"),
    "tune-moe": Step(120, "tools/tune_moe.py"),
    "calibrate": Step(240, "-m groundspeed calibrate"),
    "run-inference": Step(500, run("inference")),
    "run-memory": Step(60, run("inference", "--case 'memory-*'")),
    "run-moe": Step(400, run("moe", "--dtype bf16")),
    "run-gemm": Step(150, run("gemm", "--dtype bf16")),
    "run-huggingface": Step(400, run("huggingface", "--judge groundspeed,patched,patched-compiled")),
    "run-decode": Step(200, run("attention", "--case 'decode-*' --clock default,graph --dtype bf16")),
    "run-forms": Step(250, run("attention", "--case 'form-*' --dtype bf16 --only sdpa-cudnn,ours-hopper")),
    "run-small": Step(200, run("attention", f"--case '{SMALL}' --clock default,graph,eager --dtype bf16")),
    "run-ragged": Step(240, run("attention", "--case 'ref-*,claim-*,ragged-*,whole-*,sweep-*-s1024-*' --dtype bf16")),
    "test-attention": Step(300, pytest("attention", "hopper")),
    "test-experts": Step(120, pytest("moe")),
    "test-repeats": Step(240, pytest("repeats")),
}
"""In the order in which they are worth most where time is short."""


def done_in(folder: Path) -> dict[str, float]:
    """Seconds by step, of those that succeeded before."""
    file = folder / "done.json"
    found: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    return found


def taken(name: str, step: Step, folder: Path, most: float) -> int | None:
    """Its exit code; None where it was ended."""
    with (folder / f"{name}.log").open("wb") as log:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tools'}", "PYTHONUNBUFFERED": "1"}
        environment["XDG_DATA_HOME"] = str(folder)  # where runs look for a calibration
        command = [sys.executable, *shlex.split(step.command.format(out=folder))]
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            return process.wait(most)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)  # a run leaves its bundle then
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            return None


def pack(folder: Path) -> None:
    with tarfile.open(folder / "renewed.tar.gz", "w:gz") as packed:
        for path in sorted(folder.iterdir()):
            if path.name != "renewed.tar.gz":
                packed.add(path, path.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="the steps, in their order")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--steps", default="*")
    options = parser.parse_args()
    patterns = options.steps.split(",")
    steps = {name: step for name, step in STEPS.items() if any(fnmatch.fnmatch(name, like) for like in patterns)}
    if options.list or not options.out:
        for name, step in steps.items():
            print(f"{name:16} {step.seconds:5.0f} s  {step.command}")
        sys.exit(0 if options.list else 2)
    if not torch.cuda.is_available():
        parser.exit(4, "the steps need an NVIDIA GPU, and PyTorch finds none here\n")
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    end, done = time.monotonic() + options.seconds, done_in(folder)
    words: dict[str, str] = {name: "done before" for name in steps if name in done}
    for name, step in steps.items():
        left = end - time.monotonic()
        if name in done or left < step.seconds:
            continue
        began = time.monotonic()
        code = taken(name, step, folder, min(left, PATIENCE * step.seconds))
        seconds = time.monotonic() - began
        words[name] = "done" if code == 0 else "ended for want of time" if code is None else f"failed with {code}"
        print(f"{name}: {words[name]}, {seconds:.0f} s", flush=True)
        if code == 0:
            done[name] = round(seconds, 1)
            (folder / "done.json").write_text(json.dumps(done))
        else:
            print("\n".join((folder / f"{name}.log").read_text(errors="replace").splitlines()[-SHOWN:]), flush=True)
    pack(folder)
    print("\n".join(f"{name:16} {words.get(name, 'left')}" for name in steps))
    if any(word.startswith("failed") for word in words.values()):
        sys.exit(1)
    sys.exit(0 if all(name in done for name in steps) else 3)


if __name__ == "__main__":
    main()
