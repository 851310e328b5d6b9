"""Which kernels a contender really launches on the GPU, seen once by PyTorch's profiler.

This is done in a separate worker before anything is timed: once the profiler has been on in a process, launches there
stay a little slower."""

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
    """Report the kernels of one call of each contender on a case, after a first call in which it may compile. The
    profiler then watches some more calls beside each of the contender's clocks. `look` is called after each contender,
    and raises if something has been changed."""
    case = suite.module.case_of_params(params)
    _let_go()
    try:
        inputs = case.inputs(seed, device)
    except Exception as error:
        report("fault all", **describe(error, prefix="could not make the inputs: "))
        return
    for name in contenders:
        report("at", contender=name)
        try:
            seen, spoilt = _seen(case, suite.contenders[name], inputs, device, clocks[name])
            look()
        except BaseException as error:
            failed = suite.contenders[name]
            fault = describe(error, failed.written or failed.source)
            report("fault", contender=name, broken=device_is_broken(device), **fault)
        else:
            report("launched", contender=name, **seen)
            if spoilt:
                report("fault", contender=name, broken=True, clock=spoilt, status="ERROR", reason="the clock failed")
    report("surveyed")


def _seen(
    case: Case, contender: Contender, inputs: tuple[Any, ...], device: str, clocks: Sequence[str]
) -> tuple[dict[str, Any], str | None]:
    """Return the kernels, binaries and timings of a contender, and the clock with which it left the process unfit for
    others."""
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
        if not isinstance(clock, EventClock):  # the eager clock times the caller, not kernels
            continue
        overhead = _overhead(name)  # a failure here is no contender's fault
        try:
            with torch.no_grad(), contender.around():
                found["timings"] += timings(name, clock, partial(function, *inputs, **case.arguments), overhead)
        except Exception:  # the run will report the failure, and the judgement that only one timer saw it
            if clock.spoilt or device_is_broken(device):
                _clock.cache_clear()
                return found, name
        finally:
            clock.forget()
    return found, None


def able(contender: Contender, case: Case, device: str, clocks: Sequence[str]) -> list[str]:
    """Return the clocks by which the contender can do a case: trying to capture a contender that cannot be captured
    leaves the process unfit for others."""
    timed = {name: case if name == DEFAULT_CLOCK else with_clock(case, name) for name in clocks}
    return [name for name, one in timed.items() if contender.supports(one, device) is None]


def spent(events: Sequence[Any]) -> dict[str, list[Any]]:
    """Return what the device did, by name in the order of first occurrence: kernels, then moves (Memcpy, Memset); how
    often each ran and how long it took in total."""
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
    """Release the device memory that an earlier case left in reference cycles, as a compiled model does: a worker's
    garbage collector does not run by itself."""
    gc.collect()
    gc.freeze()


def call_once(
    suite: Any, device: str, report: Callable[..., None], calls: Sequence[tuple[dict[str, Any], Sequence[str]]]
) -> None:
    """Call each contender once on each case, so that it has compiled. Failures are ignored."""
    import torch

    for params, names in calls:
        params = {key: value for key, value in params.items() if key != "clock"}
        case = suite.module.case_of_params(params)
        for name in names:
            report("at", contender=name)
            contender = suite.contenders[name]
            inputs: tuple[Any, ...] = ()  # releases those of the previous case before these are made
            _let_go()
            try:
                if contender.supports(case, device) is None:
                    inputs = case.inputs(0, device)
                    with torch.no_grad(), contender.around():
                        contender.build(case)(*inputs, **case.arguments)
                        wait_for(device)
            except Exception:  # the line-up meets it again, and reports it
                if device_is_broken(device):
                    report("compiled")
                    return
    report("compiled")
