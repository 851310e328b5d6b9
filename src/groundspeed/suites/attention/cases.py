"""The cases of attention: named shapes (requirement A3) × mask × dtype, and any shape a user writes."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from groundspeed.case import CLOCKS, DEFAULT_CLOCK, Case, Scalar, with_clock
from groundspeed.errors import BadInput, unknown
from groundspeed.kernels import work
from groundspeed.kernels.attention import reference
from groundspeed.suites.inputs import random_tensors, shift

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("fp32", "fp16", "bf16")
MAX_DIGITS, MAX_FLOPS = 9, 2**62
"""Of a shape in the user's words: what a record can hold is far beyond what any machine can do."""
SHAPE_KEYS = {
    "B": "batch",
    "H": "heads",
    "S": "sequence",
    "D": "head dimension",
    "G": "heads of keys and values, H without it",
    "N": "keys, S without it",
    "V": "dimension of the values, D without it",
    "W": "keys that a query sees before its own place, and without a causal mask after it; all without it",
    "cap": "soft-cap of the scores",
    "sinks": "1: each head has one more score, without a value",
    "causal": "0 or 1; both without it",
}


class Shape(NamedTuple):
    B: int
    H: int
    S: int
    D: int
    G: int = 0
    """Heads of keys and values, where these are others than H."""
    N: int = 0
    """Keys, where these are others than S."""
    V: int = 0
    """Dimension of the values, where it is another than D."""
    W: int = 0
    """Keys of a window to each side that there is."""
    cap: int = 0
    sinks: int = 0

    @property
    def query(self) -> tuple[int, ...]:
        return self.B, self.H, self.S, self.D

    @property
    def key(self) -> tuple[int, ...]:
        return self.B, self.G or self.H, self.N or self.S, self.D

    @property
    def value(self) -> tuple[int, ...]:
        return *self.key[:3], self.V or self.D

    def params(self) -> dict[str, int]:
        return {name: value for name, value in self._asdict().items() if value}

    def form(self, causal: bool) -> dict[str, Any]:
        """What is asked for beside the mask and the scale."""
        window = {"window_size": (self.W, 0 if causal else self.W)} if self.W else {}
        return {**window, **({"softcap": float(self.cap)} if self.cap else {})}


_USUAL = {"G": "H", "N": "S", "V": "D"}
"""What is told only where it is another than this."""
_OPTIONAL = ("G", "N", "V", "W", "cap", "sinks")

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
DECODE = {
    f"decode-x{group}-n{keys}": Shape(1, 32, 1, 128, 32 // group if group > 1 else 0, keys)
    for group in (1, 4, 8)
    for keys in (1024, 4096, 16384, 65536, 131072)
}
"""One query for each of 32 heads, groups of which share their keys. In no preset: `--case 'decode-*'`."""
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
}
"""What models ask for beside plain attention. In no preset: `--case 'form-*'`."""
SHAPES = {**LATENCY, **THROUGHPUT, **REFERENCE, **SWEEP}

_QUICK = {
    "cpu": ("small", "medium", "large", "xlarge", "multi-head"),
    "cuda": ("xlarge", "t4", "claim", "ref-64"),
}
_DEFAULT_DTYPES = {"cpu": ("fp32",), "cuda": ("bf16", "fp16")}


def default_dtypes(device: str) -> tuple[str, ...]:
    return _DEFAULT_DTYPES[device]


def all_cases() -> list[Case]:
    """Every named case; a shape that goes by two names is one case with an alias."""
    decode = [forward(name, shape, dtype, False) for dtype in DTYPES for name, shape in DECODE.items()]
    forms = [forward(name, shape, dtype, c) for dtype in DTYPES for name, shape in FORMS.items() for c in (False, True)]
    return [*(c for dtype in DTYPES for c in _named(tuple(SHAPES), dtype)), *decode, *forms]


def preset_cases(preset: str, device: str) -> list[Case]:
    """What a preset measures where no case is asked for. The larger shapes are a GPU's: a CPU would take days."""
    if preset == "quick":
        names, dtypes = _QUICK[device], _DEFAULT_DTYPES[device][:1]
    else:
        names = tuple(SHAPES) if device == "cuda" else (*LATENCY, *THROUGHPUT)
        dtypes = _DEFAULT_DTYPES[device]
    return [c for dtype in dtypes for c in _named(names, dtype)]


def _named(names: Sequence[str], dtype: str) -> list[Case]:
    first: dict[Shape, str] = {}
    aliases: dict[str, list[str]] = {}
    for name in SHAPES:
        aliases.setdefault(first.setdefault(SHAPES[name], name), []).append(name)
    chosen = dict.fromkeys(first[SHAPES[name]] for name in names)
    return [
        dataclasses.replace(
            forward(name, SHAPES[name], dtype, causal),
            aliases=tuple(_case_name(alias, causal, dtype) for alias in aliases[name][1:]),
        )
        for name in chosen
        for causal in (False, True)
    ]


