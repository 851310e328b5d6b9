"""The cases of attention on [B, H, S, D]: inputs, oracle, and long sums that reveal accumulation in less than FP32."""

from __future__ import annotations

import dataclasses
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case
from groundspeed.kernels import work
from groundspeed.kernels.attention import reference
from groundspeed.suites.attention.shapes import Shape
from groundspeed.suites.inputs import random_tensors, shift

if TYPE_CHECKING:
    from torch import Generator, Tensor


def case_name(shape: str, causal: bool, dtype: str) -> str:
    return f"{shape}-{'causal' if causal else 'full'}-{dtype}"


def forward(name: str, shape: Shape, dtype: str, causal: bool) -> Case:
    B, H, S, D = shape.query
    _, G, N, V = shape.value
    form = shape.form(causal)
    sinks = [(H,)] if shape.sinks else []
    return Case(
        suite="attention",
        name=case_name(name, causal, dtype),
        params={**shape.params(), "dtype": dtype, "causal": causal},
        work=work.attention_forward(B, H, S, D, dtype, causal, G, N, shape.W or None, V),
        counts={"tokens": B * S, "queries": B * H * S, "samples": B},
        tolerance=dataclasses.asdict(reference.TOLERANCE[dtype]),
        inputs=partial(random_tensors, (shape.query, shape.key, shape.value, *sinks), dtype),
        refresh=shift,
        oracle=partial(_oracle, causal=causal, **form),
        oracle_flops_per_row=2 * N * (D + V),
        input_names=("q", "k", "v", "sinks") if sinks else ("q", "k", "v"),
        output_shape=(B, H, S, V),
        arguments={"causal": causal, "scale": D**-0.5, **form},
        long_sums=_long_sums if dtype != "fp32" and N >= LONG and not shape.W else None,
        enlarged=enlarged,
    )


def _oracle(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None, **asked: Any) -> Tensor:
    return reference.attention(q, k, v, sinks=sinks, **asked)


LONG = 512
"""Keys. With fewer, a kernel that rounds its sum now and then is hardly worse than one that rounds it once more."""
LARGE = 60.0
"""Factor of the queries with which the scores of nearly every row reach beyond 89, where an exponential in FP32
overflows."""
HEADS = 16
"""Heads, over all batches, that are asked about: the oracle reads all keys and values of each of them."""


def _long_sums(inputs: tuple[Tensor, ...], limit: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return inputs whose values have one sign in each dimension, and rows from the second half of some sequences,
    which see at least half of the keys."""
    import torch

    q, k, v, *sinks = inputs
    B, H, S, _ = q.shape
    generator = torch.Generator().manual_seed(secrets.randbits(62))  # PyTorch's own can be seeded by a contender
    values = of_one_sign(v, generator)
    heads = torch.randint(B * H, (HEADS,), generator=generator).repeat(limit // HEADS)
    late = torch.randint(S // 2, S, (len(heads),), generator=generator)
    return (q, k, values, *sinks), (heads * S + late).unique()


def enlarged(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return inputs with large scores: a kernel that does not subtract the maximum overflows."""
    return (LARGE * inputs[0], *inputs[1:])


def of_one_sign(v: Tensor, generator: Generator) -> Tensor:
    """Return values made from `v` that have one sign in each dimension."""
    import torch

    signs = torch.randint(2, (v.shape[-1],), generator=generator).mul(2).sub(1).to(v)
    return (1 + v.abs() / 4) * signs
