"""Dataclasses from untrusted JSON: every field must be present and of its declared type, and there must be no other.

One generic function instead of a hand-written reader per record, so that no field goes unchecked.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar, cast

from groundspeed.errors import BadInput

T = TypeVar("T")

MAX_INT = 2**63 - 1
MAX_DEPTH = 64


def parse_json(text: bytes, where: str) -> Any:
    """Return parsed JSON in UTF-8. BadInput for anything on which two readers may disagree or a later one may fail:
    NaN, numbers out of range, duplicate keys, lone surrogates, nesting deeper than MAX_DEPTH."""

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            raise ValueError("a key appears twice")
        return result

    try:
        value = json.loads(text.decode(), parse_constant=constant, object_pairs_hook=pairs)
        _check_plain(value)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: not readable as JSON ({error!s:.200})") from None
    return value


def _check_plain(value: Any) -> None:
    """Raise ValueError for values that `json` reads and other readers may not. This covers fields of any type, too."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inside: list[Any] = []
        for item in level:
            if isinstance(item, str):
                item.encode()
            elif isinstance(item, float):
                if not math.isfinite(item):
                    raise ValueError("a number is too large")
            elif isinstance(item, int):
                if abs(item) > MAX_INT:
                    raise ValueError("an integer is too large")
            elif isinstance(item, list):
                inside += item
            elif item is not None:
                inside += item
                inside += item.values()
        level = inside
    if level:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")


def decode(cls: type[T], value: Any, where: str) -> T:
    """Return an instance of dataclass `cls` from parsed JSON, or raise BadInput naming the wrong field."""
    return cast(T, _reader(cast(Any, cls))(value, (None, where)))


Where = tuple[Any, str]
"""The place that holds a value, and the value's name there; made into text only if the value is wrong."""
Reader = Callable[[Any, Where], Any]


def _refuse(where: Where, why: str) -> BadInput:
    parts, place = [], where
    while place is not None:
        parts.append(place[1])
        place = place[0]
    return BadInput(f"{''.join(reversed(parts))}: {why}")


@functools.cache
def _reader(hint: Any) -> Reader:
    """Return the reader for values of this type. Readers are cached because a record has a hundred thousand values."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value, where: value
    if origin in (typing.Union, types.UnionType):
        return _union_reader(arguments)
    if origin is typing.Literal:
        return _choice_reader(arguments)
    if origin is tuple:
        return _list_reader(_reader(arguments[0]))
    if origin is dict:
        return _table_reader(_reader(arguments[1]))
    if dataclasses.is_dataclass(hint):
        return _object_reader(cast("type[Any]", hint))
    return _scalar_reader(hint)


def _object_reader(cls: type[Any]) -> Reader:
    hints = typing.get_type_hints(cls)
    fields = [(f.name, f".{f.name}", _reader(hints[f.name])) for f in dataclasses.fields(cls)]
    names = {name for name, _, _ in fields}

    def read(value: Any, where: Where) -> Any:
        if not isinstance(value, dict):
            raise _refuse(where, f"expected an object, found {type(value).__name__}")
        if value.keys() != names:
            if extra := sorted(set(value) - names):
                raise _refuse(where, f"unknown key {extra[0]!r:.80}")
            raise _refuse(where, f"key {min(names - set(value))!r} is missing")
        try:
            return cls(**{name: reader(value[name], (where, place)) for name, place, reader in fields})
        except ValueError as error:
            raise _refuse(where, str(error)) from None

    return read


def _choice_reader(choices: tuple[Any, ...]) -> Reader:
    def read(value: Any, where: Where) -> Any:
        if value not in choices or isinstance(value, bool):
            raise _refuse(where, f"{value!r:.80} is not one of {', '.join(map(str, choices))}")
        return value

    return read


def _list_reader(of: Reader) -> Reader:
    def read(value: Any, where: Where) -> Any:
        if not isinstance(value, list):
            raise _refuse(where, f"expected a list, found {type(value).__name__}")
        return tuple([of(item, (where, f"[{i}]")) for i, item in enumerate(value)])

    return read


def _table_reader(of: Reader) -> Reader:
    def read(value: Any, where: Where) -> Any:
        if not isinstance(value, dict):
            raise _refuse(where, f"expected an object, found {type(value).__name__}")
        return {key: of(item, (where, f".{key:.80}")) for key, item in value.items()}

    return read


def _union_reader(choices: tuple[Any, ...]) -> Reader:
    may_be_none, readers = type(None) in choices, [_reader(choice) for choice in choices if choice is not type(None)]

    def read(value: Any, where: Where) -> Any:
        if value is None and may_be_none:
            return None
        failure: BadInput | None = None
        for reader in readers:
            try:
                return reader(value, where)
            except BadInput as error:
                failure = failure or error
        assert failure is not None, "a union has more choices than None"
        raise failure

    return read


def _scalar_reader(hint: Any) -> Reader:
    def read(value: Any, where: Where) -> Any:
        if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INT:
            return float(value)
        if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
            raise _refuse(where, f"expected {hint.__name__}, found {value!r:.80}")
        if isinstance(value, float) and not math.isfinite(value):
            raise _refuse(where, "not a finite number")
        if isinstance(value, int) and abs(value) > MAX_INT:
            raise _refuse(where, "integer out of range")
        return value

    return read
