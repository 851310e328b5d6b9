"""Launching a Triton kernel again without asking Triton again which compiled kernel that is, nor encoding again what
TMA is told of a tensor that it was told of before: for small work that takes longer than the work."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from triton import knobs
from triton.runtime import driver

MOST_KEPT = 1024
"""Encoded boxes of a launcher: the tensors that a model has at this place come again and again."""
Encode = Callable[[int, Any], list[Any]]
"""Of the place of a box, and the box: what the launcher takes."""


def on(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches on the current device, whatever device its tensors are on."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class Box(NamedTuple):
    """What TMA is told of tensors of one kind."""

    shape: list[int]
    strides: list[int]
    block: list[int]
    layout: Any

    def of(self, tensor: Any) -> Any:
        """As Triton's argument."""
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

        return TensorDescriptor(tensor, self.shape, self.strides, self.block, self.layout)


class Launcher:
    """A kernel with its grid and everything that it was compiled for: types, alignments, constants. Whoever keeps it
    keeps it by all of these; numbers and tensors that change nothing of them are the arguments of a call. The first
    arguments may be tensors that TMA reads and writes, each with its box."""

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        constants: Mapping[str, Any],
        options: Mapping[str, Any],
        boxes: Sequence[Box] = (),
    ) -> None:
        """`constants` in the order in which they follow the arguments."""
        self._kernel, self._grid, self._constants, self._options = kernel, grid, constants, options
        self._values = tuple(constants.values())
        self._boxes = tuple(boxes)
        self._known: tuple[Any, Any, Encode | None] | None = None
        """What was compiled, how it is run, and how its boxes are encoded: set at once, since threads may share it."""
        self._kept: dict[tuple[int, int], list[Any]] = {}

    def __call__(self, device: torch.device, *arguments: Any) -> None:
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            with on(device):
                self(device, *arguments)
            return
        known = self._known
        if known is None or knobs.runtime.launch_enter_hook.calls or knobs.runtime.launch_exit_hook.calls:
            found = self._kernel[self._grid](*self._described(arguments), **self._constants, **self._options)
            if hasattr(found, "packed_metadata"):  # interpreted there is none
                self._known = found, *(_direct(found.run) if self._boxes else (found.run, None))
            return
        compiled, run, encode = known
        active = driver.active
        stream = active.get_current_stream(active.get_current_device())
        told = compiled.function, compiled.packed_metadata, None, None, None
        if self._boxes:
            arguments = self._encoded(arguments, encode) if encode else self._described(arguments)
        run(*self._grid, stream, *told, *arguments, *self._values)

    def _described(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        boxed = [box.of(tensor) for box, tensor in zip(self._boxes, arguments, strict=False)]
        return *boxed, *arguments[len(boxed) :]

    def _encoded(self, arguments: tuple[Any, ...], encode: Encode) -> tuple[Any, ...]:
        told: list[Any] = []
        for place, box in enumerate(self._boxes):
            key = place, arguments[place].data_ptr()
            known = self._kept.get(key)
            if known is None:
                if len(self._kept) >= MOST_KEPT:
                    self._kept.clear()
                known = self._kept[key] = encode(place, box.of(arguments[place]))
            told += known
        return *told, *arguments[len(self._boxes) :]


def _direct(run: Any) -> tuple[Any, Encode | None]:
    """Triton's launcher as it is behind its encoding of boxes, which every call would go through, and that encoding;
    or the launcher as it is, where this version has it otherwise."""
    try:
        from triton.backends.nvidia.driver import make_tensordesc_arg

        behind = inspect.getclosurevars(run.launch).nonlocals
        launcher, forms = behind["launcher"], behind["tensordesc_meta"]
        inspect.signature(make_tensordesc_arg).bind("box", "form")
        straight = copy.copy(run)
        straight.launch = launcher
    except (ImportError, AttributeError, KeyError, TypeError, ValueError):
        return run, None
    return straight, lambda place, described: make_tensordesc_arg(described, forms[place])
