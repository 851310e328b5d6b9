"""`patch` and `unpatch`: the blocks of one model, and of no other, call our kernels; and they do no longer.

A patched block has another class, which is its own in all but its `forward`. So its parameters and their names stay
what they are, copies of a model are patched as it is, and with its class the block has all of itself back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

import groundspeed as gs
from groundspeed.hf.blocks import NEEDED, class_for, own_class
from groundspeed.hf.families import KINDS, family_of, why_not


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
        if own_class(module) is not None:
            counts[kind] += 1
        elif reason := why_not(kind, module, family):
            left.append(Left(name, kind, reason))
        else:
            counts[kind] += 1
            planned.append((module, class_for(type(module), kind)))
    for module, ours in planned:  # nothing here can fail
        module.__class__ = ours
    return Patched(**counts, left=tuple(left))


def unpatch(model: Any) -> None:
    """Take back all that `patch` did to a model."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"gs.unpatch takes a model that gs.patch has patched, not {type(model).__name__}")
    blocks = [(name, module, own_class(module)) for name, module in model.named_modules()]
    patched = [(name, module, own) for name, module, own in blocks if own is not None]
    for name, module, _ in patched:
        if "forward" in vars(module):
            raise ValueError(
                f"the forward of {name} was replaced by somebody else after gs.patch: take that back first, "
                "and nothing is taken back before"
            )
    for _, module, own in patched:
        module.__class__ = own


def _kinds(only: str | Iterable[str] | None) -> tuple[str, ...]:
    asked = KINDS if only is None else (only,) if isinstance(only, str) else tuple(only)
    for kind in asked:
        if kind not in KINDS:
            raise ValueError(f"unknown kind of block {kind!r}: {', '.join(KINDS)}")
    return asked
