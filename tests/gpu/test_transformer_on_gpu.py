"""The transformer of our kernels on a GPU: against the oracle of the suite, from its cache, and in a CUDA graph."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import groundspeed as gs
from groundspeed.measure import gate
from groundspeed.nn import PagedCache, Transformer, TransformerConfig
from groundspeed.suites.inference import cases, ours
from groundspeed.suites.inference.shapes import Shape

SHAPES = [
    Shape(4, 512, 8, 2, 300),
    Shape(2, 1024, 8, 1, 2048),
    Shape(4, 512, 8, 3, 1, 1000),
    Shape(2, 512, 8, 2, 5, 77),
]
CONFIG = TransformerConfig(3, 512, 8, key_heads=2, vocabulary=500, max_positions=512)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_b4_values(shape: Shape, dtype: str) -> None:
    case = cases.forward("x", shape, dtype)
    inputs = case.inputs(1, "cuda")
    call = ours.model(case)
    for _ in range(2):
        gate.check(case, inputs, call(*inputs, **case.arguments), gate.ask(case, inputs, 64))


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    return Transformer(CONFIG, device="cuda", dtype=torch.bfloat16).eval()


def test_what_is_written_follows_from_what_would_be_read(model: Transformer) -> None:
    """Each token through the cache is, or is next to, the likeliest after all before it, read at once."""
    prompts = torch.randint(0, 500, (3, 100), device="cuda")
    with torch.inference_mode():
        written = model.generate(prompts, 60)
        logits = model(torch.cat([prompts, written], 1))[:, 99:-1].float()
    chosen = logits.gather(2, written[:, :, None])[:, :, 0]
    assert bool((logits.max(-1).values - chosen < 0.05 * logits.std()).all())


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # some PyTorch versions, at each first profile
def test_compile_graphs_captures_the_kernels_for_few_rows(model: Transformer) -> None:
    prompts = torch.randint(0, 500, (2, 40), device="cuda")
    cache = model.cache(2, 128)
    cache.allocate([40, 40])
    fast = gs.compile_graphs(lambda token: model(token, cache))
    with torch.inference_mode():
        token = model(prompts, cache, last_only=True).argmax(-1)
        cache.grow(1)
        found = fast(token)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            again = fast(token)
            torch.cuda.synchronize()
        expected = model(token, cache)
    names = [event.key for event in seen.key_averages()]
    assert any("linear_qkv_kernel" in name for name in names), names
    assert torch.equal(found, expected)
    assert torch.equal(again, expected)


def test_a_step_in_a_graph_goes_on_as_the_cache_grows(model: Transformer) -> None:
    """Beside one that is launched each time, from a cache of its own: not a bit differs."""
    prompts = torch.randint(0, 500, (2, 40), device="cuda")
    token = torch.zeros(2, 1, dtype=torch.int64, device="cuda")
    sizes = {"pages": 8, "sequences": 2, "longest": 128, "page_size": 32}
    caches = [PagedCache(3, 2, 64, **sizes, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    with torch.inference_mode():
        for cache in caches:
            cache.allocate([40, 40])
            token.copy_(model(prompts, cache, last_only=True).argmax(-1))
            cache.grow(1)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model(token, caches[0])
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = model(token, caches[0])
        for _ in range(40):
            graph.replay()
            assert torch.equal(logits, model(token, caches[1]))
            token.copy_(logits.argmax(-1))
            for cache in caches:
                cache.grow(1)
