"""Run everything that needs a GPU, step by step, as far as the time allows: tests, tuning, calibration, evidence.

    python tools/renew.py --list
    python tools/renew.py --out FOLDER [--seconds 540] [--steps 'test-*,calibrate,run-moe']

A step is a command. Its output goes to FOLDER/NAME.log and its bundles to FOLDER/bundles; at the end of each call
everything is packed into FOLDER/renewed.tar.gz. A step that is expected to exceed the remaining time is not started;
one that does exceed it is ended. Steps in FOLDER/done.json are skipped, so the same command continues where the last
one ended. A run that was ended leaves what it measured. FOLDER/begun.json says where, and the next call resumes it, so
a run may be longer than the time of one call, by whole processes. Exits with 1 if a step failed, with 3 if some are
left."""

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
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

ROOT = Path(__file__).parents[1]
PATIENCE = 2.0
"""A step may take this many times its expected time."""
ENDING_S = 20
"""Seconds that a step has to exit after it is told to end."""
PIECE_S = 150
"""A run is started if this much time is left, since it can be resumed: enough for the line-up and two processes of most
runs."""
INTERRUPTED = 3
"""Exit code of a run that was interrupted."""
SHOWN = 15
"""Last lines of its log that are shown for a failed step."""


class Step(NamedTuple):
    seconds: float
    """Expected time on an H200; a guess if it has not been measured yet."""
    command: str
    """Arguments of Python; {out} is the output folder."""

    @property
    def is_run(self) -> bool:
        return self.command.startswith(RUN)


RUN = "-m groundspeed run "
AT_ONCE = 12
"""Parallel processes of tests: the machine has 16 cores."""


def pytest(*parts: str, alone: bool = True) -> str:
    """Return the pytest command of these files. A file that cannot be imported does not stop the others. Tests of
    kernels spend most of their time compiling, so they run in parallel if pytest-xdist is installed."""
    many = "" if alone or not find_spec("xdist") else f"-n {AT_ONCE} "
    return f"-m pytest -q --continue-on-collection-errors {many}" + " ".join(f"tests/gpu/test_{p}.py" for p in parts)


def run(suite: str, more: str = "") -> str:
    return f"{RUN}{suite} --out {{out}}/bundles {more}".strip()


def inference(model: str, *prompts: str, graphed: int = 1) -> str:
    """Return a run of prompts and next tokens of a model by the clocks of the preset. The first `graphed` prompts and
    all next tokens are also measured in a graph, the shortest of both also as a caller sees them. A contender that is
    slower than another of its kind is left out (`hugging-face-eager`): all cases of all contenders would take an
    hour."""
    cases = [*prompts, "decode-*"]
    clocks = [*(f"{case}@graph" for case in (*prompts[:graphed], "decode-*")), f"{prompts[0]}@eager", "decode-1@eager"]
    told = ",".join(f"{model}-{case}" for case in (*cases, *clocks))
    return run("inference", f"--case '{told}' --only naive,sdpa,hugging-face-sdpa,ours")


def llama(model: str, *more: str) -> str:
    """Return a run of a Llama. Its steps are also measured in a graph, as in the preset."""
    return run("huggingface", " ".join([f"--case '{model}-*,{model}-decode-*@graph'", *more]))


FA4 = ",flash-attn-4" if find_spec("flash_attn") else ""
"""A rival that most machines lack; the contenders of a run are named, since the line-up of all of them takes long."""


def attention(cases: str, only: str, more: str = "") -> str:
    return run("attention", f"--case '{cases}' --dtype bf16 --only {only}{FA4} {more}")


