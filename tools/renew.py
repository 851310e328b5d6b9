"""Run everything that needs a GPU, step by step, as far as the time allows: tests, tuning, calibration, evidence.

    python tools/renew.py --list
    python tools/renew.py --out FOLDER [--seconds 540] [--steps 'test-*,calibrate,run-moe'] [--again]

A step is a command. Its output goes to FOLDER/NAME.log and its bundles to FOLDER/bundles; at the end of each call
everything is packed into FOLDER/renewed.tar.gz. A step that is expected to exceed the remaining time is not started;
one that does exceed it is ended. Steps in FOLDER/done.json are skipped, so the same command continues where the last
one ended. So are those in FOLDER/failed.json, which failed or were ended, except with --again or if --steps names them
in full. A run that was ended leaves what it measured. FOLDER/begun.json says where, and the next call resumes it, so a
run may be longer than the time of one call, by whole processes. Exits with 1 if a step has failed, in this call or an
earlier one, with 3 if some are left."""

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
INTERRUPTED = 3
"""Exit code of a run that was interrupted."""
SHOWN = 15
"""Last lines of its log that are shown for a failed step."""
XDIST = find_spec("xdist") is not None
AT_ONCE = 15
"""Parallel processes of tests: the machine has 16 cores."""
RUN = "-m groundspeed run "


class Step(NamedTuple):
    seconds: float
    """Expected time on an H200; a guess if it has not been measured yet."""
    command: str
    """Arguments of Python; {out} is the output folder."""
    piece_s: float = 150
    """A run is started if this much time is left, since it can be resumed: enough for its line-up and two
    processes."""
    hangs_s: float = 300
    """A test that takes longer ends its process, and says where it stood: before patience with the step is at an end.
    The longest test takes half of it."""
    many: bool = False
    """Whether these are so many tests that one process would take half an hour."""

    @property
    def is_run(self) -> bool:
        return self.command.startswith(RUN)


def pytest(
    seconds: float, *files: str, only: str = "", alone: bool = True, many: bool = False, hangs_s: float = 300
) -> Step:
    """Return the step of these files, or of the tests in them that `only` selects. A file that cannot be imported does
    not stop the others. Unless they must be `alone`, tests run in parallel if pytest-xdist is installed, since those of
    kernels spend most of their time compiling."""
    paths = " ".join(f"tests/gpu/test_{file}.py" for file in files)
    parallel = f"-n {AT_ONCE} " if XDIST and not alone else ""
    command = f"-m pytest -v --continue-on-collection-errors {parallel}{paths}" + (f" -k '{only}'" if only else "")
    return Step(seconds, command, hangs_s=hangs_s, many=many)


def run(seconds: float, suite: str, more: str, piece_s: float = 150) -> Step:
    return Step(seconds, f"{RUN}{suite} --out {{out}}/bundles {more}", piece_s)


FA4 = ",flash-attn-4" if find_spec("flash_attn") else ""
LIGER = ",liger" if find_spec("liger_kernel") else ""
"""Rivals that most machines lack. The contenders of a run are named, since the line-up of all of them takes long."""


def attention(seconds: float, cases: str, only: str, more: str = "") -> Step:
    return run(seconds, "attention", f"--case '{cases}' --dtype bf16 --only {only}{FA4} {more}")


def inference(seconds: float, model: str, *cases: str, piece_s: float = 150) -> Step:
    """Return a run of some cases of a model. Its baseline, `sdpa-compiled`, is compiled in the line-up, and traced for
    each case and clock in each process, which may take 5 to 13 s (a guess): a step with all cases of a model would
    take longer than a call may. A contender that is slower than another of its kind is left out
    (`hugging-face-eager`)."""
    told = ",".join(f"{model}-{case}" for case in cases)
    return run(seconds, "inference", f"--case '{told}' --only {MODELS}", piece_s)


def llama(seconds: float, cases: str, more: str, piece_s: float = 150) -> Step:
    return run(seconds, "huggingface", f"--case '{cases}' {more}", piece_s)


