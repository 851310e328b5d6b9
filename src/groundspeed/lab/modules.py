"""Descriptions of what modules contain, by which a fresh process that imports them anew is compared with the caller."""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, cached_property, partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from groundspeed.errors import BadInput

CODE, AS_WRITTEN = "code ", " as written"
"""The prefix of a function's entry; and the entry of a module that was loaded in the ordinary way, not rewritten on
import as pytest does."""
PLAIN = (bool, int, float, str, type(None))
CACHED = type(cache(lambda: None))
LONGEST = 80
Told = dict[str, dict[str, str]]
"""Module → its file, functions and constants, each described in a short text."""


def tell(modules: Mapping[str, ModuleType], used: Collection[str]) -> Told:
    """Describe modules. Their constants are those with a name in `used`, and those that the module's functions use."""
    return {name: _told(module, used) for name, module in modules.items()}


def used_by(functions: Iterable[Any]) -> list[str]:
    """Return every name of a global or an attribute that these functions use, also in the functions that they call or
    enclose."""
    names: set[str] = set()
    left, seen = [*functions], set[int]()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if type(one) is MethodType:
            left.append(one.__func__)
        elif type(one) is partial:
            left.append(one.func)
        elif type(one) is FunctionType:
            left += [one.__code__, *(cell.cell_contents for cell in one.__closure__ or () if _is_filled(cell))]
            left += [one.__globals__[name] for name in one.__code__.co_names if name in one.__globals__]
        elif type(one) is CodeType:
            names.update(one.co_names)
            left += [constant for constant in one.co_consts if type(constant) is CodeType]
    return sorted(names)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def refuse_changed(here: Told, there: Told) -> None:
    """Raise BadInput if a module that is imported anew differs from what it is here."""
    for module in here.keys() & there.keys():
        then, now = here[module], {name: told for name, told in there[module].items() if name != AS_WRITTEN}
        if then["file"] != now["file"]:
            raise BadInput(f"module {module} is {then['file']} here and {now['file']} in a fresh process; rename one")
        for name in now:
            if then.get(name) == now[name] or (now[name].startswith(CODE) and AS_WRITTEN not in then):
                continue
            if not now[name].startswith(CODE):
                raise BadInput(
                    f"{module}.{name} is {then.get(name, 'something else')} here, and {now[name]} in a fresh process, "
                    f"which imports {then['file']} again; write it there, or pass it to the functions"
                )
            raise BadInput(
                f"{module}.{name} is not what {then['file']} defines: it was replaced, or the file changed since its "
                "import; write it there, and import it again (restart, or importlib.reload)"
            )


def _told(module: ModuleType, more: Collection[str]) -> dict[str, str]:
    """Describe a module: its file; its functions and classes, and those that it imports from elsewhere; and its
    constants, which its functions use and none of them sets."""
    found = {"file": str(Path(str(module.__file__)).resolve())}
    if type(getattr(module.__spec__, "loader", None)) is SourceFileLoader:
        found[AS_WRITTEN] = "yes"
    functions = list(_functions(module))
    used = {name for code in functions for name in code.co_names} | {*more}
    used -= {one.argval for code in functions for one in dis.get_instructions(code) if one.opname == "STORE_GLOBAL"}
    for name, value in [*vars(module).items()]:
        if name in used and (told := _constant(value, name)):
            found[name] = told
        elif code := _code(value, module.__name__):
            found[name] = CODE + code
    return found


def _constant(value: object, name: str) -> str:
    """Describe a constant; return an empty string for anything else. A list or a dict is a constant if its name is in
    capitals and it is not empty: an empty one is there to be filled."""
    kind = type(value)
    held = kind is tuple or (kind in (list, dict) and name.isupper() and bool(value))
    if kind not in PLAIN and not (held and _is_plain(value)):
        return ""
    said = repr(value)
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}… ({_short(said)})"


def _is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) in PLAIN and _is_plain(one) for key, one in value.items())
    return all(map(_is_plain, value)) if type(value) in (list, tuple) else type(value) in PLAIN


def _code(value: object, module: str) -> str:
    """Return a hash of what a function or class does if the module defines it, else where it is from; an empty string
    for anything else."""
    if codes := [*_parts_of(value, module)]:
        return _short("".join(codes))
    if type(value) in (FunctionType, BuiltinFunctionType) or issubclass(type(value), type):
        return f"of {getattr(value, '__module__', '')} {getattr(value, '__qualname__', '')}"
    return ""


def _parts_of(value: object, module: str, depth: int = 0) -> Iterator[str]:
    """Yield the parts of a function or class that the module defines: code, defaults and the wrapped function; of a
    class, all that is in it."""
    if depth > 8:
        return
    kind = type(value)
    if issubclass(kind, type) and vars(value).get("__module__") == module:
        for name, one in [*vars(value).items()]:
            if not name.startswith("__") and type(one) in PLAIN:
                yield f"{name}={one!r}"
            yield from _parts_of(one, module, depth + 1)
    elif kind in (staticmethod, classmethod):
        yield from _parts_of(value.__func__, module, depth + 1)  # type: ignore[attr-defined]
    elif kind is property:
        for one in (value.fget, value.fset):  # type: ignore[attr-defined]
            yield from _parts_of(one, module, depth + 1)
    elif kind is cached_property:
        yield from _parts_of(value.func, module, depth + 1)  # type: ignore[attr-defined]
    elif kind is FunctionType:
        function: Any = value
        wrapped = vars(function).get("__wrapped__")
        if function.__module__ == module or wrapped is not None:
            defaults = [one for one in function.__defaults__ or () if type(one) in PLAIN]
            keywords = {name: one for name, one in (function.__kwdefaults__ or {}).items() if type(one) in PLAIN}
            yield repr((_words(function.__code__), defaults, keywords))
            yield from _parts_of(wrapped, module, depth + 1)
    elif kind is CACHED:
        yield from _parts_of(value.__wrapped__, module, depth + 1)  # type: ignore[attr-defined]


def _functions(module: ModuleType) -> Iterator[CodeType]:
    """Yield the code of the functions that a module defines, and of the functions nested in them."""
    left = [code for value in [*vars(module).values()] for code in _codes_of(value, module.__name__)]
    while left:
        yield (code := left.pop())
        left += [one for one in code.co_consts if isinstance(one, CodeType)]


def _codes_of(value: object, module: str, depth: int = 0) -> Iterator[CodeType]:
    if issubclass(type(value), type) and depth < 4 and vars(value).get("__module__") == module:
        for one in [*vars(value).values()]:
            yield from _codes_of(getattr(one, "__func__", one) if type(one) in (staticmethod, classmethod) else one,
                                 module, depth + 1)  # fmt: skip
    elif type(value) is FunctionType and value.__module__ == module:
        yield value.__code__
        yield from _codes_of(vars(value).get("__wrapped__"), module, depth + 1) if depth < 4 else ()


def _words(code: CodeType) -> str:
    """Describe what code does, whatever file and line it is in."""
    constants = [
        _words(one) if isinstance(one, CodeType) else repr(sorted(one, key=repr) if isinstance(one, frozenset) else one)
        for one in code.co_consts
    ]
    return repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants))


def _short(said: str) -> str:
    return hashlib.sha256(said.encode(errors="replace")).hexdigest()[:16]
