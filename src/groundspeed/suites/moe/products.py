"""The two matrix products of a layer's experts as two plain products of as many rows, without activation or routing.
The rate at which a library does these is what a whole layer is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from groundspeed.case import TORCH_DTYPES, Case, Scalar
from groundspeed.kernels import work
from groundspeed.kernels.work import Work
from groundspeed.suites.inputs import shift
from groundspeed.suites.moe.shapes import MAX_SIZE, SPECIFIED

if TYPE_CHECKING:
    from torch import Tensor

KEYS = ("M", "H", "I")
NAMED = {f"products-{name}": (shape.T * shape.K, shape.H, shape.I) for name, shape in SPECIFIED.items()}
SMALL = {"products-some": (256, 128, 256)}
"""Products that a CPU can do."""


def is_products(case: Case) -> bool:
    return "M" in case.params


def of_params(params: Mapping[str, Scalar], tolerance: Mapping[str, float]) -> Case:
    """Return the case with these parameters. KeyError, TypeError or ValueError if they describe none."""
    told = [params[key] for key in KEYS]
    if any(isinstance(n, bool) or not isinstance(n, int) or not 0 < n <= MAX_SIZE for n in told):
        raise ValueError("out of range")
    M, H, inner = map(int, told)
    return forward(f"products-m{M}-h{H}-i{inner}", (M, H, inner), str(params["dtype"]), tolerance)


def forward(name: str, sizes: tuple[int, int, int], dtype: str, tolerance: Mapping[str, float]) -> Case:
    M, H, inner = sizes
    parts = work.matmul(M, inner, H, dtype), work.matmul(M, H, inner, dtype)
    return Case(
        suite="moe",
        name=f"{name}-{dtype}",
        params={"M": M, "H": H, "I": inner, "dtype": dtype},
        work=Work(sum(part.flops for part in parts), sum(part.bytes for part in parts)),
        counts={},
        tolerance=tolerance,
        inputs=partial(_inputs, sizes, dtype),
        refresh=shift,
        oracle=_oracle,
        oracle_flops_per_row=4 * H * inner,
        input_names=("x", "up", "down"),
        output_shape=(M, H),
        arguments={},
    )


def _inputs(sizes: tuple[int, int, int], dtype: str, seed: int, device: str) -> tuple[Tensor, ...]:
    """Return inputs, scaled so that each product of standard normal values is about as large as these."""
    import torch

    (M, H, inner), generator = sizes, torch.Generator(device).manual_seed(seed)
    torch_dtype: Any = getattr(torch, TORCH_DTYPES[dtype])
    made = [torch.randn(size, generator=generator, device=device) for size in ((M, H), (inner, H), (H, inner))]
    return tuple((x if i == 0 else x * x.shape[1] ** -0.5).to(torch_dtype) for i, x in enumerate(made))


def _oracle(x: Tensor, up: Tensor, down: Tensor, *, rows: Tensor | None = None) -> Tensor:
    return (x if rows is None else x[rows.to(x.device)]).double() @ up.double().T @ down.double().T


def by_pytorch(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    from torch.nn.functional import linear

    return linear(linear(x, up), down)


def by_ours(*, hopper: bool) -> Callable[..., Tensor]:
    from groundspeed.kernels.moe.dense import matmul

    return lambda x, up, down: matmul(matmul(x, up, hopper=hopper), down, hopper=hopper)


def a_layer_alone(case: Case, device: str) -> str | None:
    return "whole layers only" if is_products(case) else None


def products_alone(case: Case, device: str) -> str | None:
    return None if is_products(case) else "matrix products only, not whole layers"
