"""The contenders of attention: PyTorch's own, and every rival by name, with the reason where one cannot run here."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case, Contender

if TYPE_CHECKING:
    from torch import Tensor

_QUICK = ("sdpa-math", "sdpa-flash")


def contenders() -> list[Contender]:
    runs = partial(Contender, "attention", version=_torch_version, absent=_without_torch)
    compiles = partial(runs, absent=_without_compiler)
    return [
        runs("sdpa-math", "PyTorch SDPA, math backend", _sdpa, around=_forcing("MATH")),
        runs("sdpa-flash", "PyTorch SDPA, flash backend", _sdpa, around=_forcing("FLASH_ATTENTION")),
        _on_cuda("sdpa-mem-efficient", "PyTorch SDPA, memory-efficient backend (the xFormers/CUTLASS kernel)"),
        _on_cuda("sdpa-cudnn", "PyTorch SDPA, cuDNN backend"),
        runs("naive", "matmul, softmax, matmul in eager PyTorch", lambda case: naive),
        compiles("naive-compiled", "the same under torch.compile", _compiled_naive),
        compiles("flex", "FlexAttention under torch.compile", _flex),
        _on_cuda("xformers", "xFormers memory_efficient_attention", "xformers"),
        _on_cuda("flash-attn-2", "FlashAttention 2", "flash_attn"),
        _on_cuda("flash-attn-3", "FlashAttention 3", "flash_attn_interface"),
        _on_cuda("flash-attn-4", "FlashAttention 4, in CUTLASS's CuTe DSL", "flash_attn.cute"),
        _on_cuda("cutlass", "CUTLASS (CuTe) attention", "cutlass"),
        _on_cuda("ours-portable", "groundspeed's kernel in portable Triton"),
        _on_cuda("ours-hopper", "groundspeed's kernel for Hopper", unwritten=True),
    ]


def preset_contenders(preset: str, device: str) -> tuple[str, ...] | None:
    """The contenders that a preset measures; None for all."""
    return _QUICK if preset == "quick" and device == "cpu" else None


def preset_skips(preset: str, cases: Mapping[str, Case], baseline: str) -> dict[tuple[str, str], str]:
    """(case, contender) that `standard` leaves out, with the reason: they would take most of its time."""
    if preset != "standard":
        return {}
    skips: dict[tuple[str, str], str] = {}
    seen: set[tuple[object, ...]] = set()
    for name, case in cases.items():
        kind = tuple(case.params[key] for key in ("D", "causal", "dtype"))
        if kind in seen and baseline != "flex":
            skips[name, "flex"] = "preset standard compiles it for one shape per D and mask"
        seen.add(kind)
        if int(case.params["S"]) > 1024 and baseline != "sdpa-math":
            skips[name, "sdpa-math"] = "preset standard leaves it out above S = 1024"
    return skips


def naive(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    import torch

    scores = q @ k.transpose(-2, -1) * scale
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(dim=-1) @ v


def _sdpa(case: Case) -> Callable[..., Any]:
    from torch.nn.functional import scaled_dot_product_attention

    def call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

    return call


def _forcing(backend: str) -> Callable[[], AbstractContextManager[Any]]:
    """PyTorch raises where the forced backend cannot serve; it never takes another one."""

    def around() -> AbstractContextManager[Any]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        forced: AbstractContextManager[Any] = sdpa_kernel([getattr(SDPBackend, backend)])
        return forced

    return around


def _compiled_naive(case: Case) -> Callable[..., Any]:
    return _compile(naive)


def _flex(case: Case) -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = _compile(flex_attention)
    S = case.params["S"]
    masks: dict[str, Any] = {}

    def call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
        if causal and "causal" not in masks:  # in the first call, which is never timed
            masks["causal"] = create_block_mask(lambda b, h, i, j: i >= j, None, None, S, S, device=q.device.type)
        return compiled(q, k, v, block_mask=masks.get("causal"), scale=scale)

    return call


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile for one fixed shape. At its recompile limit Dynamo would run the eager code and say nothing: here
    every case is a recompilation, so the limit is lifted and hitting it is an error."""
    import torch

    torch._dynamo.config.recompile_limit = 10_000
    torch._dynamo.config.accumulated_recompile_limit = 100_000
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False, fullgraph=True)
    return compiled


def _on_cuda(name: str, description: str, package: str | None = None, *, unwritten: bool = False) -> Contender:
    """A contender for NVIDIA GPUs. `build` is not reached where `absent` gives a reason, as it does on a CPU."""

    def absent(device: str) -> str | None:
        if unwritten:
            return "not written yet in this version"
        missing = f"; {package} is not installed" if package and not _installed(package) else ""
        return f"needs an NVIDIA GPU{missing}" if device == "cpu" else "this version measures on CPUs only"

    def build(case: Case) -> Callable[..., Any]:
        raise RuntimeError(absent(str(case.params.get("device", "cpu"))))

    return Contender("attention", name, description, build, absent=absent)


def _without_torch(device: str) -> str | None:
    if device != "cpu":
        return "this version measures on CPUs only"
    return None if _installed("torch") else "torch is not installed: pip install 'groundspeed[torch]'"


def _without_compiler(device: str) -> str | None:
    if reason := _without_torch(device):
        return reason
    if any(map(shutil.which, ("g++", "clang++", "c++"))):
        return None
    return "torch.compile needs a C++ compiler, and neither g++ nor clang++ is on the PATH"


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _torch_version() -> str:
    import importlib.metadata

    return f"torch {importlib.metadata.version('torch')}"
