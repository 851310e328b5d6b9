"""What the maths must do and move, against counting it out (A4)."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from groundspeed.kernels import work
from groundspeed.kernels.work import attention_forward, attention_varlen_forward, matmul, moe_forward

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("B", "H", "S", "D"), [(1, 1, 1, 16), (2, 3, 5, 4), (1, 2, 8, 3), (3, 1, 7, 2)])
def test_a4_flops_are_those_of_every_multiply_and_add_that_is_not_masked(
    B: int, H: int, S: int, D: int, causal: bool
) -> None:
    flops = 0
    for _, query, key in product(range(B * H), range(S), range(S)):
        if causal and key > query:
            continue
        flops += 2 * D  # q·k: a multiply and an add for each of D elements
        flops += 2 * D  # p·v: the same
    assert attention_forward(B, H, S, D, "fp16", causal).flops == flops


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("causal", [False, True])
def test_a4_bytes_are_those_of_q_k_v_and_out(dtype: str, causal: bool) -> None:
    tensors = [torch.empty(2, 3, 5, 4, dtype=DTYPES[dtype]) for _ in ("q", "k", "v", "out")]
    moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    assert attention_forward(2, 3, 5, 4, dtype, causal).bytes == moved


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("S", "N"), [(1, 9), (4, 7), (7, 4), (5, 5)])
def test_a4_groups_and_other_keys_than_queries(S: int, N: int, causal: bool) -> None:
    pairs = sum(1 for query, key in product(range(S), range(N)) if not causal or key <= query + N - S)
    work = attention_forward(2, 6, S, 8, "bf16", causal, key_heads=3, keys=N)
    assert work.flops == 2 * 6 * pairs * 4 * 8
    assert work.bytes == 2 * (2 * 6 * S + 2 * 3 * N) * 8 * 2


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 3, 6, 100])
@pytest.mark.parametrize(("S", "N"), [(1, 9), (4, 7), (7, 4), (9, 9), (3, 30), (30, 3)])
def test_a4_windows(S: int, N: int, window: int, causal: bool) -> None:
    places = [(query + N - S, key) for query, key in product(range(S), range(N))]
    pairs = sum(1 for place, key in places if place - window <= key <= place + (0 if causal else window))
    assert attention_forward(1, 2, S, 8, "bf16", causal, keys=N, window=window).flops == 2 * pairs * 4 * 8


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_a4_packed_sequences_are_counted_one_by_one(causal: bool, window: int | None) -> None:
    """A pair of two sequences is none, and nothing is padded."""
    lengths = (4, 1, 9)
    sequence = [b for b, length in enumerate(lengths) for _ in range(length)]
    pairs = sum(
        1
        for query, key in product(range(sum(lengths)), repeat=2)
        if sequence[query] == sequence[key] and not (causal and key > query)
        if window is None or abs(query - key) <= window
    )
    work = attention_varlen_forward(lengths, 6, 8, "bf16", causal, key_heads=3, window=window, value_dim=5)
    assert work.flops == 2 * 6 * pairs * (8 + 5)
    assert work.bytes == 2 * (sum(lengths) * 6 * (8 + 5) + sum(lengths) * 3 * (8 + 5))
    assert attention_varlen_forward((7, 7), 6, 8, "fp32", causal) == attention_forward(2, 6, 7, 8, "fp32", causal)


def test_b3_of_fp8_the_result_is_16_bit() -> None:
    assert matmul(2, 3, 5, "bf16").bytes == 2 * (2 * 5 + 3 * 5 + 2 * 3)
    assert matmul(2, 3, 5, "fp8").bytes == 2 * 5 + 3 * 5 + 2 * (2 * 3)


def test_b1_a_mixture_reads_the_experts_that_were_chosen() -> None:
    """3 tokens of 4 dimensions, 5 experts of 2 matrices [4, 6], 2 for each token, of which 3 were chosen by any."""
    found = moe_forward(3, 4, 6, 5, 2, 2, 3, "fp16")
    assert found.flops == 2 * (3 * 4 * 5) + 3 * 2 * 2 * (2 * 4 * 6)
    assert found.bytes == 2 * (2 * 3 * 4 + 5 * 4 + 3 * 2 * 4 * 6)


def nbytes(*tensors: torch.Tensor) -> int:
    return sum(tensor.nbytes for tensor in tensors)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_b1_rows_are_read_once_and_written_once(dtype: str) -> None:
    x, weight, wide = torch.empty(6, 8, dtype=DTYPES[dtype]), torch.empty(8, dtype=DTYPES[dtype]), torch.empty(8)
    assert work.norm_forward(6, 8, dtype) == work.Work(4 * 48, nbytes(x, weight, x))
    assert work.norm_forward(6, 8, dtype, centered=True, biased=True).bytes == nbytes(x, weight, weight, x)
    assert work.norm_forward(6, 8, dtype, residual=True, of="fp32").bytes == nbytes(x, x, wide, x, x)
    q, k, table = (torch.empty(size, dtype=DTYPES[dtype]) for size in ((2, 3, 5, 8), (2, 1, 5, 8), (2, 5, 2)))
    turned = 2 * 5 * (3 + 1) * 2  # pairs
    assert work.rotary_forward(2, 3, 1, 5, 8, 4, dtype, dtype, 2) == work.Work(
        6 * turned, nbytes(q, q, k, k, table, table)
    )
    assert work.rotary_forward(2, 3, 1, 5, 8, 4, dtype).bytes == nbytes(q, q, k, k) + 2 * 5 * 2 * 4
    assert work.activation_forward(48, dtype, gated=False) == work.Work(48, nbytes(x, x))
    assert work.activation_forward(48, dtype, gated=True) == work.Work(2 * 48, nbytes(x, x, x))
