"""gs.nn.PagedCache on a CPU: sequences come, grow, move and end, and each keeps its own keys and values."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import groundspeed as gs
from groundspeed.nn import OutOfPages, PagedCache


def made(**asked: Any) -> PagedCache:
    return PagedCache(2, 2, 8, **{"pages": 12, "sequences": 4, "longest": 100, "page_size": 16, **asked})


def state(cache: PagedCache) -> Any:
    return cache.rows, cache.tokens, cache.free_pages, cache.table.tolist(), cache.lengths.tolist()


def test_prompts_and_then_token_by_token() -> None:
    """As a model does it: prompts of different lengths end together, then one token for each, then two at once."""
    prompts, layers = [5, 21, 16], 2
    cache = made(sequences=3)
    whole = [[torch.randn(2, 1, 2, n + 3, 8) for n in prompts] for _ in range(layers)]
    queries = [[torch.randn(1, 4, n + 3, 8) for n in prompts] for _ in range(layers)]
    assert cache.allocate(prompts) == [0, 1, 2]
    for step, M in enumerate((max(prompts), 1, 2)):
        if step:
            cache.grow(M)
        for layer in range(layers):
            k, v = torch.full((2, 3, 2, M, 8), float("nan"))
            q = torch.full((3, 4, M, 8), float("nan"))
            for row, length in enumerate(cache.tokens):
                new = slice(max(0, length - M), length)
                (k_new, v_new), q_new = whole[layer][row][..., new, :], queries[layer][row][..., new, :]
                k[row, :, M - k_new.shape[2] :], v[row, :, M - v_new.shape[2] :] = k_new[0], v_new[0]
                q[row, :, M - q_new.shape[2] :] = q_new[0]
            cache.append(layer, k, v)
            out = cache.attend(layer, q, impl="torch")
            for row, length in enumerate(cache.tokens):
                k_all, v_all = whole[layer][row][..., :length, :]
                m = min(M, length)
                right = gs.attention(q[row : row + 1, :, M - m :], k_all, v_all, causal=True, impl="torch")
                torch.testing.assert_close(out[row : row + 1, :, M - m :], right)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_each_sequence_keeps_its_own(seed: int) -> None:
    """A token is the number of its sequence and its position; all that were there before are there after."""
    draw, cache, known = random.Random(seed), made(pages=20, longest=90), dict[int, tuple[int, int]]()
    for number in range(120):
        before = state(cache)
        try:
            match draw.choice(["allocate", "grow", "grow", "grow some", "shrink", "free", "reorder"]):
                case "allocate":
                    rows = cache.allocate([draw.randrange(40) for _ in range(draw.randrange(3))])
                    known |= dict.fromkeys(rows, (number, 0))
                case "grow":
                    cache.grow(draw.randrange(20))
                case "grow some":
                    cache.grow(draw.randrange(40), [row for row in cache.rows if draw.random() < 0.5])
                case "shrink":
                    count, some = draw.randrange(25), [row for row in cache.rows if draw.random() < 0.5]
                    cache.shrink(count, some)
                    known |= {row: (known[row][0], cache.tokens[row]) for row in some}
                case "free":
                    gone = [row for row in cache.rows if draw.random() < 0.3]
                    cache.free(gone)
                    known = {row: name for row, name in known.items() if row not in gone}
                case "reorder":
                    kept = draw.sample(cache.rows, draw.randrange(len(cache.rows) + 1))
                    cache.reorder(kept)
                    known = {i: known[row] for i, row in enumerate(kept)}
        except (OutOfPages, ValueError):
            assert state(cache) == before
        assert cache.rows == sorted(known)
        assert cache.lengths.tolist() == cache.tokens
        taken = {row: cache.table[row, : -(-cache.tokens[row] // 16)].long() for row in cache.rows}
        assert len({page for one in taken.values() for page in one.tolist()}) == sum(map(len, taken.values()))
        assert cache.free_pages == 20 - sum(map(len, taken.values()))
        for row, (name, written) in known.items():
            there = cache.k_pages[0][taken[row]].transpose(0, 1).flatten(1, 2)[:, :written, 0]
            assert torch.equal(there, (1000 * name + torch.arange(written)).float().expand(2, -1))
            new = (1000 * name + torch.arange(written, cache.tokens[row])).float()
            k = new[None, None, :, None].expand(1, 2, -1, 8).contiguous()
            cache.append(0, k, k, slice(row, row + 1))
        known = {row: (name, cache.tokens[row]) for row, (name, _) in known.items()}


def test_moved_sequences_bring_their_keys_along() -> None:
    cache = made()
    cache.allocate([20, 3, 40])
    k = torch.randn(4, 2, 40, 8)
    cache.append(1, k, -k)
    cache.reorder([2, 0])
    assert (cache.rows, cache.tokens) == ([0, 1], [40, 20, 0, 0])
    assert cache.free_pages == 12 - 3 - 2
    q = torch.randn(2, 4, 1, 8)
    out = cache.attend(1, q, slice(0, 2), impl="torch")
    for row, (was, length) in enumerate([(2, 40), (0, 20)]):
        one = k[was : was + 1, :, 40 - length :]
        torch.testing.assert_close(out[row : row + 1], gs.attention(q[row : row + 1], one, -one, impl="torch"))


def test_rows_without_a_sequence_take_nothing_and_see_nothing() -> None:
    cache = made()
    cache.allocate([4])
    for pages in (*cache.k_pages, *cache.v_pages):
        pages.fill_(7.0)
    k = torch.zeros(4, 2, 4, 8)
    cache.append(0, k, k)
    assert (cache.k_pages[0] == 0).sum() == 2 * 4 * 8
    out, lse = cache.attend(0, torch.randn(4, 2, 1, 8), impl="torch", return_lse=True)
    assert torch.equal(lse[:, 0, 0] == float("-inf"), torch.tensor([False, True, True, True]))
    assert not out[1:].any()


def test_pages_that_run_out_are_counted_and_nothing_changes() -> None:
    cache = made(pages=5)
    cache.allocate([16, 40])
    before = state(cache)
    with pytest.raises(
        OutOfPages, match="2 more pages are needed, but only 1 are free: free some sequences, or"
    ) as short:
        cache.grow(9)
    assert (short.value.needed, short.value.free) == (2, 1)
    assert str(pickle.loads(pickle.dumps(short.value))) == str(short.value)
    with pytest.raises(OutOfPages, match="3 more pages are needed, but only 1 are free"):
        cache.allocate([17, 5])
    assert state(cache) == before
    cache.free([1])
    cache.grow(9)
    assert (cache.tokens, cache.free_pages) == ([25, 0, 0, 0], 3)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda cache: cache.grow(75),
            "row 1 has 30 positions and cannot get 105: longest= allows at most 100",
        ),
        (lambda cache: cache.grow(-1), "row 0 has 3 positions and cannot get 2: .* only shrink removes positions"),
        (lambda cache: cache.shrink(4), "row 0 has 3 positions and cannot shrink by 4"),
        (lambda cache: cache.shrink(-1), "row 0 has 3 positions and cannot shrink by -1"),
        (lambda cache: cache.allocate([-1]), "row 2 has 0 positions and cannot get -1"),
        (lambda cache: cache.allocate([1] * 3), "3 new sequences need as many rows, but 2 of 4 are empty: free some"),
        (lambda cache: cache.free([2]), r"row 2 has no sequence; rows \[0, 1\] have one"),
        (lambda cache: cache.grow(1, [9]), "row 9 has no sequence"),
        (lambda cache: cache.grow(1, [-1]), "row -1 has no sequence"),
        (lambda cache: cache.free([0, 0]), r"a row is named twice: \[0, 0\]"),
        (lambda cache: cache.reorder([1, 1]), "named twice"),
        (lambda cache: made(page_size=24), "page_size must be one of 16, 32, 64, 128, 256, not 24"),
        (lambda cache: made(pages=0), "pages, sequences and longest must be at least 1"),
    ],
)
def test_what_cannot_be_says_so_and_changes_nothing(call: Callable[[PagedCache], Any], said: str) -> None:
    cache = made()
    cache.allocate([3, 30])
    before = state(cache)
    with pytest.raises(ValueError, match=said):
        call(cache)
    assert state(cache) == before


@pytest.mark.parametrize("call", [PagedCache.shrink, PagedCache.grow])
def test_half_a_position_is_none(call: Callable[[PagedCache, Any], None]) -> None:
    cache = made()
    cache.allocate([30])
    before = state(cache)
    with pytest.raises(TypeError):
        call(cache, 1.5)
    assert state(cache) == before


def test_made_in_inference_mode_it_serves_outside() -> None:
    with torch.inference_mode():
        cache = made()
        cache.allocate([3])
    cache.grow(1)
    cache.append(0, torch.ones(4, 2, 1, 8), torch.ones(4, 2, 1, 8))
    assert cache.lengths.tolist() == [4, 0, 0, 0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in its own code
def test_a_compiled_step_writes_to_the_cache() -> None:
    cache = made(sequences=2)
    cache.allocate([0, 5])

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(k: torch.Tensor) -> None:
        for layer in range(2):
            cache.append(layer, k + layer, k)

    for token in range(3):
        cache.grow(1)
        step(torch.full((2, 2, 1, 8), float(token)))
    first = cache.k_pages[1][cache.table[0, 0], 0, :3, 0]
    assert first.tolist() == [1.0, 2.0, 3.0]


def test_whatever_the_default_device_is() -> None:
    with torch.device("meta"):
        cache = PagedCache(1, 2, 16, pages=4, sequences=2, longest=32, page_size=16, device="cpu")
        cache.allocate([3, 20])
    assert cache.lengths.tolist() == [3, 20]
