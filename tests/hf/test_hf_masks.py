"""What our mask function says is what Transformers' own mask for SDPA says, and it is short wherever it can be."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, OPTConfig
from transformers import masking_utils as theirs

from groundspeed.hf import masks
from groundspeed.hf.masks import Described

LLAMA = LlamaConfig()
B = 4


def padded(total: int, kind: str) -> Any:
    if kind == "none":
        return None
    mask = torch.ones(B, total, dtype=torch.bool)
    generator = torch.Generator().manual_seed(total)
    for row in range(B):
        cut = int(torch.randint(0, total, (), generator=generator))
        if kind in ("left", "both"):
            mask[row, : cut // 2] = False
        if kind in ("right", "both"):
            mask[row, total - cut // 2 :] = False
    return mask


def asked(M: int, N: int, q_offset: Any, kv_offset: int, function: Any, mask: Any, **more: Any) -> dict[str, Any]:
    told = {"batch_size": B, "q_length": M, "kv_length": N, "q_offset": q_offset, "kv_offset": kv_offset}
    return {**told, "mask_function": function, "attention_mask": mask, "config": LLAMA, "dtype": torch.float32, **more}


def by_transformers(told: dict[str, Any]) -> Any:
    never = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return theirs.sdpa_mask(**{**told, **never}).expand(B, -1, -1, -1)


def assert_says_the_same(told: dict[str, Any]) -> Any:
    """Of queries that are tokens."""
    found, expected = masks.mask(**told), by_transformers(told)
    M, N, s = told["q_length"], told["kv_length"], int(told["q_offset"]) - told["kv_offset"]
    causal = told["mask_function"] is not theirs.bidirectional_mask_function
    if found is None:  # as in attention
        dense = torch.ones(M, N, dtype=torch.bool)
        dense = dense.tril() if causal and M > 1 else dense
        dense = dense.expand(B, 1, -1, -1)
    elif found.dtype == torch.bool:
        dense = found
    else:
        described = Described.of(found)
        assert described is not None
        dense = described.dense(M, N, torch.device("cpu")).expand(B, -1, -1, -1)
    mask = told["attention_mask"]
    tokens = torch.ones(B, M, dtype=torch.bool)
    if mask is not None and causal:
        tokens = mask[:, told["q_offset"] : told["q_offset"] + M]
    assert torch.equal(dense[tokens[:, None]], expected[tokens[:, None]]), (M, N, s)
    return found


CAUSAL, FULL = theirs.causal_mask_function, theirs.bidirectional_mask_function


@pytest.mark.parametrize("kind", ["none", "left", "right", "both"])
def test_causal_with_a_cache_that_grows(kind: str) -> None:
    for M, past in itertools.product((1, 2, 7), (0, 1, 9)):
        found = assert_says_the_same(asked(M, M + past, past, 0, CAUSAL, padded(M + past, kind)))
        assert found is None or found.dtype == torch.int32
        if kind == "none" and (M == 1 or past == 0):
            assert found is None


@pytest.mark.parametrize("kind", ["none", "left", "right", "both"])
@pytest.mark.parametrize("window", [1, 4, 8, 100])
def test_a_window_with_a_cache_that_forgets(window: int, kind: str) -> None:
    """The sizes are those of DynamicSlidingWindowLayer."""
    function = theirs.sliding_window_causal_mask_function(window)
    for M, past in itertools.product((1, 2, 7), (0, 3, 9)):
        offset = max(past - window + 1, 0)
        told = asked(M, past + M - offset, past, offset, function, padded(past + M, kind), local_size=window)
        found = assert_says_the_same(told)
        assert found is None or found.dtype == torch.int32


@pytest.mark.parametrize("kind", ["none", "left", "right", "both"])
@pytest.mark.parametrize("window", [None, 4])
def test_a_cache_of_a_fixed_size(kind: str, window: int | None) -> None:
    function = CAUSAL if window is None else theirs.sliding_window_causal_mask_function(window)
    for M, past in itertools.product((1, 2, 7), (0, 1, 9)):
        mask = padded(past + M, kind)
        told = asked(M, 20, torch.tensor(past), 0, function, mask, local_size=window)
        if M == 1:
            told["allow_is_causal_skip"] = False
        found = assert_says_the_same({**told, "q_offset": past} if M > 1 else told)
        if M == 1:  # one kind for all steps, or each would be compiled anew
            assert (found.dtype, found.shape) == (torch.int32, (B, 2, 1, 4))
        else:
            assert found is None or found.dtype == torch.int32


@pytest.mark.parametrize("kind", ["none", "left", "right", "both"])
def test_encoders_and_attention_across(kind: str) -> None:
    for M, N in itertools.product((1, 3, 8), (1, 5, 8)):
        told = asked(M, N, 0, 0, FULL, padded(N, kind), allow_is_causal_skip=False, allow_is_bidirectional_skip=True)
        found = assert_says_the_same(told)
        assert found is None if kind == "none" and M == 1 else found is None or found.dtype == torch.int32
    function = theirs.sliding_window_bidirectional_mask_function(3)
    told = asked(9, 9, 0, 0, function, padded(9, kind), local_size=3, allow_is_bidirectional_skip=True)
    found, expected = masks.mask(**told), by_transformers(told)
    tokens = torch.ones(B, 9, dtype=torch.bool) if told["attention_mask"] is None else told["attention_mask"]
    dense = Described.of(found).dense(9, 9, torch.device("cpu")).expand(B, -1, -1, -1)  # type: ignore[union-attr]
    assert torch.equal(dense[tokens[:, None]], expected[tokens[:, None]])


def holes() -> Any:
    mask = torch.ones(B, 9, dtype=torch.bool)
    mask[2, 4] = False
    return mask


IDS = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0, 1]]).expand(B, -1)


@pytest.mark.parametrize(
    "change",
    [
        {"attention_mask": holes()},
        {"mask_function": theirs.and_masks(CAUSAL, theirs.packed_sequence_mask_function(IDS))},
        {"mask_function": theirs.chunked_causal_mask_function(4, torch.zeros(B, dtype=int)), "local_size": 4},
        {"mask_function": theirs.or_masks(CAUSAL, theirs.sliding_window_overlay(3))},
        {"mask_function": theirs.sliding_window_causal_mask_function(4), "local_size": 5},
        {"mask_function": theirs.and_masks(CAUSAL, CAUSAL, CAUSAL), "local_size": 5},
        {"mask_function": lambda b, h, q, k: k <= q},
        {"config": OPTConfig()},
        {"allow_is_causal_skip": False},
    ],
)
def test_what_is_not_described_is_as_for_sdpa(change: dict[str, Any]) -> None:
    told = {**asked(9, 9, 0, 0, CAUSAL, padded(9, "left")), **change}
    found = masks.mask(**told)
    assert found.dtype == torch.bool  # type: ignore[union-attr]
    assert torch.equal(found, theirs.sdpa_mask(**told))  # type: ignore[arg-type]


def test_an_older_transformers_asks_by_positions() -> None:
    """Before 5.4 there was no q_length, and masks are made by its own function."""
    told = {"batch_size": B, "kv_length": 9, "mask_function": CAUSAL, "config": LLAMA}
    assert masks._described(cache_position=torch.arange(9), **told) is NotImplemented  # type: ignore[arg-type]


def test_masks_of_whole_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"booleans or floats.*not \[2, 1, 9, 9\] of torch.int64: use mask.bool\(\)"):
        Described.of(torch.ones(2, 1, 9, 9, dtype=torch.int64))


def test_a_mask_moves_as_tensors_do() -> None:
    rows = torch.tensor([[0, 5, 2, 7], [1, 5, 0, 4]], dtype=torch.int32)
    for described in (Described(True, 3, rows), Described(False, rows=rows), Described(True, 0)):
        moved = Described.of(described.as_tensor("cpu").to("cpu", copy=True))
        assert moved is not None
        assert (moved.causal, moved.window) == (described.causal, described.window)
        assert moved.rows is described.rows or torch.equal(moved.rows, described.rows)  # type: ignore[arg-type]
