"""Shapes of attention: by name (requirement A3), and from the parameters of a case."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from groundspeed.case import Scalar
from groundspeed.suites.shape_text import MAX_DIGITS

MAX_SEQUENCES, MAX_LENGTHS_TEXT = 4096, 120
SHAPE_KEYS = {
    "B": "batch",
    "H": "heads",
    "S": "sequence",
    "D": "head dimension",
    "G": "heads of keys and values; default H",
    "N": "keys; default S",
    "V": "dimension of the values; default D",
    "W": "keys that a query sees before its own position, and after it if the mask is not causal; default all",
    "cap": "soft-cap of the scores",
    "sinks": "1 gives each head one more score, without a value",
    "lengths": "instead of B and S: sequences packed one after the other, as in 300+17+4x64",
    "causal": "0 or 1; default both",
}


class Shape(NamedTuple):
    B: int
    H: int
    S: int
    D: int
    G: int = 0
    """Heads of keys and values, if not H."""
    N: int = 0
    """Keys, if not S."""
    V: int = 0
    """Dimension of the values, if not D."""
    W: int = 0
    """Keys of the window, on each side that the mask allows."""
    cap: int = 0
    sinks: int = 0
    lengths: tuple[int, ...] = ()
    """Lengths of sequences that are packed one after the other; then B, S and N are 0."""

    @property
    def query(self) -> tuple[int, ...]:
        return (sum(self.lengths), self.H, self.D) if self.lengths else self[:4]

    @property
    def key(self) -> tuple[int, ...]:
        if self.lengths:
            return sum(self.lengths), self.G or self.H, self.D
        return self.B, self.G or self.H, self.N or self.S, self.D

    @property
    def value(self) -> tuple[int, ...]:
        return *self.key[:-1], self.V or self.D

    def params(self) -> dict[str, Scalar]:
        told = {name: value for name, value in self._asdict().items() if value}
        return {**told, "lengths": lengths_text(self.lengths)} if self.lengths else told

    def form(self, causal: bool) -> dict[str, Any]:
        """Return the arguments besides the mask and the scale."""
        window = {"window_size": (self.W, 0 if causal else self.W)} if self.W else {}
        return {**window, **({"softcap": float(self.cap)} if self.cap else {})}

    @property
    def name(self) -> str:
        """The name of a shape that has no other."""
        groups, keys = f"-g{self.G}" if self.G else "", f"-n{self.N}" if self.N else ""
        window, cap = f"-w{self.W}" if self.W else "", f"-cap{self.cap}" if self.cap else ""
        values, sinks = f"-v{self.V}" if self.V else "", "-sinks" if self.sinks else ""
        rest = f"-d{self.D}{values}{window}{cap}{sinks}"
        if self.lengths:
            return f"packed-h{self.H}{groups}{rest}-{lengths_text(self.lengths)}"
        return f"b{self.B}-h{self.H}{groups}-s{self.S}{keys}{rest}"


USUAL = {"G": "H", "N": "S", "V": "D"}
"""Parameters that are given only if they differ from these."""
OPTIONAL = ("G", "N", "V", "W", "cap", "sinks")
DENSE_ONLY = ("B", "S", "N")


def shape_of(params: Mapping[str, Scalar]) -> Shape:
    """Return the shape in a case's parameters. ValueError, KeyError or TypeError if they describe none. Each shape has
    exactly one description."""
    lengths: tuple[int, ...] = ()
    if "lengths" in params:
        lengths = lengths_of(params["lengths"])
        if lengths_text(lengths) != params["lengths"] or any(key in params for key in DENSE_ONLY):
            raise ValueError("lengths are not in canonical form")
    B, H, S, D = (0 if lengths and key in DENSE_ONLY else int(params[key]) for key in "BHSD")
    others: dict[str, Any] = {key: int(params.get(key, 0)) for key in OPTIONAL}
    shape = Shape(B, H, S, D, **others, lengths=lengths)
    if min(*shape.query, *shape.value) < 1 or shape.H % (shape.G or shape.H):
        raise ValueError("out of range")
    if any(key in params and params[key] in (0, params.get(usual)) for key, usual in USUAL.items()):
        raise ValueError("a parameter that equals its default must be left out")
    if any(params.get(key) == 0 for key in OPTIONAL) or min(shape[:-1]) < 0 or shape.sinks > 1:
        raise ValueError("out of range")
    return shape


_RUN = re.compile(rf"(?:([1-9][0-9]{{0,3}})x)?([1-9][0-9]{{0,{MAX_DIGITS - 1}}})")


def lengths_text(lengths: Sequence[int]) -> str:
    """Return lengths as text, `300+17+4x64`: in their order, with a count for equal neighbours."""
    runs = [(length, len(list(run))) for length, run in groupby(lengths)]
    return "+".join(f"{count}x{length}" if count > 1 else f"{length}" for length, count in runs)


def lengths_of(text: object) -> tuple[int, ...]:
    """Return the lengths in a text of `lengths_text`. ValueError if it is not one, or too long."""
    if not isinstance(text, str) or len(text) > MAX_LENGTHS_TEXT:
        raise ValueError(f"lengths must be text of up to {MAX_LENGTHS_TEXT} characters")
    runs = [_RUN.fullmatch(part) for part in text.split("+")]
    counted = [(int(run[1] or 1), int(run[2])) for run in runs if run]
    if len(counted) < len(runs):
        raise ValueError("lengths must be whole numbers, as in 300+17+4x64")
    if sum(count for count, _ in counted) > MAX_SEQUENCES:
        raise ValueError(f"at most {MAX_SEQUENCES} sequences")
    return tuple(length for count, length in counted for _ in range(count))


LATENCY = {
    "tiny": Shape(1, 1, 32, 64),
    "small": Shape(1, 1, 64, 64),
    "medium": Shape(1, 1, 128, 64),
    "large": Shape(1, 1, 256, 64),
    "xlarge": Shape(1, 1, 512, 64),
    "multi-head": Shape(2, 4, 128, 64),
}
THROUGHPUT = {
    "t1": Shape(1, 1, 128, 64),
    "t2": Shape(8, 4, 128, 64),
    "t3": Shape(32, 8, 128, 64),
    "t4": Shape(32, 8, 256, 64),
}
REFERENCE = {
    "ref-64": Shape(16, 16, 2048, 64),
    "ref-128": Shape(32, 32, 4096, 128),
    "claim": Shape(16, 16, 1024, 128),
}
SWEEP = {
    f"sweep-d{D}-s{S}": Shape(16384 // S, 2048 // D, S, D)
    for D in (64, 128, 256)
    for S in (512, 1024, 2048, 4096, 8192, 16384)
}
RAGGED = {
    f"{kind}-d{D}-s{S}": Shape(16384 // S, 2048 // D, S, D)
    for D in (64, 128, 256)
    for kind, lengths in (("ragged", (1000, 1777, 4099)), ("whole", (1792, 4224)))
    for S in lengths
}
"""Lengths that no tile divides, and the next larger ones that a tile of 128 divides; for 1,000 that is 1,024, which is
in the sweep. In no preset: `--case 'ragged-*,whole-*,sweep-*-s1024-*'`."""
DECODE = {
    f"decode-{'' if rows == 1 else f'{rows}-'}x{group}-n{keys}": Shape(
        1, 32, rows, 128, 32 // group if group > 1 else 0, keys
    )
    for rows, lengths in ((1, (1024, 4096, 16384, 65536, 131072)), (16, (4096, 16384)))
    for group in (1, 4, 8)
    for keys in lengths
}
"""One query, or 16, for each of 32 heads, groups of which share their keys. In no preset: `--case 'decode-*'`."""
UNEVEN = (3967, 17, 2048, 65, 1201, 640, 4096, 129, 311, 777, 2885, 248)
"""A dozen sequences of 16,384 tokens in total, as uneven as those that are packed for training."""
PACKED = {
    **{f"form-packed-d{D}": Shape(0, 2048 // D, 0, D, lengths=UNEVEN) for D in (64, 128)},
    "form-packed-even-d128": Shape(0, 16, 0, 128, lengths=(2048,) * 8),
    "form-packed-gqa": Shape(0, 32, 0, 128, G=8, lengths=UNEVEN),
}
"""The even ones are the same work as `sweep-d128-s2048`, whose sequences are a dimension of their own."""
FORMS = {
    "form-gqa": Shape(4, 32, 4096, 128, G=8),
    "form-mqa": Shape(4, 32, 4096, 128, G=1),
    "form-more-keys": Shape(4, 16, 1024, 128, N=8192),
    "form-window-512": Shape(2, 16, 8192, 128, W=512),
    "form-window-4096": Shape(1, 16, 16384, 128, W=4096),
    "form-cap": Shape(4, 16, 4096, 128, cap=50),
    "form-sinks": Shape(4, 64, 4096, 64, G=8, W=128, sinks=1),
    **{f"form-d{D}": Shape(4, 2048 // D, 4096, D) for D in (32, 80, 96, 112, 192)},
    "form-d192-v128": Shape(4, 16, 4096, 192, V=128),
    **PACKED,
}
"""What models use besides plain attention. In no preset: `--case 'form-*'`."""
SHAPES = {**LATENCY, **THROUGHPUT, **REFERENCE, **SWEEP}
