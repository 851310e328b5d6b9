"""Checks of a call that every op makes before it chooses an implementation."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module

from groundspeed.kernels.recall import has_modes

if TYPE_CHECKING:
    from torch import Tensor

MIN_CAPABILITY = (8, 0)
HOPPER = (9, 0)
PLAIN = (torch.Tensor, torch.nn.Parameter)
KINDS = (torch.float16, torch.bfloat16, torch.float32)
"""The dtypes that the row-by-row kernels take. PyTorch's path takes FP64 too."""
MOST_ROWS = 1 << 30
"""The most rows that the row-by-row kernels take: they count rows in 32 bits."""


def is_plain(*tensors: Tensor) -> bool:
    """Return whether a call may bypass PyTorch's dispatcher: it needs no gradients, no compiler, mode, trace or
    functorch transform is active, and all arguments are ordinary strided tensors."""
    if torch.compiler.is_compiling() or is_derived(*tensors):
        return False
    if not all(type(x) in PLAIN and x.layout == torch.strided and not x.is_neg() for x in tensors):
        return False
    return not has_modes() and not torch._C._is_tracing() and torch._C._functorch.peek_interpreter_stack() is None


def need_tensors(**told: Any) -> None:
    """Raise TypeError for any argument that is neither a tensor nor None."""
    for name, given in told.items():
        if given is not None and not isinstance(given, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(given).__name__}")


def has_global_hooks() -> bool:
    """Return whether hooks are registered for every module."""
    return bool(module._global_forward_hooks or module._global_forward_pre_hooks)


def is_derived(*tensors: Tensor) -> bool:
    """Return whether a call needs gradients or runs inside forward-mode differentiation."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return True
    return forward_ad._current_level >= 0


def is_captured(tensor: Tensor) -> bool:
    """Return whether calls with this tensor become part of a CUDA graph now."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()  # a CPU build of PyTorch raises if asked


def capability(device: torch.device) -> tuple[int, int]:
    asked = torch.cuda.get_device_capability if torch.compiler.is_compiling() else _kept_capability
    return asked(device)  # Dynamo cannot trace a functools cache


@cache
def _kept_capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def multiprocessors(device: torch.device) -> int:
    asked = torch.cuda.get_device_properties if torch.compiler.is_compiling() else _kept_properties
    count: int = asked(device).multi_processor_count
    return count


@cache
def _kept_properties(device: torch.device) -> Any:
    return torch.cuda.get_device_properties(device)


def is_aligned(tensor: Tensor) -> bool:
    """Return whether a tensor is aligned to 16 bytes. While compiling, addresses are unknown and True is assumed."""
    return torch.compiler.is_compiling() or tensor.data_ptr() % 16 == 0


def takes_ours(op: str, impl: str, why_not: Callable[[], str | None]) -> bool:
    """Return whether our kernel serves a call of an op whose implementations are `triton` and `torch`: it does unless
    it cannot or `torch` was requested. Raise if `triton` was requested and cannot serve. `why_not` returns the reason
    why our kernel cannot serve the call, or None."""
    if impl not in ("auto", "triton", "torch"):
        raise ValueError(f"impl={impl!r} is unknown; choose from auto, triton, torch")
    reason = None if impl == "torch" else why_not()
    if reason and impl != "auto":
        raise NotImplementedError(f"impl={impl!r} cannot serve this call: {reason}; impl='torch' or 'auto' can")
    if reason:
        say_once(op, reason)
    return impl != "torch" and reason is None


def why_not_by_rows(*tensors: Tensor) -> str | None:
    """Return why our row-by-row kernels cannot serve these tensors, or None. They share a device; the dtype of the call
    is that of the first."""
    x = tensors[0]
    if x.device.type != "cuda":
        return elsewhere(x.device)
    if x.dtype not in KINDS:
        return f"our kernels support fp16, bf16 and fp32, not {x.dtype}"
    if is_derived(*tensors):
        return "our kernels have no backward pass yet, and this call needs gradients"
    if capability(x.device) < MIN_CAPABILITY:
        return "our kernels need compute capability 8.0 or newer"
    if any(tensor.stride(-1) != 1 and tensor.shape[-1] > 1 for tensor in tensors):
        return "our kernels need rows with adjacent elements"
    if any(tensor.dim() > 4 and not tensor.is_contiguous() for tensor in tensors):
        return "our kernels support tensors of more than four dimensions only if they are contiguous"
    return None


_ELSEWHERE = "our kernels run on NVIDIA GPUs, but these tensors are on "


def elsewhere(device: torch.device) -> str:
    """Return the reason why none of our kernels can serve tensors on this device."""
    return _ELSEWHERE + device.type


_said: set[tuple[str, str]] = set()


_BETWEEN = ("groundspeed.kernels.", "groundspeed.nn.", "groundspeed.hf.", "torch.", "transformers.")
"""Modules whose stack frames are skipped when looking for the caller of an op: ours, and those through which a module
or model was called."""


def say_once(op: str, reason: str) -> None:
    """Warn once that an op takes PyTorch's path. The warning points at the caller of the op, or of the module that
    called it. A reason that holds for every op is given only once for all of them."""
    of_all = reason.startswith(_ELSEWHERE)
    if (key := ("" if of_all else op, reason)) not in _said:
        _said.add(key)
        told = f"{reason} (this warning appears once for all functions)" if of_all else reason
        warnings.warn(f"groundspeed.{op} falls back to PyTorch: {told}", UserWarning, stacklevel=_caller())


def _caller() -> int:
    """Return the `stacklevel` of the nearest stack frame that is in none of the modules of _BETWEEN."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and _home(frame.f_globals).startswith(_BETWEEN):
        level, frame = level + 1, frame.f_back
    return level


def _home(scope: dict[str, Any]) -> str:
    """Return the name of the module with these globals, or of its package if only that is known, and a dot after it."""
    return f"{scope.get('__name__') or scope.get('__package__') or ''}."


say_once._dynamo_marked_constant = True  # type: ignore[attr-defined]
"""Makes Dynamo call it while tracing, so the warning appears at compile time. `torch.compiler.assume_constant_result`
does the same, but would import the compiler."""
