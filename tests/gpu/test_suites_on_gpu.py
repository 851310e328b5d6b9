"""The suites of layers and models on a GPU: all contenders are right, and what a preset captures in a CUDA graph can be
captured. Small shapes of each: that nothing stumbles there before a run of hours does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groundspeed.case import Case, with_clock
from groundspeed.measure import gate
from groundspeed.suites import registry
from groundspeed.suites.gemm import cases as gemm
from groundspeed.suites.huggingface import cases as huggingface
from groundspeed.suites.huggingface import shapes as llamas
from groundspeed.suites.inference import cases as inference
from groundspeed.suites.inference import shapes as models
from groundspeed.suites.moe import cases as moe
from groundspeed.suites.moe import shapes as experts

pytestmark = [
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),  # the rotary embedding has a product in FP32
    pytest.mark.filterwarnings("ignore:groundspeed.* falls back to PyTorch"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch, in its own code
]
LLAMA = 2, 512, 1024, 8, 2, 1000
MANY, FEW = experts.Shape(300, 256, 512, 8, 2, "zipf"), experts.Shape(8, 256, 512, 8, 2)


def made(dtype: str) -> dict[str, Case]:
    return {
        "huggingface-reading": huggingface.forward("x", llamas.Shape(*LLAMA, 2, 300), dtype),
        "huggingface-next": huggingface.forward("x", llamas.Shape(*LLAMA, 3, 1, 1000), dtype),
        "inference-reading": inference.forward("x", models.Shape(2, 512, 8, 2, 300), dtype),
        "inference-next": inference.forward("x", models.Shape(2, 512, 8, 3, 1, 300), dtype),
        "moe-many-swiglu": moe.forward("x", MANY, "swiglu", dtype),
        "moe-few-gelu": moe.forward("x", FEW, "gelu", dtype),
        "gemm-odd": gemm.forward(gemm.Shape(333, 264, 520), dtype),
        "gemm-few": gemm.forward(gemm.Shape(3, 512, 1024), dtype),
    }


def contenders(*names: str) -> list[Any]:
    return [
        pytest.param(name, contender, id=f"{name}-{contender}")
        for name in names
        for contender in registry.load(name.partition("-")[0]).contenders
    ]


def called(name: str, contender: str, dtype: str, clock: str = "default") -> tuple[Any, tuple[Any, ...], Any]:
    case = with_clock(made(dtype)[name], clock)
    one = registry.load(case.suite).contenders[contender]
    if reason := one.absent("cuda") or one.supports(case, "cuda"):
        pytest.skip(reason)
    return case, case.inputs(1, "cuda"), one.build(case)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize(("name", "contender"), contenders(*made("bf16")))
def test_values(name: str, contender: str, dtype: str) -> None:
    case, inputs, call = called(name, contender, dtype)
    for _ in range(2):
        with torch.no_grad():
            gate.check(case, inputs, call(*inputs, **case.arguments), gate.ask(case, inputs, 64))


@pytest.mark.parametrize(("name", "contender"), contenders("huggingface-next", "inference-next"))
def test_a_step_in_a_graph(name: str, contender: str) -> None:
    case, inputs, call = called(name, contender, "bf16", "graph")
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