SDPA = "sdpa-flash,sdpa-mem-efficient,sdpa-cudnn"
MODELS = "naive,sdpa,hugging-face-sdpa,ours"
EAGER = "--only groundspeed,patched --judge groundspeed,patched"
COMPILED = "--baseline sdpa-compiled --only patched-compiled --judge patched-compiled"
SMALL = "tiny-*,small-*,medium-*,large-*,xlarge-*,multi-head-*"
EXPERTS = (
    "decode-*-swiglu@graph,4x512-gelu,4x512-swiglu,16x2048-gelu,16x2048-swiglu,32x2048-swiglu,4x512-zipf-swiglu,"
    "16x2048-zipf-swiglu,128-experts-2048-swiglu,8-experts-2048-swiglu,products-16x2048,products-32x2048"
)
"""A part of what the suite measures otherwise, 40 s for each process."""
FORMS = "form-*" if FA4 else "form-[!p]*"
"""Without FlashAttention 4 the baseline is cuDNN, whose nested tensors take 50 ms for packed sequences."""
STEPS = {
    "test-kernels": pytest(
        120,
        *("rows", "linear", "dense", "paged", "moe", "errors", "transformer_on_gpu", "hf_on_gpu", "graphs"),
        only="not generate",
        alone=False,
        many=True,
        hangs_s=120,
    ),
    "test-attention": pytest(130, "attention", "hopper", "repeats", alone=False, many=True, hangs_s=200),
    "test-suites": pytest(150, "suites_on_gpu", alone=False, hangs_s=120),
    "test-generate": pytest(150, "hf_on_gpu", only="generate", alone=False, hangs_s=200),
    "test-laboratory": pytest(430, "measure", "proof", "gpu_cheats", "profile", "memory_profile"),
    "calibrate": Step(145, "-m groundspeed calibrate"),
    "run-moe": run(
        360,
        "moe",
        f"--dtype bf16 --case '{EXPERTS}' --baseline grouped-mm "
        f"--only grouped-mm,plain-products,hugging-face,ours-portable,ours-hopper{LIGER}",
    ),
    "run-decode": attention(170, "decode-*", f"{SDPA},ours-portable", "--clock default,graph"),
    "run-forms": attention(160, FORMS, "sdpa-cudnn,ours-hopper", "--baseline flash-attn-4" if FA4 else ""),
    "run-small": attention(200, SMALL, f"{SDPA},sdpa-math,ours-portable,ours-hopper", "--clock default,graph,eager"),
    "run-ragged": attention(240, "ref-*,claim-*,ragged-*,whole-*,sweep-*-s1024-*", "sdpa-flash,sdpa-cudnn,ours-hopper"),
    "run-gemm": run(150, "gemm", "--dtype bf16"),
    "tune-gemm": Step(90, "tools/tune_gemm.py --out {out}/gemm.json"),
    "tune-moe": Step(120, "tools/tune_moe.py"),
    "tune-linear": Step(150, "tools/tune_linear.py --rows 1,16 --like '*x512*,*32x256*' --out {out}/linear.json"),
    "tune-activated": Step(60, "tools/tune_activated.py --out {out}/activated.json"),
    "run-inference-small": inference(
        360, "small", "1x128", "1x128@graph", "1x128@eager", "4x512", "4x512@graph", "16x2048", piece_s=170
    ),
    "run-inference-small-decode": inference(420, "small", "decode-*", "decode-*@graph", "decode-1@eager", piece_s=180),
    "tune-rows": Step(120, "tools/tune_rows.py --out {out}/rows.json"),
    "run-memory": run(120, "inference", f"--case 'memory-*' --only {MODELS}"),
    "run-huggingface-1b": llama(220, "llama-1b-*,llama-1b-decode-*@graph", EAGER),
    "run-inference-large-1x128": inference(420, "large", "1x128", "1x128@graph", "1x128@eager", piece_s=200),
    "run-inference-large-4x512": inference(200, "large", "4x512", piece_s=150),
    "run-inference-large-decode-1": inference(
        420, "large", "decode-1", "decode-1@graph", "decode-1@eager", piece_s=200
    ),
    "run-inference-large-decode-8": inference(320, "large", "decode-8", "decode-8@graph", piece_s=180),
    "run-inference-large-decode-64": inference(320, "large", "decode-64", "decode-64@graph", piece_s=180),
    "run-inference-large-8x2048": inference(400, "large", "8x2048", piece_s=200),
    "run-inference-medium-1x128": inference(320, "medium", "1x128", "1x128@graph", "1x128@eager", piece_s=160),
    "run-inference-medium": inference(320, "medium", "4x512", "8x1024", piece_s=200),
    "run-inference-medium-decode-1": inference(
        320, "medium", "decode-1", "decode-1@graph", "decode-1@eager", piece_s=160
    ),
    "run-inference-medium-decode": inference(
        460, "medium", "decode-8", "decode-8@graph", "decode-64", "decode-64@graph", piece_s=220
    ),
    "run-huggingface-8b": llama(320, "llama-8b-*,llama-8b-decode-*@graph", EAGER, piece_s=200),
    "run-huggingface-compiled": llama(300, "llama-1b-1x2048,llama-1b-8x2048", COMPILED, piece_s=200),
    "run-huggingface-compiled-1": llama(300, "llama-1b-decode-1,llama-1b-decode-1@graph", COMPILED, piece_s=200),
    "run-huggingface-compiled-many": llama(
        460,
        "llama-1b-decode-8,llama-1b-decode-8@graph,llama-1b-decode-32,llama-1b-decode-32@graph",
        COMPILED,
        piece_s=240,
    ),
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
"""Ordered by their worth, highest first, in case time is short; a test comes before the runs that it protects."""
WIDTH = max(map(len, STEPS))
DONE, ENDED, BROKEN_OFF = "done", "ended when its time was up", "interrupted"


class Kept:
    """What a folder records of earlier calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.done: dict[str, float] = self._read("done")
        """Step → seconds, of the steps that succeeded."""
        self.failed: dict[str, str] = self._read("failed")
        """Step → what became of it, of those that failed, and of those that were ended and cannot be resumed."""
        self.begun: dict[str, tuple[float, str]] = self._read("begun")
        """Run that was ended → the seconds that it had, and the name of the folder that it left."""

    def _read(self, name: str) -> Any:
        file = self._folder / f"{name}.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def write(self) -> None:
        for name, known in (("done", self.done), ("failed", self.failed), ("begun", self.begun)):
            file = self._folder / f"{name}.json"
            file.with_suffix(".new").write_text(json.dumps(known))
            file.with_suffix(".new").replace(file)

    def why_not(self, name: str, step: Step, *, again: bool) -> str | None:
        """Return why the step is not to be taken, or None. `again`: although it has failed."""
        if name in self.done:
            return "already done"
        if name in self.failed and not again:
            return f"in an earlier call {self.failed[name]}; --again repeats it"
        return "left: without pytest-xdist it takes too long" if step.many and not XDIST else None

    def seconds_left(self, name: str, step: Step) -> float:
        """Return the seconds that the step is still expected to take, at least those of a piece."""
        had, _ = self.begun.get(name, (0.0, ""))
        return max(min(step.piece_s, step.seconds), step.seconds - had)

    def command(self, name: str, step: Step) -> str:
        _, left = self.begun.get(name, (0.0, ""))
        if left and (self._folder / "bundles" / left).exists():
            return f"{RUN}--resume {{out}}/bundles/{left} --out {{out}}/bundles"
        return step.command

    def note(self, name: str, step: Step, word: str, seconds: float, left: str | None) -> None:
        """Record what became of a step. One that the caller interrupted has not failed."""
        had, _ = self.begun.pop(name, (0.0, ""))
        self.failed.pop(name, None)
        if word == DONE:
            self.done[name] = round(had + seconds, 1)
        elif step.is_run and word in (ENDED, BROKEN_OFF):
            self.begun |= {name: (round(had + seconds, 1), left)} if left else {}
        elif word != BROKEN_OFF:
            self.failed[name] = word
        self.write()


def bundles(folder: Path) -> set[str]:
    """Return the names of the folders of finished and interrupted runs, and of the journals of killed ones."""
    return {path.name for path in (folder / "bundles").glob("*-*") if path.is_dir()}


def taken(name: str, step: Step, command: str, folder: Path, most: float) -> int:
    """Run a command of a step and return its exit code. TimeoutExpired if it was ended."""
    with (folder / f"{name}.log").open("ab") as log:
        paths = [ROOT / "src", ROOT / "tools", *filter(None, [os.environ.get("PYTHONPATH")])]  # may hold rivals
        environment = {**os.environ, "PYTHONPATH": ":".join(map(str, paths)), "PYTHONUNBUFFERED": "1"}
        environment["XDG_DATA_HOME"] = str(folder)  # where runs look for a calibration
        environment["GS_HANGS_S"] = str(step.hangs_s)
        told = [sys.executable, *shlex.split(command.format(out=shlex.quote(str(folder))))]
        process = subprocess.Popen(told, cwd=ROOT, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            return process.wait(most)
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


def go(name: str, step: Step, folder: Path, kept: Kept, most: float) -> str:
    """Run a step, record it, and return what became of it."""
    before, began, word = bundles(folder), time.monotonic(), BROKEN_OFF
    try:
        word = _word(step, taken(name, step, kept.command(name, step), folder, most))
    except subprocess.TimeoutExpired:
        word = ENDED
    finally:  # on Ctrl-C too the run has left what it measured
        seconds, new = time.monotonic() - began, bundles(folder) - before
        newest = max(new, key=lambda one: (folder / "bundles" / one).stat().st_mtime_ns, default=None)
        _, had = kept.begun.get(name, (0.0, None))
        kept.note(name, step, word, seconds, newest or had)
    print(f"{name}: {word}, {seconds:.0f} s", flush=True)
    if word != DONE:
        print("\n".join((folder / f"{name}.log").read_text(errors="replace").splitlines()[-SHOWN:]), flush=True)
    return word


def _word(step: Step, code: int) -> str:
    if code == 0:
        return DONE
    return BROKEN_OFF if step.is_run and code == INTERRUPTED else f"failed with {code}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the steps in their order, and exit")
    parser.add_argument("--out", type=Path, help="folder for logs, bundles and results")
    parser.add_argument("--seconds", type=float, default=3600, help="time for this call (default: 3600)")
    parser.add_argument("--steps", default="*", help="only these steps: names or patterns, separated by commas")
    parser.add_argument("--again", action="store_true", help="repeat steps that failed, too")
    options = parser.parse_args()
    patterns = options.steps.split(",")
    steps = {name: step for name, step in STEPS.items() if any(fnmatch.fnmatch(name, like) for like in patterns)}
    if options.list or not options.out:
        for name, step in steps.items():
            print(f"{name:{WIDTH}} {step.seconds:5.0f} s  {step.command}")
        sys.exit(0 if options.list else 2)
    if not torch.cuda.is_available():
        parser.exit(4, "the steps need an NVIDIA GPU, and PyTorch finds none\n")
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the step would go on without us
    end, kept, words = time.monotonic() + options.seconds, Kept(folder), dict[str, str]()
    try:
        for name, step in steps.items():
            if why_not := kept.why_not(name, step, again=options.again or name in patterns):
                words[name] = why_not
                continue
            left, expected = end - time.monotonic(), kept.seconds_left(name, step)
            if left >= (min(step.piece_s, expected) if step.is_run else expected):
                words[name] = go(name, step, folder, kept, min(left, PATIENCE * expected))
    finally:
        pack(folder)
    print("\n".join(f"{name:{WIDTH}} {words.get(name, 'left')}" for name in steps))
    if any(name in kept.failed for name in steps):
        sys.exit(1)
    sys.exit(0 if all(name in kept.done for name in steps) else 3)


if __name__ == "__main__":
    main()
