"""The contenders of Transformers' Llamas: its own attention, the same under torch.compile, groundspeed's drop-in."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from groundspeed.case import Case, Contender
from groundspeed.kernels import work
from groundspeed.suites.available import (
    expect,
    installed,
    joined,
    not_in_a_graph,
    sixteen_bit_on_gpu,
    torch_version,
    triton_version,
    without_compiler,
    without_torch,
    without_triton,
)
from groundspeed.suites.huggingface.models import llama

COMPILED_BY = ("L", "d", "I", "H", "G", "dtype")
OLDEST = 5
"""The oldest major version of Transformers that `groundspeed.hf` supports."""
_HOME = Path(work.__file__).parents[1]
_SHIPPED = "as its library ships it"
_OURS = "tiles from tables; no tuning at run time"
_COMPILED = (
    "torch.compile for this shape alone, in default mode; its first call tries a few configurations of some kernels"
)
_ATTENTION = expect(
    "attention_forward_kernel", "attention_decode_kernel", "attention_relay_kernel", "attention_forward_hopper"
)
_NORMS = expect("norm_forward_kernel")


def contenders() -> list[Contender]:
    theirs: Any = partial(Contender, "huggingface", version=_version, tuning=_SHIPPED, absent=_without(without_torch))
    ours: Any = partial(
        Contender,
        "huggingface",
        version=_our_version,
        tuning=_OURS,
        absent=_without(without_triton),
        supports=sixteen_bit_on_gpu,
        source=str(_HOME / "hf" / "__init__.py"),
    )
    return [
        theirs(
            "eager",
            'Llama of Transformers with attn_implementation="eager"',
            llama("eager"),
            supports=not_in_a_graph,  # its mask copies a zero from the host
        ),
        theirs("sdpa", 'the same with "sdpa", which Transformers uses by default', llama("sdpa")),
        theirs(
            "sdpa-compiled",
            "the same under torch.compile, with a cache of fixed size for steps",
            llama("sdpa", compiled=True),
            absent=_without(without_compiler),
            tuning=_COMPILED,
            tries=True,
        ),
        ours(
            "groundspeed",
            'the same model with attn_implementation="groundspeed"',
            llama("groundspeed"),
            parts=_parts("hf/*", "kernels/*", "kernels/attention/**/*"),
            launches=_ATTENTION,
        ),
        ours(
            "patched",
            "that and gs.patch(model): also groundspeed's norms, rotary embedding and activation",
            llama("groundspeed", patched=True),
            parts=_ALL,
            launches=_attention_and_norms,
        ),
        ours(
            "patched-compiled",
            "patched under torch.compile, as in sdpa-compiled",
            llama("groundspeed", patched=True, compiled=True),
            parts=_ALL,
            launches=_attention_and_norms,
            absent=_without(without_triton, without_compiler),
            tuning=_COMPILED,
            tries=True,
        ),
    ]


def preset_contenders(preset: str, device: str) -> tuple[str, ...] | None:
    """Return the contenders that a preset measures; None for all."""
    if preset == "quick":
        return tuple(c.name for c in contenders() if not c.name.endswith("-compiled"))
    return None


def preset_skips(preset: str, cases: Mapping[str, Case], baseline: str) -> dict[tuple[str, str], str]:
    return {}


def _parts(*patterns: str) -> tuple[str, ...]:
    return tuple(str(path) for part in patterns for path in sorted(_HOME.glob(f"{part}.py")))


_ALL = _parts(
    "hf/*",
    "kernels/*",
    "kernels/attention/**/*",
    "kernels/norm/*",
    "kernels/rotary/*",
    "kernels/activation/*",
    "kernels/linear/*",
)


def _attention_and_norms(kernels: Sequence[str]) -> str | None:
    return _ATTENTION(kernels) or _NORMS(kernels)


def _without(*needs: Callable[[str], str | None]) -> Callable[[str], str | None]:
    def absent(device: str) -> str | None:
        reasons = dict.fromkeys(need(device) for need in needs)
        return joined(*reasons, _without_transformers())

    return absent


def _without_transformers() -> str | None:
    if not installed("transformers"):
        return "transformers is not installed: pip install 'groundspeed[hf]'"
    version = importlib.metadata.version("transformers")
    if int(version.partition(".")[0]) < OLDEST:
        return f"needs transformers {OLDEST} or newer, but {version} is installed: pip install 'groundspeed[hf]'"
    return None


def _version() -> str:
    return f"transformers {importlib.metadata.version('transformers')}, {torch_version()}"


def _our_version() -> str:
    return f"transformers {importlib.metadata.version('transformers')}, {triton_version()}"
