"""Tokens that are routed as a case says, and the experts that they are sent to.

What a token chooses stands in its first E dimensions: about 4 more there for its experts than for the others, of which
the router, a little noise beside, takes one each. So the choice is clear by more than any rounding of the logits, in
BF16 as well, and whoever is wrong is wrong. How many tokens each expert gets is the same for every seed."""

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
"""Of logits: how far the chosen are ahead; how far all are spread, at most twice that; and what the router adds."""
SEED = 20261101
"""Of what is the same in every run: weights, and who is sent where."""
MANY = 128
"""Choices for each expert: then the least likely of a thousand has some, whatever the routing."""


AT_ONCE = 2048
"""Tokens that are looked at in FP64."""


def choices(shape: Shape) -> numpy.ndarray:
    """[T, K]: the experts of each token, in no order."""
    import numpy

    T, E, K = shape.T, shape.E, shape.K
    generator = numpy.random.default_rng(SEED)
    if shape.routing == "balanced":
        return generator.permutation(numpy.arange(T * K).reshape(T, K) % E)
    rank = numpy.arange(1.0, E + 1)
    likely = generator.permutation(1 / rank if shape.routing == "zipf" else numpy.ones(E))
    race = generator.standard_exponential((T, E)) / likely
    return numpy.argpartition(race, K - 1, axis=1)[:, :K]  # the next one each time as likely as it is among those left


def chosen_by_any(shape: Shape) -> int:
    """Experts that have work: of many tokens all of them, without looking."""
    if shape.T * shape.K >= MANY * shape.E:
        return shape.E
    return len(set(choices(shape).flatten().tolist()))


def tokens(shape: Shape, dtype: str, seed: int, device: str) -> Tensor:
    """x [T, H], standard normal but for what each token chooses."""
    import torch

    torch_dtype: Any = getattr(torch, TORCH_DTYPES[dtype])
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn(shape.T, shape.H, generator=generator, device=device)
    x[:, : shape.E].mul_(SPREAD).clamp_(-2 * SPREAD, 2 * SPREAD)
    ahead = torch.full((shape.T, shape.K), CHOSEN, device=device)
    x[:, : shape.E].scatter_add_(1, torch.from_numpy(choices(shape)).to(device), ahead)
    return x.to(torch_dtype)


def weights(shape: Shape, activation: str, dtype: str, device: str) -> list[Tensor]:
    """Router, up and down: what each makes of standard normal values is about as large."""
    import torch

    torch_dtype: Any = getattr(torch, TORCH_DTYPES[dtype])
    generator = torch.Generator(device).manual_seed(SEED)
    made = [torch.empty(size, dtype=torch_dtype, device=device) for size in shape.weights(activation)]
    for matrices in made:
        for matrix in matrices.view(
            -1, *matrices.shape[-2:]
        ):  # one by one: all at once in FP32 would take twice as much
            values = torch.randn(matrix.shape, generator=generator, device=device)
            matrix.copy_(values.mul_(matrix.shape[-1] ** -0.5))
    made[0].mul_(NOISE).diagonal().fill_(1.0)
    return made


def refresh(inputs: tuple[Tensor, ...], earlier: tuple[Tensor, ...], *, experts: int) -> None:
    """Other tokens, made of the earlier ones: what they choose is handed on by one distance, all else by another, and
    turned within each row. As many choose each expert as before."""
    x, before = inputs[0].data, earlier[0]  # past the version that PyTorch counts and shows
    T, width = x.shape[0], x.shape[1] - experts
    _roll(x[:, :experts], before[:, :experts], secrets.randbelow(T), 0)
    _roll(x[:, experts:], before[:, experts:], secrets.randbelow(T), 1 + secrets.randbelow(width - 1))


def usage(x: Tensor, router: Tensor, *weights: Tensor, top_k: int) -> tuple[list[int], float]:
    """Tokens of each expert, and the balance loss (`Routed` of kernels/moe/api.py), all in FP64 and a few tokens at a
    time: what it takes must not show in the memory of who comes next."""
    import torch

    counts = torch.zeros(len(router), dtype=torch.int64, device=x.device)
    scores = torch.zeros(len(router), dtype=torch.float64, device=x.device)
    for some in x.split(AT_ONCE):
        counts += reference.route(some, router, Routing(top_k)).experts.flatten().bincount(minlength=len(router))
        scores += (some.double() @ router.double().T).softmax(1).sum(0)
    balance = len(router) * (counts.double() / counts.sum() * scores / len(x)).sum()  # whole numbers divide in FP32
    return counts.tolist(), balance.item()


def _roll(into: Tensor, of: Tensor, rows: int, columns: int) -> None:
    """Moved on by so many rows and columns, the last ones to the front."""
    for to_row, from_row in _halves(of.shape[0], rows):
        for to_column, from_column in _halves(of.shape[1], columns):
            into[to_row, to_column].copy_(of[from_row, from_column])


def _halves(size: int, distance: int) -> list[tuple[slice, slice]]:
    rest = size - distance
    return [(slice(distance, size), slice(rest)), (slice(distance), slice(rest, size))]
