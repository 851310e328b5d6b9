"""A stand-in for CUDA graphs: what is recorded really runs again, on the same inputs, and its results go where the
first ones lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from groundspeed.nn.graphs import Graphed, compile_graphs, warming
from groundspeed.nn.graphs.waits import Uncapturable, uncapturable


@contextmanager
def capturing() -> Iterator[None]:
    """As it looks from inside of a capture; of a replay no Python sees anything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        patch.setattr(warming._here, "inside", True, raising=False)
        yield


class Played:
    def __init__(self, run: Callable[[], Any], outputs: Any) -> None:
        self._run, self._outputs = run, pytree.tree_leaves(outputs)
        self.freed = False

    def replay(self) -> None:
        assert not self.freed, "memory of a graph that is gone"
        with capturing():
            made = pytree.tree_leaves(self._run())
        for to, one in zip(self._outputs, made, strict=True):
            if isinstance(to, torch.Tensor):
                to.copy_(one)

    def reset(self) -> None:
        self.freed = True


class StandIn:
    made: list[StandIn]
    """All of a test."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.generators = device, list[int]()
        self.played: list[Played] = []
        self.pools = self.turns = self.asides = 0
        self.fails: Exception | None = None
        self.capturing = False
        StandIn.made.append(self)

    def is_capturing(self) -> bool:
        return self.capturing

    @contextmanager
    def turn(self) -> Iterator[None]:
        self.turns += 1
        yield

    @contextmanager
    def aside(self) -> Iterator[None]:
        self.asides += 1
        yield

    def capture(self, run: Callable[[], Any], name: str) -> tuple[Any, Played]:
        if self.fails:
            raise Uncapturable(uncapturable(name, str(self.fails))) from self.fails
        with capturing():
            outputs = run()
        with torch.inference_mode(False):
            outputs = pytree.tree_map(own, outputs)
        self.played.append(Played(run, outputs))
        return outputs, self.played[-1]

    def pool_bytes(self) -> int | None:
        return 64 * sum(not one.freed for one in self.played)

    def settle(self) -> None: ...

    def renew(self) -> None:
        self.pools += 1


KEPT = set[int]()
"""Storages that a test uses in place: a result in one stays there."""


def own(out: Any) -> Any:
    if not isinstance(out, torch.Tensor) or out.untyped_storage().data_ptr() in KEPT:
        return out
    return out.clone()


def graphed(function: Callable[..., Any], **options: Any) -> Graphed:
    """As `compile_graphs` makes it, but for the device."""
    StandIn.made = []
    made = compile_graphs(function, **options)
    return Graphed(made.function, made._options, made._watch.roots, StandIn, "cpu")
