"""A run to be killed: the real session, runner, journal and store, with scripted workers, so that it starts fast.

    python killed_run.py RUNS                 begin a run
    python killed_run.py RUNS --resume PATH   go on with one
    … --torn N                                die by SIGKILL in the middle of the Nth write of a block

It prints a line of JSON after every write of a block, when it begins to finish the bundle, and at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes import FakeClock, FakeWorker, no_fault, noisy
from groundspeed.evidence import journal, store
from groundspeed.lab import session
from groundspeed.lab.request import Request

MEANS = {"sdpa-math": 2e-3, "sdpa-flash": 1e-3, "naive": 3e-3}


def say(**event: Any) -> None:
    os.write(1, json.dumps(event).encode() + b"\n")


def spawn(command: list[str], threads: int, gpu: str | None) -> FakeWorker:
    return FakeWorker(FakeClock(), noisy(MEANS, 0.01, os.getpid()), no_fault)


def acknowledge(torn: int) -> None:
    """Let the journal say what is on disk, and die in the middle of one write."""
    write, finish = journal.Journal.write, store.finish
    blocks = 0

    def acknowledging(self: journal.Journal, kind: str, **event: Any) -> None:
        nonlocal blocks
        blocks += kind == "block"
        if kind == "block" and blocks == torn:
            line = json.dumps({"kind": kind, **event})
            with (self.folder / journal.FILE).open("a") as file:
                file.write(line[: len(line) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, kind, **event)
        if kind == "block":
            say(kind="block", **{key: event[key] for key in ("process", "attempt", "case", "block", "samples")})

    def finishing(folder: Path) -> Any:
        say(kind="finishing")
        return finish(folder)

    journal.Journal.write = acknowledging  # type: ignore[method-assign]
    store.finish = finishing


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--torn", type=int, default=0)
    arguments = parser.parse_args()
    session.ProcessWorker = spawn  # type: ignore[assignment, misc]
    acknowledge(arguments.torn)
    if arguments.resume:
        made = session.resume(arguments.resume)
    else:
        shapes = ("S=16,D=16,causal=0", "S=32,D=16,causal=0")
        request = Request("attention", "quick", shape=shapes, only=tuple(MEANS), processes=3, out=arguments.runs)
        made = session.run(request)
    say(kind="done", path=str(made.path))


if __name__ == "__main__":
    main()
