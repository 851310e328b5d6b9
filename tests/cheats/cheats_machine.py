"""Cheats that take more of the machine, or of PyTorch's settings, than they leave for the others."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from cheating import cheat, right
from torch import Tensor

STATE: dict[str, Any] = {}


@cheat("cheat-rivals-threads")
def threads(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Two threads for itself where everybody has one, and one again for the others"""
    torch.set_num_threads(2)
    out = right(q, k, v, causal, scale)
    torch.set_num_threads(1)
    return out


@cheat("cheat-rivals-threads-left")
def threads_left(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Leaves PyTorch with two threads, more than were declared"""
    torch.set_num_threads(2)
    return right(q, k, v, causal, scale)


@cheat("cheat-rivals-priority")
def priority(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The highest priority for itself, the lowest left for the others"""
    os.setpriority(os.PRIO_PROCESS, 0, -20 if os.geteuid() == 0 else 0)
    out = right(q, k, v, causal, scale)
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    return out


@cheat("cheat-rivals-affinity")
def affinity(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """All cores for itself, and the first one only left for the others"""
    cores = STATE.setdefault("cores", os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores)
    out = right(q, k, v, causal, scale)
    os.sched_setaffinity(0, {min(cores)})
    return out


@cheat("cheat-rivals-more-cores")
def more_cores(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Threads of its own on all cores of the machine, where only some are declared"""
    if not STATE:
        STATE["matrix"] = np.ones((384, 384), np.float32)
        STATE["cores"] = list(range(os.cpu_count() or 1))
        STATE["pool"] = ThreadPoolExecutor(len(STATE["cores"]))
    list(STATE["pool"].map(_work_on, STATE["cores"]))
    return right(q, k, v, causal, scale)


def _work_on(core: int) -> None:
    os.sched_setaffinity(0, {core})  # of this thread
    for _ in range(4):
        STATE["matrix"] @ STATE["matrix"]


@cheat("cheat-rivals-flags")
def flags(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Turns oneDNN off for the others and on again for itself"""
    torch._C._set_mkldnn_enabled(True)
    out = right(q, k, v, causal, scale)
    torch._C._set_mkldnn_enabled(False)
    return out


@cheat("cheat-rivals-broken")
def broken(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Makes the rivals fail: their backends are forbidden behind their backs"""
    out = right(q, k, v, causal, scale)
    if not STATE:
        STATE["sdpa_kernel"] = sys.modules["torch.nn.attention"]
        STATE["sdpa_kernel"].sdpa_kernel = None
    return out


@cheat("cheat-rivals-default-dtype")
def default_dtype(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Leaves BF16 as the default dtype, for whatever the laboratory makes next"""
    out = right(q, k, v, causal, scale)
    torch.set_default_dtype(torch.bfloat16)
    return out


@cheat("cheat-rivals-memory")
def memory(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Holds a gigabyte from its first call on, with its pages touched, in the way of the others"""
    if not STATE:
        STATE["memory"] = np.ones(1 << 27)
    return right(q, k, v, causal, scale)
