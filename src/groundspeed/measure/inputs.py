"""The inputs of a case in a worker: several sets, whose tensors are combined anew for every timed call.

Short work is called many times in an interval. With few inputs it would get the same ones again and again, and a result
cached from an earlier call would be right. So q, k and v are taken from different sets: n sets give n³ combinations,
and all that include a tensor of a set renewed since have never been seen before (unseen.py)."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case
from groundspeed.evidence.protocol import derive_seed
from groundspeed.measure import gate, unchanged
from groundspeed.measure.unseen import Combination, Unseen

if TYPE_CHECKING:
    from torch import Tensor

SETS = ((1 << 16, 16), (1 << 18, 12), (1 << 22, 6))
"""(bytes, sets): inputs of up to this many bytes get this many sets. Larger ones, which are called once or twice in an
interval, get as many as the protocol says."""
GROWN = 1 << 21
"""If more sets are needed, because a sample has more calls than there are unseen combinations, sets are added up to
this many bytes of random inputs in all: about what the numbers above come to."""
GLANCES = 9
"""The number of tensors of which a stretch is compared after a timed call that is not checked."""
LARGE = 1 << 28
"""The most bytes of an input that are compared after a timed call that is checked: weights may be gigabytes."""
LARGE_KNOWN = 1 << 26
"""The same if no contender was brought along; then also the size above which only a part of an input is held back."""
Mark = tuple[str, int, int, Any, tuple[int, ...], tuple[int, ...], bool]
"""What a tensor shows of a change without being read."""


@dataclass
class Inputs:
    case: Case
    thorough: bool = True
    """Some contender was brought along: inputs are held back whole, and all are looked at after every call."""
    sets: list[tuple[Tensor, ...]] = field(default_factory=list)
    pristine: list[tuple[Tensor, ...]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    bytes: tuple[list[list[Tensor]], list[list[Tensor]]] = field(default_factory=lambda: ([], []))
    """The sets and the pristine copies as bytes, in place; valid as long as the marks are the same."""
    first_seed: int = 0
    storages: frozenset[int] = frozenset()
    """The storages of the sets: an output that lies in one of them has no memory of its own."""

    @classmethod
    def make(cls, case: Case, seeds: Sequence[int], device: str, *, thorough: bool = True) -> Inputs:
        first = case.inputs(seeds[0], device)
        size = sum(tensor.nbytes for tensor in first)
        count = next((sets for most, sets in SETS if size <= most), len(seeds))
        more = [*seeds[1:], *(derive_seed(seeds[0], "set", i) for i in range(len(seeds), count))]
        fixed = first[len(first) - case.fixed_inputs :]
        kept = tuple(tensor.clone() for tensor in fixed)  # one copy: they may be the weights of a model
        made = cls(case, thorough, first_seed=seeds[0])
        made._add(first, kept)
        for seed in more[: max(count, len(seeds)) - 1]:
            made._add(made._draw(seed), kept)
        made._know()
        return made

    def _draw(self, seed: int) -> tuple[Tensor, ...]:
        """Return new random inputs beside the fixed ones of the first set."""
        first = self.sets[0]
        drawn = (self.case.drawn_inputs or self.case.inputs)(seed, str(first[0].device))
        return (*drawn[: self.drawn], *first[self.drawn :])

    def _add(self, one: tuple[Tensor, ...], fixed: tuple[Tensor, ...]) -> None:
        self.sets.append(one)
        self.pristine.append((*(tensor.clone() for tensor in one[: self.drawn]), *fixed))

    def grow(self, count: int) -> None:
        """Add sets until there are `count`, or as many as GROWN permits."""
        most = min(count, GROWN // sum(tensor.nbytes for tensor in self.sets[0][: self.drawn]))
        if most <= len(self.sets):
            return
        for i in range(len(self.sets), most):
            self._add(self._draw(derive_seed(self.first_seed, "set", i)), self.pristine[0][self.drawn :])
        self._know()

    def _know(self) -> None:
        self.marks = self._marks()
        assert all(tensor.is_contiguous() for one in self.sets for tensor in one), "bytes would be a copy"
        now, before = ([[unchanged.as_bytes(x) for x in one] for one in sets] for sets in (self.sets, self.pristine))
        self.bytes = now, before
        self.storages = frozenset(tensor.untyped_storage().data_ptr() for one in self.sets for tensor in one)

    def __len__(self) -> int:
        return len(self.sets)

    def diagonal(self) -> list[Combination]:
        """Return a combination for each set by itself."""
        return [(i,) * self.drawn + (0,) * self.case.fixed_inputs for i in range(len(self.sets))]

    @property
    def drawn(self) -> int:
        """The number of random inputs."""
        return len(self.case.input_names) - self.case.fixed_inputs

    @cached_property
    def unseen(self) -> Unseen:
        return Unseen(self)

    def renew(self, number: int) -> None:
        """Give a set new values, in place. Its fixed inputs stay as they were handed in: copying these too would hide
        that one was changed, and takes long if they are weights."""
        import torch

        self.case.refresh(self.sets[number], self.pristine[number])
        torch._foreach_copy_(self.pristine[number][: self.drawn], self.sets[number][: self.drawn])

    def of(self, combination: Combination) -> tuple[Tensor, ...]:
        return tuple(self.sets[i][place] for place, i in enumerate(combination))

    def calls(self, function: Callable[..., Any], combinations: Sequence[Combination]) -> list[Callable[[], Any]]:
        return [partial(function, *self.of(combination), **self.case.arguments) for combination in combinations]

    def hold_back(self, combinations: Sequence[Combination], place: int) -> None:
        """Replace one input of these combinations by that of another set until `give`: a contender that begins early
        gets wrong results."""
        self._fill({one[place] for one in combinations}, place, other=True)

    def give(self, combinations: Sequence[Combination], place: int) -> None:
        self._fill({one[place] for one in combinations}, place, other=False)

    def held_back(self, combination: Combination, place: int) -> tuple[Tensor, ...]:
        """Return these inputs as they were while one was held back."""
        before = list(self.of(combination))
        before[place] = before[place].clone()
        self._part(before[place]).copy_(self._part(self.pristine[self._other(combination[place])][place]))
        return tuple(before)

    def _other(self, number: int) -> int:
        return (number + 1) % len(self.sets)

    def _fill(self, numbers: Collection[int], place: int, *, other: bool) -> None:
        """Fill without changing the version counters of the tensors, by which a contender could notice it."""
        import torch

        targets = [self.sets[i][place] for i in numbers]
        sources = [self.pristine[self._other(i) if other else i][place] for i in numbers]
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(tuple(targets)):
            torch._foreach_copy_([self._part(x) for x in targets], [self._part(x) for x in sources])

    def _part(self, tensor: Tensor) -> Tensor:
        """Return the part that is held back: all of a tensor; or, of a large one if no contender was brought along, the
        first elements of each row. They enter every score and every product; of values, they make the first columns of
        every row of the result. Only a hostile contender would work around that."""
        if self.thorough or tensor.nbytes <= LARGE_KNOWN:
            return tensor
        return tensor[..., : max(16, tensor.shape[-1] // 16)]

    def check(self, combination: Combination) -> None:
        """Raise Incorrect if one of these inputs is no longer what was handed in; of a very large one, a stretch is
        compared."""
        self._check_marks()
        unchanged.glance(*self._known(enumerate(combination)), most=LARGE if self.thorough else LARGE_KNOWN)

    def check_all(self) -> None:
        """Raise Incorrect if any input is no longer what was handed in. Of a very large one, only a stretch is compared
        if no contender was brought along."""
        self._check_marks()
        fixed = [(place, 0) for place in range(self.drawn, len(self.case.input_names))]
        known = self._known([*itertools.product(range(self.drawn), range(len(self.sets))), *fixed])
        if self.thorough:
            unchanged.check_inputs(*known)
        else:
            unchanged.glance(*known, most=LARGE_KNOWN)

    def _known(self, which: Iterable[tuple[int, int]]) -> tuple[list[str], list[Tensor], list[Tensor]]:
        """Return, for inputs given as (place, set), their names, their bytes, and the bytes that were handed in."""
        chosen = list(which)
        now, before = ([sets[i][place] for place, i in chosen] for sets in self.bytes)
        return [self.case.input_names[place] for place, _ in chosen], now, before

    def glance(self, used: Sequence[Combination]) -> None:
        """Raise Incorrect if any input's mark has changed, or a stretch of some of those that were used. If no
        contender was brought along, compare only the marks of the inputs used last."""
        self._check_marks(None if self.thorough else used[-1])
        if self.thorough:
            some = _some(used, max(1, GLANCES // len(self.case.input_names)))
            unchanged.glance(*self._known(placed for one in some for placed in enumerate(one)))

    def _check_marks(self, one: Combination | None = None) -> None:
        """Raise Incorrect if the mark of a tensor has changed: of one combination, or of all sets."""
        names = self.case.input_names
        if one is None:
            now, before = self._marks(), self.marks
        else:
            now = [_mark(tensor, self.plain) for tensor in self.of(one)]
            before = [self.marks[number * len(names) + place] for place, number in enumerate(one)]
        for i, (a, b) in enumerate(zip(now, before, strict=True)):
            if a != b:
                raise gate.Incorrect(f"changed its input {names[i % len(names)]}")

    def restore(self) -> bool:
        """Restore every input, whatever was done to it. Return whether one had to be moved to other memory."""
        moved = False
        for one, before in zip(self.sets, self.pristine, strict=True):
            for tensor, content in zip(one, before, strict=True):
                _make_plain(tensor)
                tensor.requires_grad_(False)
                kind = tensor.dtype, tensor.shape, tensor.stride()
                if kind == (content.dtype, content.shape, content.stride()):
                    tensor.data.copy_(content)
                else:
                    tensor.data = content.clone()
                    moved = True
        self._know()
        return moved

    def _marks(self) -> list[Mark]:
        return [_mark(tensor, self.plain) for one in self.sets for tensor in one]

    @cached_property
    def plain(self) -> type:
        import torch

        plain: type = torch.Tensor
        return plain


def _make_plain(tensor: Tensor) -> None:
    """Make a tensor plain in place, since others hold it too: no subclass, and no functions of its own."""
    import torch

    if type(tensor) is not torch.Tensor:
        object.__setattr__(tensor, "__class__", torch.Tensor)
    for name in [name for name in vars(tensor) if hasattr(torch.Tensor, name)]:
        del vars(tensor)[name]


def _mark(tensor: Tensor, plain: type) -> Mark:
    """Return the mark of a tensor. Its type and its own functions come first: a tensor that is not plain is asked
    nothing else, since it would answer for itself."""
    own = vars(tensor)
    if (kind := type(tensor)) is not plain or (own and any(hasattr(plain, name) for name in own)):
        return f"{kind.__name__}, not plain", 0, 0, None, (), (), False
    where = tensor._version, tensor.data_ptr(), tensor.dtype
    return "", *where, tensor.shape, tensor.stride(), tensor.requires_grad


def _some(used: Sequence[Any], count: int) -> list[Any]:
    """Return the last element and, at random, up to `count - 1` of the others."""
    rest = list(used[:-1])
    return [used[-1], *(rest.pop(secrets.randbelow(len(rest))) for _ in range(min(count - 1, len(rest))))]