def shape_cases(text: str, dtypes: Sequence[str]) -> list[Case]:
    """Cases of a shape in the user's words, `S=777,D=96`; what is not said is B=1, H=8, S=1024, D=64 and both masks."""
    values: dict[str, int] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if key not in SHAPE_KEYS:
            raise unknown("key in --shape", key, SHAPE_KEYS, see=f"The keys are {', '.join(SHAPE_KEYS)}.")
        if not equals or not value.isascii() or not value.isdigit() or (key != "causal" and not value.strip("0")):
            raise BadInput(f"--shape {part.strip()}: {key} needs a whole number, as in --shape S=777,D=96")
        if len(value) > MAX_DIGITS:
            raise BadInput(f"--shape {part.strip():.40}: {key} is out of range")
        if key in values:
            raise BadInput(f"--shape {text}: {key} is given twice")
        values[key] = int(value)
    for key in ("causal", "sinks"):
        if values.get(key, 0) > 1:
            raise BadInput(f"--shape {key}={values[key]}: {key} is 0 or 1")
    masks = (bool(values["causal"]),) if "causal" in values else (False, True)
    shape = Shape(values.get("B", 1), values.get("H", 8), values.get("S", 1024), values.get("D", 64))
    if "G" in values and shape.H % values["G"]:
        raise BadInput(f"--shape {text}: H={shape.H} is no multiple of G={values['G']}")
    shape = shape._replace(
        **{key: values[key] for key, usual in _USUAL.items() if key in values and values[key] != getattr(shape, usual)},
        **{key: values[key] for key in _OPTIONAL if key in values and key not in _USUAL},
    )
    cases = [forward(_shape_name(shape), shape, dtype, causal) for dtype in dtypes for causal in masks]
    if any(case.work.flops > MAX_FLOPS for case in cases):
        raise BadInput(f"--shape {text}: that is more work than any machine can do; choose smaller numbers")
    return cases


def case_of_params(params: dict[str, Scalar]) -> Case:
    """The case that a record describes by its parameters."""
    try:
        shape = Shape(*(int(params[key]) for key in "BHSD"), *(int(params.get(key, 0)) for key in _OPTIONAL))
        dtype, causal = str(params["dtype"]), bool(params["causal"])
        clock = params.get("clock", DEFAULT_CLOCK)
        if dtype not in DTYPES or min(*shape.query, *shape.value) < 1 or shape.H % (shape.G or shape.H):
            raise ValueError("out of range")
        if clock not in CLOCKS or params.get("clock") == DEFAULT_CLOCK:
            raise ValueError("out of range")
        if any(params.get(key) in (0, params[usual]) for key, usual in _USUAL.items()):
            raise ValueError("what is as usual is not told")
        if any(params.get(key) == 0 for key in _OPTIONAL) or min(shape) < 0 or shape.sinks > 1:
            raise ValueError("out of range")
    except (KeyError, ValueError, TypeError) as error:
        raise BadInput(f"not the parameters of an attention case: {params!r:.200} ({error})") from None
    case = forward(_shape_name(shape), shape, dtype, causal)
    return case if clock == DEFAULT_CLOCK else with_clock(case, str(clock))


def _shape_name(shape: Shape) -> str:
    groups, keys = f"-g{shape.G}" if shape.G else "", f"-n{shape.N}" if shape.N else ""
    window, cap = f"-w{shape.W}" if shape.W else "", f"-cap{shape.cap}" if shape.cap else ""
    values, sinks = f"-v{shape.V}" if shape.V else "", "-sinks" if shape.sinks else ""
    return f"b{shape.B}-h{shape.H}{groups}-s{shape.S}{keys}-d{shape.D}{values}{window}{cap}{sinks}"


def _case_name(shape: str, causal: bool, dtype: str) -> str:
    return f"{shape}-{'causal' if causal else 'full'}-{dtype}"


def forward(name: str, shape: Shape, dtype: str, causal: bool) -> Case:
    B, H, S, D = shape.query
    _, G, N, V = shape.value
    form = shape.form(causal)
    sinks = [(H,)] if shape.sinks else []
    return Case(
        suite="attention",
        name=_case_name(name, causal, dtype),
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
        long_sums=long_sums if dtype != "fp32" and N >= LONG and not shape.W else None,
    )


def _oracle(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None, **asked: Any) -> Tensor:
    return reference.attention(q, k, v, sinks=sinks, **asked)


LONG = 512
"""Keys. Of fewer, one who rounds his sum now and then is hardly worse than one who rounds it once more."""


def long_sums(inputs: tuple[Tensor, ...], limit: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """Values that have one sign in each dimension, and rows of the second half of each sequence, which see at least
    half of the keys."""
    import torch

    q, k, v, *sinks = inputs
    B, H, S, _ = q.shape
    generator = torch.Generator().manual_seed(secrets.randbits(62))  # not PyTorch's own, which anybody can set
    signs = torch.randint(2, (v.shape[3],), generator=generator).mul(2).sub(1).to(v)
    heads = torch.randint(B * H, (limit,), generator=generator)
    late = torch.randint(S // 2, S, (limit,), generator=generator)
    return (q, k, (1 + v.abs() / 4) * signs, *sinks), (heads * S + late).unique()
