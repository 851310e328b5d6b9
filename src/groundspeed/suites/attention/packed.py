"""The cases of packed attention: sequences of different lengths, one after the other, each of which sees only itself.

q is [total, H, D], k and v are [total, G, D]. The int32 tensor `cu_seqlens` holds where each sequence begins and where
the last one ends; it is the last input and the same for every seed. Every contender gets the length of the longest
sequence as a number, because asking the device for it would take longer than short work."""

from __future__ import annotations

import dataclasses
import secrets
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case
from groundspeed.kernels import work
from groundspeed.kernels.attention import reference
from groundspeed.suites.attention.dense import LONG, case_name, enlarged, of_one_sign
from groundspeed.suites.attention.shapes import Shape
from groundspeed.suites.inputs import random_tensors, shift

if TYPE_CHECKING:
    from torch import Tensor


def forward(name: str, shape: Shape, dtype: str, causal: bool) -> Case:
    total, H, D = shape.query
    _, G, V = shape.value
    form, longest = shape.form(causal), max(shape.lengths)
    pairs = sum(length * length for length in shape.lengths)
    return Case(
        suite="attention",
        name=case_name(name, causal, dtype),
        params={**shape.params(), "dtype": dtype, "causal": causal},
        work=work.attention_varlen_forward(shape.lengths, H, D, dtype, causal, G, shape.W or None, V),
        counts={"tokens": total, "queries": total * H, "samples": len(shape.lengths)},
        tolerance=dataclasses.asdict(reference.TOLERANCE[dtype]),
        inputs=partial(_inputs, shape, dtype),
        refresh=_refresh,
        oracle=partial(_oracle, causal=causal, **form),
        oracle_flops_per_row=2 * (pairs // total) * (D + V),
        input_names=("q", "k", "v", *(("sinks",) if shape.sinks else ()), "cu_seqlens"),
        fixed_inputs=1,
        pieces=tuple(H * begin for begin in accumulate((0, *shape.lengths[:-1]))),
        output_shape=(total, H, V),
        arguments={"causal": causal, "scale": D**-0.5, "max_seqlen": longest, **form},
        long_sums=_long_sums if dtype != "fp32" and longest >= LONG and not shape.W else None,
        enlarged=enlarged,
    )


def _inputs(shape: Shape, dtype: str, seed: int, device: str) -> tuple[Tensor, ...]:
    import torch

    sinks = [(shape.H,)] if shape.sinks else []
    drawn = random_tensors((shape.query, shape.key, shape.value, *sinks), dtype, seed, device)
    return *drawn, torch.tensor([0, *accumulate(shape.lengths)], dtype=torch.int32, device=device)


def _refresh(inputs: tuple[Tensor, ...], earlier: tuple[Tensor, ...]) -> None:
    """Refresh all inputs except the boundaries of the sequences; tokens may move to another sequence."""
    shift(inputs[:-1], earlier[:-1])


def _oracle(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor, **asked: Any) -> Tensor:
    *sinks, cu_seqlens = rest
    return reference.attention_varlen(q, k, v, cu_seqlens, sinks=sinks[0] if sinks else None, **asked)


def _long_sums(inputs: tuple[Tensor, ...], limit: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """As for dense cases, with rows from the long sequences only."""
    import torch

    q, k, v, *rest = inputs
    H, spans = q.shape[1], [(a, b) for a, b in pairwise(rest[-1].tolist()) if b - a >= LONG]
    late = torch.cat([torch.arange((a + b) // 2, b) for a, b in spans])
    generator = torch.Generator().manual_seed(secrets.randbits(62))
    values = of_one_sign(v, generator)
    tokens = late[torch.randint(len(late), (limit,), generator=generator)]
    heads = torch.randint(H, (limit,), generator=generator)
    return (q, k, values, *rest), (tokens * H + heads).unique()
