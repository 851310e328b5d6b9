"""D6: a timed call gets inputs that no call has seen, so whoever keeps results by content keeps them for nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from benches import Bench, of

from groundspeed.suites.functions.form import Form, Tensor
from groundspeed.suites.functions.suite import Functions, Given

WEIGHT = torch.randn(32)
X, W = Tensor((64, 32), "fp32"), Tensor((32,), "fp32")
MASK = Tensor((64, 32), "bool")


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (lambda: torch.randn(64, 32), {"x": X}),
        (lambda: (torch.randn(64, 32), WEIGHT.clone()), {"x": X, "w": W}),
        (lambda: (torch.randn(64, 32), torch.randn(32)), {"x": X, "w": W}),
        (lambda: (torch.randn(64, 32), torch.rand(64, 32) > 0.5), {"x": X, "mask": MASK}),
    ],
    ids=["one", "one and a constant", "two", "one and a mask"],
)
def test_what_is_kept_by_content_is_never_asked_for_again(
    make: Callable[[], Any], inputs: dict[str, Tensor], request: pytest.FixtureRequest
) -> None:
    kept: dict[tuple[bytes, ...], torch.Tensor] = {}
    hits = calls = 0

    def right(*x: torch.Tensor) -> torch.Tensor:
        return x[0] * x[-1] * 2

    def keeps(*x: torch.Tensor) -> torch.Tensor:
        nonlocal hits, calls
        key = tuple(one.numpy().tobytes() for one in x)
        calls, hits = calls + 1, hits + (key in kept)
        return kept.setdefault(key, right(*x)).clone()

    (case,) = Functions(Form(inputs, X), Given(make, lambda *x: right(*x))).all_cases()
    bench = Bench({"keeps": keeps, "too": lambda *x: keeps(*x), "right": right}, case)
    bench.prepare()
    calls = hits = 0
    samples = of(bench.blocks(6), "sample")
    assert len(samples) == 18
    assert calls > 12 * 8
    few = "constant" in request.node.name  # gs.compare refuses such inputs: combined, they are the same again
    assert hits == 0 or few


def test_the_inputs_of_a_sample_are_renewed_before_it_and_not_in_it() -> None:
    """Renewing takes longer than the calls."""
    made: list[int] = []
    calls: list[int] = []

    def make() -> torch.Tensor:
        made.append(len(calls))
        return torch.randn(64, 32)

    def watched(x: torch.Tensor) -> torch.Tensor:
        calls.append(0)
        return x * 2

    (case,) = Functions(Form({"x": X}, X), Given(make, lambda x: x * 2)).all_cases()
    bench = Bench({"a": watched}, case)
    bench.prepare()
    made.clear()
    before = len(calls)
    (sample,) = of(bench.blocks(1), "sample")
    assert {*made} == {before}
    assert len(made) >= sample["launches"] == len(calls) - before
