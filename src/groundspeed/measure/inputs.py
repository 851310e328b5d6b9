"""The inputs of a case in a worker: several sets, whose tensors are combined anew for every timed call.

Work that is short is called many times in an interval. With few inputs it would get the same ones again and again, and
a result kept from an earlier call would be right. So q, k and v of different sets go together: of n sets come n³
combinations, and all that take part of the set which was renewed for this block were never seen before."""

from __future__ import annotations

import itertools
import random
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case
from groundspeed.evidence.protocol import derive_seed
from groundspeed.measure import gate, unchanged

if TYPE_CHECKING:
    from torch import Tensor

SETS = ((1 << 16, 16), (1 << 18, 12), (1 << 22, 6))
"""Up to so many bytes of inputs, so many sets; of larger ones, called once or twice, as many as the protocol says."""
GLANCES = 9
"""Tensors of which a stretch is compared after a timed call that is not checked."""
LARGE = 1 << 28
"""Bytes of an input that are compared after a timed call that is checked: weights may be gigabytes."""
LARGE_KNOWN = 1 << 26
"""The same where nobody brought a contender along; of a larger one, a part is held back then."""
MANY = 1 << 13
"""Combinations that are listed; of more, some are drawn."""
Mark = tuple[str, int, int, Any, tuple[int, ...], tuple[int, ...], bool]
"""Of a tensor: what it shows of a change without being read."""
Combination = tuple[int, ...]
"""For each input of the case, the set that it is taken from."""


