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


class Recall:
    """What was kept with tensors of the same types, dtypes, devices, shapes, strides and places in 16 bytes, without
    gradients, under the same modes and transforms of PyTorch."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, list[tuple[Any, list[int], Any]]] = {}
        self._count = 0

    def find(self, asked: Hashable, *tensors: torch.Tensor) -> Any:
        """What was kept for this, or None."""
        if torch.compiler.is_compiling() or forward_ad._current_level >= 0 or _function_modes() or _dispatch_modes():
            return None  # of these the guards know nothing, or not all
        for guards, places, kept in self._kept.get((asked, tensors[0].shape), ()):
            if guards.check(*tensors) and places == [tensor.data_ptr() & 15 for tensor in tensors]:
                return kept
        return None

    def keep(self, asked: Hashable, tensors: tuple[torch.Tensor, ...], kept: Any) -> None:
        if TensorGuards is None or any(tensor.requires_grad for tensor in tensors):
            return  # what is kept without gradients would be found again where they are wanted
        if self._count >= MOST:
            self._kept, self._count = {}, 0
        twice = len({*map(id, tensors)}) < len(tensors)
        entry = _Each(tensors) if twice else _guards(*tensors), [tensor.data_ptr() & 15 for tensor in tensors], kept
        self._kept.setdefault((asked, tensors[0].shape), []).append(entry)
        self._count += 1
