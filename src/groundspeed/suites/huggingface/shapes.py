"""Llamas and how much they read: by name, and from the parameters of a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from groundspeed.case import Scalar

SHAPE_KEYS = {
    "L": "layers",
    "d": "hidden dimension",
    "I": "inner dimension of the gated network",
    "H": "heads",
    "G": "key heads, each shared by several heads",
    "V": "vocabulary size",
    "B": "sequences",
    "S": "tokens of each sequence",
    "N": "tokens read before, whose keys and values are cached; default 0",
}
MAX_SIZE = 2**20


class Model(NamedTuple):
    L: int
    d: int
    I: int  # noqa: E741  as the suite moe has it
    H: int
    G: int
    V: int


class Shape(NamedTuple):
    L: int
    d: int
    I: int  # noqa: E741
    H: int
    G: int
    V: int
    B: int
    S: int
    N: int = 0

    def check(self) -> None:
        """Raise ValueError if there is no such model."""
        if not all(0 < n <= MAX_SIZE for n in self[:-1]) or not 0 <= self.N <= MAX_SIZE:
            raise ValueError("out of range")
        if self.d % self.H or self.head_dim % 2:
            raise ValueError(f"{self.d} dimensions do not divide into {self.H} heads of an even dimension")
        if self.H % self.G:
            raise ValueError(f"{self.H} heads are not a multiple of {self.G} key heads")

    @property
    def head_dim(self) -> int:
        return self.d // self.H

    @property
    def writes(self) -> bool:
        """Whether a call asks for the next word. With one token it returns logits, with more tokens the output of the
        last norm for each."""
        return self.S == 1

    @property
    def name(self) -> str:
        told = f"l{self.L}-d{self.d}-i{self.I}-h{self.H}-g{self.G}-v{self.V}-{self.B}x{self.S}"
        return f"{told}-n{self.N}" if self.N else told

    def params(self) -> dict[str, Scalar]:
        told: dict[str, Scalar] = dict(zip(self._fields[:-1], self[:-1], strict=True))
        return {**told, "N": self.N} if self.N else told

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return shapes by name; each tensor holds the weights of all layers. Joined matrices are stacked by rows:
        queries, keys, values; the gate, then what it gates. `norms` are those before attention and before the
        network."""
        L, d, inner, H, G, V = self[:6]
        return {
            "words": (V, d),
            "norms": (L, 2, d),
            "last": (d,),
            "qkv": (L, (H + 2 * G) * self.head_dim, d),
            "out": (L, d, d),
            "gate_up": (L, 2 * inner, d),
            "down": (L, d, inner),
            "head": (V, d),
        }

    def kept(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of keys, already rotated for their positions, and values of the tokens read before."""
        if not self.N:
            return {}
        return dict.fromkeys(("keys", "values"), (self.L, self.B, self.G, self.N, self.head_dim))


def shape_of(params: Mapping[str, Scalar]) -> Shape:
    """Return the shape in a case's parameters. KeyError, TypeError or ValueError if they describe none."""
    told = [*(params[key] for key in Shape._fields[:-1]), params.get("N", 0)]
    if any(isinstance(number, bool) or not isinstance(number, int) for number in told):
        raise TypeError(f"{', '.join(Shape._fields)} must be whole numbers")
    if params.get("N") == 0:
        raise ValueError("N=0 must be left out")
    shape = Shape(*map(int, told))
    shape.check()
    return shape


MODELS = {
    "llama-1b": Model(16, 2048, 8192, 32, 8, 128256),
    "llama-8b": Model(32, 4096, 14336, 32, 8, 128256),
}
"""The sizes of Llama 3.2 1B and Llama 3.1 8B."""
_READ = {"llama-1b": ((1, 2048), (8, 2048)), "llama-8b": ((1, 2048), (4, 2048))}
PREFILL = {f"{name}-{B}x{S}": Shape(*model, B, S) for name, model in MODELS.items() for B, S in _READ[name]}
_WRITTEN = {"llama-1b": (1, 8, 32), "llama-8b": (1, 8)}
CONTEXT = 2048
DECODE = {f"{name}-decode-{B}": Shape(*model, B, 1, CONTEXT) for name, model in MODELS.items() for B in _WRITTEN[name]}
"""The next word of 1 to 32 sequences."""
_TINY = Model(2, 256, 512, 8, 2, 1000)
TINY = {"llama-tiny-2x128": Shape(*_TINY, 2, 128), "llama-tiny-decode-2": Shape(*_TINY, 2, 1, 128)}
"""Cases that a CPU can do."""
SHAPES = {**TINY, **PREFILL, **DECODE}
