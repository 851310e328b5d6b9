"""Cheats that change the clock: it stands still while they work."""

# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from typing import Any

from cheating import cheat, right
from torch import Tensor

REAL = {"ns": time.perf_counter_ns}
"""In a dict, where a search through modules for the clock does not find it."""
STOLEN = {"ns": 0}
STATE: dict[str, Any] = {}


def stealing(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    """The honest work, most of whose time is then missing from the clock."""
    begin = REAL["ns"]()
    out = right(q, k, v, causal, scale)
    STOLEN["ns"] += (REAL["ns"]() - begin) * 9 // 10
    return out


def slowed(name: str) -> Callable[[], float]:
    real = getattr(time, name)
    unit = 1 if name.endswith("_ns") else 1e-9
    return lambda: real() - STOLEN["ns"] * unit


def _replace(*names: str) -> Callable[[], None]:
    def setup() -> None:
        for name in names:
            setattr(time, name, slowed(name))

    return setup


def _replace_everywhere() -> None:
    """Every module that has taken the function by name, too."""
    for name in ("perf_counter_ns", "perf_counter", "monotonic_ns", "monotonic"):
        real, false = getattr(time, name), slowed(name)
        for module in list(sys.modules.values()):
            if module.__name__.startswith("groundspeed") or module is time:
                for key in [key for key, value in vars(module).items() if value is real]:
                    setattr(module, key, false)


class MethodDef(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("meth", ctypes.c_void_p), ("flags", ctypes.c_int))


class Builtin(ctypes.Structure):
    _fields_ = (("refcount", ctypes.c_ssize_t), ("type", ctypes.c_void_p), ("ml", ctypes.POINTER(MethodDef)))


ALIVE: list[Any] = []
BUILTIN_CALL = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)


def _replace_in_c() -> None:
    """The object stays the same; the C function that it points to becomes another."""
    for name in ("perf_counter_ns", "perf_counter"):
        definition = Builtin.from_address(id(getattr(time, name))).ml.contents
        real = BUILTIN_CALL(definition.meth)
        unit: float = 1 if name.endswith("_ns") else 1e-9

        def false(this: int | None, args: int | None, real: Callable[..., float] = real, unit: float = unit) -> float:
            return real(this, args) - STOLEN["ns"] * unit

        callback = BUILTIN_CALL(false)
        ALIVE.extend((real, callback))
        definition.meth = ctypes.cast(callback, ctypes.c_void_p).value


@cheat("cheat-clock-perf-counter", setup=_replace("perf_counter"))
def perf_counter(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """time.perf_counter replaced on import"""
    return stealing(q, k, v, causal, scale)


@cheat("cheat-clock-perf-counter-ns", setup=_replace("perf_counter_ns"))
def perf_counter_ns(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """time.perf_counter_ns replaced on import"""
    return stealing(q, k, v, causal, scale)


@cheat("cheat-clock-time", setup=_replace("time", "time_ns", "monotonic", "monotonic_ns", "clock_gettime_ns"))
def wall(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """time.time, monotonic and their kin replaced on import"""
    return stealing(q, k, v, causal, scale)


@cheat("cheat-clock-first-call")
def first_call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Every clock in module time replaced in the first call, after any look at the import"""
    if time.perf_counter_ns is REAL["ns"]:
        _replace("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns")()
    return stealing(q, k, v, causal, scale)


@cheat("cheat-clock-everywhere", setup=_replace_everywhere)
def everywhere(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The clocks replaced on import in every module of the laboratory that has taken them by name"""
    return stealing(q, k, v, causal, scale)


@cheat("cheat-clock-everywhere-first-call")
def everywhere_first_call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The clocks replaced in the first call in every module of the laboratory that has taken them by name"""
    if time.perf_counter_ns is REAL["ns"]:
        _replace_everywhere()
    return stealing(q, k, v, causal, scale)


@cheat("cheat-clock-in-c", setup=_replace_in_c)
def in_c(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The C function behind the object perf_counter_ns replaced by ctypes on import: its identity stays"""
    begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    out = right(q, k, v, causal, scale)
    STOLEN["ns"] += (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - begin) * 9 // 10
    return out


@cheat("cheat-clock-in-c-first-call")
def in_c_first_call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The C function behind the object perf_counter_ns replaced by ctypes in the first call"""
    if not ALIVE:
        _replace_in_c()
    return in_c(q, k, v, causal=causal, scale=scale)


@cheat("cheat-clock-oneshot")
def oneshot(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The names that the laboratory's clock calls at the end of an interval, replaced in the call and put back by the
    replacements themselves"""
    out = right(q, k, v, causal, scale)
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "time":
        frame = frame.f_back
    if frame is not None and "begin" in frame.f_locals and "other" in frame.f_locals:
        clock, begin, first = frame.f_locals["self"], frame.f_locals["begin"], frame.f_locals["other"]
        names = sys.modules[type(clock).__module__]
        real = STATE.setdefault("other", clock._other)

        def other() -> int:
            clock._other = real
            return int(first + (real() - first) // 5)

        def now() -> int:
            names.perf_counter_ns = REAL["ns"]
            return int(begin + (REAL["ns"]() - begin) // 5)

        clock._other, names.perf_counter_ns = other, now
    return out
