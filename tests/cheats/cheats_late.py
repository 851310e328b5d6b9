"""Cheats that return at once and compute when nobody measures: elsewhere, afterwards, or when looked at."""

# mypy: disable-error-code="misc, assignment, method-assign, call-arg, attr-defined, no-any-return, union-attr"

from __future__ import annotations

import gc
import mmap
import os
import queue
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from cheating import cheat, right
from torch import Tensor

from groundspeed.case import Contender

OWED: list[tuple[Tensor, tuple[Any, ...]]] = []


def owe(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    """An empty result, and a note of what should be in it."""
    out = torch.empty_like(q)
    OWED.append((out, (q, k, v, causal, scale)))
    return out


def pay(*_: Any) -> None:
    while OWED:
        out, work = OWED.pop()
        out.copy_(right(*work))


WORK: queue.SimpleQueue[Any] = queue.SimpleQueue()


def _worker(delay: float) -> None:
    while True:
        out, work = WORK.get()
        time.sleep(delay)
        out.copy_(right(*work))


def _hire(delay: float) -> Any:
    return lambda: threading.Thread(target=_worker, args=(delay,), daemon=True).start()


@cheat("cheat-late-thread", setup=_hire(0))
def thread(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A thread fills the output as soon as it can, and nobody joins it"""
    out = torch.empty_like(q)
    WORK.put((out, (q, k, v, causal, scale)))
    return out


@cheat("cheat-late-thread-slow", setup=_hire(0.001))
def thread_slow(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A thread fills the output a millisecond later, after the timed interval"""
    out = torch.empty_like(q)
    WORK.put((out, (q, k, v, causal, scale)))
    return out


@cheat("cheat-late-next-call")
def next_call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Fills an output at the beginning of the next call: the last one of an interval costs nothing"""
    pay()
    return owe(q, k, v, causal, scale)


def _watch_gc() -> None:
    gc.callbacks.append(lambda phase, info: pay())


@cheat("cheat-late-gc", setup=_watch_gc)
def in_gc(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A hook of the garbage collector fills the outputs, if the laboratory collects before it looks"""
    return owe(q, k, v, causal, scale)


def _ring() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGALRM, pay)


@cheat("cheat-late-signal", setup=_ring)
def by_signal(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A signal handler fills the outputs a millisecond later"""
    if not OWED:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
    return owe(q, k, v, causal, scale)


@contextmanager
def _paying() -> Iterator[None]:
    yield
    pay()


def _around() -> None:
    for thing in gc.get_objects():
        if isinstance(thing, Contender) and thing.name == "cheat-late-around":
            object.__setattr__(thing, "around", _paying)


@cheat("cheat-late-around", setup=_around)
def around(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Gives itself an `around`, which is left after the timed interval, and fills the outputs there"""
    return owe(q, k, v, causal, scale)


KEPT: list[Any] = []


@cheat("cheat-late-if-kept")
def if_kept(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Fills an earlier output only if somebody still holds it by then: what is thrown away is never computed"""
    for reference, work in KEPT[:-1]:
        if (out := reference()) is not None:
            out.copy_(right(*work))
    del KEPT[:-1]
    out = torch.empty_like(q)
    KEPT.append((weakref.ref(out), (q, k, v, causal, scale)))
    return out


class Lazy(Tensor):
    """Computes when a function of PyTorch is called with it."""

    work: Any = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            for arg in args:
                if isinstance(arg, Lazy) and arg.__dict__.get("work"):
                    work, arg.work = arg.work, None
                    arg.as_subclass(Tensor).copy_(right(*work))
            return func(*args, **(kwargs or {}))


@cheat("cheat-lazy-function")
def lazy_function(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A subclass of Tensor that computes when a function of PyTorch is called with it (__torch_function__)"""
    out = torch.empty_like(q).as_subclass(Lazy)
    out.work = (q, k, v, causal, scale)
    return out


class Promise(Tensor):
    """Has a shape and no data, and computes when an operator reaches it."""

    work: Any

    @staticmethod
    def __new__(cls, q: Tensor, work: Any) -> Promise:
        made: Promise = Tensor._make_wrapper_subclass(cls, q.shape, dtype=q.dtype, device=q.device)
        made.work = work
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*(right(*a.work) if isinstance(a, Promise) else a for a in args), **(kwargs or {}))


@cheat("cheat-lazy-dispatch")
def lazy_dispatch(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A subclass of Tensor without data that computes when an operator reaches it (__torch_dispatch__)"""
    return Promise(q, (q, k, v, causal, scale))


class Posing(Promise):
    """Says that it is a plain tensor."""

    @property
    def __class__(self) -> Any:
        return Tensor

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise TypeError


@cheat("cheat-lazy-posing")
def lazy_posing(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The same, with a __class__ that says torch.Tensor"""
    return Posing(q, (q, k, v, causal, scale))


FIELD = 4 * 64 * 64
SHARED: dict[str, Any] = {}


def _fork() -> None:
    """A child that computes with numpy in memory shared with its parent, and ends with it, or after a minute."""
    memory = mmap.mmap(-1, 4 * FIELD + 64)
    SHARED["memory"] = memory
    SHARED["fields"] = [np.frombuffer(memory, np.float32, FIELD // 4, i * FIELD).reshape(64, 64) for i in range(4)]
    SHARED["flag"] = np.frombuffer(memory, np.int64, 1, 4 * FIELD)
    parent = os.getpid()
    if os.fork():
        return
    q, k, v, out = SHARED["fields"]
    end = time.monotonic() + 60
    while time.monotonic() < end and os.getppid() == parent:
        if not SHARED["flag"][0]:
            time.sleep(0.0005)
            continue
        SHARED["flag"][0] = 0
        weights = np.exp(q @ k.T * 0.125)
        out[:] = weights @ v / weights.sum(-1, keepdims=True)
    os._exit(0)


@cheat("cheat-late-process", setup=_fork)
def process(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A forked process fills the output in shared memory, half a millisecond later"""
    for field, t in zip(SHARED["fields"], (q, k, v), strict=False):
        field[:] = t.view(64, 64).numpy()
    SHARED["flag"][0] = 1
    return torch.from_numpy(SHARED["fields"][3]).view(q.shape)