SDPA = "sdpa-flash,sdpa-mem-efficient,sdpa-cudnn"
SMALL = "tiny-*,small-*,medium-*,large-*,xlarge-*,multi-head-*"
CHANGED = "hand_on or relay or exchanged or balanced or 31_elements"
STEPS = {
    "test-changed": Step(100, pytest("attention", "repeats", "hopper", "moe", alone=False) + f" -k '{CHANGED}'"),
    "tune-transposed": Step(60, "tools/tune_moe.py --tokens 2048 --like 'transposed*'"),
    "tune-transposed-many": Step(25, "tools/tune_moe.py --tokens 32768 --activations gelu --like 'transposed*t8'"),
    "calibrate": Step(240, "-m groundspeed calibrate"),
    "test-gate": Step(150, pytest("gpu_cheats", "measure") + " -k 'cheat or rivals or kept or honest or Faults'"),
    "run-decode": Step(170, attention("decode-*", f"{SDPA},ours-portable", "--clock default,graph")),
    "run-forms": Step(160, attention("form-*", "sdpa-cudnn,ours-hopper", "--baseline flash-attn-4" if FA4 else "")),
    "run-small": Step(
        200, attention(SMALL, f"{SDPA},sdpa-math,ours-portable,ours-hopper", "--clock default,graph,eager")
    ),
    "run-ragged": Step(
        240, attention("ref-*,claim-*,ragged-*,whole-*,sweep-*-s1024-*", "sdpa-flash,sdpa-cudnn,ours-hopper")
    ),
    "tune-gemm": Step(90, "tools/tune_gemm.py --out {out}/gemm.json"),
    "run-gemm": Step(150, run("gemm", "--dtype bf16")),
    "tune-moe": Step(120, "tools/tune_moe.py"),
    "run-moe": Step(400, run("moe", "--dtype bf16")),
    "tune-linear": Step(150, "tools/tune_linear.py --out {out}/linear.json"),
    "tune-rows": Step(120, "tools/tune_rows.py --out {out}/rows.json"),
    "run-inference-small": Step(360, inference("small", "1x128", "4x512", "16x2048", graphed=2)),
    "run-memory": Step(60, run("inference", "--case 'memory-*'")),
    "run-huggingface-1b": Step(220, llama("llama-1b", "--only groundspeed,patched --judge groundspeed,patched")),
    "run-inference-large": Step(720, inference("large", "1x128", "4x512")),
    "run-inference-medium": Step(540, inference("medium", "1x128", "4x512", "8x1024")),
    "run-huggingface-8b": Step(320, llama("llama-8b", "--only groundspeed,patched --judge groundspeed,patched")),
    "run-huggingface-compiled": Step(
        500, llama("llama-1b", "--baseline sdpa-compiled --only patched-compiled --judge patched-compiled")
    ),
    "run-inference-longest": Step(
        490, run("inference", "--case large-8x2048 --only naive,sdpa,hugging-face-sdpa,ours")
    ),
    "test-kernels": Step(
        150,
        pytest("rows", "linear", "paged", "moe", "errors", "transformer_on_gpu", "hf_on_gpu", "graphs", alone=False),
    ),
    "test-generate": Step(150, pytest("hf_on_gpu", alone=False) + " -k generate"),
    "test-suites": Step(90, pytest("suites_on_gpu", alone=False)),
    "test-laboratory": Step(500, pytest("measure", "proof", "profile", "gpu_cheats", "memory_profile")),
    "test-attention": Step(300, pytest("attention", "hopper", alone=False)),
    "test-repeats": Step(240, pytest("repeats", alone=False)),
    "tune-80": Step(150, "tools/tune_hopper.py --forms full,causal --head-dims 80 --sizes 4096"),
    "tune-window": Step(
        70, "tools/tune_hopper.py --forms band:4096,window:4096 --head-dims 128 --sizes 8192,16384 --like '*lazy*'"
    ),
    "tune-odd": Step(55, "tools/tune_hopper.py --forms causal --head-dims 128 --sizes 4224 --like '*lazy*'"),
    "tune-relay": Step(
        30,
        "tools/tune_decode.py --shapes 32x4x16x4096,32x4x16x8192,32x4x16x16384,32x8x16x4096,32x4x8x4096 "
        "--like 'relay*n64 w4 s3' --out {out}/relay.json",
    ),
}
"""Ordered by their worth, highest first, in case time is short."""


