"""Run cheats or honest contenders as a black box, each in a run of its own, and say what became of them.

python tests/cheats/run_all.py [--out FOLDER] [--json FILE] [NAME…]     NAME+NAME of one file: in the same run
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RUN = ("run", "attention", "--preset", "quick", "--only", "sdpa-flash", "--processes", "1", "--warmup", "0.001")
CASE = ("--case", "small-full-fp32")


def contenders() -> dict[str, Path]:
    """Name to file, by reading: importing the cheats would let them begin."""
    files = [*sorted(HERE.glob("cheats_*.py")), HERE / "honest.py"]
    return {name: file for file in files for name in re.findall(r'(?:cheat|honest)\(\s*"([^"]+)"', file.read_text())}


def run(names: list[str], file: Path, out: Path) -> list[dict[str, Any]]:
    """Status, reason and median of contenders, from the bundle of a run that has no other guests."""
    folder = out / names[0]
    env = {**os.environ, "GS_CHEATS": ",".join(names), "GS_CHEATS_OUT": str(folder)}
    env["PYTHONPATH"] = str(HERE.parents[1] / "src")
    command = [sys.executable, "-m", "groundspeed", *RUN, *CASE, "--with", str(file), "--out", str(folder)]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    except subprocess.TimeoutExpired:
        return [{"name": name, "status": "HUNG", "reason": "no end after 240 s"} for name in names]
    bundles = [path.parent for path in folder.rglob("facts.json")]
    if not bundles:
        return [{"name": name, "status": "NO BUNDLE", "reason": done.stderr.strip()[-300:]} for name in names]
    facts = json.loads((bundles[0] / "facts.json").read_text())
    samples = dict(np.load(bundles[0] / "samples.npz"))
    outcomes = [dict(zip(facts["outcomes"]["columns"], row, strict=True)) for row in facts["outcomes"]["rows"]]
    results = []
    for name in names:
        found: dict[str, Any] = {"name": name, "status": "ABSENT", "reason": None}
        for other in ("sdpa-flash", "sdpa-math", name):
            index = [contender["name"] for contender in facts["contenders"]].index(other)
            mine = (samples["contender"] == index) & (samples["phase"] > 0)
            times = samples["interval_ns"][mine] / samples["launches"][mine] / 1e3
            key = "median" if other == name else other
            found[key] = round(float(np.median(times)), 1) if len(times) else None
            for outcome in outcomes:
                if outcome["contender"] == other and other == name:
                    found["status"], found["reason"] = outcome["status"], outcome["reason"]
                elif outcome["contender"] == other and outcome["status"] != "PASSED":
                    found[key] = f"{outcome['status']}: {outcome['reason']}"
        results.append(found)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(tempfile.mkdtemp()))
    parser.add_argument("--json", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    every = contenders()
    results: list[dict[str, Any]] = []
    for group in options.names or every:
        names = group.split("+")
        for result in run(names, every[names[0]], options.out):
            results.append(result)
            times = " ".join(f"{key} {result.get(key)}" for key in ("median", "sdpa-flash", "sdpa-math"))
            print(f"{result['status']:10} {result['name']:40} {times} | {result['reason']}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
