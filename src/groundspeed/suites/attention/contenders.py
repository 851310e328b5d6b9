"""The contenders of attention: PyTorch's own, and every rival by name, with the reason where one cannot run here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case, Contender
from groundspeed.suites.attention.available import (
    expect,
    reasons,
    sixteen_bit_on_gpu,
    torch_version,
    without_compiler,
    without_empty_rows,
    without_forms,
    without_gpu,
    without_groups,
    without_torch,
)
from groundspeed.suites.attention.ours import ours
from groundspeed.suites.attention.rivals import RIVALS

if TYPE_CHECKING:
    from torch import Tensor

_QUICK = ("sdpa-math", "sdpa-flash")
_SHIPPED = "as its library ships it"
_COMPILED = (
    "torch.compile for the one shape, in its default mode: its first call tries a few configurations of some kernels"
)


def contenders() -> list[Contender]:
    runs = partial(Contender, "attention", version=torch_version, absent=without_torch, tuning=_SHIPPED)
    on_gpu = partial(runs, absent=without_gpu)
    compiles = partial(runs, absent=without_compiler, tuning=_COMPILED, tries=True)
    return [
        runs(
            "sdpa-math",
            "PyTorch SDPA, math backend",
            _sdpa,
            around=_forcing("MATH"),
            supports=reasons(without_forms("V"), without_empty_rows),
        ),
        runs(
            "sdpa-flash",
            "PyTorch SDPA, flash backend (FlashAttention 2)",
            _sdpa,
            around=_forcing("FLASH_ATTENTION"),
            supports=reasons(without_forms(), sixteen_bit_on_gpu, without_empty_rows),
            launches=expect("flash"),
        ),
        on_gpu(
            "sdpa-mem-efficient",
            "PyTorch SDPA, memory-efficient backend (the xFormers/CUTLASS kernel)",
            _sdpa,
            around=_forcing("EFFICIENT_ATTENTION"),
            supports=reasons(without_forms("V"), without_groups, without_empty_rows),
            launches=expect("fmha"),
        ),
        on_gpu(
            "sdpa-cudnn",
            "PyTorch SDPA, cuDNN backend",
            _sdpa,
            around=_forcing("CUDNN_ATTENTION"),
            tuning="cuDNN's own heuristic, asked in the first call",
            supports=reasons(without_forms("V"), sixteen_bit_on_gpu, without_empty_rows),
            launches=expect("cudnn"),
        ),
        runs(
            "naive",
            "matmul, softmax, matmul in eager PyTorch",
            lambda case: naive,
            supports=reasons(without_forms("V"), without_empty_rows),
        ),
        compiles(
            "naive-compiled",
            "the same under torch.compile",
            _compiled_naive,
            supports=reasons(without_forms("V"), without_empty_rows),
        ),
        compiles(
            "flex",
            "FlexAttention under torch.compile",
            _flex,
            supports=without_forms("V", "W", "cap"),
            launches=expect("flex_attention"),
        ),
        *(_rival(name, description) for name, description in _RIVALS.items()),
        _unwritten(
            "cutlass", "CUTLASS (CuTe) attention", "its attention is an example to build, flash-attn-4 is CuTe's"
        ),
        *ours(),
    ]


_RIVALS = {
    "xformers": "xFormers memory_efficient_attention",
    "flash-attn-2": "FlashAttention 2",
    "flash-attn-3": "FlashAttention 3",
    "flash-attn-4": "FlashAttention in CUTLASS's CuTe DSL",
}
_PLAIN = ("naive", "naive-compiled")
"""What a GPU is not bought for: O(S²) memory, and minutes of compiling. `--only` measures them all the same."""


COMPILED_BY = ("D", "V", "causal", "dtype")


def preset_contenders(preset: str, device: str) -> tuple[str, ...] | None:
    """The contenders that a preset measures; None for all."""
    if device == "cpu":
        return _QUICK if preset == "quick" else None
    left_out = (*_PLAIN, "flex") if preset == "quick" else _PLAIN
    return tuple(c.name for c in contenders() if c.name not in left_out)


def preset_skips(preset: str, cases: Mapping[str, Case], baseline: str) -> dict[tuple[str, str], str]:
    """(case, contender) that `standard` leaves out, with the reason: they would take most of its time."""
    if preset != "standard":
        return {}
    skips: dict[tuple[str, str], str] = {}
    compiled: dict[tuple[object, ...], tuple[object, ...]] = {}
    for name, case in cases.items():
        kind, shape = (tuple(case.params.get(key) for key in keys) for keys in (COMPILED_BY, "BHSGN"))
        if compiled.setdefault(kind, shape) != shape and baseline != "flex":
            skips[name, "flex"] = "preset standard compiles it for one shape per D and mask"
        if int(case.params["S"]) > 1024 and baseline != "sdpa-math":
            skips[name, "sdpa-math"] = "preset standard leaves it out above S = 1024"
    return skips


def naive(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    import torch

    if q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-2, -1) * scale
    if causal:
        after = 1 + k.shape[2] - q.shape[2]
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(after)
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(dim=-1) @ v


def _sdpa(case: Case) -> Callable[..., Any]:
    """Its own causal mask is aligned top-left: where there are more keys than queries it takes one that is not."""
    from torch.nn.functional import scaled_dot_product_attention

    queries, keys, grouped = int(case.params["S"]), int(case.params.get("N", case.params["S"])), "G" in case.params
    if keys == queries and not grouped:

        def call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
            return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

        return call
    from torch.nn.attention.bias import causal_lower_right  # which imports much

    mask = causal_lower_right(queries, keys) if case.params["causal"] and keys != queries and queries > 1 else None
    plain = bool(case.params["causal"]) and keys == queries

    def masked(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=plain, scale=scale, enable_gqa=grouped)

    return masked


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
    import torch
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

    compiled = _compile(flex_attention)
    S, N = int(case.params["S"]), int(case.params.get("N", case.params["S"]))
    grouped = {"enable_gqa": True} if "G" in case.params else {}
    masks: list[Any] = []

    left, right = case.arguments.get("window_size", (N, 0 if case.params["causal"] else S))
    bounded = bool(case.params["causal"]) or "W" in case.params
    cap = case.arguments.get("softcap", 0.0)
    capped = {"score_mod": lambda score, b, h, i, j: cap * torch.tanh(score / cap)} if cap else {}

    def call(q: Tensor, k: Tensor, v: Tensor, *, scale: float, **_: Any) -> Tensor:
        if masks:
            pass
        elif bounded:  # in the first call, which is never timed
            masks.append(create_block_mask(seen, None, None, S, N, device=q.device.type))
        else:  # one block of everything, as each call without a mask would make it anew, in small kernels of its own
            one = torch.ones(1, 1, 1, dtype=torch.int32, device=q.device)
            whole = BlockMask.from_kv_blocks(one, one[None] - 1, BLOCK_SIZE=1 << 30, seq_lengths=(S, N))
            masks.append(whole)
        return compiled(q, k, v, block_mask=masks[0], scale=scale, **grouped, **capped)

    def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
        place = i + N - S
        before = place - j <= left
        return (place + right >= j) & before if "W" in case.params else place + right >= j

    return call


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile for one fixed shape. At its recompile limit Dynamo would run the eager code and say nothing: here
    every case is a recompilation, so the limit is lifted and hitting it is an error."""
    import torch
    import torch._inductor.compile_fx  # as the first call would

    torch._dynamo.config.recompile_limit = 10_000
    torch._dynamo.config.accumulated_recompile_limit = 100_000
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False, fullgraph=True)
    return compiled


def _rival(name: str, description: str) -> Contender:
    rival = RIVALS[name]

    def absent(device: str) -> str | None:
        reasons = [why for why in (without_gpu(device), rival.missing()) if why]
        return "; ".join(reasons) or None

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

    return Contender("attention", name, description, build, absent=lambda device: why)
