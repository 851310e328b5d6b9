"""The program of a worker. It reads requests from stdin and reports on what was its stdout; what a contender prints
goes to stderr."""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import IO, Any

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.measure.bench import Bench
from groundspeed.measure.environment import torch_environment
from groundspeed.measure.gate import Incorrect
from groundspeed.measure.guard import Guard
from groundspeed.measure.memory import limit_host_memory
from groundspeed.measure.setting import Setting, compile_alone, one_assembler
from groundspeed.measure.spares import come_early
from groundspeed.measure.stillness import Stillness
from groundspeed.measure.survey import call_once, survey
from groundspeed.measure.traced import count, trace

Refused = dict[str, dict[str, str]]
"""File → contender → why it is refused, because of what happened when the file was imported."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def die_with(parent: int) -> None:
    """Make the kernel kill this process when the runner dies, even in the middle of a call, and make this process the
    parent of what its children leave behind when they end. Linux only."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # the runner died before the first prctl
        sys.exit(1)


def _refuse_changed(suite: Any, sources: dict[str, str], refused: Mapping[str, str]) -> None:
    """Exit if the code to be measured is not the code whose hash is in the record."""
    for name, digest in sources.items():
        if name in refused:
            continue
        if suite.contenders[name].source_hash() != digest:
            sys.exit(f"the file of {name} has changed since the run began")


def _import(load: Callable[[list[str]], Any], files: list[str], checks: Sequence[Callable[[], None]]) -> Refused:
    """Import one file after the other, and check after each what it has done."""
    refused: Refused = {}
    known: list[str] = []
    for number, file in enumerate(files, 1):
        names = [name for name in load(files[:number]).own if name not in known]
        known += names
        for check in checks:
            try:
                check()
            except Incorrect as error:
                refused.setdefault(file, dict.fromkeys(names, f"its file {error}"))
    return refused


def stay_on(cores: int) -> None:
    """Use no more cores than declared, whatever a contender does to its threads; the runner keeps the rest."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


def _loader(message: Mapping[str, Any]) -> Callable[[list[str]], Any]:
    module, name = message["loader"].split(":")
    load = getattr(importlib.import_module(module), name)
    return lambda files: load(message["suite"], files, **message.get("loaded", {}))


def serve(requests: IO[str], report: Callable[..., None]) -> None:
    import torch

    start = json.loads(requests.readline())
    if "early" in start:
        early = start["early"]
        if early["device"] == "cuda":
            one_assembler()
            compile_alone()
        come_early(_loader(early), early["device"], early["params"], early["contenders"], early["capability"])
        report("early", on_gpu=torch.cuda.is_initialized())
        start = json.loads(requests.readline())
    load = _loader(start)
    known = load([])
    if start["device"] == "cpu":
        stay_on(start["threads"])
    torch.set_num_threads(start["threads"])
    torch.set_grad_enabled(False)
    if start["device"] == "cuda":
        one_assembler()
    guard, setting, stillness = Guard(), Setting.now(), Stillness()
    guard.watch_contenders(known.contenders.values())
    imported = _import(load, start["with_files"], (guard.check, setting.check, partial(stillness.check, "")))
    refused = {**start.get("refused", {}), **{name: why for names in imported.values() for name, why in names.items()}}
    suite = load(start["with_files"])
    guard.watch_contenders(suite.contenders.values())
    _refuse_changed(suite, start["sources"], refused)
    environment = torch_environment()
    gc.collect()
    gc.freeze()
    if start["memory_limit_bytes"]:
        limit_host_memory(start["memory_limit_bytes"])
    bench = Bench(
        suite,
        start["device"],
        start["warmup_s"],
        start["first_look"],
        report,
        setting,
        guard,
        stillness,
        refused,
        start["thorough"],
        start["check_one_in"],
    )
    environment["clock_tick_s"] = bench.clocks.named(DEFAULT_CLOCK).tick_s
    report("hello", environment=environment, began=bench.began, refused=imported)
    for line in requests:
        request = json.loads(line)
        if "ahead" in request:
            call_once(suite, start["device"], report, **request["ahead"])
        if "survey" in request:
            survey(suite, start["device"], report, **request["survey"], look=guard.check)
        if "prepare" in request:
            if start["device"] == "cuda":
                compile_alone()
            bench.prepare(**request["prepare"])
            suite.look()
        if "round" in request:
            bench.round()
            report("rounded")
        if "trace" in request:
            trace(bench, **request["trace"])
        if "count" in request:
            count(bench, **request["count"])
        for block, order in request.get("blocks", ()):
            bench.block(block, order)


def main() -> None:
    die_with(int(sys.argv[1]))
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    status, leave, number = os.fstat, os._exit, channel.fileno()
    own = status(number)

    def report(kind: str, **message: Any) -> None:
        now = status(number)
        if (now.st_dev, now.st_ino) != (own.st_dev, own.st_ino):  # another file has been put in its place
            leave(1)
        channel.write(json.dumps({"kind": kind, **message}) + "\n")
        channel.flush()

    gc.disable()  # a collection in a timed interval would count against the contender being timed
    serve(sys.stdin, report)


if __name__ == "__main__":
    main()
