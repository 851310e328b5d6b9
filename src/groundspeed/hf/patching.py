"""`patch` makes the blocks of one model, and of no other, call our kernels; `unpatch` undoes it.

A patched block is given another class: a subclass of its own class that replaces only `forward`. So its parameters and
their names do not change, copies of a patched model are patched too, and restoring the class restores the block
completely."""

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
    """A block that was not patched."""

    name: str
    kind: str
    reason: str


@dataclass(frozen=True)
class Patched:
    """The number of blocks of a model that call our kernels, by kind, and the blocks that do not, with the reason."""

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
    """Make the norms, rotary embeddings, MLPs and sparse mixtures of experts of a Llama, Mistral, Mixtral or Qwen model
    of Transformers call groundspeed's kernels, in this model and no other. `only` names the kinds to patch; by default
    all are patched. Blocks that are patched already stay so. `unpatch` undoes it. For attention, use
    `attn_implementation="groundspeed"`.

    A block is patched completely or not at all; the result lists the blocks that were left, with the reasons. A model
    of an unknown family raises, and nothing is patched."""
    family, kinds = family_of(model), _kinds(only)
    for needed in kinds:
        getattr(gs, NEEDED[needed])  # resolves the lazy attribute, so that compilers find it too
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
    for module, ours in planned:  # nothing in this loop can fail
        module.__class__ = ours
    return Patched(**counts, left=tuple(left))


def unpatch(model: Any) -> None:
    """Undo all that `patch` did to a model."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"gs.unpatch takes a model that gs.patch has patched, not {type(model).__name__}")
    blocks = [(name, module, own_class(module)) for name, module in model.named_modules()]
    patched = [(name, module, own) for name, module, own in blocks if own is not None]
    for name, module, _ in patched:
        if "forward" in vars(module):
            raise ValueError(
                f"the forward of {name} was replaced after gs.patch: undo that first; until then, nothing is unpatched"
            )
    for _, module, own in patched:
        module.__class__ = own


def _kinds(only: str | Iterable[str] | None) -> tuple[str, ...]:
    asked = KINDS if only is None else (only,) if isinstance(only, str) else tuple(only)
    for kind in asked:
        if kind not in KINDS:
            raise ValueError(f"unknown kind of block {kind!r}; choose from {', '.join(KINDS)}")
    return asked
