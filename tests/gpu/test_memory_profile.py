"""C3 on the GPU: peaks are the allocator's, the history names what was largest, and nothing is left behind."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import groundspeed as gs

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_is_cached() -> None:
    """A block that another test left would be handed out whole where it is up to 1 MiB larger, and count as it is."""
    gc.collect()
    torch.cuda.empty_cache()


def block(mib: int) -> Any:
    return torch.empty(mib * MIB // 4, device="cuda")


def test_known_allocations_have_a_known_peak_by_phase() -> None:
    weights = block(8)
    with gs.profile_memory() as memory:
        with memory.phase("prefill"):
            kept = block(32)
            block(64)
        with memory.phase("decode"):
            for _ in range(3):
                with memory.phase("step"):
                    block(16)
    use = memory.use
    assert use.device == "cuda"
    assert use.peak_bytes - use.before_bytes == 96 * MIB
    assert use.before_bytes >= 8 * MIB
    assert use.after_bytes - use.before_bytes == 32 * MIB
    prefill, step = memory.phases["prefill"], memory.phases["decode/step"]
    assert (prefill.added_bytes, prefill.kept_bytes) == (96 * MIB, 32 * MIB)
    assert (step.times, step.added_bytes, step.kept_bytes) == (3, 16 * MIB, 0)
    assert [one.bytes for one in memory.largest] == [64 * MIB, 32 * MIB]
    assert [one.shape for one in memory.largest] == [(16 * MIB,), (8 * MIB,)]
    assert all(one.dtype == "float32" for one in memory.largest)
    assert all("test_memory_profile.py" in (one.where or "") for one in memory.largest)
    assert [one.bytes for one in step.largest] == [32 * MIB, 16 * MIB]
    assert max(level for _, level in memory.timeline) == use.peak_bytes
    assert len(use.notes) == 1, use.notes
    assert not torch._C._cuda_isHistoryEnabled()
    del weights, kept


def test_without_shapes_no_operator_is_looked_at_and_places_are_known() -> None:
    with gs.profile_memory(shapes=False) as memory:
        assert torch._C._len_torch_dispatch_stack() == 0
        block(4)
    (one,) = memory.largest
    assert (one.bytes, one.shape) == (4 * MIB, None)
    assert "test_memory_profile.py" in (one.where or "")


def test_profiles_inside_of_each_other_share_the_statistics() -> None:
    with gs.profile_memory() as outer:
        first = block(64)
        del first
        with gs.profile_memory() as inner:
            block(8)
        block(16)
    assert outer.peak_bytes - outer.use.before_bytes == 64 * MIB
    assert inner.peak_bytes - inner.use.before_bytes == 8 * MIB


def test_where_somebody_else_records_the_statistics_serve_alone() -> None:
    torch.cuda.memory._record_memory_history("all")
    try:
        with gs.profile_memory() as memory:
            block(4)
        assert memory.peak_bytes - memory.use.before_bytes == 4 * MIB
        assert "other code in this process already records it" in str(memory)
        assert torch._C._cuda_isHistoryEnabled()
    finally:
        torch.cuda.memory._record_memory_history(None)


def test_out_of_memory_is_reported_and_passes_through() -> None:
    reports: list[Any] = []
    with pytest.raises(torch.OutOfMemoryError), gs.profile_memory(report=reports.append) as memory:
        torch.empty(1 << 50, device="cuda", dtype=torch.uint8)
    assert reports == [memory]
    assert "The profile was ended by OutOfMemoryError." in str(memory)


def test_a_model_and_its_gradients_are_the_same_under_it() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256)).cuda()
    x = torch.randn(64, 256, device="cuda")

    def step() -> list[Any]:
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters())]

    step()
    expected = step()
    with gs.profile_memory() as memory:
        found = step()
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert memory.largest


def test_our_kernels_are_seen() -> None:
    q, k, v = (torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    expected = gs.attention(q, k, v, causal=True)
    with gs.profile_memory() as memory:
        out = gs.attention(q, k, v, causal=True)
    assert torch.equal(out, expected)
    assert memory.largest[0].bytes == out.numel() * 2
