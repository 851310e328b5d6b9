"""Which kernels a contender really launches on the GPU, seen once by PyTorch's profiler.

Asked of a worker of its own, before anything is timed: a process in which the profiler was on launches a little slower
ever after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from groundspeed.case import Case, Contender
from groundspeed.measure.binaries import launched, watch_loads
from groundspeed.measure.fault import Unsupported, describe, device_is_broken

NOT_KERNELS = ("Memcpy", "Memset")


def survey(
    suite: Any, device: str, report: Callable[..., None], params: dict[str, Any], contenders: Sequence[str], seed: int
) -> None:
    """One call of each contender on a case, after a first one in which it may compile; its kernels are reported."""
    case = suite.module.case_of_params(params)
    try:
        inputs = case.inputs(seed, device)
    except Exception as error:
        report("fault all", **describe(error, prefix="the inputs could not be made: "))
        return
    for name in contenders:
        report("at", contender=name)
        try:
            kernels, binaries = _launched(case, suite.contenders[name], inputs, device)
        except BaseException as error:
            fault = describe(error, suite.contenders[name].source)
            report("fault", contender=name, broken=device_is_broken(device), **fault)
        else:
            report("launched", contender=name, kernels=kernels, binaries=binaries)
    report("surveyed")


def _launched(case: Case, contender: Contender, inputs: tuple[Any, ...], device: str) -> tuple[list[str], list[str]]:
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
    events = sorted(
        (event for event in seen.profiler.kineto_results.events() if str(event.device_type()).endswith("CUDA")),
        key=lambda event: event.start_ns(),
    )
    names = [event.name() for event in events if not event.name().startswith(NOT_KERNELS)]
    return list(dict.fromkeys(names)), sorted(set(binaries))
