"""One captured graph: its copies of the arguments, its results, and how a call is filled in and read out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from groundspeed.nn.graphs.arguments import Leaf, Parts, plain_key
from groundspeed.nn.graphs.buckets import Following, Padded, Sizes, put
from groundspeed.nn.graphs.cuda import Captured

Kind = tuple[tuple[int, ...], torch.dtype]
"""Shape, with -1 for a padded dimension, and dtype."""


@dataclass
class Structure:
    """What is common to calls that differ only in their tensors."""

    spec: Any
    leaves: list[Leaf]
    tensors: list[int]
    """The positions of tensors among the leaves."""
    in_place: frozenset[int]
    """The positions of tensors that are used in place."""
    padded: list[Padded]
    pad_values: Mapping[str, Any]
    reference: list[Kind] | None = None
    """With buckets, the kind of each tensor in the first call. Later calls may change only the padded dimensions."""

    def sizes(self, tensors: Mapping[int, torch.Tensor]) -> Sizes:
        return tuple(tensors[one.position].shape[one.dim] for one in self.padded)

    def check(self, tensors: Mapping[int, torch.Tensor]) -> None:
        """Raise ValueError for a tensor of another kind than in the first call."""
        for i, first in zip(self.tensors, self.reference or (), strict=False):
            if (one := self._kind(i, tensors[i])) != first:
                told = [
                    f"{dtype} {list(shape)}".replace("torch.", "").replace("-1", "any") for shape, dtype in (one, first)
                ]
                raise ValueError(
                    f"{self.leaves[i].text!r} is {told[0]}, but the first call had {told[1]}: with buckets=, only the "
                    "dimensions that it names may change; add this one, or pass no buckets"
                )

    def remember(self, tensors: Mapping[int, torch.Tensor]) -> None:
        """Keep the kinds of the first successful call."""
        if self.reference is None:
            self.reference = [self._kind(i, tensors[i]) for i in self.tensors]

    def _kind(self, i: int, tensor: torch.Tensor) -> Kind:
        free = {one.dim for one in self.padded if one.position == i}
        return tuple(-1 if dim in free else n for dim, n in enumerate(tensor.shape)), tensor.dtype

    def bucket(self, tensors: Mapping[int, torch.Tensor]) -> dict[int, tuple[int, ...]]:
        """Return the padded shape of each tensor."""
        found = {i: list(tensor.shape) for i, tensor in tensors.items()}
        for one in self.padded:
            found[one.position][one.dim] = one.bucket(found[one.position][one.dim])
        return {i: tuple(shape) for i, shape in found.items()}


@dataclass
class Graph:
    structure: Structure
    leaves: list[Any]
    """The leaves of the captured call: tensors of the graph's own, except those that are used in place."""
    shapes: dict[str, tuple[int, ...]]
    values: dict[str, Any]
    """The plain values."""
    replays: int = 0
    _outputs: list[Any] = field(default_factory=list)
    _spec: Any = None
    _captured: Captured | None = None
    _following: Following | None = None
    _last: Sizes | None = None
    _shared: frozenset[int] = frozenset()

    @classmethod
    def prepare(cls, structure: Structure, parts: Parts, shapes: Mapping[int, tuple[int, ...]]) -> Graph:
        leaves = list(parts.leaves)
        for i in structure.tensors:
            if i not in structure.in_place:
                leaves[i] = _like(leaves[i], shapes[i])
        told = {structure.leaves[i].text: shapes[i] for i in structure.tensors}
        values = {one.text: leaf for one, leaf in zip(structure.leaves, leaves, strict=True) if plain_key(leaf)}
        made = cls(structure, leaves, told, values)
        made._shared = frozenset(leaves[i].untyped_storage().data_ptr() for i in structure.in_place)
        return made

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        """The tensors into which the arguments of a call are copied. An argument that is already the tensor itself is
        not copied."""
        structure = self.structure
        return {structure.leaves[i].text: self.leaves[i] for i in structure.tensors}

    def fill(self, parts: Parts, sizes: Sizes) -> None:
        again, self._last = sizes == self._last, sizes
        for i in self.structure.tensors:
            if i not in self.structure.in_place:
                value = self.structure.pad_values.get(self.structure.leaves[i].argument, 0)
                put(self.leaves[i], parts.leaves[i], value, again=again)

    def take(self, outputs: Any, captured: Captured) -> None:
        self._outputs, self._spec = pytree.tree_flatten(outputs)
        self._captured = captured
        tensors = [out for out in self._outputs if isinstance(out, torch.Tensor)]
        sizes = self.structure.sizes({i: self.leaves[i] for i in self.structure.tensors})
        self._following = Following([out.shape for out in tensors], self.structure.padded, sizes)

    def knows(self, sizes: Sizes) -> bool:
        assert self._following is not None, "it was captured"
        return self._following.knows(sizes)

    def learn(self, sizes: Sizes, outputs: Any) -> list[torch.Tensor]:
        """Learn from the results of a call without padding, and return its tensors."""
        assert self._following is not None, "it was captured"
        leaves, spec = pytree.tree_flatten(outputs)
        pairs = list(zip(leaves, self._outputs, strict=False))
        if spec != self._spec or any(plain_key(a) != plain_key(b) for a, b in pairs if not isinstance(a, torch.Tensor)):
            raise ValueError(
                "what the function returns besides tensors depends on a padded size: return only tensors, or pass "
                "slice_outputs=False"
            )
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self._following.learn(sizes, [tensor.shape for tensor in tensors])
        return tensors

    def replay(self) -> None:
        assert self._captured is not None, "it was captured"
        self._captured.replay()
        self.replays += 1

    def free(self) -> None:
        if self._captured is not None:
            self._captured.reset()
        self._captured, self._outputs = None, []

    def results(self, sizes: Sizes | None, *, copied: bool) -> Any:
        """Return the results, cut to `sizes` if given. A result in the memory of an argument that is used in place is
        never copied."""
        found = list(self._outputs)
        places = [i for i, out in enumerate(found) if isinstance(out, torch.Tensor)]
        for k, i in enumerate(places):
            if sizes is not None:
                assert self._following is not None, "it was captured"
                found[i] = self._following.cut(k, found[i], sizes)
            if copied and found[i].untyped_storage().data_ptr() not in self._shared:
                found[i] = found[i].clone()
        return pytree.tree_unflatten(found, self._spec)

    def tensors(self, sizes: Sizes) -> list[torch.Tensor]:
        leaves = pytree.tree_leaves(self.results(sizes, copied=False))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _like(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return an empty tensor of this shape; if the shape is the tensor's own, with the same order of dimensions in
    memory. It can be written to outside inference mode, whatever the current mode is."""
    with torch.inference_mode(False):
        if tuple(shape) == tuple(tensor.shape):
            return torch.empty_like(tensor.detach())
        return torch.empty(tuple(shape), dtype=tensor.dtype, device=tensor.device)


def check_outputs(outputs: Any, name: str) -> None:
    """Raise TypeError for a result that is neither a tensor nor a plain value: the next call could overwrite tensors
    inside it unnoticed."""
    for leaf in pytree.tree_leaves(outputs):
        if not isinstance(leaf, torch.Tensor) and plain_key(leaf) is None:
            raise TypeError(
                f"{name} returns a {type(leaf).__name__}, which a graph cannot hold: return tensors, numbers, strings, "
                "None, or tuples, lists and dicts of them"
            )
