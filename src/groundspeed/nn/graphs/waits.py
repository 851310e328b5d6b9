"""Operators that wait for the device, stopped before CUDA sees them: a capture that CUDA has called invalid may leave
PyTorch's allocator believing that it goes on. They are looked for in the capture itself, since there are models that
wait only outside of one."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_COPIES = ("aten::_to_copy", "aten::copy_")
_INDEXED = ("aten::index", "aten::index_put", "aten::index_put_")


class Uncapturable(RuntimeError):
    """Something inside of a function does what a graph cannot, as waiting for the device."""


class Waits(TorchDispatchMode):
    """Raises where the host would have to know a value on the device."""

    supports_higher_order_operators = True

    def __init__(self, device: torch.device, name: str) -> None:
        super().__init__()
        self._type, self._name = device.type, name

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._waits(func, args, kwargs):
            raise Uncapturable(uncapturable(self._name, f"{func} waits for the device"))
        return func(*args, **kwargs)

    def _waits(self, func: Any, args: Any, kwargs: Any) -> bool:
        if not isinstance(func, torch._ops.OpOverload):
            return False
        devices = {t.device.type for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        name = func._schema.name
        if name in _COPIES:
            to, waits = kwargs.get("device"), not (kwargs.get("non_blocking") or args[2:] == (True,))
            return waits and len(devices | ({torch.device(to).type} if to is not None else set())) > 1
        if self._type not in devices:
            return False
        if name in _INDEXED:  # a mask selects as many as it happens to
            return any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])
        if name == "aten::repeat_interleave" and kwargs.get("output_size") is not None:
            return False
        return not _TAGS.isdisjoint(func.tags)


def uncapturable(name: str, why: str) -> str:
    return (
        f"{name} cannot be captured as a CUDA graph: {why}; take .item(), .cpu(), .tolist(), `if tensor`, nonzero and "
        "selection by a mask out of it, or call it without compile_graphs"
    )
