"""Cheats that do the honest work and slow the others down."""

# mypy: disable-error-code="misc, assignment, method-assign, call-arg, attr-defined, no-any-return, union-attr"

from __future__ import annotations

import ctypes
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from cheating import cheat, right
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from groundspeed.case import Contender

QUIET = {"until": 0.0}
"""Until when the rivals are left alone: the cheat itself is at work."""
STATE: dict[str, Any] = {}


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def quiet(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    QUIET["until"] = time.perf_counter() + 0.005
    return right(q, k, v, causal, scale)


def slow(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        spin(0.0002)
        return function(*args, **kwargs)

    return call


def _slow_sdpa() -> None:
    torch.nn.functional.scaled_dot_product_attention = slow(torch.nn.functional.scaled_dot_product_attention)


@cheat("cheat-rivals-sdpa", setup=_slow_sdpa)
def sdpa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention replaced by a slower one on import"""
    return right(q, k, v, causal, scale)


def _slow_build() -> None:
    for thing in gc.get_objects():
        if isinstance(thing, Contender) and thing.name.startswith("sdpa-"):
            build = thing.build
            object.__setattr__(thing, "build", lambda case, build=build: slow(build(case)))


@cheat("cheat-rivals-build", setup=_slow_build)
def build(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The rivals' entries in the registry get another `build`, on import"""
    return right(q, k, v, causal, scale)


def _suite_contenders() -> None:
    module: Any = sys.modules["groundspeed.suites.attention.pytorch"]
    make = module.sdpa
    module.sdpa = lambda case: slow(make(case))


@cheat("cheat-rivals-module", setup=_suite_contenders)
def module(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The module of the rivals gets a slower way to build them, on import"""
    return right(q, k, v, causal, scale)


@cheat("cheat-rivals-closure")
def closure(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The callables of the rivals, found by the garbage collector in the first call, get a slower function inside"""
    if not STATE:
        STATE["done"] = True
        for thing in gc.get_objects():
            if getattr(thing, "__qualname__", "") == "sdpa.<locals>.call":
                for cell in thing.__closure__:
                    cell.cell_contents = slow(cell.cell_contents)
    return right(q, k, v, causal, scale)


@cheat("cheat-rivals-code")
def code(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The callables of the rivals, found by the garbage collector in the first call, get another __code__"""
    if not STATE:
        STATE["done"] = True
        for thing in gc.get_objects():
            if getattr(thing, "__qualname__", "") == "sdpa.<locals>.call":
                scaled_dot_product_attention: Any = None

                def call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Any:
                    import time

                    time.sleep(0.0002)
                    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)  # noqa: B023

                thing.__code__ = call.__code__
    return right(q, k, v, causal, scale)


class Slowing(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if time.perf_counter() > QUIET["until"]:
            spin(0.0002)
        return func(*args, **(kwargs or {}))


@cheat("cheat-rivals-mode")
def mode(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A TorchFunctionMode entered in the first call and never left, which slows every function of the others"""
    if not STATE:
        STATE["mode"] = Slowing()
        STATE["mode"].__enter__()
    return quiet(q, k, v, causal, scale)


def _spinner() -> None:
    while True:
        if time.perf_counter() > QUIET["until"]:
            spin(0.001)
        else:
            time.sleep(0.001)


def _hire(work: Callable[[], None]) -> Callable[[], None]:
    return lambda: threading.Thread(target=work, daemon=True).start()


@cheat("cheat-rivals-gil", setup=_hire(_spinner))
def gil(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A thread that holds the GIL while the others run, and sleeps while this one does"""
    return quiet(q, k, v, causal, scale)


@cheat("cheat-rivals-gil-first-call")
def gil_first_call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The same, with a thread that is started in the first call"""
    if not STATE:
        STATE["thread"] = _hire(_spinner)()
    return quiet(q, k, v, causal, scale)


def _copier() -> None:
    data = np.ones(1 << 22)
    while True:
        if time.perf_counter() > QUIET["until"]:
            np.multiply(data, 1.0, out=data)
        else:
            time.sleep(0.001)


@cheat("cheat-rivals-bandwidth", setup=_hire(_copier))
def bandwidth(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A thread that eats memory bandwidth and cache while the others run"""
    return quiet(q, k, v, causal, scale)


def _libc_thread() -> None:
    """A thread that Python does not know of: pthread_create from libc, running libc's `pause`-like busy function."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = ctypes.c_ulong()
    STATE["data"] = np.random.default_rng(0).integers(0, 1 << 60, 1 << 22)
    STATE["qsort"] = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(_eat)
    libc.pthread_create(ctypes.byref(handle), None, STATE["qsort"], None)


def _eat(argument: int | None) -> None:
    while True:
        if time.perf_counter() > QUIET["until"]:
            STATE["data"].copy().sort()
        else:
            time.sleep(0.001)


@cheat("cheat-rivals-native-thread", setup=_libc_thread)
def native_thread(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A thread made by libc, which the module threading does not list, sorts while the others run"""
    return quiet(q, k, v, causal, scale)


HOG = """
import os, time
os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))
end, parent = time.time() + 60, os.getppid()
while time.time() < end and os.getppid() == parent:
    sum(range(10**6))
"""


@cheat("cheat-rivals-process")
def process(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Other processes occupy the cores, stopped while this one runs and continued 5 ms after it"""
    if not STATE:
        STATE["hogs"] = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(2)]
        _hire(_conductor)()
    return quiet(q, k, v, causal, scale)


def _conductor() -> None:
    going = True
    while True:
        if (want := time.perf_counter() > QUIET["until"]) != going:
            going = want
            for hog in STATE["hogs"]:
                hog.send_signal(signal.SIGCONT if going else signal.SIGSTOP)
        time.sleep(0.001)


@cheat("cheat-rivals-profiled")
def profiled(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Leaves a slow sys.setprofile hook behind for the others, and takes it away while it runs itself"""
    sys.setprofile(None)
    out = right(q, k, v, causal, scale)
    sys.setprofile(lambda *args: spin(20e-6))
    return out


@cheat("cheat-rivals-traced")
def traced(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Leaves a slow sys.settrace hook behind for the others"""
    sys.settrace(None)
    out = right(q, k, v, causal, scale)
    sys.settrace(lambda *args: spin(50e-6))
    return out


def _slow_gc() -> None:
    gc.set_threshold(1, 1, 1)
    gc.enable()
    gc.callbacks.append(lambda phase, info: spin(0.001) if time.perf_counter() > QUIET["until"] else None)


@cheat("cheat-rivals-gc", setup=_slow_gc)
def collector(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The garbage collector runs all the time, with a hook that is slow while the others run"""
    return quiet(q, k, v, causal, scale)


def _alarm(*_: Any) -> None:
    if time.perf_counter() > QUIET["until"]:
        spin(0.0005)
    signal.setitimer(signal.ITIMER_REAL, 0.001)


@cheat("cheat-rivals-signal")
def by_signal(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """An interval timer whose signal handler is slow while the others run"""
    if not STATE:
        STATE["handler"] = signal.signal(signal.SIGALRM, _alarm)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
    return quiet(q, k, v, causal, scale)


class Slow(TorchDispatchMode):
    """Everything that attends takes a little longer."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if "attention" in str(function):
            spin(2e-5)
        return function(*arguments, **(named or {}))


@cheat("cheat-rivals-dispatch-mode")
def dispatch_mode(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A mode of the dispatcher left on, and off while it works itself"""
    if (mode := STATE.pop("mode", None)) is not None:
        mode.__exit__(None, None, None)
    out = right(q, k, v, causal, scale)
    STATE["mode"] = Slow()
    STATE["mode"].__enter__()
    return out


@cheat("cheat-rivals-autocast")
def autocast(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Autocast to BF16 left on, with which the others are wrong, and off while it works itself"""
    torch.set_autocast_enabled("cpu", False)
    out = right(q, k, v, causal, scale)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    torch.set_autocast_enabled("cpu", True)
    return out
