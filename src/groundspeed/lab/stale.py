"""Whether a module's file was changed since the module was imported."""

from __future__ import annotations

import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType, ModuleType
from weakref import WeakKeyDictionary

HEADER = 16
"""Bytes of a compiled file before its code: magic number, flags, and the time and size of its source."""
_known: WeakKeyDictionary[ModuleType, tuple[object, CodeType]] = WeakKeyDictionary()
"""Module → its spec, which a reload replaces, and its code as it was imported. A fresh process that imports a changed
file compiles it anew, so the compiled file tells it only the first time."""


def is_stale(module: ModuleType) -> bool:
    """Return whether the file has other code now than was imported, as far as the compiled file beside it tells.
    Comments do not count."""
    imported = _imported(module)
    try:
        return imported is not None and not _is_alike(imported, Path(str(module.__file__)))
    except (OSError, SyntaxError, ValueError):
        return True


def _imported(module: ModuleType) -> CodeType | None:
    known = _known.get(module)
    if known and known[0] is module.__spec__:
        return known[1]
    file = Path(str(getattr(module.__spec__, "cached", None)))
    if sys.dont_write_bytecode or not file.is_file() or not os.access(file.parent, os.W_OK):
        return None  # the import has not written it
    content = file.read_bytes()
    if content[:4] != MAGIC_NUMBER or content[4:8] != bytes(4):  # marked by a hash of the source, not by its time
        return None
    code: CodeType = marshal.loads(content[HEADER:])
    _known[module] = module.__spec__, code
    return code


def _is_alike(imported: CodeType, file: Path) -> bool:
    now: CodeType = compile(file.read_bytes(), imported.co_filename, "exec", dont_inherit=True)
    return _words(now) == _words(imported)


def _words(code: CodeType) -> object:
    """Return what code does, without the lines that it is in."""
    constants = [_words(one) if isinstance(one, CodeType) else (type(one), one) for one in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants
