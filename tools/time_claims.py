"""Time `groundspeed claims check` on many texts that rest on all committed bundles.

    python tools/time_claims.py [--files 50] [--claims 500] [--rounds 5]

The texts are generated in a temporary folder with a copy of `evidence/`; every claim is a tied number. Prints the time
of each round, including the start of Python."""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from groundspeed.evidence import bundle

EVIDENCE = Path(__file__).parents[1] / "evidence"
CHECK = [sys.executable, "-m", "groundspeed", "claims"]


def ties() -> Iterator[str]:
    """Yield ties, one for each bundle in turn, without end."""
    by_bundle = []
    for folder in sorted(path.parent for path in EVIDENCE.rglob("samples.npz")):
        found = bundle.read(folder)
        passed = {(o.case, o.contender) for o in found.record.outcomes if o.status == "PASSED"}
        by_bundle.append(cycle([f"{found.short} {contender} {case}" for case, contender in sorted(passed)]))
    for of_bundle in cycle(by_bundle):
        yield next(of_bundle)


def _cpu_s() -> float:
    """Return the CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=50)
    parser.add_argument("--claims", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(EVIDENCE, Path(scratch) / "evidence")
        chosen = list(islice(ties(), options.claims))
        names = [f"text-{i}.md" for i in range(options.files)]
        for i, name in enumerate(names):
            lines = [f"It takes ? µs<!-- tied: {tie} -->." for tie in chosen[i :: options.files]]
            (Path(scratch) / name).write_text("\n\n".join([f"# Text {i}", *lines, ""]))
        subprocess.run([*CHECK, "write", *names], cwd=scratch, check=True, capture_output=True)
        for _ in range(options.rounds):
            began, used = time.perf_counter(), _cpu_s()
            done = subprocess.run([*CHECK, "check", *names], cwd=scratch, check=True, capture_output=True, text=True)
            took, of_cpu = time.perf_counter() - began, _cpu_s() - used
            print(f"{took:.2f} s, {of_cpu:.2f} s of CPU: {done.stdout.splitlines()[-1]}")


if __name__ == "__main__":
    main()
