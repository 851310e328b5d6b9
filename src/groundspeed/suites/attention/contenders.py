"""The contenders of attention: PyTorch's own, and every rival by name, with the reason if one cannot run here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from groundspeed.case import Case, Contender
from groundspeed.suites.attention import pytorch, pytorch_packed
from groundspeed.suites.attention.forms import (
    without_empty_rows,
    without_forms,
    without_groups,
    without_nested_groups,
    without_nested_on_cpu,
)
from groundspeed.suites.attention.ours import ours
from groundspeed.suites.attention.pytorch import forcing
from groundspeed.suites.attention.rivals import RIVALS
from groundspeed.suites.attention.shapes import shape_of
from groundspeed.suites.available import (
    expect,
    joined,
    reasons,
    sixteen_bit_on_gpu,
    torch_version,
    without_compiler,
    without_gpu,
    without_torch,
)

Build = Callable[[Case], Callable[..., Any]]
_QUICK = ("sdpa-math", "sdpa-flash")
_SHIPPED = "as its library ships it"
_COMPILED = (
    "torch.compile for this shape alone, in default mode; its first call tries a few configurations of some kernels"
)


def contenders() -> list[Contender]:
    runs = partial(Contender, "attention", version=torch_version, absent=without_torch, tuning=_SHIPPED)
    on_gpu = partial(runs, absent=without_gpu)
    compiles = partial(runs, absent=without_compiler, tuning=_COMPILED, tries=True)
    sdpa = _either(pytorch.sdpa, pytorch_packed.nested_sdpa)
    biased = partial(pytorch.sdpa, biased=True)
    return [
        runs(
            "sdpa-math",
            "PyTorch SDPA, math backend",
            _either(biased, pytorch_packed.sdpa_in_turn),
            around=forcing("MATH"),
            supports=reasons(without_forms("V"), without_empty_rows),
        ),
        runs(
            "sdpa-flash",
            "PyTorch SDPA, flash backend (FlashAttention 2)",
            sdpa,
            around=forcing("FLASH_ATTENTION"),
            supports=reasons(
                without_forms(), sixteen_bit_on_gpu, without_empty_rows, without_nested_on_cpu, without_nested_groups
            ),
            launches=expect("flash"),
        ),
        on_gpu(
            "sdpa-mem-efficient",
            "PyTorch SDPA, memory-efficient backend (the xFormers/CUTLASS kernel)",
            sdpa,
            around=forcing("EFFICIENT_ATTENTION"),
            supports=reasons(without_forms("V"), without_groups, without_empty_rows),
            launches=expect("fmha"),
        ),
        on_gpu(
            "sdpa-cudnn",
            "PyTorch SDPA, cuDNN backend",
            _either(biased, pytorch_packed.nested_sdpa),
            around=forcing("CUDNN_ATTENTION"),
            tuning="cuDNN's own heuristic, queried in the first call",
            supports=reasons(without_forms("V"), sixteen_bit_on_gpu, without_empty_rows, without_nested_groups),
            launches=expect("cudnn"),
        ),
        runs(
            "naive",
            "matmul, softmax, matmul in eager PyTorch",
            _either(lambda case: pytorch.naive, pytorch_packed.naive),
            supports=reasons(without_forms("V"), without_empty_rows),
        ),
        compiles(
            "naive-compiled",
            "the same under torch.compile",
            _either(pytorch.compiled_naive, pytorch_packed.compiled_naive),
            supports=reasons(without_forms("V"), without_empty_rows),
        ),
        compiles(
            "flex",
            "FlexAttention under torch.compile",
            _either(pytorch.flex, pytorch_packed.flex),
            supports=without_forms("V", "W", "cap"),
            launches=expect("flex_attention"),
        ),
        *(_rival(name, description) for name, description in _RIVALS.items()),
        _unwritten(
            "cutlass",
            "CUTLASS (CuTe) attention",
            "CUTLASS has attention only as an example to compile, in no package; flash-attn-4 is written in its CuTe",
        ),
        *ours(),
    ]


def _either(dense: Build, packed: Build) -> Build:
    return lambda case: (packed if "lengths" in case.params else dense)(case)


_RIVALS = {
    "xformers": "xFormers memory_efficient_attention",
    "flash-attn-2": "FlashAttention 2",
    "flash-attn-3": "FlashAttention 3",
    "flash-attn-4": "FlashAttention in CUTLASS's CuTe DSL",
}
_PLAIN = ("naive", "naive-compiled")
"""Contenders that no preset measures on a GPU: O(S²) memory and minutes of compiling. `--only` still measures them."""


COMPILED_BY = ("D", "V", "causal", "dtype")


def preset_contenders(preset: str, device: str) -> tuple[str, ...] | None:
    """Return the contenders that a preset measures; None for all."""
    if device == "cpu":
        return _QUICK if preset == "quick" else None
    left_out = (*_PLAIN, "flex") if preset == "quick" else _PLAIN
    return tuple(c.name for c in contenders() if c.name not in left_out)


def preset_skips(preset: str, cases: Mapping[str, Case], baseline: str) -> dict[tuple[str, str], str]:
    """Return (case, contender) → reason for what `standard` leaves out because it would take most of the time."""
    if preset != "standard":
        return {}
    skips: dict[tuple[str, str], str] = {}
    compiled: dict[tuple[object, ...], tuple[object, ...]] = {}
    for name, case in cases.items():
        keys = COMPILED_BY, (*"BHSGN", "lengths")
        kind, shape = (tuple(case.params.get(key) for key in some) for some in keys)
        kind += ("lengths" in case.params,)  # which has another mask
        if compiled.setdefault(kind, shape) != shape and baseline != "flex":
            skips[name, "flex"] = "preset standard compiles it for one shape per D and mask"
        longest = max(shape_of(case.params).lengths, default=int(case.params.get("S", 0)))
        if longest > 1024 and baseline != "sdpa-math":
            skips[name, "sdpa-math"] = "preset standard leaves it out above S = 1024"
        if "lengths" in case.params and baseline != "sdpa-cudnn":
            skips[name, "sdpa-cudnn"] = "preset standard leaves it out: its nested tensors take 50 ms per call"
    return skips


def _rival(name: str, description: str) -> Contender:
    rival = RIVALS[name]

    def absent(device: str) -> str | None:
        return joined(without_gpu(device), rival.missing())

    return Contender(
        "attention",
        name,
        description,
        rival.build,
        absent=absent,
        supports=rival.supports,
        version=rival.version,
        tuning=_SHIPPED,
    )


def _unwritten(name: str, description: str, why: str) -> Contender:
    def build(case: Case) -> Callable[..., Any]:
        raise RuntimeError(why)

    return Contender("attention", name, description, build, absent=lambda device: joined(without_gpu(device), why))
