"""Where a function that was given to `gs.compare` is written, for the place of its errors."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any


def written_in(function: Any) -> str | None:
    """Return the file that a traceback names for a function: for a module or another object that can be called, that
    of its method. Sees through torch.compile and other wrappers. None if it is not Python, or answers to any name."""
    try:
        return _written_in(function)
    except Exception:  # of an object with attributes of its own making
        return None


def _written_in(function: Any) -> str | None:
    function = inspect.unwrap(getattr(function, "_orig_mod", function))
    while isinstance(function, partial):
        function = inspect.unwrap(function.func)
    for method in ("forward", "__call__"):
        if not hasattr(function, "__code__"):
            function = getattr(type(function), method, function)
    code = getattr(inspect.unwrap(function), "__code__", None)
    return str(code.co_filename) if code else None
