"""A cache of how calls were served, for later calls like them.

PyTorch's own guards check in C++, in half a microsecond, everything that a launch assumes about its tensors and about
PyTorch's state."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

TensorGuards: Any = getattr(torch._C._dynamo.guards, "TensorGuards", None)
"""None if this version of PyTorch lacks them: then nothing is cached, and every call is analysed anew."""

_function_modes, _dispatch_modes = torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack
_function_mode, _dispatch_mode = torch._C._get_function_stack_at, torch._C._get_dispatch_stack_at
_compiling = torch.compiler.is_compiling
_gradients = torch.is_grad_enabled
"""The guards do not check this: an entry made while gradients were off must not be found while they are on."""
MOST = 4096
"""The most entries that are kept; a model needs some dozens."""


def _guards(*tensors: torch.Tensor) -> Any:
    return TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)


class _Each:
    """Separate guards for each tensor of a call that passes one tensor twice: PyTorch's guards reject duplicates."""

    def __init__(self, tensors: tuple[torch.Tensor, ...]) -> None:
        self._guards = [_guards(tensor) for tensor in tensors]

    def check(self, *tensors: torch.Tensor) -> bool:
        return len(tensors) == len(self._guards) and all(
            guards.check(tensor) for guards, tensor in zip(self._guards, tensors, strict=True)
        )


def has_modes() -> bool:
    """Return whether a function mode or dispatch mode is active that may change what a call does. A default device is a
    function mode too but does not count: it only says where new tensors are made. Nor do dispatch modes that set
    `_groundspeed_observes`, as ours do: under them a call must launch what it launches without them."""
    count = _function_modes()
    if count and any(type(_function_mode(i)) is not DeviceContext for i in range(count)):
        return True
    count = _dispatch_modes()
    return bool(count) and not all(getattr(_dispatch_mode(i), "_groundspeed_observes", False) for i in range(count))


def _is_watched() -> bool:
    """Return whether something is active that the guards do not fully check: a compiler, forward-mode differentiation
    or a mode."""
    if _compiling():  # first: a compiler cannot trace the other checks
        return True
    return forward_ad._current_level >= 0 or has_modes()


class _Kept(NamedTuple):
    guards: Any
    places: list[int]
    """The addresses of the tensors modulo 16."""
    what: Any

    def suits(self, tensors: tuple[torch.Tensor, ...]) -> bool:
        if len(tensors) != len(self.places):  # the guards would raise
            return False
        return self.guards.check(*tensors) and self.places == [tensor.data_ptr() & 15 for tensor in tensors]


def _shapes(tensors: tuple[torch.Tensor, ...]) -> Hashable:
    return tensors[0].shape, tensors[1].shape if len(tensors) > 1 else None


class _Kind:
    """The entries for calls that have the same key."""

    def __init__(self, last: _Kept) -> None:
        self.last = last
        """The entry that was found last, tried first: the layers of a model make the same call one after the other."""
        self.by_shapes: dict[Hashable, list[_Kept]] = {}
        """A model may have thousands of shapes, as it generates token by token."""


class Recall:
    """A cache keyed by what a call asks for and by its tensors: their types, dtypes, devices, shapes, strides and
    addresses modulo 16, whether gradients are enabled, and PyTorch's dispatch state. Nothing is found or kept while a
    compiler, forward-mode differentiation or a mode is active."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Kind] = {}
        self._count = 0

    def find(self, asked: Hashable, tensors: tuple[torch.Tensor, ...]) -> Any:
        """Return what was kept for such a call, or None."""
        if _is_watched():
            return None
        kind = self._kinds.get((asked, _gradients()))
        if kind is None:
            return None
        last = kind.last  # read once: another thread may replace it
        if last.suits(tensors):
            return last.what
        try:
            kept = kind.by_shapes.get(_shapes(tensors), ())
        except TypeError:  # symbolic sizes are not hashable
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
