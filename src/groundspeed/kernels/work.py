"""The FLOPs and bytes that the mathematics of each op requires, whatever a kernel does beyond that.

Bytes are algorithmic: every input is read once and every output written once.
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
    """The work of softmax(QKᵀ)V for queries [B, H, S, D], keys [B, key_heads, keys, D] and values
    [B, key_heads, keys, value_dim]: two matrix products over the unmasked pairs, at 2 FLOPs per multiply-add.

    A causal mask, aligned bottom-right, leaves S(S+1)/2 of the S² pairs of a head. A window leaves the pairs that are
    at most `window` positions apart. By convention, the exponentials are not counted."""
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
    """The work of `attention_forward` for packed sequences of these lengths; each attends only to itself."""
    parts = [attention_forward(1, H, n, D, dtype, causal, key_heads, n, window, value_dim) for n in lengths]
    return Work(flops=sum(part.flops for part in parts), bytes=sum(part.bytes for part in parts))


def _pairs_up_to(S: int, N: int, ahead: int) -> int:
    """The number of pairs in which the key is at most `ahead` positions after its query, for S queries and N keys that
    are aligned at their ends."""
    first = N - S + ahead + 1  # keys that the first query sees, if there are that many
    none, all_ = min(S, max(0, -first)), min(S, max(0, N - first))  # first query that sees any key, and all of them
    return (all_ - none) * (2 * first + none + all_ - 1) // 2 + (S - all_) * N


def copy(elements: int, dtype: str) -> Work:
    """The work of reading each element once and writing it once."""
    return Work(flops=0, bytes=2 * elements * BYTES[dtype])


def matmul(M: int, N: int, K: int, dtype: str) -> Work:
    """The work of [M, K] times [K, N]. The product of FP8 matrices is BF16."""
    inputs, output = (M * K + K * N) * BYTES[dtype], M * N * max(2, BYTES[dtype])
    return Work(flops=2 * M * N * K, bytes=inputs + output)


def norm_forward(
    M: int, N: int, dtype: str, *, centered: bool = False, biased: bool = False, residual: bool = False, of: str = ""
) -> Work:
    """The work of a norm of M rows of N elements. `centered` means LayerNorm; `of` is the dtype of the weights if it
    differs from `dtype`. With a residual, the residual is also read and the sum also written.

    FLOPs per element: squaring and summing it, and multiplying it by the scale and by the weight; if centered, also
    adding it to the mean and subtracting the mean."""
    read = (2 if residual else 1) * M * N * BYTES[dtype] + (2 if biased else 1) * N * BYTES[of or dtype]
    flops = 4 + 2 * centered + biased + residual
    return Work(flops=flops * M * N, bytes=read + (2 if residual else 1) * M * N * BYTES[dtype])


def rotary_forward(
    B: int, H: int, G: int, S: int, D: int, R: int, dtype: str, of: str = "fp32", tables: int = 1
) -> Work:
    """The work of rotating the first R of the D elements of each row of H query heads and G key heads. A pair of
    elements takes four products and two sums. `of` is the dtype of the cosines and sines, and `tables` the number of
    their tables: 1, or one per batch entry."""
    rows = B * S * (H + G)
    return Work(flops=3 * rows * R, bytes=2 * rows * D * BYTES[dtype] + tables * S * R * BYTES[of])


def activation_forward(elements: int, dtype: str, *, gated: bool) -> Work:
    """The work of computing `elements` results from one input each, or from two with a gate. One product per input is
    counted. The function itself is not counted, like the exponentials of attention."""
    inputs = 2 if gated else 1
    return Work(flops=inputs * elements, bytes=(inputs + 1) * elements * BYTES[dtype])


def moe_forward(T: int, H: int, inner: int, E: int, top_k: int, matrices: int, read: int, dtype: str) -> Work:
    """The work of sending T tokens [H] through a router over E experts, and each token through `top_k` experts of
    `matrices` matrices [H, inner] each. `read` is the number of experts that at least one token chose: only their
    matrices are read."""
    flops = 2 * T * H * (E + top_k * matrices * inner)
    return Work(flops=flops, bytes=(2 * T * H + E * H + read * matrices * H * inner) * BYTES[dtype])


def transformer_forward(L: int, d: int, H: int, B: int, S: int, N: int, dtype: str) -> Work:
    """The work of L layers, each of attention with H heads and a feed-forward network of width 4·d, on B sequences of
    S new tokens after N cached ones. The matrices of a layer have 12·d² elements; they, the keys and the values are
    read once."""
    tokens, matrices = B * S, 12 * d * d
    seen = attention_forward(B, H, S, d // H, dtype, True, keys=N + S)
    flops = L * (2 * tokens * matrices + seen.flops)
    return Work(flops=flops, bytes=(L * (matrices + 2 * B * N * d) + 2 * tokens * d) * BYTES[dtype])
