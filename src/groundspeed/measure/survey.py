"""Which kernels a contender really launches on the GPU, seen once by PyTorch's profiler.

Asked of a worker of its own, before anything is timed: a process in which the profiler was on launches a little slower
ever after."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from groundspeed.case import DEFAULT_CLOCK, Case, Contender, with_clock
from groundspeed.measure.binaries import launched, watch_loads
from groundspeed.measure.clock import Clock
from groundspeed.measure.cuda import EventClock, make_clock, wait_for
from groundspeed.measure.fault import Unsupported, describe, device_is_broken
from groundspeed.measure.timers import Overhead, device_events, overhead_of, timings

NOT_KERNELS = ("Memcpy", "Memset")


def survey(
    suite: Any,
    device: str,
    report: Callable[..., None],
    params: dict[str, Any],
    contenders: Sequence[str],
    seed: int,
    clocks: Mapping[str, Sequence[str]],
    look: Callable[[], None] = lambda: None,
) -> None:
    """One call of each contender on a case, after a first one in which it may compile: its kernels are reported. And
    some more, which the profiler watches beside each of its clocks. `look` is called after each, and raises where
    something is not as it was."""
    case = suite.module.case_of_params(params)
    _let_go()
    try:
        inputs = case.inputs(seed, device)
    except Exception as error:
        report("fault all", **describe(error, prefix="the inputs could not be made: "))
        return
    for name in contenders:
        report("at", contender=name)
        try:
            seen, spoilt = _seen(case, suite.contenders[name], inputs, device, clocks[name])
            look()
        except BaseException as error:
            fault = describe(error, suite.contenders[name].source)
            report("fault", contender=name, broken=device_is_broken(device), **fault)
        else:
            report("launched", contender=name, **seen)
            if spoilt:
                report("fault", contender=name, broken=True, clock=spoilt, status="ERROR", reason="it broke off")
    report("surveyed")


def _seen(
    case: Case, contender: Contender, inputs: tuple[Any, ...], device: str, clocks: Sequence[str]
) -> tuple[dict[str, Any], str | None]:
    """Kernels, binaries and timings of a contender; and the clock by which it left the process unfit for others."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    if reason := contender.supports(case, device):
        raise Unsupported(str(reason))
    function = contender.build(case)
    with torch.no_grad(), contender.around():
        watch_loads()
        function(*inputs, **case.arguments)
        torch.cuda.synchronize()
        with launched() as binaries, profile(activities=[ProfilerActivity.CUDA]) as seen:
            function(*inputs, **case.arguments)
            torch.cuda.synchronize()
    found = {**spent(device_events(seen)), "binaries": sorted(set(binaries)), "timings": []}
    for name in able(contender, case, device, clocks):
        clock = _clock(name)
        if not isinstance(clock, EventClock):  # the time that a caller sees is no kernel's
            continue
        overhead = _overhead(name)  # what fails here is no contender's
        try:
            with torch.no_grad(), contender.around():
                found["timings"] += timings(name, clock, partial(function, *inputs, **case.arguments), overhead)
        except Exception:  # how it fails by this clock the run will say, and that only one timer saw it the judgement
            if clock.spoilt or device_is_broken(device):
                _clock.cache_clear()
                return found, name
        finally:
            clock.forget()
    return found, None


def able(contender: Contender, case: Case, device: str, clocks: Sequence[str]) -> list[str]:
    """The clocks by which it can do a case: who cannot be captured leaves a process that has tried unfit for others."""
    timed = {name: case if name == DEFAULT_CLOCK else with_clock(case, name) for name in clocks}
    return [name for name, one in timed.items() if contender.supports(one, device) is None]


def spent(events: Sequence[Any]) -> dict[str, list[Any]]:
    """What the device did, by name in the order of the first: kernels, and what moves without one; how often each ran,
    and how long in all."""
    by_name: dict[str, list[int]] = {}
    for event in events:
        by_name.setdefault(event.name(), []).append(event.duration_ns())
    kernels = [name for name in by_name if not name.startswith(NOT_KERNELS)]
    moves = [name for name in by_name if name.startswith(NOT_KERNELS)]
    lengths = [by_name[name] for name in (*kernels, *moves)]
    seconds = [round(sum(some) * 1e-9, 9) for some in lengths]
    return {"kernels": kernels, "moves": moves, "times": [len(some) for some in lengths], "seconds": seconds}


@cache
def _clock(name: str) -> Clock:
    return make_clock(name)


@cache
def _overhead(name: str) -> Overhead:
    clock = _clock(name)
    assert isinstance(clock, EventClock)
    return overhead_of(clock)


def _let_go() -> None:
    """Of the device's memory, what a case before left in circles: a compiled model does, and a worker collects nothing
    by itself."""
    gc.collect()
    gc.freeze()


def call_once(
    suite: Any, device: str, report: Callable[..., None], calls: Sequence[tuple[dict[str, Any], Sequence[str]]]
) -> None:
    """One call of each contender on each case, whatever comes of it: so that it has compiled."""
    import torch

    for params, names in calls:
        params = {key: value for key, value in params.items() if key != "clock"}
        case = suite.module.case_of_params(params)
        for name in names:
            report("at", contender=name)
            contender = suite.contenders[name]
            inputs: tuple[Any, ...] = ()  # of the one before, while those of this one are made
            _let_go()
            try:
                if contender.supports(case, device) is None:
                    inputs = case.inputs(0, device)
                    with torch.no_grad(), contender.around():
                        contender.build(case)(*inputs, **case.arguments)
                        wait_for(device)
            except Exception:  # the line-up meets it again, and says whose and what it was
                if device_is_broken(device):
                    report("compiled")
                    return
    report("compiled")
