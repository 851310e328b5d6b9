"""Launching a Triton kernel again without asking Triton again which compiled kernel that is: for small work its asking
takes longer than the work."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from triton import knobs
from triton.runtime import driver


def on(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches on the current device, whatever device its tensors are on."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class Launcher:
    """A kernel with its grid and everything that it was compiled for: types, alignments, constants. Whoever keeps it
    keeps it by all of these; numbers and tensors that change nothing of them are the arguments of a call."""

    def __init__(
        self, kernel: Any, grid: tuple[int, int, int], constants: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        """`constants` in the order in which they follow the arguments."""
        self._kernel, self._grid, self._constants, self._options = kernel, grid, constants, options
        self._values = tuple(constants.values())
        self._compiled: Any = None

    def __call__(self, device: torch.device, *arguments: Any) -> None:
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            with on(device):
                self(device, *arguments)
            return
        compiled = self._compiled
        if compiled is None or knobs.runtime.launch_enter_hook.calls or knobs.runtime.launch_exit_hook.calls:
            found = self._kernel[self._grid](*arguments, **self._constants, **self._options)
            self._compiled = found if hasattr(found, "packed_metadata") else None  # interpreted there is none
            return
        active = driver.active
        stream = active.get_current_stream(active.get_current_device())
        told = compiled.function, compiled.packed_metadata, None, None, None
        compiled.run(*self._grid, stream, *told, *arguments, *self._values)
