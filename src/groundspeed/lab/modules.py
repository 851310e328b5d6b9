"""Descriptions of what modules contain, by which a fresh process that imports them anew is compared with the caller."""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from groundspeed.errors import BadInput
from groundspeed.lab.contained import inside, is_kernel, is_network
from groundspeed.lab.stale import is_stale

CODE, AS_WRITTEN, STALE = "code ", " as written", " stale"
"""The prefix of a function's entry; and the entry of a module that was loaded in the ordinary way, not rewritten on
import as pytest does; and that of a module whose file was changed since."""
PLAIN = (bool, int, float, str, type(None))
LONGEST = 80
Told = dict[str, dict[str, str]]
"""Module → its file, functions and constants, each described in a short text."""


def tell(modules: Mapping[str, ModuleType], used: Collection[str]) -> Told:
    """Describe modules. Their constants are those in capitals, those with a name in `used`, and those that the module's
    functions use."""
    return {name: _told(module, used) for name, module in modules.items()}


def _stored(codes: Iterable[CodeType], opname: str) -> set[str]:
    """Return the names of the globals or attributes that code sets."""
    return {one.argval for code in codes for one in dis.get_instructions(code) if one.opname == opname}


def refuse_changed(here: Told, there: Told) -> None:
    """Raise BadInput if a module that is imported anew differs from what it is here."""
    for module in here.keys() & there.keys():
        then, now = here[module], there[module]
        if STALE in then:
            raise BadInput(
                f"{then['file']} was changed after module {module} was imported; import it again (restart, or "
                "importlib.reload)"
            )
        if then["file"] != now["file"]:
            raise BadInput(f"module {module} is {then['file']} here and {now['file']} in a fresh process; rename one")
        for name in sorted(now.keys() - {AS_WRITTEN, STALE}):
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
    constants. What its functions set themselves is left out."""
    found = {"file": str(Path(str(module.__file__)).resolve())}
    if type(getattr(module.__spec__, "loader", None)) is SourceFileLoader:
        found[AS_WRITTEN] = "yes"
        if is_stale(module):
            found[STALE] = "yes"
    codes = [*_codes_in(module)]
    used = {name for code in codes for name in code.co_names} | {*more}
    own, attributes = _stored(codes, "STORE_GLOBAL"), _stored(codes, "STORE_ATTR")
    for name, value in [*vars(module).items()]:
        if name in own:
            continue
        if (name in used or name.isupper()) and (told := _constant(value, name)):
            found[name] = told
        elif code := _code(value, module.__name__, attributes):
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


def _code(value: object, module: str, stored: Collection[str]) -> str:
    """Return a hash of what a function, class or neural network does if the module defines it, else where it is from;
    an empty string for anything else. `stored`: attributes that the module's functions set."""
    if parts := [*_parts_of(value, module, stored)]:
        return _short("".join(parts))
    if type(value) in (FunctionType, BuiltinFunctionType) or issubclass(type(value), type):
        return f"of {getattr(value, '__module__', '')} {getattr(value, '__qualname__', '')}"
    return ""


def _parts_of(value: object, module: str, stored: Collection[str], depth: int = 0) -> Iterator[str]:
    """Yield the parts of a function or class that the module defines: code, defaults and the wrapped function; of a
    class, all that is in it; of a Triton kernel, its source; of a neural network, its structure."""
    if depth > 8:
        return
    kind = type(value)
    if issubclass(kind, type) and vars(value).get("__module__") == module:
        for name, one in [*vars(value).items()]:
            if not name.startswith("__") and name not in stored and type(one) in PLAIN:
                yield f"{name}={one!r}"
    elif kind is FunctionType and (_is_of(value, module) or "__wrapped__" in vars(value)):
        function: Any = value
        defaults = [one for one in function.__defaults__ or () if type(one) in PLAIN]
        keywords = {name: one for name, one in (function.__kwdefaults__ or {}).items() if type(one) in PLAIN}
        yield repr((_words(function.__code__), defaults, keywords))
    elif is_kernel(value):
        yield str(getattr(value, "src", "") if _is_of(value, module) else [*map(str, getattr(value, "configs", ()))])
    elif is_network(value):
        yield f"{value!r} {value.training}"  # type: ignore[attr-defined]
    for one in inside(value, module):
        yield from _parts_of(one, module, stored, depth + 1)


def _is_of(value: Any, module: str) -> bool:
    return getattr(value, "__module__", None) == module


def _codes_in(module: ModuleType) -> Iterator[CodeType]:
    """Yield the code of the functions that a module defines, and of the functions nested in them."""
    left = [(value, 0) for value in [*vars(module).values()]]
    codes: list[CodeType] = []
    while left:
        value, depth = left.pop()
        if type(value) is FunctionType and value.__module__ == module.__name__:
            codes.append(value.__code__)
        if depth < 4:
            left += [(one, depth + 1) for one in inside(value, module.__name__)]
    while codes:
        yield (code := codes.pop())
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]


def _words(code: CodeType) -> str:
    """Describe what code does, whatever file and line it is in."""
    constants = [
        _words(one) if isinstance(one, CodeType) else repr(sorted(one, key=repr) if isinstance(one, frozenset) else one)
        for one in code.co_consts
    ]
    return repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants))


def _short(said: str) -> str:
    return hashlib.sha256(said.encode(errors="replace")).hexdigest()[:16]
