"""`tools/tune_moe.py`: what it times can still be called after the best variants are chosen."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from groundspeed.kernels.moe import reference

TOOLS = Path(__file__).parents[2] / "tools"
Calls = dict[str, Callable[[], Any]]


def called(calls: Calls, repeats: int) -> dict[str, float]:
    for call in calls.values():
        call()
    return {name: 1.0 + place for place, name in enumerate(calls)}


def by_reference(told: Any, routing: Any, activation: str, tried: Any) -> Any:
    return lambda *given: (reference.moe(*given, routing, activation=activation).to(given[0].dtype), None)


@pytest.fixture
def tune(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    torch.manual_seed(0)
    monkeypatch.syspath_prepend(TOOLS)
    spec = importlib.util.spec_from_file_location("tune_moe", TOOLS / "tune_moe.py")
    assert spec
    assert spec.loader
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DEVICE", "cpu")
    monkeypatch.setattr(module, "rounds", called)
    monkeypatch.setattr(module, "parts", lambda call: {"kernel": float(call() is None)})
    monkeypatch.setattr(module, "prepared", by_reference)
    yield module
    sys.modules.pop("side_by_side", None)


@pytest.mark.parametrize(("like", "profiled"), [("*", 3), ("m16 n16*", 10)])
def test_a_layer_is_timed_and_its_best_variants_are_taken_apart(tune: Any, like: str, profiled: int) -> None:
    found = tune.timed(8, 32, 64, 4, 2, "swiglu", like, graph=False)
    assert {*tune.FIXED, "grouped_mm"} <= {*found["ms"]}
    assert len(found["ms"]) == min(tune.KEPT, len(tune.variants(4, like))) + 4
    assert len(found["kernels"]) == profiled
    assert found["TB/s"] > 0


def test_what_is_wrong_is_told_and_not_timed(
    tune: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(told: Any, routing: Any, activation: str, tried: Any) -> Any:
        right = by_reference(told, routing, activation, tried)
        return right if tried.launches is None else lambda *given: (torch.zeros_like(right(*given)[0]), None)

    monkeypatch.setattr(tune, "prepared", wrong)
    assert {*tune.timed(8, 32, 64, 4, 2, "gelu", "*", graph=False)["ms"]} == {*tune.FIXED, "grouped_mm"}
    assert "wrong, 1.0e+00" in capsys.readouterr().out