class Kept:
    """What a folder records of earlier calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.done: dict[str, float] = self._read("done")
        """Step → seconds, of the steps that succeeded."""
        self.begun: dict[str, tuple[float, str]] = self._read("begun")
        """Run that was ended → the seconds that it had, and the name of the folder that it left."""

    def _read(self, name: str) -> Any:
        file = self._folder / f"{name}.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def write(self) -> None:
        for name, known in (("done", self.done), ("begun", self.begun)):
            file = self._folder / f"{name}.json"
            file.with_suffix(".new").write_text(json.dumps(known))
            file.with_suffix(".new").replace(file)

    def seconds_left(self, name: str, step: Step) -> float:
        """Return the seconds that the step is still expected to take, at least those of a piece."""
        had, _ = self.begun.get(name, (0.0, ""))
        return max(min(PIECE_S, step.seconds), step.seconds - had)

    def command(self, name: str, step: Step) -> str:
        _, left = self.begun.get(name, (0.0, ""))
        if left and (self._folder / "bundles" / left).exists():
            return f"{RUN}--resume {{out}}/bundles/{left} --out {{out}}/bundles"
        return step.command

    def note(self, name: str, step: Step, code: int | None, seconds: float, left: str | None) -> None:
        had, _ = self.begun.pop(name, (0.0, ""))
        if code == 0:
            self.done[name] = round(had + seconds, 1)
        elif step.is_run and left and (code is None or code == INTERRUPTED):
            self.begun[name] = round(had + seconds, 1), left
        self.write()


def bundles(folder: Path) -> set[str]:
    """Return the names of the folders of finished and interrupted runs, and of the journals of killed ones."""
    return {path.name for path in (folder / "bundles").glob("*-*") if path.is_dir()}


def taken(name: str, command: str, folder: Path, most: float) -> int | None:
    """Run a step and return its exit code, or None if it was ended."""
    with (folder / f"{name}.log").open("ab") as log:
        paths = [ROOT / "src", ROOT / "tools", *filter(None, [os.environ.get("PYTHONPATH")])]  # may hold rivals
        environment = {**os.environ, "PYTHONPATH": ":".join(map(str, paths)), "PYTHONUNBUFFERED": "1"}
        environment["XDG_DATA_HOME"] = str(folder)  # where runs look for a calibration
        told = [sys.executable, *shlex.split(command.format(out=shlex.quote(str(folder))))]
        process = subprocess.Popen(told, cwd=ROOT, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            return process.wait(most)
        except subprocess.TimeoutExpired:
            _end(process)
            return None
        except BaseException:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGINT)  # on which a run leaves its bundle
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def pack(folder: Path) -> None:
    new = folder / "renewed.tar.gz.new"
    with tarfile.open(new, "w:gz") as packed:
        for path in sorted(folder.iterdir()):
            if not path.name.startswith("renewed.tar.gz"):
                packed.add(path, path.name)
    new.replace(folder / "renewed.tar.gz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the steps in their order, and exit")
    parser.add_argument("--out", type=Path, help="folder for logs, bundles and results")
    parser.add_argument("--seconds", type=float, default=3600, help="time for this call (default: 3600)")
    parser.add_argument("--steps", default="*", help="only these steps: names or patterns, separated by commas")
    options = parser.parse_args()
    patterns = options.steps.split(",")
    steps = {name: step for name, step in STEPS.items() if any(fnmatch.fnmatch(name, like) for like in patterns)}
    if options.list or not options.out:
        for name, step in steps.items():
            print(f"{name:16} {step.seconds:5.0f} s  {step.command}")
        sys.exit(0 if options.list else 2)
    if not torch.cuda.is_available():
        parser.exit(4, "the steps need an NVIDIA GPU, and PyTorch finds none\n")
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the step would go on without us
    end, kept = time.monotonic() + options.seconds, Kept(folder)
    words: dict[str, str] = {name: "already done" for name in steps if name in kept.done}
    try:
        for name, step in steps.items():
            left, expected = end - time.monotonic(), kept.seconds_left(name, step)
            if name not in kept.done and left >= (min(PIECE_S, expected) if step.is_run else expected):
                words[name] = go(name, step, folder, kept, min(left, PATIENCE * expected))
    finally:
        pack(folder)
    print("\n".join(f"{name:16} {words.get(name, 'left')}" for name in steps))
    if any(word.startswith("failed") for word in words.values()):
        sys.exit(1)
    sys.exit(0 if all(name in kept.done for name in steps) else 3)


def go(name: str, step: Step, folder: Path, kept: Kept, most: float) -> str:
    """Run a step, record it, and return what became of it."""
    before, began, code = bundles(folder), time.monotonic(), None
    try:
        code = taken(name, kept.command(name, step), folder, most)
    finally:  # on Ctrl-C too the run has left what it measured
        seconds, new = time.monotonic() - began, bundles(folder) - before
        newest = max(new, key=lambda one: (folder / "bundles" / one).stat().st_mtime_ns, default=None)
        _, had = kept.begun.get(name, (0.0, None))
        kept.note(name, step, code, seconds, newest or had)
    word = "done" if code == 0 else "ended when its time was up" if code is None else f"failed with {code}"
    print(f"{name}: {word}, {seconds:.0f} s", flush=True)
    if code != 0:
        print("\n".join((folder / f"{name}.log").read_text(errors="replace").splitlines()[-SHOWN:]), flush=True)
    return word


if __name__ == "__main__":
    main()
