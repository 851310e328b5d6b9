"""The rival libraries of attention: how each is found, called, and named in a record.

They are called as a user would call them, through the function that they document. Their layout is [B, S, H, D], ours
is [B, H, S, D]: `transpose` makes views both ways without copying, because each library only requires the last
dimension to be contiguous. Making the views is part of the timed call. If a library itself copies, that is part of its
time: FlashAttention 2 pads head dimensions that are not multiples of 8. Packed sequences are [total, H, D] for all.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from groundspeed.case import Case
from groundspeed.suites.attention.forms import without_forms, without_groups
from groundspeed.suites.attention.shapes import shape_of
from groundspeed.suites.rival import Rival

if TYPE_CHECKING:
    from torch import Tensor

_FLASH_3 = "flash_attn_interface"
FEW_QUERIES = 64
"""Up to so many, FlashAttention 3 is asked to split the keys as it sees fit (`num_splits=0`). Its function for decoding
does so by default, the one that is called here does not; those of FlashAttention 2 and 4 decide by themselves."""
_FLASH_2_KERNELS = "flash_attn_2_cuda"
"""FlashAttention 2's compiled module. The name of its package proves nothing: FlashAttention 4 also lives in a folder
`flash_attn`, which without FlashAttention 2 is an empty package."""


def _xformers(case: Case) -> Callable[..., Tensor]:
    with nullcontext() if importlib.util.find_spec(_FLASH_2_KERNELS) else _hidden("flash_attn"):
        from xformers.ops import LowerTriangularMask, memory_efficient_attention
    if "lengths" in case.params:
        return _xformers_packed(case, memory_efficient_attention)
    mask = LowerTriangularMask()

    def call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        out: Tensor = memory_efficient_attention(q, k, v, attn_bias=mask if causal else None, scale=scale)
        return out.transpose(1, 2)

    return call


def _xformers_packed(case: Case, memory_efficient_attention: Callable[..., Tensor]) -> Callable[..., Tensor]:
    from xformers.ops.fmha.attn_bias import BlockDiagonalMask

    lengths = shape_of(case.params).lengths
    masks: list[Any] = []

    def call(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, *, causal: bool, scale: float, **_: Any) -> Tensor:
        if not masks:  # in the first call, which is never timed
            whole = BlockDiagonalMask.from_seqlens(lengths, device=q.device)
            masks.append(whole.make_causal() if causal else whole)
        return memory_efficient_attention(q[None], k[None], v[None], attn_bias=masks[0], scale=scale)[0]

    return call


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Import as if `package` were not installed. xFormers takes any `flash_attn` for FlashAttention 2, and its import
    fails if it is FlashAttention 4; without any it calls PyTorch's kernels."""
    modules = cast(dict[str, Any], sys.modules)
    absent = object()
    before = modules.get(package, absent)
    modules[package] = None
    try:
        yield
    finally:
        del modules[package]
        if before is not absent:
            modules[package] = before


def _flash(module: str, case: Case) -> Callable[..., Tensor]:
    library = importlib.import_module(module)
    if "lengths" in case.params:
        return _flash_packed(library.flash_attn_varlen_func)
    flash_attn_func = library.flash_attn_func
    asked = module == _FLASH_3 and int(case.params["S"]) <= FEW_QUERIES
    splits = {"num_splits": 0} if asked and "num_splits" in inspect.signature(flash_attn_func).parameters else {}

    def call(q: Tensor, k: Tensor, v: Tensor, *sinks: Tensor, causal: bool, scale: float, **form: Any) -> Tensor:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if sinks:
            form = {**form, "learnable_sink": sinks[0]}
        return _alone(flash_attn_func(q, k, v, softmax_scale=scale, causal=causal, **splits, **form)).transpose(1, 2)

    return call


def _flash_packed(flash_attn_varlen_func: Callable[..., Any]) -> Callable[..., Tensor]:
    """Call by keyword: the libraries differ in the arguments after v."""

    def call(
        q: Tensor, k: Tensor, v: Tensor, *rest: Tensor, causal: bool, scale: float, max_seqlen: int, **form: Any
    ) -> Tensor:
        *sinks, cu = rest
        if sinks:
            form = {**form, "learnable_sink": sinks[0]}
        out = flash_attn_varlen_func(
            q,
            k,
            v,
            cu_seqlens_q=cu,
            cu_seqlens_k=cu,
            max_seqlen_q=max_seqlen,
            max_seqlen_k=max_seqlen,
            softmax_scale=scale,
            causal=causal,
            **form,
        )
        return _alone(out)

    return call


def _alone(out: Any) -> Tensor:
    """Return the output without the log-sum-exp, which FlashAttention 4 and the first versions of 3 always return."""
    return cast("Tensor", out[0] if isinstance(out, tuple) else out)


def _xformers_supports(case: Case, device: str) -> str | None:
    """FP32 and head dimensions over 256 go to its CUTLASS kernel, where rows must be multiples of 16 bytes, too."""
    if reason := without_forms()(case, device):
        return reason
    if "N" in case.params and case.params["causal"]:
        return "causal masks only with as many keys as queries"
    return without_groups(case, device) or _needs_multiple(case, 4 if case.params["dtype"] == "fp32" else 8)


def _flash_supports(case: Case, device: str, *, multiple: int, forms: tuple[str, ...] = ("W", "cap")) -> str | None:
    if reason := without_forms(*forms)(case, device):
        return reason
    if case.params["dtype"] == "fp32":
        return "FP16 and BF16 only"
    if int(case.params["D"]) > 256:
        return "head dimensions up to 256 only"
    return _needs_multiple(case, multiple)


def _needs_multiple(case: Case, multiple: int) -> str | None:
    return f"only head dimensions that are multiples of {multiple}" if int(case.params["D"]) % multiple else None


RIVALS = {
    rival.name: rival
    for rival in (
        Rival(
            "xformers",
            "xformers",
            "xformers",
            ("xformers", "flash-attn-3", "flash-attn", "torch"),
            _xformers,
            _xformers_supports,
        ),
        Rival(
            "flash-attn-2",
            "flash_attn",
            _FLASH_2_KERNELS,
            ("flash-attn", "torch"),
            partial(_flash, "flash_attn"),
            partial(_flash_supports, multiple=1),
        ),
        Rival(
            "flash-attn-3",
            "flash_attn_interface",
            "flash_attn_interface",
            ("flash-attn-3", "torch"),
            partial(_flash, _FLASH_3),
            partial(_flash_supports, multiple=8),
        ),
        Rival(
            "flash-attn-4",
            "flash_attn.cute",
            "flash_attn.cute",
            ("flash-attn-4", "nvidia-cutlass-dsl", "quack-kernels", "torch"),
            partial(_flash, "flash_attn.cute"),
            partial(_flash_supports, multiple=8, forms=("V", "W", "cap", "sinks")),
        ),
    )
}
