"""The modules behind a function: a graph reads their parameters where they were when it was captured."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn


def behind(function: Callable[..., Any]) -> list[nn.Module]:
    """The module that is called, that a method is of, or that a function names."""
    if isinstance(function, nn.Module):
        return [function]
    owner = getattr(function, "__self__", None)
    if isinstance(owner, nn.Module):
        return [owner]
    if not inspect.isfunction(function):
        return []
    seen = inspect.getclosurevars(function)
    named = (*seen.nonlocals.values(), *seen.globals.values())
    return list({id(one): one for one in named if isinstance(one, nn.Module)}.values())


class Watch:
    """Modules with all that is inside of them. They are kept, so that no other one can be taken for them."""

    def __init__(self, roots: Sequence[nn.Module]) -> None:
        self.roots = list(roots)
        self.refresh()

    def refresh(self) -> None:
        self._modules = list({id(m): m for root in self.roots for m in root.modules()}.values())
        self._attributes = [
            (vars(module), name)
            for module in self._modules
            for name, value in vars(module).items()
            if isinstance(value, torch.Tensor)
        ]
        """Tensors that modules have beside parameters and buffers."""

    def state(self) -> list[Any]:
        """Equal as long as modules, modes and the places of all parameters and buffers are: values may change."""
        found: list[Any] = []
        for module in self._modules:
            found.append(module.training)
            found += map(id, module._modules.values())
            for tensors in (module._parameters, module._buffers):
                found += [(_address(tensor), tensor.dtype) for tensor in tensors.values() if tensor is not None]
        found += [_address(there.get(name)) for there, name in self._attributes]
        return found

    def training(self) -> nn.Module | None:
        return next((root for root in self.roots if root.training), None)

    def need_gradients(self) -> bool:
        return any(parameter.requires_grad for parameter in self._tensors("_parameters"))

    def buffers(self) -> list[torch.Tensor]:
        return list(self._tensors("_buffers"))

    def device(self) -> torch.device | None:
        first = next((tensor for kind in ("_parameters", "_buffers") for tensor in self._tensors(kind)), None)
        return None if first is None else first.device

    def _tensors(self, kind: str) -> Iterator[torch.Tensor]:
        for module in self._modules:
            yield from (tensor for tensor in getattr(module, kind).values() if tensor is not None)


def _address(tensor: Any) -> int:
    try:
        return int(tensor.data_ptr())
    except (RuntimeError, AttributeError):  # a tensor of somebody's own has others inside
        return id(tensor)
