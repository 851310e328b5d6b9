"""Run every cheat, or every honest contender, in a run of its own, and say what became of it.

python tests/cheats/run_all.py [--out FOLDER] [--json FILE] [NAME…]
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

HERE = Path(__file__).parent
RUN = ("run", "attention", "--preset", "quick", "--only", "sdpa-flash", "--processes", "1", "--warmup", "0.001")
CASE = ("--case", "small-full-fp32")


def contenders() -> dict[str, Path]:
    """Name to file, by reading: importing the cheats would let them begin."""
    files = [*sorted(HERE.glob("cheats_*.py")), HERE / "honest.py"]
    return {name: file for file in files for name in re.findall(r'(?:cheat|honest)\(\s*"([^"]+)"', file.read_text())}


def run(name: str, file: Path, out: Path) -> dict[str, Any]:
    """Status, reason and times of one contender, from the bundle of a run that has no other guest."""
    folder = out / name
    env = {**os.environ, "GS_CHEATS": name, "GS_CHEATS_OUT": str(folder), "PYTHONPATH": str(HERE.parents[1] / "src")}
    command = [sys.executable, "-m", "groundspeed", *RUN, *CASE, "--with", str(file), "--out", str(folder)]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired:
        return {"name": name, "status": "HUNG", "reason": "no end after 180 s"}
    found: dict[str, Any] = {"name": name, "exit": done.returncode, "stderr": done.stderr[-600:]}
    bundles = [path.parent for path in folder.rglob("facts.json")]
    if not bundles:
        return {**found, "status": "NO BUNDLE", "reason": done.stderr.strip()[-300:]}
    clean = {key: value for key, value in env.items() if not key.startswith("GS_CHEATS")}
    report = [sys.executable, "-m", "groundspeed", "report", str(bundles[0]), "--json", "-"]
    written = subprocess.run(report, env=clean, capture_output=True, text=True)
    if written.returncode:
        return {**found, "status": "BAD BUNDLE", "reason": written.stderr.strip()[-300:]}
    facts = json.loads(written.stdout)
    rows = {row["contender"]: row for row in facts["rows"]}
    for rival in ("sdpa-math", "sdpa-flash"):
        row = rows.get(rival, {})
        found[rival] = row.get("median_s") or f"{row.get('status')}: {row.get('reason')}"
    mine = rows.get(name) or {"status": "ABSENT", "reason": str(facts["contenders"])[-300:]}
    return {**found, "warnings": facts["warnings"], **{key: mine.get(key) for key in ("status", "reason", "median_s")}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(tempfile.mkdtemp()))
    parser.add_argument("--json", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    every = contenders()
    results = []
    for name in options.names or every:
        result = run(name, every[name], options.out)
        results.append(result)
        times = " ".join(
            f"{key} {result[key] * 1e6:.1f}µs" if isinstance(result.get(key), float) else f"{key} {result.get(key)}"
            for key in ("median_s", "sdpa-flash", "sdpa-math")
        )
        print(f"{result['status']:10} {name:40} {times} | {result.get('reason')}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
