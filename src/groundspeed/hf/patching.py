"""`patch` and `unpatch`: the blocks of one model, and of no other, call our kernels; and they do no longer.

A block is patched by a `forward` of its own that stands before that of its class. So its class, its parameters and
their names stay what they are, copies of a model are patched as it is, and the block is back where that is deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import groundspeed as gs
from groundspeed.errors import unknown
from groundspeed.hf.blocks import FORWARDS, NEEDED, turning
from groundspeed.hf.families import KINDS, family_of, why_not

MARK = "_groundspeed"
"""An attribute of a patched block: its kind."""


class Left(NamedTuple):
    """A block that stays as it is."""

    name: str
    kind: str
    reason: str


@dataclass(frozen=True)
class Patched:
    """What of a model calls our kernels, by kind, and what does not, with the reason."""

    norms: int = 0
    rotary: int = 0
    mlps: int = 0
    experts: int = 0
    left: tuple[Left, ...] = ()

    def __repr__(self) -> str:
        counts = ", ".join(f"{kind}={getattr(self, kind)}" for kind in KINDS)
        left = Counter((one.kind, one.reason) for one in self.left)
        reasons = ", ".join(f"{count} {kind} ({reason})" for (kind, reason), count in left.items())
        return f"Patched({counts}{'; left: ' if left else ''}{reasons})"


def patch(model: Any, *, only: str | Iterable[str] | None = None) -> Patched:
    """Have the norms, rotary embeddings, MLPs and sparse mixtures of experts of a Llama, Mistral, Mixtral or Qwen of
    Transformers call groundspeed's kernels, in this model and no other; of the kinds in `only`, or of all. A model that
    is patched already stays so. `unpatch` takes it back; attention is `attn_implementation="groundspeed"`.

    A block is patched whole or not at all; what is left, and why, is in the result. A family that is not known raises,
    and then nothing is patched."""
    family, kinds = family_of(model), _kinds(only)
    for needed in kinds:
        getattr(gs, NEEDED[needed])  # found from now on, by compilers too
    planned, left, counts = [], [], Counter[str]()
    for name, module in model.named_modules():
        kind = family.kind_of(module)
        if kind is None or kind not in kinds:
            continue
        is_ours = _is_ours(module)
        reason = None if is_ours else why_not(kind, module)
        if reason:
            left.append(Left(name, kind, reason))
            continue
        counts[kind] += 1
        if not is_ours:
            planned.append((module, kind))
            if kind == "rotary":
                turning(type(module))
    for module, kind in planned:  # nothing here can fail
        vars(module).update({MARK: kind, "forward": partial(FORWARDS[kind], module)})
    return Patched(**counts, left=tuple(left))


def unpatch(model: Any) -> None:
    """Take back all that `patch` did to a model."""
    marked = [(name, module) for name, module in model.named_modules() if MARK in vars(module)]
    for name, module in marked:
        if not _is_ours(module):
            raise ValueError(
                f"the forward of {name} was replaced by somebody else after gs.patch: take that back first, "
                "and nothing is taken back before"
            )
    for _, module in marked:
        del vars(module)[MARK], vars(module)["forward"]


def _is_ours(module: Any) -> bool:
    forward = vars(module).get("forward")
    return isinstance(forward, partial) and forward.func in FORWARDS.values() and forward.args == (module,)


def _kinds(only: str | Iterable[str] | None) -> tuple[str, ...]:
    asked = KINDS if only is None else (only,) if isinstance(only, str) else tuple(only)
    for kind in asked:
        if kind not in KINDS:
            raise unknown("kind of block", str(kind), KINDS)
    return asked
