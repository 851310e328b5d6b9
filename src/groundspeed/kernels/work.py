"""What the maths of an op must do and move: FLOPs and bytes, whatever a kernel does on the way.

Bytes are algorithmic: every input read once, every output written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "fp8": 1}


@dataclass(frozen=True)
class Work:
    flops: int
    bytes: int


def attention_forward(
    B: int,
    H: int,
    S: int,
    D: int,
    dtype: str,
    causal: bool,
    key_heads: int | None = None,
    keys: int | None = None,
    window: int | None = None,
    value_dim: int | None = None,
) -> Work:
    """softmax(QKᵀ)V on [B, H, S, D], keys of [B, key_heads, keys, D] and values of [B, key_heads, keys, value_dim]: two
    matrix products, of 2 FLOPs a multiply-add, over the pairs not masked.

    A causal mask, aligned bottom-right, leaves S(S+1)/2 of the S² pairs of a head; a window, those with at most so many
    keys between. The exponentials are not counted, as the field does."""
    G, N, columns = key_heads or H, keys or S, D + (value_dim or D)
    ahead = 0 if causal else S + N if window is None else window
    pairs = _pairs_up_to(S, N, ahead) - (0 if window is None else _pairs_up_to(S, N, -window - 1))
    return Work(flops=2 * B * H * pairs * columns, bytes=B * (H * S + G * N) * columns * BYTES[dtype])


def attention_varlen_forward(
    lengths: Sequence[int],
    H: int,
    D: int,
    dtype: str,
    causal: bool,
    key_heads: int | None = None,
    window: int | None = None,
    value_dim: int | None = None,
) -> Work:
    """`attention_forward` of sequences of these lengths, of which each sees itself only."""
    parts = [attention_forward(1, H, n, D, dtype, causal, key_heads, n, window, value_dim) for n in lengths]
    return Work(flops=sum(part.flops for part in parts), bytes=sum(part.bytes for part in parts))


def _pairs_up_to(S: int, N: int, ahead: int) -> int:
    """Of S queries and N keys, aligned at their ends, those pairs whose key is at most so far ahead of its query."""
    first = N - S + ahead + 1  # keys of the first query, if there are as many
    none, all_ = min(S, max(0, -first)), min(S, max(0, N - first))  # the first query that sees one, and all of them
    return (all_ - none) * (2 * first + none + all_ - 1) // 2 + (S - all_) * N


def copy(elements: int, dtype: str) -> Work:
    """Each element read once and written once."""
    return Work(flops=0, bytes=2 * elements * BYTES[dtype])


def matmul(M: int, N: int, K: int, dtype: str) -> Work:
    """[M, K] times [K, N]; of FP8 the result is BF16."""
    inputs, output = (M * K + K * N) * BYTES[dtype], M * N * max(2, BYTES[dtype])
    return Work(flops=2 * M * N * K, bytes=inputs + output)


def norm_forward(
    M: int, N: int, dtype: str, *, centered: bool = False, biased: bool = False, residual: bool = False, of: str = ""
) -> Work:
    """M rows of N elements; `centered` is LayerNorm, and `of` the dtype of its weights where it is another. A residual
    is read, and the sum with it written. Of an element: its square into a sum, and the products with scale and weight;
    centered, also its part of the mean, and the difference from it."""
    read = (2 if residual else 1) * M * N * BYTES[dtype] + (2 if biased else 1) * N * BYTES[of or dtype]
    flops = 4 + 2 * centered + biased + residual
    return Work(flops=flops * M * N, bytes=read + (2 if residual else 1) * M * N * BYTES[dtype])


def rotary_forward(
    B: int, H: int, G: int, S: int, D: int, R: int, dtype: str, of: str = "fp32", tables: int = 1
) -> Work:
    """Rows of D elements of H query and G key heads, of which R turn, in pairs of four products and two sums; `of` is
    the dtype of cosines and sines, of which there are so many tables."""
    rows = B * S * (H + G)
    return Work(flops=3 * rows * R, bytes=2 * rows * D * BYTES[dtype] + tables * S * R * BYTES[of])


def activation_forward(elements: int, dtype: str, *, gated: bool) -> Work:
    """So many results, each of one input or, with a gate, of two. A product for each input; the function itself is not
    counted, as exponentials are not."""
    inputs = 2 if gated else 1
    return Work(flops=inputs * elements, bytes=(inputs + 1) * elements * BYTES[dtype])


def moe_forward(T: int, H: int, inner: int, E: int, top_k: int, matrices: int, read: int, dtype: str) -> Work:
    """T tokens [H] through a router of E experts and `top_k` of them each, of so many matrices [H, inner]; those of the
    `read` experts that any token chose are read."""
    flops = 2 * T * H * (E + top_k * matrices * inner)
    return Work(flops=flops, bytes=(2 * T * H + E * H + read * matrices * H * inner) * BYTES[dtype])


def transformer_forward(L: int, d: int, H: int, B: int, S: int, N: int, dtype: str) -> Work:
    """L layers of attention with H heads and a network four times as wide as d, on B sequences of S tokens after N that
    were read before: the matrices of a layer have 12·d² elements, and are read once, as keys and values are."""
    tokens, matrices = B * S, 12 * d * d
    seen = attention_forward(B, H, S, d // H, dtype, True, keys=N + S)
    flops = L * (2 * tokens * matrices + seen.flops)
    return Work(flops=flops, bytes=(L * (matrices + 2 * B * N * d) + 2 * tokens * d) * BYTES[dtype])
