"""What contenders need, why they cannot be used without it, and whether the kernels launched on a GPU are theirs."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Sequence

from groundspeed.case import Case


def without_gpu(device: str) -> str | None:
    return without_torch(device) if device == "cuda" else "needs an NVIDIA GPU"


def without_torch(device: str) -> str | None:
    return None if installed("torch") else "torch is not installed: pip install 'groundspeed[torch]'"


def without_triton(device: str) -> str | None:
    if reason := without_gpu(device):
        return reason
    return None if installed("triton") else "triton is not installed: pip install 'groundspeed[torch]'"


def without_hopper(device: str) -> str | None:
    if reason := without_triton(device):
        return reason
    import torch

    major, minor = torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0)
    return None if (major, minor) == (9, 0) else f"needs compute capability 9.0, but this GPU has {major}.{minor}"


def without_compiler(device: str) -> str | None:
    if reason := without_torch(device):
        return reason
    if any(map(shutil.which, ("g++", "clang++", "c++"))):
        return None
    return "torch.compile needs a C++ compiler, but neither g++ nor clang++ is on the PATH"


def installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def torch_version() -> str:
    import importlib.metadata

    return f"torch {importlib.metadata.version('torch')}"


def triton_version() -> str:
    import importlib.metadata

    return f"triton {importlib.metadata.version('triton')}, {torch_version()}"


def sixteen_bit_on_gpu(case: Case, device: str) -> str | None:
    if device == "cuda" and case.params["dtype"] == "fp32":
        return "FP16 and BF16 only"
    return None


def not_in_a_graph(case: Case, device: str) -> str | None:
    """Return why a contender cannot be in a CUDA graph if each call waits for the device or copies a number to it."""
    if device == "cuda" and case.clock == "graph":
        return "each call waits for the device (for its mask, for example), which a CUDA graph cannot do"
    return None


def reasons(*why_not: Callable[[Case, str], str | None]) -> Callable[[Case, str], str | None]:
    """Return a `supports` that gives the first reason of several."""

    def supports(case: Case, device: str) -> str | None:
        return next((reason for why in why_not if (reason := why(case, device))), None)

    return supports


def joined(*reasons: str | None) -> str | None:
    """Return all of several reasons in one text, or None if there are none."""
    return "; ".join(filter(None, reasons)) or None


def expect(*parts: str) -> Callable[[Sequence[str]], str | None]:
    """Return a check that one of `parts` is in the name of a launched kernel. PyTorch may silently take another path
    than the one that was asked for, and the names of the kernels show it."""

    def launches(kernels: Sequence[str]) -> str | None:
        if not kernels or any(part in kernel.lower() for kernel in kernels for part in parts):
            return None  # no kernels: the profiler saw nothing, so it is unknown, not wrong
        wanted = " or ".join(map(repr, parts))
        return f"no kernel that it launched has {wanted} in its name; it launched {', '.join(kernels)}"[:300]

    return launches
