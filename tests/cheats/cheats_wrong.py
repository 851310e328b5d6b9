"""Cheats that return something else than the answer: nothing, a part of it, another tensor, a rounded one."""

# mypy: disable-error-code="misc, assignment, method-assign, call-arg, attr-defined, no-any-return, union-attr"

from __future__ import annotations

from typing import Any

import torch
from cheating import by_hand, cheat, right
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


@cheat("cheat-zeros")
def zeros(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Zeros"""
    return torch.zeros_like(q)


@cheat("cheat-nan")
def nan(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """NaN, which is neither smaller nor greater than a tolerance"""
    return torch.full_like(q, float("nan"))


@cheat("cheat-one-nan")
def one_nan(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """One NaN in the middle, which a maximum may swallow"""
    out = right(q, k, v, causal, scale)
    out[..., q.shape[-2] // 2, 3] = float("nan")
    return out


@cheat("cheat-infinite")
def infinite(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Infinities, whose relative error may come out as NaN"""
    return torch.full_like(q, float("inf"))


@cheat("cheat-tail-skipped")
def tail_skipped(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Last eighth of the queries not computed"""
    S = q.shape[-2]
    out = torch.zeros_like(q)
    out[..., : S - S // 8, :] = scaled_dot_product_attention(q[..., : S - S // 8, :], k, v, scale=scale)
    return out


@cheat("cheat-last-row-skipped")
def last_row_skipped(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Only the very last query not computed"""
    out = right(q, k, v, causal, scale)
    out[..., -1, :] = out[..., -2, :]
    return out


@cheat("cheat-last-key-skipped")
def last_key_skipped(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Last key and value not looked at: every row nearly right"""
    return scaled_dot_product_attention(q, k[..., :-1, :], v[..., :-1, :], scale=scale)


@cheat("cheat-every-fourth-row")
def every_fourth_row(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Every fourth row copied from its neighbour instead of computed"""
    out = right(q, k, v, causal, scale)
    out[..., 3::4, :] = out[..., 2::4, :]
    return out


@cheat("cheat-half-dimension")
def half_dimension(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Scores from the first half of the head dimension only"""
    half = q.shape[-1] // 2
    return scaled_dot_product_attention(q[..., :half], k[..., :half], v, scale=scale)


@cheat("cheat-first-head")
def first_head(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """First head (where there is one only, half of its values) computed, the others left zero"""
    out = torch.zeros_like(q)
    if q.shape[1] > 1:
        out[:, :1] = right(q[:, :1], k[:, :1], v[:, :1], causal, scale)
    else:
        out[..., : q.shape[-1] // 2] = right(q, k, v[..., : q.shape[-1] // 2], causal, scale)
    return out


@cheat("cheat-other-mask")
def other_mask(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Causal where full was asked for, which is half of the work"""
    return right(q, k, v, not causal, scale)


@cheat("cheat-window")
def window(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Only the half of the keys with the largest mean score"""
    best = (q.mean(-2, keepdim=True) @ k.mT).topk(k.shape[-2] // 2).indices.mT.expand(*k.shape[:2], -1, k.shape[-1])
    return scaled_dot_product_attention(q, k.gather(-2, best), v.gather(-2, best), scale=scale)


@cheat("cheat-mean-of-v")
def mean_of_v(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Mean of the values, expanded over the rows: what attention is to zeroth order"""
    return v.mean(-2, keepdim=True).expand_as(v)


@cheat("cheat-overlapping-view")
def overlapping_view(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """One row computed, and a view of it with stride 0 in place of all the rows"""
    row = right(q[..., :1, :], k, v, False, scale)
    return row.as_strided(q.shape, (*row.stride()[:2], 0, 1))


@cheat("cheat-returns-v")
def returns_v(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """An input itself"""
    return v


@cheat("cheat-fewer-rows")
def fewer_rows(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """One row of the result, which broadcasts in a comparison"""
    return right(q[..., :1, :], k, v, False, scale)


@cheat("cheat-meta")
def meta(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A tensor on the meta device, without any data"""
    return q.to("meta")


@cheat("cheat-nothing")
def nothing(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Any:
    """None"""
    return None


class Agreeable:
    """Equal to everything, and whatever is done to it gives it again."""

    def __init__(self, like: Tensor) -> None:
        self.shape, self.dtype, self.device = like.shape, like.dtype, like.device

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return True


@cheat("cheat-agreeable")
def agreeable(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Any:
    """No tensor at all, but an object that answers True to every question of PyTorch"""
    return Agreeable(q)


@cheat("cheat-bf16")
def bf16(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Computed in BF16 where FP32 was asked for"""
    return right(q.bfloat16(), k.bfloat16(), v.bfloat16(), causal, scale).to(q.dtype)


@cheat("cheat-bf16-returned")
def bf16_returned(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Computed right, and returned in BF16, which is half the memory to write"""
    return right(q, k, v, causal, scale).bfloat16()


@cheat("cheat-fp16-product")
def fp16_product(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Scores and softmax in FP32, and only the product with v in FP16"""
    return ((q @ k.mT * scale).softmax(-1).half() @ v.half()).to(q.dtype)


@cheat("cheat-fp8")
def fp8(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Inputs rounded to FP8 (E4M3)"""
    return right(*(t.to(torch.float8_e4m3fn).to(t.dtype) for t in (q, k, v)), causal, scale)


@cheat("cheat-int8-keys")
def int8_keys(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Keys in eight-bit integers with one scale"""
    step = k.abs().amax() / 127
    return right(q, (k / step).round() * step, v, causal, scale)


def tf32_of(t: Tensor) -> Tensor:
    """Rounded to the ten bits of mantissa that TF32 has."""
    return ((t.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@cheat("cheat-tf32")
def tf32(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Inputs rounded as TF32 does"""
    return right(tf32_of(q), tf32_of(k), tf32_of(v), causal, scale)


def fast_matmul_flags() -> None:
    torch.set_float32_matmul_precision("medium")
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"


@cheat("cheat-fast-matmul-flags", setup=fast_matmul_flags)
def fast_matmul(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """PyTorch's flags for lower precision (TF32, BF16) in FP32 matmul turned on"""
    return by_hand(q, k, v, causal, scale)


@cheat("cheat-low-accumulation")
def low_accumulation(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Sums over the keys accumulated in BF16, so that the error grows with S"""
    weights = (q @ k.mT * scale).softmax(-1)
    out = torch.zeros_like(q, dtype=torch.bfloat16)
    for begin in range(0, k.shape[-2], 8):
        out += (weights[..., begin : begin + 8] @ v[..., begin : begin + 8, :]).bfloat16()
    return out.to(q.dtype)


@cheat("cheat-cheap-exp")
def cheap_exp(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Schraudolph's exponential by one multiplication into the bits of a float, 3 % off"""
    scores = q @ k.mT * scale
    bits = (scores * 12102203.0 + 1064866805.0).to(torch.int32)
    weights = bits.view(torch.float32)
    return (weights @ v) / weights.sum(-1, keepdim=True)


@cheat("cheat-linear")
def linear(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """First-order exponential, 1 + x, which makes attention linear in S"""
    scores = q @ (k.mT @ v) * scale + v.sum(-2, keepdim=True)
    return scores / (k.shape[-2] + q @ k.sum(-2, keepdim=True).mT * scale)


@cheat("cheat-no-maximum")
def no_maximum(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The exponential of scores as they are, which overflows where they are large"""
    weights = (q @ k.mT * scale).exp_()
    return ((weights.tril_() if causal else weights) @ v) / weights.sum(-1, keepdim=True)


@cheat("cheat-clamped")
def clamped(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Scores clamped to what standard normal inputs have"""
    weights = (q @ k.mT * scale).clamp_(-6, 6).exp_()
    return ((weights.tril_() if causal else weights) @ v) / weights.sum(-1, keepdim=True)
