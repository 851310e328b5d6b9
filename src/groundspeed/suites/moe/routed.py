"""Tokens that are routed as a case says, and the experts that they are sent to.

The first E dimensions of a token hold its choice: they are about 4 larger for its experts than for the others. Each row
of the router reads one of these dimensions, plus a little noise. So the margin of the choice is larger than any
rounding of the logits, in BF16 too, and a contender that chooses other experts is wrong. The number of tokens of each
expert is the same for every seed."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from groundspeed.case import TORCH_DTYPES
from groundspeed.kernels.moe import reference
from groundspeed.kernels.moe.form import Routing
from groundspeed.suites.moe.shapes import Shape

if TYPE_CHECKING:
    import numpy
    from torch import Tensor

CHOSEN, SPREAD, NOISE = 4.0, 0.5, 0.1
"""In logits: lead of the chosen experts; standard deviation of all, clamped at twice its value; noise of the router."""
SEED = 20261101
"""Seed of what is the same in every run: weights, and which token goes to which expert."""
MANY = 128
"""Choices per expert with which even the least likely of a thousand experts has some, whatever the routing."""


AT_ONCE = 2048
"""Tokens that are processed in FP64 at a time."""


def choices(shape: Shape) -> numpy.ndarray:
    """Return the experts of each token as [T, K], in no particular order."""
    import numpy

    T, E, K = shape.T, shape.E, shape.K
    generator = numpy.random.default_rng(SEED)
    if shape.routing == "balanced":
        return generator.permutation(numpy.arange(T * K).reshape(T, K) % E)
    rank = numpy.arange(1.0, E + 1)
    likely = generator.permutation(1 / rank if shape.routing == "zipf" else numpy.ones(E))
    race = generator.standard_exponential((T, E)) / likely
    return numpy.argpartition(race, K - 1, axis=1)[:, :K]  # drawn one by one, each as likely as among those left


def chosen_by_any(shape: Shape) -> int:
    """Return the number of experts that have work. With many tokens that is all of them, without counting."""
    if shape.T * shape.K >= MANY * shape.E:
        return shape.E
    return len(set(choices(shape).flatten().tolist()))


def tokens(shape: Shape, dtype: str, seed: int, device: str) -> Tensor:
    """Return x [T, H], standard normal except for the dimensions that hold the choice of each token."""
    import torch

    torch_dtype: Any = getattr(torch, TORCH_DTYPES[dtype])
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn(shape.T, shape.H, generator=generator, device=device)
    x[:, : shape.E].mul_(SPREAD).clamp_(-2 * SPREAD, 2 * SPREAD)
    ahead = torch.full((shape.T, shape.K), CHOSEN, device=device)
    x[:, : shape.E].scatter_add_(1, torch.from_numpy(choices(shape)).to(device), ahead)
    return x.to(torch_dtype)


def weights(shape: Shape, activation: str, dtype: str, device: str) -> list[Tensor]:
    """Return router, up and down. Up and down turn standard normal values into values about as large; the router has
    ones on its diagonal, and noise elsewhere."""
    import torch

    torch_dtype: Any = getattr(torch, TORCH_DTYPES[dtype])
    generator = torch.Generator(device).manual_seed(SEED)
    made = [torch.empty(size, dtype=torch_dtype, device=device) for size in shape.weights(activation)]
    for matrices in made:
        for matrix in matrices.view(
            -1, *matrices.shape[-2:]
        ):  # one by one: all at once in FP32 would take twice the memory
            values = torch.randn(matrix.shape, generator=generator, device=device)
            matrix.copy_(values.mul_(matrix.shape[-1] ** -0.5))
    made[0].mul_(NOISE).diagonal().fill_(1.0)
    return made


def refresh(inputs: tuple[Tensor, ...], earlier: tuple[Tensor, ...], *, experts: int) -> None:
    """Write other tokens, made from the earlier ones: the choices are rotated over the tokens by one distance, all
    other dimensions by another distance and also within each row. Each expert gets as many tokens as before."""
    x, before = inputs[0].data, earlier[0]  # .data leaves PyTorch's version counter alone
    T, width = x.shape[0], x.shape[1] - experts
    _roll(x[:, :experts], before[:, :experts], secrets.randbelow(T), 0)
    _roll(x[:, experts:], before[:, experts:], secrets.randbelow(T), 1 + secrets.randbelow(width - 1))


def usage(x: Tensor, router: Tensor, *weights: Tensor, top_k: int) -> tuple[list[int], float]:
    """Return the tokens of each expert and the balance loss (`Routed` of kernels/moe/api.py), in FP64 and a few tokens
    at a time, so that its memory does not count in the peak of the next contender."""
    import torch

    counts = torch.zeros(len(router), dtype=torch.int64, device=x.device)
    scores = torch.zeros(len(router), dtype=torch.float64, device=x.device)
    for some in x.split(AT_ONCE):
        counts += reference.route(some, router, Routing(top_k)).experts.flatten().bincount(minlength=len(router))
        scores += (some.double() @ router.double().T).softmax(1).sum(0)
    balance = len(router) * (counts.double() / counts.sum() * scores / len(x)).sum()  # integers divide in FP32
    return counts.tolist(), balance.item()


def _roll(into: Tensor, of: Tensor, rows: int, columns: int) -> None:
    """Copy `of` into `into`, rotated by so many rows and columns."""
    for to_row, from_row in _halves(of.shape[0], rows):
        for to_column, from_column in _halves(of.shape[1], columns):
            into[to_row, to_column].copy_(of[from_row, from_column])


def _halves(size: int, distance: int) -> list[tuple[slice, slice]]:
    rest = size - distance
    return [(slice(distance, size), slice(rest)), (slice(distance), slice(rest, size))]
