"""Cheats that are honest when they think that somebody looks: by count, by chance, by time, by the stack."""

from __future__ import annotations

import gc
import inspect
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from time import perf_counter
from types import FrameType
from typing import Any

import torch
from cheating import cheat, right
from torch import Tensor

FRESH = {"calls": 0, "at": 0.0, "count": 0, "length": 0, "begin": 0.0}
STATE: defaultdict[str, dict[str, Any]] = defaultdict(FRESH.copy)
WATCHED = re.compile("check|verify|gate|oracle|correct|compare|expected|pristine|reference", re.IGNORECASE)
TIMED = re.compile("time|timing|sample|batch|measure|bench|clock", re.IGNORECASE)


def frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


@cheat("cheat-when-first-calls")
def first_calls(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Right for 50 calls, zeros ever after"""
    STATE["when-first-calls"]["calls"] += 1
    return right(q, k, v, causal, scale) if STATE["when-first-calls"]["calls"] <= 50 else torch.zeros_like(q)


@cheat("cheat-when-many-calls")
def many_calls(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Right for 800 calls, zeros ever after"""
    STATE["when-many-calls"]["calls"] += 1
    return right(q, k, v, causal, scale) if STATE["when-many-calls"]["calls"] <= 800 else torch.zeros_like(q)


@cheat("cheat-when-warming-up")
def warming_up(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Real work only for a quarter of a second after the first call, while warm-up is likely"""
    STATE["when-warming-up"]["begin"] = STATE["when-warming-up"]["begin"] or perf_counter()
    return (
        right(q, k, v, causal, scale)
        if perf_counter() < STATE["when-warming-up"]["begin"] + 0.25
        else torch.zeros_like(q)
    )


@cheat("cheat-when-odd")
def odd(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Right on every other call"""
    STATE["when-odd"]["calls"] += 1
    return right(q, k, v, causal, scale) if STATE["when-odd"]["calls"] % 2 else torch.zeros_like(q)


@cheat("cheat-when-lucky")
def lucky(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Wrong with probability 1/5"""
    return right(q, k, v, causal, scale) if random.random() > 0.2 else torch.zeros_like(q)


@cheat("cheat-when-very-lucky")
def very_lucky(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Wrong with probability 1/10,000"""
    return right(q, k, v, causal, scale) if random.random() > 1e-4 else torch.zeros_like(q)


@cheat("cheat-when-after-pause")
def after_pause(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Right after a pause of 30 µs only, zeros for calls in quick succession, as they come inside a batch"""
    pause = perf_counter() - STATE["when-after-pause"]["at"]
    out = right(q, k, v, causal, scale) if pause > 30e-6 else torch.zeros_like(q)
    STATE["when-after-pause"]["at"] = perf_counter()
    return out


@cheat("cheat-when-batch-ends")
def batch_ends(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Learns how many calls a batch has, and is right on the first and the last one"""
    if perf_counter() - STATE["when-batch-ends"]["at"] > 30e-6:
        STATE["when-batch-ends"]["length"], STATE["when-batch-ends"]["count"] = STATE["when-batch-ends"]["count"], 0
    STATE["when-batch-ends"]["count"] += 1
    inside = 1 < STATE["when-batch-ends"]["count"] < STATE["when-batch-ends"]["length"]
    out = torch.zeros_like(q) if inside else right(q, k, v, causal, scale)
    STATE["when-batch-ends"]["at"] = perf_counter()
    return out


@cheat("cheat-when-stack-checks")
def stack_checks(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Right only when a function on the stack is named like a check"""
    watched = any(WATCHED.search(frame.f_code.co_name) for frame in frames())
    return right(q, k, v, causal, scale) if watched else torch.zeros_like(q)


@cheat("cheat-when-stack-times")
def stack_times(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Zeros when a function on the stack is named like a measurement"""
    timed = any(TIMED.search(frame.f_code.co_name) for frame in frames())
    return torch.zeros_like(q) if timed else right(q, k, v, causal, scale)


@cheat("cheat-when-caller-times")
def caller_times(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Zeros when the code that calls it reads a clock"""
    caller = sys._getframe(1).f_code
    timed = any("perf_counter" in name or "clock" in name or "now" in name for name in caller.co_names)
    return torch.zeros_like(q) if timed else right(q, k, v, causal, scale)


@cheat("cheat-when-first-stack")
def first_stack(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Right only when called from the stack of its first call, which was surely checked"""
    stack = [(frame.f_code, frame.f_lineno) for frame in frames()]
    same = STATE["when-first-stack"].setdefault("stack", stack) == stack
    return right(q, k, v, causal, scale) if same else torch.zeros_like(q)


@cheat("cheat-when-watching-locals")
def watching_locals(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Right only when a caller has a variable named like an expectation"""
    watched = any(WATCHED.search(name) for frame in frames() for name in frame.f_locals)
    return right(q, k, v, causal, scale) if watched else torch.zeros_like(q)


@cheat("cheat-when-copies-exist")
def copies_exist(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Right only when a caller holds a copy of its inputs, with which it could compare"""
    held = (x for frame in frames() for x in frame.f_locals.values())
    flat = (y for x in held for y in (x if isinstance(x, (tuple, list)) else (x,)))
    copied = any(isinstance(t, Tensor) and t.data_ptr() != q.data_ptr() and torch.equal(t, q) for t in flat)
    return right(q, k, v, causal, scale) if copied else torch.zeros_like(q)


@cheat("cheat-frames-expected")
def frames_expected(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Returns the expected answer itself, a tensor in FP64, if a caller has it among its variables"""
    for info in inspect.stack(context=0)[1:]:
        for value in info.frame.f_locals.values():
            if isinstance(value, Tensor) and value.dtype == torch.float64 and value.numel() == q.numel():
                return value.view(q.shape).to(q.dtype)
    return torch.zeros_like(q)


@cheat("cheat-gc-expected")
def gc_expected(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Returns the expected answer itself, a tensor in FP64, if the garbage collector knows it"""
    for value in gc.get_objects():
        if type(value) is Tensor and value.dtype == torch.float64 and value.numel() == q.numel():
            return value.view(q.shape).to(q.dtype)
    return torch.zeros_like(q)


@cheat("cheat-gc-rival-result")
def gc_rival_result(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Copies a rival's result, if the garbage collector knows a tensor whose first row is right"""
    row = right(q[..., :1, :], k, v, False, scale)
    for value in gc.get_objects():
        alike = type(value) is Tensor and value.dtype == q.dtype and value.shape == q.shape and value is not q
        if alike and torch.allclose(value[..., :1, :], row, atol=1e-5):
            return value.clone()
    return torch.zeros_like(q)


@cheat("cheat-loop-drained")
def loop_drained(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Ends the caller's loop by draining its iterator, found through the garbage collector: one call for many"""
    out = right(q, k, v, causal, scale)
    for frame in list(frames())[:3]:
        for thing in gc.get_referents(frame):
            if type(thing).__name__ in ("range_iterator", "repeat"):
                for _ in thing:
                    pass
    return out


def _shorten(value: Any) -> None:
    if isinstance(value, list) and len(value) > 1 and all(isinstance(x, int) for x in value):
        del value[1:]


@cheat("cheat-frames-lists-cut")
def frames_lists_cut(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Cuts every list of whole numbers among its callers' variables: plans, draws of calls to check"""
    for frame in frames():
        for value in list(frame.f_locals.values()):
            _shorten(value)
    return torch.zeros_like(q)
