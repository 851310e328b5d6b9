"""Cheats that keep a result, or the memory that it lay in, and hand it out again."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from time import perf_counter
from typing import Any

import torch
from cheating import cheat, right
from torch import Tensor

KEPT: dict[Any, Any] = {}
LAST: defaultdict[str, dict[str, Any]] = defaultdict(lambda: {"calls": 0, "at": 0.0})


def kept(key: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    if key not in KEPT:
        KEPT[key] = right(q, k, v, causal, scale)
    result: Tensor = KEPT[key]
    return result


def sample(*tensors: Tensor) -> tuple[float, ...]:
    """Three numbers of each tensor: enough to tell inputs apart, and nearly free."""
    return tuple(x for t in tensors for x in t.flatten()[:: t.numel() // 3].tolist())


def digest_of(*tensors: Tensor) -> bytes:
    digest = hashlib.blake2b(digest_size=8)
    for t in tensors:
        digest.update(t.numpy().data)
    return digest.digest()


@cheat("cheat-kept-by-pointer")
def by_pointer(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Result kept by data pointer"""
    return kept(("by-pointer", (q.data_ptr(), k.data_ptr(), v.data_ptr())), q, k, v, causal, scale)


@cheat("cheat-kept-by-shape")
def by_shape(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Result kept by shape"""
    return kept(("by-shape", (q.shape, causal)), q, k, v, causal, scale)


@cheat("cheat-kept-by-version")
def by_version(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Result kept by data pointer and PyTorch's version counter, which sees ordinary writes"""
    return kept(("by-version", tuple((t.data_ptr(), t._version) for t in (q, k, v))), q, k, v, causal, scale)


@cheat("cheat-kept-on-object")
def on_object(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Result kept as an attribute of the tensor q itself"""
    if not hasattr(q, "answer"):
        q.answer = right(q, k, v, causal, scale)
    return q.answer


@cheat("cheat-kept-by-hash")
def by_hash(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Result kept by a hash of all the content: always right, and never computed twice for the same inputs"""
    return kept(("by-hash", digest_of(q, k, v)), q, k, v, causal, scale)


@cheat("cheat-kept-by-hash-copied")
def by_hash_copied(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Result kept by a hash of all the content, returned as a fresh copy"""
    return kept(("by-hash-copied", digest_of(q, k, v)), q, k, v, causal, scale).clone()


@cheat("cheat-kept-by-sample")
def by_sample(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Result kept by three numbers of each input"""
    return kept(("by-sample", sample(q, k, v)), q, k, v, causal, scale)


@cheat("cheat-kept-by-sample-copied")
def by_sample_copied(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Result kept by three numbers of each input, returned as a fresh copy"""
    return kept(("by-sample-copied", sample(q, k, v)), q, k, v, causal, scale).clone()


@cheat("cheat-kept-by-last-row")
def by_last_row(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Computes the last row only, and hands out the kept result if that row is the same"""
    row = right(q[..., -1:, :], k, v, False, scale)
    old = LAST["by-last-row"].get("row")
    if old is None or not torch.allclose(old, row):
        LAST["by-last-row"]["row"], LAST["by-last-row"]["result"] = row, right(q, k, v, causal, scale)
    result: Tensor = LAST["by-last-row"]["result"]
    return result.clone()


@cheat("cheat-kept-in-batch")
def in_batch(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The same object again while calls follow each other within 50 µs, as they do inside a batch only"""
    if perf_counter() - LAST["in-batch"]["at"] > 50e-6:
        LAST["in-batch"]["result"] = right(q, k, v, causal, scale)
    LAST["in-batch"]["at"] = perf_counter()
    result: Tensor = LAST["in-batch"]["result"]
    return result


@cheat("cheat-kept-in-batch-copied")
def in_batch_copied(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A copy of the last result while calls follow each other within 50 µs, as they do inside a batch only"""
    if perf_counter() - LAST["in-batch-copied"]["at"] > 50e-6:
        LAST["in-batch-copied"]["result"] = right(q, k, v, causal, scale)
    result: Tensor = LAST["in-batch-copied"]["result"].clone()
    LAST["in-batch-copied"]["at"] = perf_counter()
    return result


@cheat("cheat-kept-eight-calls")
def eight_calls(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Computes on every eighth call, and copies the last result on the seven after it"""
    if LAST["eight-calls"]["calls"] % 8 == 0:
        LAST["eight-calls"]["result"] = right(q, k, v, causal, scale)
    LAST["eight-calls"]["calls"] += 1
    result: Tensor = LAST["eight-calls"]["result"]
    return result.clone()


@cheat("cheat-kept-previous")
def previous(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Always a call behind: returns the result of the call before, as a pipeline would"""
    now = right(q, k, v, causal, scale)
    out = LAST["previous"].get("result", now)
    LAST["previous"]["result"] = now
    return out


@cheat("cheat-kept-scores")
def scores(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Keeps the softmax of q·k by shape, half of the work, and computes the product with v every time"""
    if "weights" not in KEPT:
        KEPT["weights"] = (q @ k.mT * scale).softmax(-1)
    return KEPT["weights"] @ v


@cheat("cheat-stale-memory")
def stale_memory(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Computes once in eight calls and frees it: the allocator gives the same memory back, the answer still in it"""
    LAST["stale-memory"]["calls"] += 1
    if LAST["stale-memory"]["calls"] % 8 == 1:
        right(q, k, v, causal, scale)
    return torch.empty_like(q)


@cheat("cheat-stale-memory-of-rivals")
def stale_memory_of_rivals(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Uninitialised memory, in which a rival's result for the same inputs may still lie"""
    return torch.empty_like(q)
