"""Models and how much they read: by name, and from the parameters of a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from groundspeed.case import Scalar

SHAPE_KEYS = {
    "L": "layers",
    "d": "hidden dimension",
    "H": "heads",
    "B": "sequences",
    "S": "tokens of each sequence",
    "N": "tokens read before, whose keys and values are cached; default 0",
}
MAX_SIZE = 2**20
WIDENING = 4
"""Width of the feed-forward network, as a multiple of the hidden dimension."""


class Model(NamedTuple):
    L: int
    d: int
    H: int


class Shape(NamedTuple):
    L: int
    d: int
    H: int
    B: int
    S: int
    N: int = 0

    def check(self) -> None:
        """Raise ValueError if there is no such model."""
        if not all(0 < n <= MAX_SIZE for n in self[:5]) or not 0 <= self.N <= MAX_SIZE:
            raise ValueError("out of range")
        if self.d % self.H:
            raise ValueError(f"{self.d} dimensions are not a multiple of {self.H} heads")

    @property
    def head_dim(self) -> int:
        return self.d // self.H

    @property
    def name(self) -> str:
        return f"l{self.L}-d{self.d}-h{self.H}-{self.B}x{self.S}{f'-n{self.N}' if self.N else ''}"

    def params(self) -> dict[str, Scalar]:
        told: dict[str, Scalar] = dict(zip("LdHBS", self[:5], strict=True))
        return {**told, "N": self.N} if self.N else told

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return shapes by name; each tensor holds the weights of all layers. `norms` are weight and bias of the first
        and the second norm of a layer, `last` those of the final norm."""
        L, d, wide = self.L, self.d, WIDENING * self.d
        return {
            "norms": (L, 2, 2, d),
            "last": (2, d),
            "qkv": (L, 3 * d, d),
            "qkv_bias": (L, 3 * d),
            "out": (L, d, d),
            "out_bias": (L, d),
            "up": (L, wide, d),
            "up_bias": (L, wide),
            "down": (L, d, wide),
            "down_bias": (L, d),
        }

    def kept(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of keys and values of the tokens that were read before."""
        if not self.N:
            return {}
        return dict.fromkeys(("keys", "values"), (self.L, self.B, self.H, self.N, self.head_dim))


def shape_of(params: Mapping[str, Scalar]) -> Shape:
    """Return the shape in a case's parameters. KeyError, TypeError or ValueError if they describe none."""
    told = [*(params[key] for key in "LdHBS"), params.get("N", 0)]
    if any(isinstance(number, bool) or not isinstance(number, int) for number in told):
        raise TypeError("L, d, H, B, S and N must be whole numbers")
    if params.get("N") == 0:
        raise ValueError("N=0 must be left out")
    shape = Shape(*map(int, told))
    shape.check()
    return shape


MODELS = {"small": Model(12, 768, 12), "medium": Model(24, 2048, 16), "large": Model(32, 4096, 32)}
"""The models of the specification (B4)."""
_READ = {
    "small": ((1, 128), (4, 512), (16, 2048)),
    "medium": ((1, 128), (4, 512), (8, 1024)),
    "large": ((1, 128), (4, 512), (8, 2048)),
}
PREFILL = {f"{name}-{B}x{S}": Shape(*model, B, S) for name, model in MODELS.items() for B, S in _READ[name]}
CONTEXT = {"small": 1024, "medium": 1024, "large": 256}
"""Tokens that were read before. Every contender has a copy of their keys and values: with more tokens, those of 64
sequences of the large model would not fit on a GPU."""
DECODE = {
    f"{name}-decode-{B}": Shape(*model, B, 1, CONTEXT[name]) for name, model in MODELS.items() for B in (1, 8, 64)
}
"""The next token of 1, 8 or 64 sequences."""
MEMORY = {f"memory-{S}": Shape(1, 2048, 16, 4, S) for S in (2048, 4096, 8192)}
"""One layer of the medium model, for the memory that it takes (B5). Attention written out holds three matrices of
scores at once, which are 26 GB for the longest sequence."""
TINY_MEMORY = {f"d128-memory-{S}": Shape(1, 128, 8, 1, S) for S in (128, 256, 512)}
"""The same at sizes that a CPU can do within the seconds of a preset."""
TINY = {
    "d256-2x128": Shape(2, 256, 8, 2, 128),
    "d512-4x256": Shape(2, 512, 8, 4, 256),
    "d256-decode-2": Shape(2, 256, 8, 2, 1, 128),
    **TINY_MEMORY,
}
"""Cases that a CPU can do; the first two are the quick ones of C1."""
SHAPES = {**TINY, **PREFILL, **DECODE, **MEMORY}
