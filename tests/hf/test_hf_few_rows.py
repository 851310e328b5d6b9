"""A patched MLP of a few rows is one launch and the last product, where its layers are products alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import groundspeed as gs
from groundspeed.hf import blocks


class Mine(torch.nn.Linear):
    pass


CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda block: None,
    "a hook": lambda block: block.up_proj.register_forward_hook(lambda *told: None),
    "a layer of another kind": lambda block: setattr(block, "gate_proj", Mine(16, 24, bias=False, device="meta")),
    "a bias": lambda block: setattr(block, "up_proj", torch.nn.Linear(16, 24, device="meta")),
    "another forward": lambda block: setattr(block.gate_proj, "forward", lambda x: x),
}


@pytest.mark.parametrize("rows", [1, 16, 17])
@pytest.mark.parametrize("change", CHANGES)
def test_one_launch_where_layers_are_products_alone(change: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(gs, "linear", lambda x, *told, **more: asked.append("linear") or x.new_empty(*x.shape[:-1], 24))
    monkeypatch.setattr(gs, "activate", lambda x, *told, **more: asked.append("activate") or x)
    monkeypatch.setattr(blocks, "PLAIN", (*blocks.PLAIN, torch._subclasses.fake_tensor.FakeTensor))
    sizes = {"up_proj": (16, 24), "gate_proj": (16, 24), "down_proj": (24, 16)}
    block = SimpleNamespace(**{name: torch.nn.Linear(*size, bias=False, device="meta") for name, size in sizes.items()})
    CHANGES[change](block)
    with FakeTensorMode(), torch.no_grad():
        for layer in vars(block).values():
            for name, parameter in layer._parameters.items():
                if parameter is not None:
                    layer._parameters[name] = torch.empty(parameter.shape, device="cuda")
        out = blocks.mlp(block, torch.empty(rows, 16, device="cuda"))
    assert change == "another forward" or out.shape == (rows, 16)
    assert asked == ["linear" if change == "nothing" and rows <= 16 else "activate"]
