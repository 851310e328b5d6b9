"""Transformers on a GPU with our kernels in it: as near to FP32 as it is without them, with padding, windows and
caches; and what is padded is done without waiting for the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import groundspeed as gs

pytest.importorskip("transformers", minversion="5", reason="groundspeed.hf needs Transformers 5 or newer")
import groundspeed.hf
from groundspeed.hf import packing
from groundspeed.hf.masks import Described
from hf.small_models import PADDINGS, largest, made, padding, tokens

pytestmark = [
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),  # PyTorch's compiler
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
    pytest.mark.filterwarnings("ignore:groundspeed.* falls back to PyTorch"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),  # of PyTorch's own first capture
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch, in its own code
]


def routed_to_all(name: str, attention: str) -> Any:
    """Every token goes to all experts: one that goes to another for a rounding would be as right, and far away."""
    model = made(name, attention)
    for module in model.modules():
        if hasattr(module, "top_k") and hasattr(module, "num_experts"):
            module.top_k = module.num_experts
            model.set_experts_implementation("eager")
    return model


NAMES = ["llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe"]


@torch.no_grad()
@pytest.mark.parametrize("kind", PADDINGS)
@pytest.mark.parametrize("name", NAMES)
def test_bf16_is_as_near_to_fp32_as_without_us(name: str, kind: str) -> None:
    mask = padding(kind).cuda()
    told = {"attention_mask": mask}
    expected = routed_to_all(name, "eager")(tokens(), attention_mask=padding(kind)).logits.cuda()
    theirs = routed_to_all(name, "sdpa").cuda().bfloat16()(tokens().cuda(), **told).logits.float()
    model = routed_to_all(name, "groundspeed").cuda().bfloat16()
    assert gs.patch(model).left == ()
    found = model(tokens().cuda(), **told).logits.float()
    assert largest(found, expected, mask) < max(2 * largest(theirs, expected, mask), 1e-2)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "cache", "compiled"),
    [
        *((name, cache, False) for name in ("llama", "mistral", "qwen2") for cache in (None, "static")),
        ("llama", "static", True),  # once: it takes minutes
    ],
)
def test_generate_in_fp32_writes_the_same(name: str, cache: str | None, compiled: bool) -> None:
    """With a static cache Transformers compiles the model here unless told otherwise, with CUDA graphs."""
    told: dict[str, Any] = {"max_new_tokens": 16, "do_sample": False, "attention_mask": padding("left").cuda()}
    expected = made(name).cuda().generate(tokens().cuda(), **told)
    model = made(name, "groundspeed").cuda()
    gs.patch(model)
    told |= {"cache_implementation": cache, "disable_compile": not compiled}
    assert torch.equal(model.generate(tokens().cuda(), **told), expected)


def described_by(rows: torch.Tensor, M: int) -> tuple[torch.Tensor, Described]:
    described = Described(M > 1, rows=rows)
    return described.as_tensor("cuda"), described


@torch.no_grad()
@pytest.mark.parametrize("M", [1, 5])
def test_padding_waits_for_nothing_and_can_be_captured(M: int) -> None:
    rows = torch.tensor([[0, M, 3, 200], [0, M, 0, 200], [M // 2, M, 198, 200]], dtype=torch.int32, device="cuda")
    mask, described = described_by(rows, M)
    q = torch.randn(3, 8, M, 64, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(3, 2, 256, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    asked: dict[str, Any] = {"softcap": 0.0, "sinks": None, "scale": None}
    expected = packing.attention(q, k, v, mask, described, **asked)  # compiled here
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert packing.attention(q, k, v, described.as_tensor("cuda"), described, **asked).shape == (3, M, 8, 64)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    other = torch.tensor([[0, M, 90, 130], [0, M, 7, 60], [0, M, 0, 256]], dtype=torch.int32, device="cuda")
    expected_then = packing.attention(q, k, v, *described_by(other, M), **asked)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = packing.attention(q, k, v, mask, described, **asked)
    graph.replay()
    assert torch.equal(out, expected)
    rows.copy_(other)
    graph.replay()
    assert torch.equal(out, expected_then)


@torch.no_grad()
def test_a_graph_of_ours_reads_the_mask_of_each_call() -> None:
    q = torch.randn(3, 8, 1, 64, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(3, 2, 256, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def step(mask: torch.Tensor) -> torch.Tensor:
        asked: dict[str, Any] = {"softcap": 0.0, "sinks": None, "scale": None}
        return packing.attention(q, k, v, mask, Described.of(mask), **asked)  # type: ignore[arg-type]

    fast = gs.compile_graphs(step)
    for end in (100, 101, 256):
        rows = torch.tensor([[0, 1, 0, end], [0, 1, 3, end], [0, 1, end - 2, end]], dtype=torch.int32, device="cuda")
        mask, _ = described_by(rows, 1)
        assert torch.equal(fast(mask), step(described_by(rows, 1)[0]))
    assert len(fast.graphs) == 1
