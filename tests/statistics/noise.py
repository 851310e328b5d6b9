"""Noise with known truth: what blocks and processes do to the log ratio of two contenders.

Every model has effects between processes of 0.2–0.5%, in 15% of the cases of 1–3% ("bad cases"), and a bias of 0.2%
for order and placement whose sign each process draws; within a process 1–4% from block to block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from procedure import Array, Centres, Plan, stopped
from scipy.signal import lfilter

CHUNK = 3_000_000
"""Blocks in memory at once."""
BAD_SHARE = 0.15

Blocks = Callable[[np.random.Generator, int, int, int], Array]
"""(generator, comparisons, processes, blocks) → the noise of every block."""


def within(g: np.random.Generator, n: int) -> Array:
    """Standard deviation from block to block, one for each comparison: 1–4%, the logarithm uniform."""
    return np.asarray(np.exp(g.uniform(np.log(0.01), np.log(0.04), (n, 1, 1))))


def normal(g: np.random.Generator, n: int, processes: int, blocks: int) -> Array:
    return within(g, n) * g.standard_normal((n, processes, blocks))


def drift(g: np.random.Generator, n: int, processes: int, blocks: int) -> Array:
    """The ratio itself drifts: by up to 3% over 40 blocks, in a direction that each process draws."""
    slope = g.uniform(-0.03, 0.03, (n, processes, 1))
    return normal(g, n, processes, blocks) + slope * (np.arange(blocks) - 19.5) / 40


def autocorrelated(g: np.random.Generator, n: int, processes: int, blocks: int) -> Array:
    """AR(1) with 0.7 from block to block."""
    shocks = g.standard_normal((n, processes, blocks)) * np.sqrt(1 - 0.7**2)
    shocks[..., 0] /= np.sqrt(1 - 0.7**2)
    series: Array = np.asarray(lfilter([1.0], [1.0, -0.7], shocks, axis=-1), np.float64)
    return within(g, n) * series


def tails(g: np.random.Generator, n: int, processes: int, blocks: int) -> Array:
    """Student's t₃, and in 3% of the blocks one of the two is interrupted for 5–50% of its time."""
    shape = (n, processes, blocks)
    noise: Array = within(g, n) / np.sqrt(3) * g.standard_t(3, shape)
    spikes: Array = np.where(g.random(shape) < 0.03, np.log1p(g.uniform(0.05, 0.5, shape)), 0.0)
    signs: Array = g.choice((-1.0, 1.0), shape)
    return noise + spikes * signs


def bimodal(g: np.random.Generator, n: int, processes: int, blocks: int) -> Array:
    """Two clocks that shift the ratio by 1–3%; a process stays at one for ten blocks in the mean."""
    shape = (n, processes, blocks)
    flips = np.where(g.random(shape) < 0.1, -1.0, 1.0)
    flips[..., 0] = g.choice((-1.0, 1.0), shape[:2])
    apart = g.uniform(0.01, 0.03, (n, 1, 1))
    return normal(g, n, processes, blocks) * 0.5 + apart / 2 * np.cumprod(flips, axis=-1)


def quiet(g: np.random.Generator, n: int, processes: int, blocks: int) -> Array:
    """Under a coarse clock, noise that does not always cross a tick: 0.05–0.5%."""
    return np.exp(g.uniform(np.log(5e-4), np.log(5e-3), (n, 1, 1))) * g.standard_normal((n, processes, blocks))


def between(g: np.random.Generator, n: int, processes: int, bad_share: float) -> Array:
    """What a process as a whole does to the ratio."""
    sd = g.uniform(0.002, 0.005, (n, 1))
    sd = np.where(g.random((n, 1)) < bad_share, g.uniform(0.01, 0.03, (n, 1)), sd)
    return sd * g.standard_normal((n, processes)) + 0.002 * g.choice((-1.0, 1.0), (n, processes))


def ticks(g: np.random.Generator, theta: Array) -> Array:
    """The log ratio as a clock of whole ticks shows it; a sample lasts 200 to 400 of them."""
    length = g.uniform(200, 400, (len(theta), 1, 1))
    return np.asarray(np.log(np.round(length * np.exp(theta / 2)) / np.round(length * np.exp(-theta / 2))))


@dataclass(frozen=True)
class Model:
    """Synthetic noise: truth is exactly the effect asked for."""

    name: str
    words: str
    blocks: Blocks
    bad_share: float = BAD_SHARE
    ticks: bool = False
    bias: float = 0.0
    """For order or placement, the same in all processes: what no interval over processes can show."""
    rare: float = 0.0
    """How far one process of eight is away, after which the mean is moved back to the truth."""

    def theta(self, g: np.random.Generator, n: int, processes: int, blocks: int, effect: Array) -> Array:
        shared = between(g, n, processes, self.bad_share) + self.bias
        if self.rare:
            shared += self.rare * ((g.random((n, processes)) < 1 / 8) - 1 / 8)
        theta = self.blocks(g, n, processes, blocks) + shared[:, :, None] + effect[:, None, None]
        return ticks(g, theta) if self.ticks else theta

    def centres(self, g: np.random.Generator, n: int, plan: Plan, effect: float | Array = 0.0) -> Centres:
        """Of n comparisons, each with as many processes as the plan may come to."""
        protocol, effects = plan.protocol, np.broadcast_to(np.asarray(effect, np.float64), (n,))
        step = max(1, CHUNK // (plan.most * protocol.looks[-1]))
        parts = []
        for start in range(0, n, step):
            some = effects[start : start + step]
            parts.append(stopped(self.theta(g, len(some), plan.most, protocol.looks[-1], some), protocol))
        return Centres.joined(parts)

    @property
    def aa(self) -> Model:
        """What a machine with this noise is calibrated on."""
        return self


MODELS = {
    model.name: model
    for model in (
        Model("normal", "independent normal blocks", normal),
        Model("drift", "the ratio drifts by up to 3% within a process", drift),
        Model("AR(1)", "blocks correlated by 0.7", autocorrelated),
        Model("tails", "Student-t₃ blocks, 3% of them with spikes of 5–50%", tails),
        Model("bimodal", "two clocks, 1–3% apart", bimodal),
        Model("ticks", "a quiet machine with a clock of 200–400 ticks a sample", quiet, ticks=True),
    )
}
TYPICAL = Model("typical", "independent normal blocks, no bad cases", normal, bad_share=0.0)
STRESS = {
    model.name: model
    for model in (
        Model("biased", "a bias of 0.2% that all processes share", normal, bad_share=0.0, bias=0.002),
        Model("rare", "one process of eight is 10% away", normal, bad_share=0.0, rare=0.1),
    )
}
"""Beyond what is required: shown, so that one knows what the procedure cannot see."""
