"""Where a function that was given to `gs.compare` is written, for the place of its errors."""

from __future__ import annotations

import inspect
from functools import partial
from types import FunctionType, MethodType
from typing import Any


def written_in(function: Any) -> str | None:
    """Return the file that a traceback names for a function: for a module or another object that can be called, that
    of its method. Sees through torch.compile and other wrappers. None if it is not Python."""
    found = _innermost(function)
    for method in ("forward", "__call__"):
        if not isinstance(found, FunctionType):
            found = _innermost(inspect.getattr_static(type(found), method, found))
    return found.__code__.co_filename if isinstance(found, FunctionType) else None


def _innermost(function: Any) -> Any:
    """Return what wrappers wrap. An object is not asked for its attributes, because it may answer to any name."""
    seen: list[Any] = []
    while not any(function is one for one in seen):
        seen.append(function)
        function = _wrapped(function)
    return function


def _wrapped(function: Any) -> Any:
    if isinstance(function, partial):
        return function.func
    if isinstance(function, (MethodType, staticmethod, classmethod)):
        return function.__func__
    try:
        own: dict[str, Any] = object.__getattribute__(function, "__dict__")
    except AttributeError:  # of a C function, say
        return function
    return own.get("__wrapped__", own.get("_modules", {}).get("_orig_mod", function))
