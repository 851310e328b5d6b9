"""Takes the arguments of a call apart into tensors and plain values; the plain values are part of what is captured."""

from __future__ import annotations

import enum
import inspect
import numbers
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

PLAIN = (str, bytes, type(None), enum.Enum, torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format)
_TENSOR = object()
"""Stands for a tensor in a key."""


class Parts(NamedTuple):
    leaves: list[Any]
    spec: Any
    key: tuple[Hashable, ...]
    """The plain values, with `_TENSOR` in the place of each tensor."""


def plain_key(value: Any) -> Hashable | None:
    """Return a key that distinguishes a plain value from all others (1 from True, 0.0 from -0.0), or None if the value
    is not plain."""
    if isinstance(value, numbers.Number):
        return type(value), repr(value)
    return (type(value), value) if isinstance(value, PLAIN) else None


@dataclass(frozen=True)
class Leaf:
    """The place of a leaf among the arguments of a call."""

    argument: str
    text: str
    """The argument with the path inside it, such as `cache[0]`."""

    @property
    def is_whole(self) -> bool:
        return self.text == self.argument


class Arguments:
    """The arguments of a function, whether passed by position, passed by name or left out."""

    def __init__(self, function: Callable[..., Any]) -> None:
        asked = function.forward if isinstance(function, torch.nn.Module) else function
        try:
            self.signature = inspect.signature(asked)
        except (TypeError, ValueError):  # a callable that is not written in Python
            self.signature = inspect.signature(lambda *args, **kwargs: None)
        kinds = {name: parameter.kind for name, parameter in self.signature.parameters.items()}
        self._rest = next((name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD), None)
        self.names = [name for name in kinds if name != self._rest]

    def check(self, option: str, names: Sequence[Any]) -> None:
        """Raise ValueError for a name that no argument can have."""
        for name in names:
            if name not in self.names and (self._rest is None or not isinstance(name, str)):
                there = ", ".join(self.names) or "none"
                raise ValueError(f"{option} names {name!r:.80}, but the arguments are: {there}")

    def take_apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Parts:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        leaves, spec = pytree.tree_flatten(dict(bound.arguments))
        key: list[Hashable] = []
        for i, leaf in enumerate(leaves):
            found = _TENSOR if isinstance(leaf, torch.Tensor) else plain_key(leaf)
            if found is None:
                place = self.leaves(leaves, spec)[i].text
                raise TypeError(
                    f"argument {place!r} is a {type(leaf).__name__}, which a graph cannot hold: pass tensors, numbers, "
                    "strings, None, or tuples, lists and dicts of them"
                )
            key.append(found)
        return Parts(leaves, spec, tuple(key))

    def put_together(self, leaves: Sequence[Any], spec: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = inspect.BoundArguments(self.signature, pytree.tree_unflatten(leaves, spec))
        return bound.args, bound.kwargs

    def leaves(self, leaves: Sequence[Any], spec: Any) -> list[Leaf]:
        """Return the place of each leaf."""
        arguments = pytree.tree_unflatten(leaves, spec)
        try:
            return [self._leaf(path) for path, _ in pytree.tree_flatten_with_path(arguments)[0]]
        except ValueError:  # a user's own pytree node has parts without names
            specs = {name: pytree.tree_structure(value) for name, value in arguments.items()}
            return [
                Leaf(name, name if one.is_leaf() else f"{name} ({i})")
                for name, one in specs.items()
                for i in range(one.num_leaves)
            ]

    def _leaf(self, path: tuple[Any, ...]) -> Leaf:
        first, rest = path[0].key, path[1:]
        if first == self._rest:
            first, rest = rest[0].key, rest[1:]
        return Leaf(first, f"{first}{pytree.keystr(rest)}")
