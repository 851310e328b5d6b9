"""The suite `huggingface` on a GPU: all contenders are right, and a step of each can be captured in a CUDA graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groundspeed.case import with_clock
from groundspeed.measure import gate
from groundspeed.suites import registry
from groundspeed.suites.huggingface import cases
from groundspeed.suites.huggingface.shapes import Shape

pytestmark = [
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),  # the rotary embedding has a product in FP32
    pytest.mark.filterwarnings("ignore:groundspeed.* falls back to PyTorch"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch, in its own code
]
CONTENDERS = registry.load("huggingface").contenders
MODEL = 2, 512, 1024, 8, 2, 1000
READING, NEXT = Shape(*MODEL, 2, 300), Shape(*MODEL, 3, 1, 1000)


def called(name: str, shape: Shape, dtype: str, clock: str = "default") -> tuple[Any, tuple[Any, ...], Any]:
    case = with_clock(cases.forward("x", shape, dtype), clock)
    if reason := CONTENDERS[name].absent("cuda") or CONTENDERS[name].supports(case, "cuda"):
        pytest.skip(reason)
    return case, case.inputs(1, "cuda"), CONTENDERS[name].build(case)


@pytest.mark.parametrize("shape", [READING, NEXT], ids=["reading", "next"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("name", CONTENDERS)
def test_values(name: str, dtype: str, shape: Shape) -> None:
    case, inputs, call = called(name, shape, dtype)
    for _ in range(2):
        with torch.no_grad():
            gate.check(case, inputs, call(*inputs, **case.arguments), gate.ask(case, inputs, 64))


@pytest.mark.parametrize("name", CONTENDERS)
def test_a_step_in_a_graph(name: str) -> None:
    case, inputs, call = called(name, NEXT, "bf16", "graph")
    with torch.no_grad():
        call(*inputs, **case.arguments)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call(*inputs, **case.arguments)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call(*inputs, **case.arguments)
        for seed in (2, 3):
            inputs[0].copy_(case.inputs(seed, "cuda")[0])
            graph.replay()
            gate.check(case, inputs, out, gate.ask(case, inputs, 64))
