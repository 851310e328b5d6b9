"""Dataclasses from untrusted JSON: every field present, of its declared type, and no other.

One generic function instead of a hand-written reader per record, so that no field goes unchecked.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from typing import Any, TypeVar, cast

from groundspeed.errors import BadInput

T = TypeVar("T")

MAX_INT = 2**63 - 1
MAX_DEPTH = 64


def parse_json(text: bytes, where: str) -> Any:
    """JSON in UTF-8 without what lets two readers disagree, or a later one stumble: no NaN, no number out of range, no
    duplicate keys, no half of a surrogate pair, no nesting without end."""

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            raise ValueError("a key appears twice")
        return result

    try:
        value = json.loads(text.decode(), parse_constant=constant, object_pairs_hook=pairs)
        _check_plain(value, MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: not readable as JSON ({error!s:.200})") from None
    return value


def _check_plain(value: Any, depth: int) -> None:
    """ValueError for what json reads and others may not; also where a field may hold any value."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number is too large")
    elif isinstance(value, int):
        if abs(value) > MAX_INT:
            raise ValueError("an integer is too large")
    elif value is not None:
        if depth == 0:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_plain(item, depth - 1)


def decode(cls: type[T], value: Any, where: str) -> T:
    """An instance of dataclass `cls` from parsed JSON, or BadInput naming the field that is wrong."""
    if not isinstance(value, dict):
        raise BadInput(f"{where}: expected an object, found {type(value).__name__}")
    hints = _hints(cast(Any, cls))
    fields = {f.name: f for f in dataclasses.fields(cast(Any, cls))}
    if extra := sorted(set(value) - set(fields)):
        raise BadInput(f"{where}: unknown key {extra[0]!r:.80}")
    if missing := sorted(set(fields) - set(value)):
        raise BadInput(f"{where}: key {missing[0]!r} is missing")
    try:
        return cls(**{name: _decode(hints[name], value[name], f"{where}.{name}") for name in fields})
    except ValueError as error:
        raise BadInput(f"{where}: {error}") from None


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _decode(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _decode_union(arguments, value, where)
    if origin is typing.Literal:
        if value not in arguments or isinstance(value, bool):
            raise BadInput(f"{where}: {value!r:.80} is none of {', '.join(map(str, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise BadInput(f"{where}: expected a list, found {type(value).__name__}")
        return tuple(_decode(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise BadInput(f"{where}: expected an object, found {type(value).__name__}")
        return {key: _decode(arguments[1], item, f"{where}.{key:.80}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return decode(cast("type[Any]", hint), value, where)
    return _decode_scalar(hint, value, where)


def _decode_union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    failure: BadInput | None = None
    for choice in arguments:
        if choice is type(None):
            continue
        try:
            return _decode(choice, value, where)
        except BadInput as error:
            failure = failure or error
    assert failure is not None, "a union has more choices than None"
    raise failure


def _decode_scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INT:
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise BadInput(f"{where}: expected {hint.__name__}, found {value!r:.80}")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"{where}: not a finite number")
    if isinstance(value, int) and abs(value) > MAX_INT:
        raise BadInput(f"{where}: integer out of range")
    return value
