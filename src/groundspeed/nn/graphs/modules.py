"""The modules behind a function: a graph reads their parameters at the addresses that they had at its capture."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import nn

Slot = Callable[[], Any]
DEEPEST = 5
"""How many levels down tensors are looked for: a cache has a list of layers, each with tensors."""
MOST = 10_000
"""The most objects that are looked at inside one."""


def behind(function: Any) -> list[nn.Module]:
    """Return the modules behind a callable: itself, the module of a method, or the modules that the function or its
    object names."""
    if isinstance(function, nn.Module):
        return [function]
    if inspect.ismethod(function):
        return behind(function.__self__)
    if isinstance(function, functools.partial) and isinstance(function.func, nn.Module):
        return [function.func]
    named = [slot() for slot in slots(function)]
    return list({id(one): one for one in named if isinstance(one, nn.Module)}.values())


def slots(function: Any) -> list[Slot]:
    """Return a getter for each value that a function reads from elsewhere than its arguments. A getter returns the
    current value."""
    if isinstance(function, nn.Module):
        return []
    if isinstance(function, functools.partial):
        given = [*function.args, *function.keywords.values()]
        return [*slots(function.func), *(functools.partial(_same, one) for one in given)]
    if inspect.ismethod(function):
        return slots(function.__self__)
    if inspect.isfunction(function):
        cells = [functools.partial(_content, cell) for cell in function.__closure__ or ()]
        return [*cells, *(functools.partial(function.__globals__.get, name) for name in function.__code__.co_names)]
    return [functools.partial(vars(function).get, name) for name in getattr(function, "__dict__", {})]


def _same(one: Any) -> Any:
    return one


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is still empty
        return None


def tensors_in(one: Any, *, written: bool = False) -> Iterator[torch.Tensor]:
    """Yield the tensors inside an object, which may lie in attributes, lists, tuples and dicts, as the tensors of a
    cache do. `written`: only those to which a call may write something else when it is repeated, so no parameters, and
    nothing inside objects that set `_groundspeed_repeatable`."""
    level, seen = [one], dict[int, Any]()
    for _ in range(DEEPEST + 1):
        below: list[Any] = []
        for x in level[: MOST - len(seen)]:
            if id(x) in seen or isinstance(x, (nn.Module, type)) or inspect.ismodule(x):
                continue
            seen[id(x)] = x
            if isinstance(x, torch.Tensor):
                if not (written and isinstance(x, nn.Parameter)):
                    yield x
            elif isinstance(x, (list, tuple, dict)):
                below += x.values() if isinstance(x, dict) else x
            elif not (written and getattr(type(x), "_groundspeed_repeatable", False)):
                below += getattr(x, "__dict__", {}).values()
        level = below


class Watch:
    """Watches modules with all their submodules, and the other objects with tensors that the function names. It keeps
    references to them, so that no new object gets the same id and the memory that a graph writes to is not reused."""

    def __init__(self, roots: Sequence[nn.Module], named: Sequence[Slot] = ()) -> None:
        self.roots, self._named = list(roots), list(named)
        self.refresh()

    def refresh(self) -> None:
        self._held = [slot for slot in self._named if next(tensors_in(slot()), None) is not None]
        self._kept = [slot() for slot in self._held]
        self._modules = list({id(m): m for root in self.roots for m in root.modules()}.values())
        self._inside = [module._modules for module in self._modules]
        self._tensors = [there for m in self._modules for there in (m._parameters, m._buffers)]
        self._attributes = [
            (vars(module), name)
            for module in self._modules
            for name, value in vars(module).items()
            if isinstance(value, torch.Tensor)
        ]
        """The attributes of modules that are tensors but neither parameters nor buffers."""

    def state(self) -> tuple[Any, ...]:
        """Return a state that stays equal as long as the modules, their modes and the addresses, shapes and strides of
        all parameters and buffers do; values may change. It is computed at every call, so its loops run in C where
        possible."""
        tensors = [one for one in chain.from_iterable(map(dict.values, self._tensors)) if one is not None]
        try:
            places: list[Any] = [list(map(asked, tensors)) for asked in _PLACE]
        except RuntimeError:  # a tensor subclass that wraps other tensors
            places = list(map(_place, tensors))
        return (
            places,
            [tensor.dtype for tensor in tensors],
            [module.training for module in self._modules],
            list(map(id, chain.from_iterable(map(dict.values, self._inside)))),
            [_place(there.get(name)) for there, name in self._attributes],
            [id(slot()) for slot in self._held],
        )

    def training(self) -> nn.Module | None:
        return next((root for root in self.roots if root.training), None)

    def need_gradients(self) -> bool:
        return any(parameter.requires_grad for parameter in self._each("_parameters"))

    def buffers(self) -> list[torch.Tensor]:
        return list(self._each("_buffers"))

    def named(self, device_type: str) -> list[torch.Tensor]:
        """Return the tensors on such a device in the other objects that calls may write to."""
        found = {id(one): one for slot in self._named for one in tensors_in(slot(), written=True)}
        return [one for one in found.values() if one.device.type == device_type and one.layout == torch.strided]

    def device(self) -> torch.device | None:
        first = next((tensor for kind in ("_parameters", "_buffers") for tensor in self._each(kind)), None)
        return None if first is None else first.device

    def _each(self, kind: str) -> Iterator[torch.Tensor]:
        for module in self._modules:
            yield from (tensor for tensor in getattr(module, kind).values() if tensor is not None)


_PLACE = torch.Tensor.data_ptr, torch.Tensor.size, torch.Tensor.stride


def _place(tensor: Any) -> Any:
    try:
        return [asked(tensor) for asked in _PLACE]
    except (RuntimeError, TypeError):
        return id(tensor)
