"""What every op asks about a call before it chooses who serves it."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from groundspeed.kernels.recall import has_modes

if TYPE_CHECKING:
    from torch import Tensor

MIN_CAPABILITY = (8, 0)
HOPPER = (9, 0)
PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_plain(*tensors: Tensor) -> bool:
    """Whether nobody needs to see an operator of PyTorch's: no gradients, no compiler, no mode or transform, no tensors
    of somebody's own."""
    if torch.compiler.is_compiling() or is_derived(*tensors):
        return False
    if not all(type(x) in PLAIN and x.layout == torch.strided and not x.is_neg() for x in tensors):
        return False
    return not has_modes() and not torch._C._is_tracing() and torch._C._functorch.peek_interpreter_stack() is None


def is_derived(*tensors: Tensor) -> bool:
    """Whether a call needs gradients, or is inside of forward-mode differentiation."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return True
    return forward_ad._current_level >= 0


def capability(device: torch.device) -> tuple[int, int]:
    asked = torch.cuda.get_device_capability if torch.compiler.is_compiling() else _kept_capability
    return asked(device)  # Dynamo sees no caches


@cache
def _kept_capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def is_aligned(tensor: Tensor) -> bool:
    """To 16 bytes; whoever compiles does not know yet."""
    return torch.compiler.is_compiling() or tensor.data_ptr() % 16 == 0


_said: set[tuple[str, str]] = set()


_BETWEEN = ("groundspeed.kernels.", "groundspeed.nn.", "groundspeed.hf.", "torch.", "transformers.")
"""Whose frames lie between an op and who called it: ours, and those of a module or model that is called."""


def say_once(op: str, reason: str) -> None:
    """To who called the op, or the module that did."""
    if (op, reason) not in _said:
        _said.add((op, reason))
        warnings.warn(f"groundspeed.{op} takes PyTorch's path: {reason}", UserWarning, stacklevel=_caller())


def _caller() -> int:
    """How many frames up of who asks; the nearest of somebody else."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and _home(frame.f_globals).startswith(_BETWEEN):
        level, frame = level + 1, frame.f_back
    return level


def _home(scope: dict[str, Any]) -> str:
    """Of code, the module that it is from, or the package where nothing else is known."""
    return f"{scope.get('__name__') or scope.get('__package__') or ''}."


say_once._dynamo_marked_constant = True  # type: ignore[attr-defined]
"""Whoever compiles a call is told then. `torch.compiler.assume_constant_result` would import the compiler."""
