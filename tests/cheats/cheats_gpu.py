"""Cheats that need a GPU: streams, events, graphs, flags, the cache that is to be cold."""

# mypy: disable-error-code="misc, assignment, method-assign, call-arg, attr-defined, no-any-return, union-attr"

from __future__ import annotations

from typing import Any

import torch
from cheating import by_hand, cheat, right
from torch import Tensor

from groundspeed.case import Case

STATE: dict[str, Any] = {}
NEEDS_GPU = {
    "cheat-gpu-side-stream": "work on a stream that nobody waits for",
    "cheat-gpu-late-join": "the stream joined by the next call",
    "cheat-gpu-current-stream": "another current stream left behind",
    "cheat-gpu-event": "torch.cuda.Event.elapsed_time replaced",
    "cheat-gpu-event-record": "torch.cuda.Event.record replaced",
    "cheat-gpu-synchronize": "torch.cuda.synchronize replaced",
    "cheat-gpu-graph-of-nothing": "nothing in the captured graph",
    "cheat-gpu-graph-only": "right outside a capture only",
    "cheat-gpu-tf32": "TF32 flags",
    "cheat-gpu-reduced-precision": "FP16 accumulation flags",
    "cheat-gpu-warm-cache": "the cold cache kept warm",
    "cheat-gpu-kept-by-sample": "a result kept by a few numbers",
}


def needs_gpu(case: Case, device: str) -> str | None:
    return None if device == "cuda" else "needs a GPU"


def side_stream() -> torch.cuda.Stream:
    stream: torch.cuda.Stream = STATE.setdefault("stream", torch.cuda.Stream())
    return stream


@cheat("cheat-gpu-side-stream", supports=needs_gpu)
def on_side_stream(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Computes on a stream of its own that nobody waits for"""
    out = torch.empty_like(q)
    with torch.cuda.stream(side_stream()):
        out.copy_(right(q, k, v, causal, scale))
    return out


@cheat("cheat-gpu-late-join", supports=needs_gpu)
def late_join(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Computes on a stream of its own, which the next call waits for"""
    torch.cuda.current_stream().wait_stream(side_stream())
    side_stream().wait_stream(torch.cuda.current_stream())
    return on_side_stream(q, k, v, causal=causal, scale=scale)


@cheat("cheat-gpu-current-stream", supports=needs_gpu)
def current_stream(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Makes a stream of its own the current one, so that the end is recorded elsewhere than the beginning"""
    torch.cuda.set_stream(side_stream())
    return right(q, k, v, causal, scale)


def _false_elapsed() -> None:
    real = torch.cuda.Event.elapsed_time
    torch.cuda.Event.elapsed_time = lambda self, end: real(self, end) * STATE.get("factor", 1.0)


@cheat("cheat-gpu-event", supports=needs_gpu, setup=_false_elapsed)
def event(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """torch.cuda.Event.elapsed_time gives half of the time"""
    STATE["factor"] = 0.5
    return right(q, k, v, causal, scale)


def _false_record() -> None:
    class Event(torch.cuda.Event):
        def record(self, stream: Any = None) -> None:
            super().record(side_stream())

    torch.cuda.Event = Event


@cheat("cheat-gpu-event-record", supports=needs_gpu, setup=_false_record)
def event_record(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """torch.cuda.Event records on a stream on which nothing happens"""
    return right(q, k, v, causal, scale)


def _no_synchronize() -> None:
    torch.cuda.synchronize = lambda device=None: None


@cheat("cheat-gpu-synchronize", supports=needs_gpu, setup=_no_synchronize)
def synchronize(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """torch.cuda.synchronize waits for nothing"""
    return right(q, k, v, causal, scale)


@cheat("cheat-gpu-graph-of-nothing", supports=needs_gpu)
def graph_of_nothing(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """While a graph is captured, returns what it kept and launches nothing"""
    if torch.cuda.is_current_stream_capturing():
        kept: Tensor = STATE["kept"]
        return kept
    out = STATE["kept"] = right(q, k, v, causal, scale)
    return out


@cheat("cheat-gpu-graph-only", supports=needs_gpu)
def graph_only(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Right outside a capture; captured, half of the queries"""
    if not torch.cuda.is_current_stream_capturing():
        return right(q, k, v, causal, scale)
    out = torch.empty_like(q)
    half = q.shape[-2] // 2
    out[..., :half, :] = right(q[..., :half, :], k[..., :half, :], v[..., :half, :], causal, scale)
    return out


def _tf32() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True


@cheat("cheat-gpu-tf32", supports=needs_gpu, setup=_tf32)
def tf32(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """TF32 turned on for FP32 matmul"""
    return by_hand(q, k, v, False, scale)


def _reduced() -> None:
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
    torch.backends.cuda.matmul.allow_fp16_accumulation = True
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True


@cheat("cheat-gpu-reduced-precision", supports=needs_gpu, setup=_reduced)
def reduced_precision(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """FP16 accumulation turned on in cuBLAS"""
    return by_hand(q, k, v, False, scale)


@cheat("cheat-gpu-warm-cache", supports=needs_gpu)
def warm_cache(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Nothing big is filled or summed up any more from the first call on, so that the cache stays warm"""
    if not STATE:
        STATE["done"] = True
        for name in ("zero_", "fill_", "copy_"):
            real = getattr(Tensor, name)
            setattr(Tensor, name, lambda t, *a, real=real: t if t.nbytes > 1 << 25 else real(t, *a))
        real_sum = torch.sum
        torch.sum = lambda t, *a, **k: k["out"] if "out" in k and t.nbytes > 1 << 25 else real_sum(t, *a, **k)
    return right(q, k, v, causal, scale)


@cheat("cheat-gpu-kept-by-sample", supports=needs_gpu)
def kept_by_sample(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Result kept by one number of each input"""
    key = tuple(t.flatten()[0].item() for t in (q, k, v))
    if STATE.get("key") != key:
        STATE["key"], STATE["result"] = key, right(q, k, v, causal, scale)
    return STATE["result"].clone()
