"""How calls were served, for those that are like them: PyTorch's own guards compare in C++, in half a microsecond, all
that a launch assumes of its tensors and of the state that PyTorch is in."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

TensorGuards: Any = getattr(torch._C._dynamo.guards, "TensorGuards", None)
"""Without them nothing is recalled, and every call is looked at anew."""

_function_modes, _dispatch_modes = torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack
_function_mode = torch._C._get_function_stack_at
_compiling = torch.compiler.is_compiling
_gradients = torch.is_grad_enabled
"""The guards do not ask: what is kept where there are none must not be found where they are wanted."""
MOST = 4096
"""Kinds of calls that are kept; a model has some dozens."""


def _guards(*tensors: torch.Tensor) -> Any:
    return TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)


class _Each:
    """Guards of tensors of which one may be another: PyTorch's take no tensor twice."""

    def __init__(self, tensors: tuple[torch.Tensor, ...]) -> None:
        self._guards = [_guards(tensor) for tensor in tensors]

    def check(self, *tensors: torch.Tensor) -> bool:
        return len(tensors) == len(self._guards) and all(
            guards.check(tensor) for guards, tensor in zip(self._guards, tensors, strict=True)
        )


def has_modes() -> bool:
    """Whether somebody sees every call of PyTorch's; a default device says only where new tensors are made."""
    count = _function_modes()
    if count and any(type(_function_mode(i)) is not DeviceContext for i in range(count)):
        return True
    return bool(_dispatch_modes())


def _is_watched() -> bool:
    """Whether somebody looks on of whom the guards know nothing, or not all."""
    if _compiling():  # first: a compiler cannot see through the others
        return True
    return forward_ad._current_level >= 0 or has_modes()


class _Kept(NamedTuple):
    guards: Any
    places: list[int]
    """Of the tensors, in 16 bytes."""
    what: Any

    def suits(self, tensors: tuple[torch.Tensor, ...]) -> bool:
        if len(tensors) != len(self.places):  # guards would raise
            return False
        return self.guards.check(*tensors) and self.places == [tensor.data_ptr() & 15 for tensor in tensors]


def _shapes(tensors: tuple[torch.Tensor, ...]) -> Hashable:
    return tensors[0].shape, tensors[1].shape if len(tensors) > 1 else None


class _Kind:
    """What was kept for calls that ask for the same."""

    def __init__(self, last: _Kept) -> None:
        self.last = last
        """That was found: the layers of a model come one after the other."""
        self.by_shapes: dict[Hashable, list[_Kept]] = {}
        """Of which a model may have thousands, as it writes word by word."""


class Recall:
    """What was kept with tensors of the same types, dtypes, devices, shapes, strides and places in 16 bytes, with or
    without gradients, under the same modes and transforms of PyTorch."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Kind] = {}
        self._count = 0

    def find(self, asked: Hashable, tensors: tuple[torch.Tensor, ...]) -> Any:
        """What was kept for this, or None."""
        if _is_watched():
            return None
        kind = self._kinds.get((asked, _gradients()))
        if kind is None:
            return None
        last = kind.last  # read once: another thread may put its own there
        if last.suits(tensors):
            return last.what
        try:
            kept = kind.by_shapes.get(_shapes(tensors), ())
        except TypeError:  # sizes that are symbols
            return None
        for one in kept:
            if one.suits(tensors):
                kind.last = one
                return one.what
        return None

    def keep(self, asked: Hashable, tensors: tuple[torch.Tensor, ...], what: Any) -> None:
        if TensorGuards is None or _is_watched():
            return
        if _gradients() and any(tensor.requires_grad for tensor in tensors):
            return
        if self._count >= MOST:
            self._kinds, self._count = {}, 0
        twice = len({*map(id, tensors)}) < len(tensors)
        guards = _Each(tensors) if twice else _guards(*tensors)
        kept = _Kept(guards, [tensor.data_ptr() & 15 for tensor in tensors], what)
        kind = self._kinds.setdefault((asked, _gradients()), _Kind(kept))
        kind.by_shapes.setdefault(_shapes(tensors), []).append(kept)
        self._count += 1
