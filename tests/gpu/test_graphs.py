"""`compile_graphs` on the GPU: values, growth, one pool, parameters that change, streams, what cannot be captured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import groundspeed as gs
from groundspeed.nn.graphs.waits import Uncapturable

MIB = 1 << 20


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.no_grad():
        yield


class Block(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 1024), nn.Linear(1024, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def model() -> Any:
    return nn.Sequential(*(Block() for _ in range(4))).cuda().eval()


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda")


def test_values_are_those_of_the_module_and_nothing_is_launched_by_python() -> None:
    block = model()
    fast = gs.compile_graphs(block)
    for _ in range(5):
        x = random(4, 7, 256)
        torch.testing.assert_close(fast(x), block(x))
    called: list[int] = []
    hook = block[0].register_forward_hook(lambda *_: called.append(1))
    fast(x)
    hook.remove()
    assert called == []
    assert [graph.replays for graph in fast.graphs] == [6]


def test_buckets_grow_and_results_are_cut_back() -> None:
    block = model()
    fast = gs.compile_graphs(block, buckets={"input": {1: (64, 8, 1)}})
    for size in (64, 1, 3, 8, 9, 40, 2, 64):
        x = random(2, size, 256)
        torch.testing.assert_close(fast(x), block(x), rtol=1e-3, atol=1e-3)
    assert [graph.shapes["input"][1] for graph in fast.graphs] == [64, 1, 8]
    for wrong, said in ((65, "the largest bucket is 64"), (0, None)):
        x = random(2, wrong, 256)
        if said:
            with pytest.raises(ValueError, match=said):
                fast(x)
        else:
            assert fast(x).shape == x.shape
    with pytest.raises(ValueError, match="but the first call had"):
        fast(random(3, 8, 256))


def test_three_buckets_share_one_pool() -> None:
    block = model()
    one = gs.compile_graphs(block)
    one(random(8192, 256))
    alone = one.pool_bytes
    three = gs.compile_graphs(block, buckets={"input": {0: (8192, 8064, 7936)}})
    for size in (8192, 8064, 7936):
        three(random(size, 256))
    assert len(three.graphs) == 3
    assert alone is not None
    assert three.pool_bytes is not None
    results = 2 * 8192 * 256 * 4 + 8 * MIB  # of the two others, which are kept
    assert alone > 64 * MIB
    assert three.pool_bytes <= alone + results
    three.reset()
    torch.cuda.empty_cache()
    assert three.pool_bytes == 0


def test_parameters_changed_in_place_are_read_and_moved_ones_captured_again() -> None:
    block = model()
    fast, x = gs.compile_graphs(block), random(3, 256)
    fast(x)
    block.load_state_dict(model().state_dict())
    torch.testing.assert_close(fast(x), block(x))
    block.half()
    x = x.half()
    torch.testing.assert_close(fast(x), block(x))
    assert len(fast.graphs) == 1


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x * x.sum().item(),
        lambda x: x[x > 0],
        lambda x: x.cpu().cuda(),
        lambda x: torch.cuda.synchronize() or x + 1,
        lambda x: x + torch.tensor([1.0], device="cuda"),
    ],
    ids=["item", "mask", "cpu", "synchronize", "tensor"],
)
def test_a_host_that_waits_is_named_and_the_next_capture_works(wait: Any) -> None:
    fast = gs.compile_graphs(wait)
    with pytest.raises(Uncapturable, match=r"cannot be captured as a CUDA graph: .*; remove \.item"):
        fast(random(8))
    assert not torch.cuda.is_current_stream_capturing()
    random(4)  # of the default generator, which the capture had for itself
    block = model()
    again = gs.compile_graphs(block)
    x = random(4, 256)
    torch.testing.assert_close(again(x), block(x))
    torch.cuda.synchronize()


def test_a_cache_in_place_is_written_to_once_a_call() -> None:
    def step(x: torch.Tensor, cache: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        cache.index_add_(0, place, x)
        return cache.sum(0)

    fast, cache, expected = gs.compile_graphs(step, in_place=["cache"]), random(16, 8) * 0, random(16, 8) * 0
    for k in range(6):
        x, place = random(1, 8), torch.tensor([k // 2], device="cuda")
        expected.index_add_(0, place, x)
        torch.testing.assert_close(fast(x, cache, place), expected.sum(0))
        torch.testing.assert_close(cache, expected)
    assert len(fast.graphs) == 1
    with pytest.raises(ValueError, match="writes to its argument 'cache'"):
        gs.compile_graphs(step)(x, cache, place)


def test_streams_wait_for_each_other() -> None:
    fast = gs.compile_graphs(lambda x: (x @ x).relu() / 64)
    inputs = [random(1024, 1024) for _ in range(8)]
    expected = [(x @ x).relu() / 64 for x in inputs]
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    found: list[Any] = []
    for k, x in enumerate(inputs * 5):
        with torch.cuda.stream(streams[k % 4]):
            found.append(fast(x))
    torch.cuda.synchronize()
    for k, out in enumerate(found):
        assert torch.equal(out, expected[k % 8])


def test_random_numbers_are_those_of_the_function_and_others_each_time() -> None:
    drop = nn.Dropout(0.5)
    fast, x = gs.compile_graphs(lambda x: drop(x), modules=[]), torch.ones(4096, device="cuda")
    torch.cuda.manual_seed(5)
    expected = drop(x)
    torch.cuda.manual_seed(5)
    first, second = fast(x), fast(x)
    assert torch.equal(first, expected)
    assert not torch.equal(first, second)


def test_under_autocast_weights_that_change_are_cast_again() -> None:
    block = model()
    fast, x = gs.compile_graphs(block), random(5, 256)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        fast(x)
    block[0].up.weight.mul_(2)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        torch.testing.assert_close(fast(x), block(x))


def test_our_own_layers_and_a_capture_around() -> None:
    layer = gs.nn.MoE(256, 512, 8, 2, device="cuda", dtype=torch.bfloat16).eval()
    fast = gs.compile_graphs(layer)
    x = random(32, 256).bfloat16()
    expected = layer(x)
    assert torch.equal(fast(x), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fast(x)
    graph.replay()
    assert torch.equal(out, expected)
    with gs.profile_memory() as memory:
        assert torch.equal(fast(x), expected)
    assert memory.peak_bytes > 0


def test_cpu_and_gpu_together_raise() -> None:
    with pytest.raises(ValueError, match="'y' is on cpu: move them first"):
        gs.compile_graphs(lambda x, y: x + y)(random(1), torch.ones(1))
