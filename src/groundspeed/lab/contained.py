"""What functions, classes and kernels are made of: the other functions in them, and the names that they use."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache, cached_property, partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from groundspeed.suites.functions import sent

CACHED = type(cache(lambda: None))
HELD = 1000
"""Lists and dicts of up to this many elements are looked into."""


def is_kernel(value: object) -> bool:
    """Return whether it is a Triton kernel, or what tunes one."""
    jit = sys.modules.get("triton.runtime.jit")
    return jit is not None and isinstance(value, jit.KernelInterface)


def is_network(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def inside(value: Any, module: str) -> list[Any]:
    """Return the functions that are part of a function, class or kernel that the module defines."""
    kind = type(value)
    if issubclass(kind, type):
        return [*vars(value).values()] if vars(value).get("__module__") == module else []
    if kind is property:
        return [value.fget, value.fset]
    if kind is FunctionType:
        return [vars(value).get("__wrapped__")]
    if is_kernel(value):
        return [value.fn, *getattr(value, "values", {}).values()]
    return _wrapped(value)


def _wrapped(value: Any) -> list[Any]:
    kind = type(value)
    if kind in (staticmethod, classmethod):
        return [value.__func__]
    if kind in (partial, cached_property):
        return [value.func]
    return [value.__wrapped__] if kind is CACHED else []


def used_by(functions: Iterable[Any]) -> list[str]:
    """Return every name of a global or an attribute that these functions use, also in what they call, enclose or hold,
    as far as it is not installed."""
    names: set[str] = set()
    left, seen = [*functions], dict[int, Any]()  # the objects are kept: the identity of a released one is used again
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if type(one) is CodeType:
            names.update(one.co_names)
        left += _followed(one)
    return sorted(names)


def _followed(one: Any) -> Iterator[Any]:
    kind = type(one)
    if kind is MethodType:
        yield from (one.__func__, one.__self__)
    elif kind is CodeType:
        yield from (constant for constant in one.co_consts if type(constant) is CodeType)
    elif kind is FunctionType and _is_own(one):
        yield from (one.__code__, *(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values(), *vars(one).values())
        yield from (cell.cell_contents for cell in one.__closure__ or () if _is_filled(cell))
        yield from (one.__globals__[name] for name in one.__code__.co_names if name in one.__globals__)
    elif kind in (list, tuple, dict, set) and len(one) <= HELD:
        yield from one.values() if kind is dict else one
    elif issubclass(kind, type):
        if _is_own(one):
            yield from (*vars(one).values(), *one.__bases__)
    elif is_network(one) or _is_own(kind):
        yield from (kind, *getattr(one, "__dict__", {}).values())
    else:
        yield from _wrapped(one)
        if kind is partial:
            yield from (*one.args, *one.keywords.values())
        elif kind is property or is_kernel(one):
            yield from inside(one, "")


def _is_own(thing: Any) -> bool:
    """Return whether a script or a module of the user defines a function or class."""
    name = str(getattr(thing, "__module__", None))
    return name not in sys.modules or name in ("__main__", "__mp_main__") or sent.is_own(name, sys.modules[name])


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
