"""How calls were served, for those that are like them: PyTorch's own guards compare in C++, in half a microsecond, all
that a launch assumes of its tensors and of the state that PyTorch is in."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch.autograd import forward_ad

TensorGuards: Any = getattr(torch._C._dynamo.guards, "TensorGuards", None)
"""Without them nothing is recalled, and every call is looked at anew."""

_function_modes, _dispatch_modes = torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack
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


def _is_watched() -> bool:
    """Whether somebody looks on of whom the guards know nothing, or not all."""
    if torch.compiler.is_compiling():  # first: a compiler cannot see through the others
        return True
    return forward_ad._current_level >= 0 or bool(_function_modes() or _dispatch_modes())


class Recall:
    """What was kept with tensors of the same types, dtypes, devices, shapes, strides and places in 16 bytes, with or
    without gradients, under the same modes and transforms of PyTorch."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, list[tuple[Any, list[int], Any]]] = {}
        """By what is asked and by shapes, of which a model may have thousands, as it writes word by word."""
        self._count = 0

    def find(self, asked: Hashable, q: torch.Tensor, k: torch.Tensor, *more: torch.Tensor) -> Any:
        """What was kept for this, or None."""
        if _is_watched():
            return None
        try:
            entries = self._kept.get((asked, _gradients(), q.shape, k.shape))
        except TypeError:  # sizes that are symbols
            return None
        for guards, places, kept in entries or ():
            if guards.check(q, k, *more) and places == [tensor.data_ptr() & 15 for tensor in (q, k, *more)]:
                return kept
        return None

    def keep(self, asked: Hashable, tensors: tuple[torch.Tensor, ...], kept: Any) -> None:
        if TensorGuards is None or _is_watched():
            return
        if _gradients() and any(tensor.requires_grad for tensor in tensors):
            return
        if self._count >= MOST:
            self._kept, self._count = {}, 0
        twice = len({*map(id, tensors)}) < len(tensors)
        entry = _Each(tensors) if twice else _guards(*tensors), [tensor.data_ptr() & 15 for tensor in tensors], kept
        key = asked, _gradients(), tensors[0].shape, tensors[1].shape
        self._kept.setdefault(key, []).append(entry)
        self._count += 1
