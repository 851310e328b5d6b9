"""Shapes of a mixture of experts: by name, and from the parameters of a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from groundspeed.case import Scalar
from groundspeed.kernels.moe.form import ACTIVATIONS, widening

ROUTINGS = {
    "random": "all experts are equally likely",
    "balanced": "all experts have equally many tokens",
    "zipf": "the second most popular expert is half as likely as the first, the third a third",
}
SHAPE_KEYS = {
    "T": "tokens",
    "H": "hidden dimension",
    "I": "inner dimension of an expert",
    "E": "experts",
    "K": "experts that each token chooses",
    "act": f"{', '.join(ACTIVATIONS[:-1])} or {ACTIVATIONS[-1]}; default {' and '.join(ACTIVATIONS[:2])}",
    "routing": f"{', '.join(list(ROUTINGS)[:-1])} or {list(ROUTINGS)[-1]}; default random",
}
MAX_SIZE = 2**30
"""The largest value of each number in a record: far beyond what any machine can do."""


class Shape(NamedTuple):
    T: int
    H: int = 4096
    I: int = 11008  # noqa: E741
    E: int = 32
    K: int = 2
    routing: str = "random"

    def check(self) -> None:
        """Raise ValueError if there is no such mixture."""
        if not all(isinstance(n, int) and 0 < n <= MAX_SIZE for n in self[:5]) or self.routing not in ROUTINGS:
            raise ValueError("out of range")
        if self.K > self.E:
            raise ValueError(f"K={self.K} is more than the E={self.E} experts")
        if self.E > self.H // 2:
            raise ValueError(
                f"E={self.E} is more than half of H={self.H}, and the router needs a dimension for each expert"
            )

    @property
    def name(self) -> str:
        routed = "" if self.routing == "random" else f"-{self.routing}"
        return f"t{self.T}-h{self.H}-i{self.I}-e{self.E}-k{self.K}{routed}"

    def params(self) -> dict[str, Scalar]:
        told: dict[str, Scalar] = {"T": self.T, "H": self.H, "I": self.I, "E": self.E, "K": self.K}
        return told if self.routing == "random" else {**told, "routing": self.routing}

    def weights(self, activation: str) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of router, up and down."""
        return (self.E, self.H), (self.E, widening(activation) * self.I, self.H), (self.E, self.H, self.I)


def shape_of(params: Mapping[str, Scalar]) -> Shape:
    """Return the shape in a case's parameters. KeyError, TypeError or ValueError if they describe none."""
    told = [params[key] for key in "THIEK"]
    if any(isinstance(number, bool) or not isinstance(number, int) for number in told):
        raise TypeError("T, H, I, E and K must be whole numbers")
    T, H, inner, E, K = map(int, told)
    shape = Shape(T, H, inner, E, K, str(params.get("routing", "random")))
    shape.check()
    if params.get("routing") == "random":
        raise ValueError("routing=random must be left out")
    return shape


_MANY, _MIXTRAL = Shape(0, 2048, 768, 128, 8), Shape(0, 4096, 14336, 8, 2)
SPECIFIED = {"4x512": Shape(2048), "16x2048": Shape(32768), "32x2048": Shape(65536)}
"""Batch × sequence, as the specification has them (B9)."""
DECODE = {f"decode-{T}": Shape(T) for T in (1, 8, 64)}
ROUTED = {
    f"{name}-{routing}": SPECIFIED[name]._replace(routing=routing)
    for name in ("4x512", "16x2048")
    for routing in ("balanced", "zipf")
}
OTHERS = {
    **{f"128-experts-{T}": _MANY._replace(T=T) for T in (64, 2048, 32768)},
    **{f"8-experts-{T}": _MIXTRAL._replace(T=T) for T in (64, 2048, 32768)},
}
SMALL = {
    "one": Shape(1, 64, 128, 4, 2),
    "few": Shape(16, 64, 128, 8, 2),
    "some": Shape(128, 128, 256, 8, 2),
    "some-balanced": Shape(128, 128, 256, 8, 2, "balanced"),
    "some-zipf": Shape(128, 128, 256, 8, 2, "zipf"),
    "more": Shape(512, 128, 256, 16, 4),
}
"""Shapes that a CPU can do."""
SHAPES = {**SMALL, **DECODE, **SPECIFIED, **ROUTED, **OTHERS}
