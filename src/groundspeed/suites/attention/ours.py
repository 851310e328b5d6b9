"""Our own kernels as contenders of attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groundspeed.case import TORCH_DTYPES, Case, Contender
from groundspeed.kernels.attention import reference
from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.suites.attention.forms import without_forms
from groundspeed.suites.attention.shapes import shape_of
from groundspeed.suites.available import (
    expect,
    reasons,
    sixteen_bit_on_gpu,
    triton_version,
    without_hopper,
    without_triton,
)

if TYPE_CHECKING:
    from torch import Tensor

_CALLED = ("form", "able", "api", "varlen", "../calls", "../launch", "../recall")
_HOPPER = (
    *(f"hopper/{part}" for part in ("schedule", "loaders", "consumer", "choice", "balance", "launch", "listing")),
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
            tuning="tiles from a table, chosen earlier on an H200 for the shapes of the sweep; no tuning at run time",
            source=_kernel_source("triton"),
            parts=tuple(map(_kernel_source, ("scores", "split", "decode", "relay", "few", *_CALLED))),
            launches=expect("attention_forward_kernel", "attention_decode_kernel", "attention_relay_kernel"),
            compiles=_compile_portable,
        ),
        runs(
            "ours-hopper",
            "groundspeed's kernel for Hopper, in Gluon",
            _ours("hopper"),
            absent=without_hopper,
            supports=reasons(sixteen_bit_on_gpu, without_forms("V", "W", "cap", "sinks"), _without_wide_values),
            tuning="tiles and loops from a table; no tuning at run time",
            source=_kernel_source("hopper/kernel"),
            parts=tuple(map(_kernel_source, (*_HOPPER, *_CALLED))),
            launches=expect("attention_forward_hopper"),
            compiles=_compile_hopper,
        ),
    ]


def _without_wide_values(case: Case, device: str) -> str | None:
    wide = int(case.params.get("V", 0)) > int(case.params["D"])
    return "only values whose dimension is at most that of the keys" if wide else None


def _ours(impl: str) -> Callable[[Case], Callable[..., Any]]:
    def build(case: Case) -> Callable[..., Any]:
        from groundspeed.kernels.attention.api import attention

        if "lengths" in case.params:
            return _packed(impl)
        if "sinks" not in case.params:
            return partial(attention, impl=impl)

        def call(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, **asked: Any) -> Tensor:
            return attention(q, k, v, sinks=sinks, impl=impl, **asked)

        return call

    return build


def _packed(impl: str) -> Callable[..., Any]:
    from groundspeed.kernels.attention.varlen import attention_varlen

    def call(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor, max_seqlen: int, **asked: Any) -> Any:
        *sinks, cu = rest
        given = {"sinks": sinks[0]} if sinks else {}
        return attention_varlen(q, k, v, cu, cu, max_seqlen, max_seqlen, impl=impl, **given, **asked)

    return call


def _compile_portable(case: Case, capability: tuple[int, int]) -> None:
    from groundspeed.kernels.attention import few, split, triton

    q, k, v, *sinks = _without_memory(case)
    if "lengths" in case.params:
        wider, longest = max(q.shape[2], v.shape[2]), case.arguments["max_seqlen"]
        launch = triton.Launch.choose(longest, wider, q.dtype, capability, packed=True)
        _compile_packed(partial(triton.packed_forward, launch=launch), case)
        return
    gpu = split.GPU.of(capability, multiprocessors=132)
    if _form(case) in PLAIN.values() and (splits := few.kernel(q, k, v, gpu)):
        splits.prepared(q, k, v, case.arguments["causal"], gpu=gpu)(q, k, v, case.arguments["scale"])
        return
    launch = triton.Launch.choose(q.shape[2], max(q.shape[3], v.shape[3]), q.dtype, capability)
    triton.forward(q, k, v, **case.arguments, sinks=sinks[0] if sinks else None, launch=launch, with_lse=False)


def _compile_hopper(case: Case, capability: tuple[int, int]) -> None:
    from groundspeed.kernels.attention.hopper.launch import forward, packed_forward

    if "lengths" in case.params:
        _compile_packed(packed_forward, case)
        return
    q, k, v, *sinks = _without_memory(case)
    forward(q, k, v, form=_form(case), scale=case.arguments["scale"], sinks=sinks[0] if sinks else None, with_lse=False)


def _compile_packed(packed_forward: Callable[..., Any], case: Case) -> None:
    import torch

    q, k, v, *sinks = _without_memory(case)
    cu = torch.empty(len(shape_of(case.params).lengths) + 1, dtype=torch.int32, device="meta")
    scale, longest = case.arguments["scale"], case.arguments["max_seqlen"]
    packed_forward(q, k, v, cu, cu, longest, form=_form(case), scale=scale, sinks=sinks[0] if sinks else None)


def _form(case: Case) -> Form:
    asked = {key: value for key, value in case.arguments.items() if key not in ("scale", "max_seqlen")}
    return Form.of(**asked, sinks=case.params.get("sinks"))


def _without_memory(case: Case) -> list[Tensor]:
    import torch

    shape, dtype = shape_of(case.params), getattr(torch, TORCH_DTYPES[str(case.params["dtype"])])
    shapes = [shape.query, shape.key, shape.value, *([(shape.H,)] if shape.sinks else [])]
    return [torch.empty(size, dtype=dtype, device="meta") for size in shapes]


def _kernel_source(module: str) -> str:
    return str((Path(reference.__file__).parent / f"{module}.py").resolve())
