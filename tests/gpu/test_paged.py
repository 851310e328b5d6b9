"""gs.attention_paged, gs.append_paged and gs.nn.PagedCache on the device, against FP64; in graphs that are replayed as
sequences grow."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from exact import DTYPES, allocated_by, poison, random

import groundspeed as gs
from groundspeed.kernels.attention import pytorch
from groundspeed.kernels.attention.form import PLAIN
from groundspeed.kernels.attention.reference import TOLERANCE
from groundspeed.nn import PagedCache
from pages import Paged, expected, paged

LENGTHS = [0, 1, 64, 1000, 4097, 333, 16, 257]


def assert_right(q: Any, told: Paged, dtype: str, **form: Any) -> Any:
    poison(*q.shape, dtype=dtype)
    out, lse = gs.attention_paged(q, *told.tensors, return_lse=True, impl="triton", **form)
    right, right_lse = expected(q, told, **form)
    error = (out.double() - right).abs()
    assert error.max() <= TOLERANCE[dtype].max_abs
    assert error.square().mean().sqrt() <= TOLERANCE[dtype].rms_rel * right.square().mean().sqrt() + 1e-12
    seen = right_lse > float("-inf")
    assert torch.equal(lse > float("-inf"), seen)
    assert torch.all((lse[seen].double() - right_lse[seen]).abs() <= 1e-4)
    assert torch.all(out[~seen] == 0)
    return out


def on_gpu(lengths: list[int], G: int, D: int, page: int, dtype: str, **more: Any) -> Paged:
    return paged(lengths, G, D, page, dtype=DTYPES[dtype], device="cuda", **more)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("page", [16, 32, 64, 128, 256])
@pytest.mark.parametrize(
    ("H", "G", "M", "D"),
    [(8, 8, 1, 64), (8, 1, 1, 128), (4, 2, 5, 80), (32, 2, 8, 128), (6, 2, 3, 100), (2, 1, 300, 64)],
)
def test_each_sequence_by_itself(H: int, G: int, M: int, D: int, page: int, dtype: str) -> None:
    told = on_gpu(LENGTHS, G, D, page, dtype)
    q = random(len(LENGTHS), H, M, D, dtype=dtype)
    first = assert_right(q, told, dtype)
    assert torch.equal(assert_right(q, told, dtype), first)
    assert_right(q, told, dtype, causal=False)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("M", [1, 9, 130])
def test_wide_heads(M: int, dtype: str) -> None:
    assert_right(random(8, 8, M, 256, dtype=dtype), on_gpu(LENGTHS, 1, 256, 64, dtype), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("page", [16, 256])
@pytest.mark.parametrize("M", [1, 4, 200])
@pytest.mark.parametrize(
    "form",
    [{"window_size": (100, -1)}, {"causal": False, "window_size": (37, 2)}, {"softcap": 20.0}, {"sinks": True},
     {"window_size": (64, -1), "softcap": 1.5, "sinks": True}],
    ids=str,
)  # fmt: skip
def test_windows_soft_caps_and_sinks(form: dict[str, Any], M: int, page: int, dtype: str) -> None:
    form = {**form, "sinks": random(4, dtype=dtype)} if form.get("sinks") else form
    assert_right(random(8, 4, M, 64, dtype=dtype), on_gpu(LENGTHS, 2, 64, page, dtype), dtype, **form)


def test_one_long_sequence_and_numbers_of_64_bits() -> None:
    told = on_gpu([100_000], 2, 128, 64, "bf16", numbers=torch.int64)
    assert_right(random(1, 16, 1, 128, dtype="bf16"), told, "bf16")


def test_more_than_2_to_the_31_elements() -> None:
    """The last page begins 2.2·10⁹ elements behind the first."""
    pages = torch.empty(2, 140_000, 2, 64, 128, device="cuda", dtype=torch.float16)
    k_pages, v_pages = pages[0], pages[1]
    table = torch.tensor([[139_999, 3, 139_998]], device="cuda", dtype=torch.int32)
    lengths = torch.tensor([150], device="cuda", dtype=torch.int32)
    k, v = (random(1, 2, 150, 128, dtype="fp16") for _ in range(2))
    gs.append_paged(k, v, k_pages, v_pages, table, lengths)
    assert torch.equal(k_pages[139_998, :, :22], k[0, :, 128:])
    told = Paged(k_pages, v_pages, table, lengths, [k], [v])
    assert_right(random(1, 4, 1, 128, dtype="fp16"), told, "fp16")


def test_views_are_read_and_written_where_they_lie() -> None:
    together = torch.full((99, 64, 2, 3, 72), float("nan"), device="cuda", dtype=torch.bfloat16)
    k_pages, v_pages = (together[:, :, i, :, 3:67].transpose(1, 2) for i in range(2))
    table = torch.randperm(99, device="cuda")[:24].view(4, 6).int()[:, :5]
    lengths = torch.tensor([0, 70, 320, 5, 9], device="cuda", dtype=torch.int32)[:4]
    packed = random(4, 320, 3, 12, 64, dtype="bf16")
    q, k, v = packed[:, -3:, 0].transpose(1, 2), *(packed[:, :, i, :3].transpose(1, 2) for i in (1, 2))
    gs.append_paged(k, v, k_pages, v_pages, table, lengths)
    parts = [[x[b : b + 1, :, 320 - n :] for b, n in enumerate(lengths.tolist())] for x in (k, v)]
    assert_right(q, Paged(k_pages, v_pages, table, lengths, *parts), "bf16")
    assert together[..., :3].isnan().all()
    assert together[..., 67:].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("M", [1, 100])
def test_tokens_without_a_place_are_not_written(M: int, dtype: Any) -> None:
    on_cpu = paged([40, 2, 0, 64, 33], 5, 24, 16, dtype=dtype)
    on_cpu.lengths[3] = 70
    k, v = (torch.randn(5, 5, M, 24, dtype=dtype) for _ in range(2))
    there = [x.cuda() for x in on_cpu.tensors]
    gs.append_paged(k.cuda(), v.cuda(), *there)
    gs.append_paged(k, v, *on_cpu.tensors)
    for ours, right in zip(there, on_cpu.tensors, strict=True):
        assert torch.equal(ours.cpu().nan_to_num(), right.nan_to_num())


@pytest.mark.parametrize("form", [{}, {"window_size": (300, -1), "sinks": True}], ids=str)
@pytest.mark.parametrize("H", [2, 16])
def test_a_graph_serves_as_sequences_grow(H: int, form: dict[str, Any]) -> None:
    """A step is captured when sequences are short, and replayed until one of them has ended and a new one taken its
    row."""
    cache = PagedCache(
        2, 2, 64, pages=400, sequences=3, longest=4096, page_size=32, device="cuda", dtype=torch.bfloat16
    )
    form = {**form, "sinks": random(H, dtype="bf16")} if form.get("sinks") else form
    new = random(2, 2, 3, 2, 1, 64, dtype="bf16")
    q = random(3, H, 1, 64, dtype="bf16")
    kept: dict[int, list[Any]] = {}

    def step() -> list[Any]:
        found = []
        for layer in range(2):
            cache.append(layer, new[layer, 0], new[layer, 1])
            found.append(cache.attend(layer, q, impl="triton", **form))
        return found

    def begin(rows: list[int]) -> None:
        for row in rows:
            length = cache.tokens[row]
            kept[row] = [random(2, 1, 2, length, 64, dtype="bf16") for _ in range(2)]
            for layer in range(2):
                cache.append(layer, *kept[row][layer], slice(row, row + 1))

    rows = cache.allocate([5, 1000, 0])
    step()  # compiled, and kept
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    begin(rows)
    for number in range(70):
        if number == 40:
            cache.free([1])
            begin(cache.allocate([333]))
        cache.grow(1)
        new.copy_(random(*new.shape, dtype="bf16"))
        q.copy_(random(*q.shape, dtype="bf16"))
        graph.replay()
        for row in cache.rows:
            for layer in range(2):
                kept[row][layer] = torch.cat([kept[row][layer], new[layer, :, row : row + 1]], dim=3)
        for layer in range(2) if number % 13 in (0, 1) else ():
            k, v = ([kept[row][layer][i] for row in range(3)] for i in range(2))
            right, _ = expected(q, Paged(None, None, None, None, k, v), **form)
            assert (found[layer].double() - right).abs().max() <= TOLERANCE["bf16"].max_abs


def test_a_cache_does_not_change_inside_of_a_graph() -> None:
    cache = PagedCache(1, 1, 64, pages=4, sequences=2, longest=64, device="cuda", dtype=torch.bfloat16)
    cache.allocate([1])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cache.lengths.add_(0)
        with pytest.raises(RuntimeError, match="before a CUDA graph is replayed, not inside"):
            cache.grow(1)
    assert cache.tokens == [1, 0]


def test_what_the_host_says_arrives_in_its_order() -> None:
    """Many steps are told before the device has done the first of them, and each sees its own lengths."""
    cache = PagedCache(1, 1, 64, pages=64, sequences=2, longest=2048, device="cuda", dtype=torch.bfloat16)
    cache.allocate([0, 7])
    busy = torch.randn(4096, 4096, device="cuda")
    for _ in range(30):
        busy = busy @ busy * 1e-3
    seen = []
    for _ in range(300):
        cache.grow(1)
        seen.append((cache.lengths.clone(), cache.table.clone()))
    for number, (lengths, table) in enumerate(seen, 1):
        assert lengths.tolist() == [number, 7 + number]
        for row, length in enumerate(lengths.tolist()):
            assert (table[row] >= 0).sum() == -(-length // 64)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in its own code
def test_torch_compile_keeps_both_in_the_graph() -> None:
    told = on_gpu([70, 5, 300], 2, 64, 64, "bf16")
    other = Paged(told.k_pages.clone(), told.v_pages.clone(), *told[2:])
    q = random(3, 4, 1, 64, dtype="bf16")
    k, v = (random(3, 2, 1, 64, dtype="bf16") for _ in range(2))

    def model(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        gs.append_paged(k + 1, v, *rest)
        return gs.attention_paged(q * 2, *rest, impl="triton") + 1

    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        assert torch.allclose(compiled(q, k, v, *told.tensors), model(q, k, v, *other.tensors), atol=2e-2)
    assert torch.equal(told.k_pages.nan_to_num(), other.k_pages.nan_to_num())


def test_who_asks_for_gradients_or_wide_fp32_is_served_by_pytorch() -> None:
    told = on_gpu([70, 5], 1, 256, 64, "fp32")
    q = random(2, 2, 1, 256, dtype="fp32")
    with pytest.raises(NotImplementedError, match="fp32 up to a head dimension of 128"):
        gs.attention_paged(q, *told.tensors, impl="triton")
    with pytest.warns(UserWarning, match="fp32 up to a head dimension"):
        out = gs.attention_paged(q, *told.tensors)
    assert (out.double() - expected(q, told)[0]).abs().max() < 1e-4
    with pytest.raises(NotImplementedError, match="gradients"):
        gs.attention_paged(q.requires_grad_(), *told.tensors, impl="triton")


def test_pages_are_as_good_as_keys_in_one_piece() -> None:
    """Held against PyTorch's own attention of the same keys."""
    told = on_gpu([2000] * 4, 4, 128, 64, "bf16")
    q = random(4, 32, 2, 128, dtype="bf16")
    right = pytorch.attention(q, torch.cat(told.k), torch.cat(told.v), PLAIN[True], 128**-0.5, None, False)
    assert torch.allclose(gs.attention_paged(q, *told.tensors, impl="triton"), right, atol=2e-2)


def test_the_workspace_is_small() -> None:
    told = on_gpu([8192] * 2, 8, 128, 64, "bf16")
    q = random(2, 64, 1, 128, dtype="bf16")
    used = allocated_by(lambda: gs.attention_paged(q, *told.tensors, impl="triton")) - q.nbytes
    assert used <= 0.05 * (told.k_pages.nbytes + told.v_pages.nbytes)
