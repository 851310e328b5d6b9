"""Run cheats or honest contenders as a black box, each in a run of its own, and say what became of them.

python tests/cheats/run_all.py [--out FOLDER] [--json FILE] [NAME…]     NAME+NAME of one file: in the same run
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RUN = ("run", "attention", "--preset", "quick", "--only", "sdpa-flash", "--processes", "1", "--warmup", "0.001")
CASE = "small-full-fp32"
RIVALS = ("sdpa-math", "sdpa-flash")
LOG = "log.txt"

Found = dict[str, Any]
"""status, reason, median and least time (µs) of a contender; `rivals`: the same of PyTorch's own in that run."""


def contenders() -> dict[str, Path]:
    """Name to file, by reading: importing the cheats would let them begin."""
    files = [*sorted(HERE.glob("cheats_*.py")), HERE / "honest.py"]
    return {name: file for file in files for name in re.findall(r'(?:cheat|honest)\(\s*"([^"]+)"', file.read_text())}


def run(names: list[str], file: Path, folder: Path) -> dict[str, Found]:
    """One run by the command line."""
    env = {**os.environ, "GS_CHEATS": ",".join(names), "GS_CHEATS_OUT": str(folder)}
    env["PYTHONPATH"] = str(HERE.parents[1] / "src")
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "groundspeed", *RUN, "--case", CASE, "--with", str(file), "--out", str(folder)]
    with (folder / LOG).open("w") as log:
        try:
            subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=log, timeout=240)
        except subprocess.TimeoutExpired:
            return {name: {"status": "HUNG", "reason": "no end after 240 s"} for name in names}
    return read(names, folder)


def run_here(names: list[str], file: Path, folder: Path) -> None:
    """One run by the library, in a process that is good for nothing afterwards: the file is imported in it."""
    os.environ.update({"GS_CHEATS": ",".join(names), "GS_CHEATS_OUT": str(folder)})
    folder.mkdir(parents=True, exist_ok=True)
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    from groundspeed.lab import session
    from groundspeed.lab.request import Request

    request = Request(
        "attention",
        "quick",
        case=(CASE,),
        only=("sdpa-flash",),
        with_files=(str(file),),
        device="cpu",
        processes=1,
        warmup_s=0.001,
        out=folder,
    )
    try:
        session.run(request)
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()  # multiprocessing leaves them out
    os._exit(0)


def read(names: list[str], folder: Path) -> dict[str, Found]:
    """What the bundle of a run says about each contender, if `verify` believes the bundle."""
    from groundspeed.errors import GroundspeedError
    from groundspeed.lab.check import verify

    bundles = [path.parent for path in folder.rglob("facts.json")]
    if not bundles:
        said = (folder / LOG).read_text(errors="replace").strip()[-300:]
        return {name: {"status": "NO BUNDLE", "reason": said, "rivals": {}} for name in names}
    facts = json.loads((bundles[0] / "facts.json").read_text())
    samples = dict(np.load(bundles[0] / "samples.npz"))
    numbers = {contender["name"]: i for i, contender in enumerate(facts["contenders"])}
    outcomes = [dict(zip(facts["outcomes"]["columns"], row, strict=True)) for row in facts["outcomes"]["rows"]]
    found: dict[str, Found] = {}
    for name in (*names, *RIVALS):
        mine = (samples["contender"] == numbers.get(name)) & (samples["phase"] > 0)
        times = samples["interval_ns"][mine] / samples["launches"][mine] / 1e3
        outcome: Found = next((o for o in outcomes if o["contender"] == name), {"status": "ABSENT", "reason": None})
        median = round(float(np.median(times)), 1) if len(times) else None
        least = round(float(np.min(times)), 1) if len(times) else None
        found[name] = {"status": outcome["status"], "reason": outcome["reason"], "median": median, "least": least}
    rivals = {rival: found.pop(rival) for rival in RIVALS}
    try:
        verify(bundles[0])
    except GroundspeedError as error:
        found = {
            name: {**one, "status": f"{one['status']}, REFUTED", "reason": str(error)} for name, one in found.items()
        }
    return {name: {**one, "rivals": rivals} for name, one in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(tempfile.mkdtemp()))
    parser.add_argument("--json", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    every = contenders()
    results: dict[str, Found] = {}
    for group in options.names or every:
        names = group.split("+")
        found = run(names, every[names[0]], options.out / names[0])
        for name, one in found.items():
            rivals = ", ".join(f"{rival} {r['status']} {r['median']}" for rival, r in one.get("rivals", {}).items())
            print(f"{one['status']:10} {name:40} {one.get('median')} ({rivals}) | {one['reason']}", flush=True)
        results |= found
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
