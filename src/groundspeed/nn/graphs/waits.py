"""Stops operators that wait for the device before CUDA sees them: a capture that CUDA has invalidated may leave
PyTorch's allocator in the belief that it is still running. The check runs during the capture itself, because some
models wait only outside a capture."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_COPIES = ("aten::_to_copy", "aten::copy_")
_MASKS = torch.bool, torch.uint8
_INDEXED = ("aten::index", "aten::index_put", "aten::index_put_")


class Uncapturable(RuntimeError):
    """A function does something that a CUDA graph cannot hold, such as waiting for the device."""


class Waits(TorchDispatchMode):
    """A dispatch mode that raises if the host would need a value from the device; with `raises=False` it does nothing,
    and calls take whatever path they take under a mode."""

    supports_higher_order_operators = True
    _groundspeed_observes = True
    """Our kernels take the same path as without this mode (`has_modes`)."""

    def __init__(self, device: torch.device, name: str, *, raises: bool = True) -> None:
        super().__init__()
        self._type, self._name, self._raises = device.type, name, raises

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._raises and self._waits(func, args, kwargs):
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
        if name in _INDEXED:  # the number of elements that a mask selects depends on its values
            masks = [t for t in args[1] if t is not None and t.dtype in _MASKS]
            return bool(masks) and not _is_fill(*args, **kwargs)
        if name == "aten::repeat_interleave" and kwargs.get("output_size") is not None:
            return False
        return not _TAGS.isdisjoint(func.tags)


def _is_fill(x: Any, indices: Any, values: Any = None, accumulate: bool = False) -> bool:
    """Whether PyTorch turns an indexed write, such as `x[mask] = 0.0`, into `masked_fill_`: it does for one mask on the
    device and one value on the host."""
    there = [t for t in indices if t is not None]
    if values is None or accumulate or values.numel() != 1 or values.device.type != "cpu" or len(there) != 1:
        return False
    return there[0].dtype in _MASKS and there[0].device == x.device


def uncapturable(name: str, why: str) -> str:
    return (
        f"{name} cannot be captured as a CUDA graph: {why}; remove .item(), .cpu(), .tolist(), `if tensor`, nonzero "
        "and selection by a mask from it, or call it without compile_graphs"
    )
