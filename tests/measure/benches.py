"""A measuring process over functions, driven without its pipes, and what it reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from groundspeed.case import Case, Contender
from groundspeed.measure import bench as room
from groundspeed.measure.setting import Setting
from groundspeed.suites.attention import cases

Message = dict[str, Any]
Function = Callable[..., Any]
CASE = cases.shape_cases("H=2,S=16,D=16,causal=0", ("fp32",))[0]
PARAMS = dict(CASE.params)


def right(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


class Bench:
    """A session over functions, with what it reported."""

    def __init__(
        self, functions: dict[str, Function], case: Case = CASE, own: Sequence[str] = (), **contender: Any
    ) -> None:
        self.messages: list[Message] = []
        contenders = {
            name: Contender("attention", name, "", lambda case, function=function: function, **contender)
            for name, function in functions.items()
        }
        module = SimpleNamespace(case_of_params=lambda params: case)
        suite = SimpleNamespace(module=module, contenders=contenders, own=[*own])
        self.session = room.Bench(suite, "cpu", 1e-3, 10, self.report, Setting.now(), thorough=bool(own))
        self.session.check_one_in = [(1, 1 if own else 10)]

    def report(self, kind: str, **message: Any) -> None:
        self.messages.append(json.loads(json.dumps({"kind": kind, **message})))

    def prepare(self, *names: str, seeds: tuple[int, ...] = (1, 2, 3)) -> list[Message]:
        self.messages.clear()
        self.session.prepare(PARAMS, names or tuple(self.session.suite.contenders), seeds)
        return list(self.messages)

    def blocks(self, count: int, *names: str, first: int = 0) -> list[Message]:
        self.messages.clear()
        for block in range(first, first + count):
            self.session.block(block, names or tuple(self.session.suite.contenders))
        return list(self.messages)


def of(messages: list[Message], kind: str, contender: str | None = None) -> list[Message]:
    return [m for m in messages if m["kind"] == kind and contender in (None, m.get("contender"))]
