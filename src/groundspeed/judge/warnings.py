"""What may have disturbed a measurement: a closed list of warnings, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.evidence.protocol import BEFORE_THIRD, DEFAULT_PRESET, PROCESSES, Protocol
from groundspeed.evidence.record import Record
from groundspeed.evidence.revision import revisions_of


@dataclass(frozen=True)
class Disturbance:
    code: str
    message: str
    remedy: str


def and_more(found: Sequence[Any]) -> str:
    """Return what follows the first of several items, for example ` and 3 more`."""
    return f" and {len(found) - 1} more" if len(found) > 1 else ""


def and_so(found: Sequence[Any]) -> str:
    """Return what follows a sentence about the first of several comparisons."""
    more = len(found) - 1
    return f", likewise in {more} more comparison{'s' if more > 1 else ''}" if more else ""


def warnings_of(record: Record) -> tuple[Disturbance, ...]:
    return (*environment_warnings(record.environment), *_run_warnings(record))


BUSY = 0.2
"""With less than this share of the cores in use, the load of the last minute comes from work that has ended."""


def environment_warnings(environment: Mapping[str, Any]) -> Iterator[Disturbance]:
    """Yield what about a machine will disturb a measurement. `doctor` reports the same."""
    cpu = _part(environment, "cpu")
    governor = cpu.get("governor")
    if isinstance(governor, str) and governor != "performance":
        yield Disturbance(
            "governor",
            f"the CPU frequency governor is {governor}",
            "run sudo cpupower frequency-set -g performance",
        )
    load, cores = cpu.get("load_1min"), cpu.get("cores")
    busy = cpu.get("busy_share")
    over = isinstance(busy, (int, float)) and busy < BUSY
    if isinstance(load, (int, float)) and isinstance(cores, int) and load > 0.75 * cores and not over:
        yield Disturbance(
            "busy",
            f"other work is running (load {load:.1f} on {cores} cores)",
            "stop it, or measure when it is done",
        )
    if isinstance(cores, int) and cores < 2:
        yield Disturbance(
            "one-core",
            "there is only one core, which the measuring process shares with the measured work",
            "use a machine with two or more cores",
        )
    memory = _part(environment, "memory")
    available, total = memory.get("available_bytes"), memory.get("total_bytes")
    if isinstance(available, int) and isinstance(total, int) and available < total // 10:
        yield Disturbance(
            "memory",
            "less than a tenth of the host memory is free",
            "stop the programs that hold it: swapping ruins every timing",
        )
    swap = memory.get("swap_used_bytes")
    if isinstance(swap, int) and swap > 1 << 30:
        yield Disturbance(
            "swap",
            f"{swap / 2**30:.1f} GiB of swap are in use",
            "stop the programs that hold the memory, then run sudo swapoff -a",
        )
    users = _part(environment, "gpu").get("users")
    if isinstance(users, list) and users:
        yield Disturbance(
            "gpu-users",
            f"other programs hold the GPU: {', '.join(map(str, users))}",
            "stop them, or choose another GPU with CUDA_VISIBLE_DEVICES",
        )
    if cpu.get("on_battery") is True:
        yield Disturbance("battery", "the machine runs on battery", "plug it in: clocks are lower on battery")


def calibrate_command(protocol: Protocol, device: str, environment: Mapping[str, Any]) -> str:
    """Return the command that measures the noise of runs like this one, without flags that match its defaults. With a
    GPU the CPU is not the default device."""
    flags = [
        "" if protocol.preset == DEFAULT_PRESET else f" --preset {protocol.preset}",
        "" if protocol.processes == PROCESSES.get(protocol.preset) else f" --processes {protocol.processes}",
        " --isolate" if protocol.isolated else "",
        " --device cpu" if device == "cpu" and _part(environment, "gpu") else "",
    ]
    return f"groundspeed calibrate{''.join(flags)}"


def _run_warnings(record: Record) -> Iterator[Disturbance]:
    alone = record.protocol.processes == 1  # a single process has no verdict for a floor to decide
    if record.calibration is None and record.run.suite != "calibration" and not alone:
        yield Disturbance(
            "uncalibrated",
            f"the noise of this machine is assumed, not measured: {record.uncalibrated}",
            f"run {calibrate_command(record.protocol, record.run.device, record.environment)}",
        )
    gpus = {process.gpu for process in record.processes if process.finished is not None and process.gpu}
    if len(gpus) > 1:
        yield Disturbance(
            "several-gpus",
            f"the processes ran on {len(gpus)} GPUs of the same model, one after the other: the "
            "intervals include the differences between these",
            "for the figures of one GPU, run on it alone, without --resume",
        )
    seen = {launched.contender for launched in record.launched if launched.kernels}
    unseen = sorted({o.contender for o in record.outcomes if o.status == "PASSED"} - seen)
    if record.run.device == "cuda" and unseen:
        yield Disturbance(
            "unseen",
            f"the profiler did not see what {', '.join(unseen)} launched, so the kernels that ran are unknown",
            "give PyTorch's profiler access to the GPU (CUPTI; some systems restrict it to root)",
        )
    if unwatched := _unwatched(record):
        case, contender = unwatched[0]
        yield Disturbance(
            "unwatched",
            f"only one timer saw {contender} on {case}{and_more(unwatched)}",
            "give PyTorch's profiler access to its kernels; without kernels of its own it cannot be checked by a "
            "second timer",
        )
    neighbours = sorted({user for process in record.processes for user in process.gpu_users})
    if neighbours:
        yield Disturbance(
            "neighbours",
            f"other programs held the GPU during this run: {', '.join(neighbours)}",
            "stop them, or measure on a GPU of your own",
        )
    unsettled = [(o.case, o.contender) for o in record.outcomes if o.warmup_stable is False and o.status == "PASSED"]
    if unsettled:
        case, contender = unsettled[0]
        yield Disturbance(
            "warm-up",
            f"the warm-up of {contender} on {case}{and_more(unsettled)} ended before its times were stable",
            "stop other work on the machine, or allow a longer warm-up with --warmup",
        )
    short = [stop for stop in record.stops if stop.why == "budget"]
    if short:
        yield Disturbance(
            "budget",
            f"{len(short)} of {len(record.stops)} measurements stopped at the time budget, with wider intervals than "
            "the preset asks for",
            "use --preset standard, or fewer cases with --case",
        )
    again = {p.process for p in record.processes if p.attempt > 0}
    if again:
        times = sum(p.attempt > 0 for p in record.processes)
        yield Disturbance(
            "begun-again",
            f"{len(again)} of {record.declared_processes} processes {'was' if len(again) == 1 else 'were'} restarted "
            f"after an interruption, {'once' if times == 1 else f'{times} times in all'}; the earlier samples are kept "
            "but not judged",
            "let every run finish: interrupting the runs whose results look bad would select the result",
        )
    if unfinished := incomplete(record):
        yield unfinished


def incomplete(record: Record) -> Disturbance | None:
    if record.complete:
        return None
    done, resumed = len(record.finished_attempts), not revisions_of(record.environment)
    return Disturbance(
        "incomplete",
        f"the run was interrupted after {done} of {record.declared_processes} processes",
        "continue it with --resume" if resumed else "compare the revisions again: such a run cannot be resumed",
    )


def _unwatched(record: Record) -> list[tuple[str, str]]:
    """Return the (case, contender) pairs that passed on a GPU without being watched by the second timer. Protocols
    before the third and eager calls have no second timer."""
    if record.run.device != "cuda" or record.protocol.name in BEFORE_THIRD:
        return []
    clocks = {case.name: str(case.params.get("clock", DEFAULT_CLOCK)) for case in record.cases}
    shapes = {case.name: [(k, v) for k, v in case.params.items() if k != "clock"] for case in record.cases}
    seen_twice = [(shapes[s.case], s.contender, t.clock) for s in record.launched for t in s.timings]
    passed = dict.fromkeys((o.case, o.contender) for o in record.outcomes if o.status == "PASSED")
    watchable = [(case, name) for case, name in passed if clocks[case] != "eager"]
    return [(case, name) for case, name in watchable if (shapes[case], name, clocks[case]) not in seen_twice]


def _part(environment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = environment.get(name)
    return part if isinstance(part, Mapping) else {}