@dataclass
class Inputs:
    case: Case
    thorough: bool = True
    """Somebody brought a contender along: everything is held back, and looked at after every call."""
    sets: list[tuple[Tensor, ...]] = field(default_factory=list)
    pristine: list[tuple[Tensor, ...]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    bytes: tuple[list[list[Tensor]], list[list[Tensor]]] = field(default_factory=lambda: ([], []))
    """What the sets and the pristine ones hold, where they lie: as long as the marks are the same."""
    storages: frozenset[int] = frozenset()
    """Where the sets lie: an output that lies there is no memory of its own."""

    @classmethod
    def make(cls, case: Case, seeds: Sequence[int], device: str, *, thorough: bool = True) -> Inputs:
        first = case.inputs(seeds[0], device)
        size = sum(tensor.nbytes for tensor in first)
        count = next((sets for most, sets in SETS if size <= most), len(seeds))
        more = [*seeds[1:], *(derive_seed(seeds[0], "set", i) for i in range(len(seeds), count))]
        drawn, fixed = first[: len(first) - case.fixed_inputs], first[len(first) - case.fixed_inputs :]
        draw = case.drawn_inputs or case.inputs
        others = (draw(seed, device)[: len(drawn)] for seed in more[: max(count, len(seeds)) - 1])
        sets = [first, *((*one, *fixed) for one in others)]
        kept = tuple(tensor.clone() for tensor in fixed)  # once: they may be the weights of a model
        made = cls(case, thorough, sets, [(*(tensor.clone() for tensor in one[: len(drawn)]), *kept) for one in sets])
        made._know()
        return made

    def _know(self) -> None:
        self.marks = self._marks()
        assert all(tensor.is_contiguous() for one in self.sets for tensor in one), "bytes would be a copy"
        now, before = ([[unchanged.as_bytes(x) for x in one] for one in sets] for sets in (self.sets, self.pristine))
        self.bytes = now, before
        self.storages = frozenset(tensor.untyped_storage().data_ptr() for one in self.sets for tensor in one)

    def __len__(self) -> int:
        return len(self.sets)

    def diagonal(self) -> list[Combination]:
        """Each set by itself."""
        return [(i,) * self.drawn + (0,) * self.case.fixed_inputs for i in range(len(self.sets))]

    @property
    def drawn(self) -> int:
        """How many of the inputs are random."""
        return len(self.case.input_names) - self.case.fixed_inputs

    def refresh(self, block: int, most: int | None = None) -> list[Combination]:
        """Renew one set; of the combinations that nobody has seen since, at most so many, in random order."""
        import torch

        fresh = block % len(self.sets)
        self.case.refresh(self.sets[fresh], self.pristine[fresh])
        torch._foreach_copy_(self.pristine[fresh], self.sets[fresh])
        drawing = random.Random(secrets.randbits(128))
        if len(self.sets) ** self.drawn > MANY:
            return _some_with(fresh, len(self.sets), self.drawn, self.case.fixed_inputs, most or MANY, drawing)
        new = _with(fresh, len(self.sets), self.drawn, self.case.fixed_inputs)
        if len(new) == 1:  # of one input there is nothing to combine
            return [*new, *(c for c in self.diagonal() if c not in new)]
        return drawing.sample(new, min(most or len(new), len(new)))

    def of(self, combination: Combination) -> tuple[Tensor, ...]:
        return tuple(self.sets[i][place] for place, i in enumerate(combination))

    def calls(self, function: Callable[..., Any], combinations: Sequence[Combination]) -> list[Callable[[], Any]]:
        return [partial(function, *self.of(combination), **self.case.arguments) for combination in combinations]

    def hold_back(self, combinations: Sequence[Combination], place: int) -> None:
        """Until they are given, one input of these is that of another set: whoever begins early gets it wrong."""
        self._fill({one[place] for one in combinations}, place, other=True)

    def give(self, combinations: Sequence[Combination], place: int) -> None:
        self._fill({one[place] for one in combinations}, place, other=False)

    def held_back(self, combination: Combination, place: int) -> tuple[Tensor, ...]:
        """What these inputs were until they were given."""
        before = list(self.of(combination))
        before[place] = before[place].clone()
        self._part(before[place]).copy_(self._part(self.pristine[self._other(combination[place])][place]))
        return tuple(before)

    def _other(self, number: int) -> int:
        return (number + 1) % len(self.sets)

    def _fill(self, numbers: Collection[int], place: int, *, other: bool) -> None:
        """Unseen by whoever goes by the version of a tensor: when its turn comes it is what it was."""
        import torch

        targets = [self.sets[i][place] for i in numbers]
        sources = [self.pristine[self._other(i) if other else i][place] for i in numbers]
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(tuple(targets)):
            torch._foreach_copy_([self._part(x) for x in targets], [self._part(x) for x in sources])

    def _part(self, tensor: Tensor) -> Tensor:
        """What is held back: all of it; of a large one, where nobody would go round it, the first elements of each row.
        They are in every score and every product; of values, in the first columns of every row of the result."""
        if self.thorough or tensor.nbytes <= LARGE_KNOWN:
            return tensor
        return tensor[..., : max(16, tensor.shape[-1] // 16)]

    def check(self, combination: Combination) -> None:
        """Incorrect where one of these inputs is no longer what was handed in; of what is very large, a stretch."""
        self._check_marks()
        unchanged.glance(*self._known(enumerate(combination)), most=LARGE if self.thorough else LARGE_KNOWN)

    def check_all(self) -> None:
        """Incorrect where any input is no longer what was handed in; of what is very large, a stretch will do where
        nobody brought anything along."""
        self._check_marks()
        fixed = [(place, 0) for place in range(self.drawn, len(self.case.input_names))]
        known = self._known([*itertools.product(range(self.drawn), range(len(self.sets))), *fixed])
        if self.thorough:
            unchanged.check_inputs(*known)
        else:
            unchanged.glance(*known, most=LARGE_KNOWN)

    def _known(self, which: Iterable[tuple[int, int]]) -> tuple[list[str], list[Tensor], list[Tensor]]:
        """Of inputs by their place and set: their names, their bytes, and those that were handed in."""
        chosen = list(which)
        now, before = ([sets[i][place] for place, i in chosen] for sets in self.bytes)
        return [self.case.input_names[place] for place, _ in chosen], now, before

    def glance(self, used: Sequence[Combination]) -> None:
        """Incorrect where any of them shows a change, or a stretch of some of those used has one; where nobody brought
        anything along, where those used last show one."""
        self._check_marks(None if self.thorough else used[-1])
        if self.thorough:
            some = _some(used, max(1, GLANCES // len(self.case.input_names)))
            unchanged.glance(*self._known(placed for one in some for placed in enumerate(one)))

    def _check_marks(self, one: Combination | None = None) -> None:
        """Incorrect where a tensor shows a change; of one combination, or of all sets."""
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
        """Every input as it was, whatever was done to it; whether one had to be put elsewhere."""
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
    """The very same, since others hold it too: of no class and with no functions of somebody's own."""
    import torch

    if type(tensor) is not torch.Tensor:
        object.__setattr__(tensor, "__class__", torch.Tensor)
    for name in [name for name in vars(tensor) if hasattr(torch.Tensor, name)]:
        del vars(tensor)[name]


def _mark(tensor: Tensor, plain: type) -> Mark:
    """Its type first, and whether it has functions of its own in place of a tensor's: then it is asked nothing, since
    it would answer for itself."""
    own = vars(tensor)
    if (kind := type(tensor)) is not plain or (own and any(hasattr(plain, name) for name in own)):
        return f"{kind.__name__} of somebody's own", 0, 0, None, (), (), False
    where = tensor._version, tensor.data_ptr(), tensor.dtype
    return "", *where, tensor.shape, tensor.stride(), tensor.requires_grad


@cache
def _with(fresh: int, sets: int, inputs: int, fixed: int) -> tuple[Combination, ...]:
    """All combinations with a part of one set. Fixed inputs are always those of the first set: that of another would be
    no other work."""
    return tuple(c + (0,) * fixed for c in itertools.product(range(sets), repeat=inputs) if fresh in c)


def _some_with(fresh: int, sets: int, inputs: int, fixed: int, count: int, drawing: random.Random) -> list[Combination]:
    """So many of them, no two alike, where there are too many to list; at most half of all, which are found quickly."""
    count = min(count, (sets**inputs - (sets - 1) ** inputs) // 2)
    found: dict[Combination, None] = {}
    while len(found) < count:
        drawn = [drawing.randrange(sets) for _ in range(inputs)]
        drawn[drawing.randrange(inputs)] = fresh
        found[(*drawn, *(0,) * fixed)] = None
    return [*found]


def _some(used: Sequence[Any], count: int) -> list[Any]:
    """The last one, and others at random."""
    rest = list(used[:-1])
    return [used[-1], *(rest.pop(secrets.randbelow(len(rest))) for _ in range(min(count - 1, len(rest))))]
