"""What the contenders of attention need, why they cannot be used where that is missing, and how it shows on a GPU that
they were not."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Sequence

from groundspeed.case import Case


def without_gpu(device: str) -> str | None:
    return without_torch(device) if device == "cuda" else "needs an NVIDIA GPU"


def without_torch(device: str) -> str | None:
    return None if _installed("torch") else "torch is not installed: pip install 'groundspeed[torch]'"


def without_triton(device: str) -> str | None:
    if reason := without_gpu(device):
        return reason
    return None if _installed("triton") else "triton is not installed: pip install 'groundspeed[torch]'"


def without_hopper(device: str) -> str | None:
    if reason := without_triton(device):
        return reason
    import torch

    major, minor = torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0)
    return None if (major, minor) == (9, 0) else f"needs compute capability 9.0, and this GPU has {major}.{minor}"


def without_compiler(device: str) -> str | None:
    if reason := without_torch(device):
        return reason
    if any(map(shutil.which, ("g++", "clang++", "c++"))):
        return None
    return "torch.compile needs a C++ compiler, and neither g++ nor clang++ is on the PATH"


def _installed(package: str) -> bool:
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


def reasons(*why_not: Callable[[Case, str], str | None]) -> Callable[[Case, str], str | None]:
    """The first of several."""

    def supports(case: Case, device: str) -> str | None:
        return next((reason for why in why_not if (reason := why(case, device))), None)

    return supports


def without_empty_rows(case: Case, device: str) -> str | None:
    empty = case.params["causal"] and "N" in case.params and int(case.params["N"]) < int(case.params["S"])
    return "it gives NaN where a row sees no key" if empty else None


def without_groups(case: Case, device: str) -> str | None:
    return "as many heads of keys as of queries only" if "G" in case.params else None


def without_nested_groups(case: Case, device: str) -> str | None:
    packed = "lengths" in case.params
    return "its nested tensors have as many heads of keys as of queries" if packed and "G" in case.params else None


def without_nested_on_cpu(case: Case, device: str) -> str | None:
    packed = "lengths" in case.params
    return (
        "on a CPU it takes no nested tensors, as which it gets packed sequences" if packed and device == "cpu" else None
    )


def without_forms(*served: str) -> Callable[[Case, str], str | None]:
    """Full and causal masks, and of what else there is only these."""
    words = {"V": "values of a dimension of their own", "W": "windows", "cap": "soft-caps", "sinks": "sinks"}

    def supports(case: Case, device: str) -> str | None:
        missing = [word for key, word in words.items() if key in case.params and key not in served]
        return f"it has no {' and no '.join(missing)}" if missing else None

    return supports


def expect(*parts: str) -> Callable[[Sequence[str]], str | None]:
    """PyTorch may take another path than the one that was asked for, and say nothing: the names of the kernels tell."""

    def launches(kernels: Sequence[str]) -> str | None:
        if not kernels or any(part in kernel.lower() for kernel in kernels for part in parts):
            return None  # without any, the profiler saw nothing: unknown, not wrong
        wanted = " or ".join(map(repr, parts))
        return f"none of the kernels it launched has {wanted} in its name, but: {', '.join(kernels)}"[:300]

    return launches
