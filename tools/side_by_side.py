"""What the tuning tools share: compiling variants in parallel, timing calls in turn on a GPU, and PyTorch's backends to
compare with."""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from groundspeed.lab.standin import StandIn, set_driver
from groundspeed.measure.cuda import Device

BUSY_CYCLES = 1_000_000
"""Half a millisecond, in which the host gets ahead with its launches."""
PARTS = 4
"""Parts of a job, so that all processes end at about the same time."""
Variants = Callable[..., dict[str, Callable[[], Any]]]


def need_gpu(parser: argparse.ArgumentParser) -> None:
    if not torch.cuda.is_available():
        parser.exit(4, "timing needs an NVIDIA GPU, and PyTorch finds none; --compile works without one\n")


def compile_ahead(variants: Variants, jobs: Sequence[tuple[Any, ...]]) -> None:
    """Compile what is timed afterwards into Triton's cache, in a process for each core: one after the other, kernels
    take a second each, and there are some hundred. `variants` of a job returns calls that launch each of them once, for
    tensors without memory. Prints those that fail, which does not affect the others."""
    cores = len(os.sched_getaffinity(0))
    told = [(variants, job, part) for job, part in itertools.product(jobs, range(PARTS))]
    made = []
    with ProcessPoolExecutor(cores, get_context("spawn"), initializer=_stand_in) as pool:  # a driver is set only once
        try:
            for done in [pool.submit(_compiled, *one) for one in told]:
                made.append(done.result())
        except BrokenProcessPool as failure:  # what is left is compiled when it is called
            print(f"  {failure}", flush=True)
    print(f"{sum(count for count, _ in made)} variants compiled", flush=True)
    for failure in itertools.chain.from_iterable(failures for _, failures in made):
        print(f"  {failure}", flush=True)


def _stand_in() -> None:
    set_driver(StandIn(90))


def _compiled(variants: Variants, job: tuple[Any, ...], part: int) -> tuple[int, list[str]]:
    """Return how many variants were tried, and which failed."""
    tried, failures = list(variants(*job).items())[part::PARTS], []
    for name, call in tried:
        try:
            call()
        except Exception as failure:
            failures.append(f"{' '.join(map(str, job))} {name}: {type(failure).__name__}: {failure!s:.200}")
    return len(tried), failures


def rounds(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median ms of each call over rounds. A round times every call once with a cold L2, in a random order of
    its own, because a call after a hot kernel finds a slower clock."""
    device = Device(cold=True)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        pending = []
        for name, call in random.sample(list(calls.items()), len(calls)):
            torch.cuda._sleep(BUSY_CYCLES)
            device.flush()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            pending.append((name, begin, end))
        torch.cuda.synchronize()
        for name, begin, end in pending:
            times[name].append(begin.elapsed_time(end))
    return {name: statistics.median(values) for name, values in times.items()}


def sdpa(backend: SDPBackend, q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
    def call() -> Any:
        with sdpa_kernel([backend]):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call
