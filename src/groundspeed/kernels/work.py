"""What the maths of an op must do and move: FLOPs and bytes, whatever a kernel does on the way.

Bytes are algorithmic: every input read once, every output written once.
"""

from __future__ import annotations

from dataclasses import dataclass

BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}


@dataclass(frozen=True)
class Work:
    flops: int
    bytes: int


def attention_forward(
    B: int, H: int, S: int, D: int, dtype: str, causal: bool, key_heads: int | None = None, keys: int | None = None
) -> Work:
    """softmax(QKᵀ)V on [B, H, S, D] and keys and values of [B, key_heads, keys, D]: two matrix products, of 2 FLOPs a
    multiply-add, over the pairs not masked.

    A causal mask, aligned bottom-right, leaves S(S+1)/2 of the S² pairs of a head; the exponentials are not counted, as
    the field does."""
    G, N = key_heads or H, keys or S
    seeing = min(S, N)
    pairs = seeing * N - seeing * (seeing - 1) // 2 if causal else S * N
    return Work(flops=4 * B * H * pairs * D, bytes=2 * B * (H * S + G * N) * D * BYTES[dtype])


def copy(elements: int, dtype: str) -> Work:
    """Each element read once and written once."""
    return Work(flops=0, bytes=2 * elements * BYTES[dtype])


def matmul(M: int, N: int, K: int, dtype: str) -> Work:
    """[M, K] times [K, N]."""
    return Work(flops=2 * M * N * K, bytes=(M * K + K * N + M * N) * BYTES[dtype])
