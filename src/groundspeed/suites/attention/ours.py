"""Our own kernels as contenders of attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case, Contender
from groundspeed.kernels.attention import reference
from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.suites.attention.available import (
    expect,
    reasons,
    sixteen_bit_on_gpu,
    triton_version,
    without_forms,
    without_hopper,
    without_triton,
)
from groundspeed.suites.inputs import TORCH_DTYPES

if TYPE_CHECKING:
    from torch import Tensor

_CALLED = ("form", "able", "api", "../launch", "../recall")
_HOPPER = (
    *(f"hopper/{part}" for part in ("schedule", "loaders", "consumer", "choice", "launch", "listing")),
    "../hopper",
)


def ours() -> list[Contender]:
    runs = partial(Contender, "attention", version=triton_version)
    return [
        runs(
            "ours-portable",
            "groundspeed's kernels in portable Triton",
            _ours("triton"),
            absent=without_triton,
            tuning="tiles from a table, chosen beforehand on an H200 over the shapes of the sweep; calls try nothing",
            source=_kernel_source("triton"),
            parts=tuple(map(_kernel_source, ("decode", *_CALLED))),
            launches=expect("attention_forward_kernel", "attention_decode_kernel"),
            compiles=_compile_portable,
        ),
        runs(
            "ours-hopper",
            "groundspeed's kernel for Hopper, in Gluon",
            _ours("hopper"),
            absent=without_hopper,
            supports=reasons(sixteen_bit_on_gpu, without_forms("W", "cap", "sinks")),
            tuning="tiles and loops from a table; calls try nothing",
            source=_kernel_source("hopper/kernel"),
            parts=tuple(map(_kernel_source, (*_HOPPER, *_CALLED))),
            launches=expect("attention_forward_hopper"),
            compiles=_compile_hopper,
        ),
    ]


def _ours(impl: str) -> Callable[[Case], Callable[..., Any]]:
    def build(case: Case) -> Callable[..., Any]:
        from groundspeed.kernels.attention.api import attention

        if "sinks" not in case.params:
            return partial(attention, impl=impl)

        def call(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, **asked: Any) -> Tensor:
            return attention(q, k, v, sinks=sinks, impl=impl, **asked)

        return call

    return build


def _compile_portable(case: Case, capability: tuple[int, int]) -> None:
    from groundspeed.kernels.attention import decode, triton

    q, k, v, *sinks = _without_memory(case)
    if _form(case) in PLAIN.values() and decode.suits(q, k, v):
        gpu = decode.GPU.of(capability, multiprocessors=132)
        decode.prepared(q, k, v, case.arguments["causal"], gpu=gpu)(q, k, v, case.arguments["scale"])
        return
    launch = triton.Launch.choose(q.shape[2], max(q.shape[3], v.shape[3]), q.dtype, capability)
    triton.forward(q, k, v, **case.arguments, sinks=sinks[0] if sinks else None, launch=launch, with_lse=False)


def _compile_hopper(case: Case, capability: tuple[int, int]) -> None:
    from groundspeed.kernels.attention.hopper.launch import forward

    q, k, v, *sinks = _without_memory(case)
    forward(q, k, v, form=_form(case), scale=case.arguments["scale"], sinks=sinks[0] if sinks else None, with_lse=False)


def _form(case: Case) -> Form:
    asked = {key: value for key, value in case.arguments.items() if key != "scale"}
    return Form.of(**asked, sinks=case.params.get("sinks"))


def _without_memory(case: Case) -> list[Tensor]:
    import torch

    B, H, S, D = (int(case.params[key]) for key in "BHSD")
    key = B, int(case.params.get("G", H)), int(case.params.get("N", S)), D
    value = *key[:3], int(case.params.get("V", D))
    dtype = getattr(torch, TORCH_DTYPES[str(case.params["dtype"])])
    shapes = [(B, H, S, D), key, value, *([(H,)] if "sinks" in case.params else [])]
    return [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]


def _kernel_source(module: str) -> str:
    return str((Path(reference.__file__).parent / f"{module}.py").resolve())
