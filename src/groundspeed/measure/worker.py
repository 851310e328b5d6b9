"""One measuring process: reads requests from stdin and reports on what was its stdout; what a contender prints goes to
stderr."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.measure.bench import Bench
from groundspeed.measure.cuda import empty_s
from groundspeed.measure.environment import torch_environment
from groundspeed.measure.gate import Incorrect
from groundspeed.measure.guard import Guard
from groundspeed.measure.memory import limit_host_memory
from groundspeed.measure.setting import Setting
from groundspeed.measure.survey import survey

PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """On Linux the kernel ends this process when the runner dies, even in the middle of a call."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it died before it could be said
        sys.exit(1)


def _refuse_changed(suite: Any, sources: dict[str, str]) -> None:
    """The code that is measured is the code whose hash is in the record."""
    for name, digest in sources.items():
        if hashlib.sha256(Path(suite.contenders[name].source).read_bytes()).hexdigest() != digest:
            sys.exit(f"the file of {name} was changed since the run began")


def _refused_for_import(suite: Any, guard: Guard, setting: Setting) -> dict[str, str]:
    """The contenders of files that changed, when they were imported, what the laboratory calls; and why."""
    try:
        try:
            guard.check()
        finally:
            setting.check()
    except Incorrect as error:
        return dict.fromkeys(suite.own, f"its file {error}")
    return {}


def stay_on(cores: int) -> None:
    """Use no more cores than declared, whatever a contender does to its threads; the runner keeps the others."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


def serve(requests: IO[str], report: Callable[..., None]) -> None:
    import torch

    start = json.loads(requests.readline())
    module, name = start["loader"].split(":")
    load = getattr(importlib.import_module(module), name)
    known = load(start["suite"], ())
    if start["device"] == "cpu":
        stay_on(start["threads"])
    torch.set_num_threads(start["threads"])
    torch.set_grad_enabled(False)
    guard, setting = Guard(), Setting.now()
    guard.watch_contenders(known.contenders.values())
    suite = load(start["suite"], start["with_files"])
    refused = _refused_for_import(suite, guard, setting)
    guard.watch_contenders(suite.contenders.values())
    _refuse_changed(suite, start["sources"])
    environment = torch_environment()
    gc.collect()
    gc.freeze()
    if start["memory_limit_bytes"]:
        limit_host_memory(start["memory_limit_bytes"])
    bench = Bench(
        suite, start["device"], start["warmup_s"], start["first_look"], report, setting, guard=guard, refused=refused
    )
    clock = bench.clock_named(DEFAULT_CLOCK)
    environment["clock_tick_s"] = clock.tick_s
    if start["device"] == "cuda":
        environment["clock_empty_s"] = empty_s(clock)
    report("hello", environment=environment, began=bench.began)
    for line in requests:
        request = json.loads(line)
        if "survey" in request:
            survey(suite, start["device"], report, **request["survey"])
        if "prepare" in request:
            bench.prepare(**request["prepare"])
        for block, order in request.get("blocks", ()):
            bench.block(block, order)


def main() -> None:
    die_with(int(sys.argv[1]))
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def report(kind: str, **message: Any) -> None:
        channel.write(json.dumps({"kind": kind, **message}) + "\n")
        channel.flush()

    gc.disable()  # a collection in a timed interval would be charged to whoever is being timed
    serve(sys.stdin, report)


if __name__ == "__main__":
    main()
