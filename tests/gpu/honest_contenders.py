"""Odd things to do on a GPU, all of them right: none may be refused."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import groundspeed as gs

KEPT: dict[Any, Any] = {}


def right(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


def streams(count: int) -> list[torch.cuda.Stream]:
    found: list[torch.cuda.Stream] = KEPT.setdefault(("streams", count), [torch.cuda.Stream() for _ in range(count)])
    return found


@gs.contender("attention", name="honest-stream-joined")
def stream_joined(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """On a stream of its own that waits, and is waited for"""
    (side,) = streams(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        out = right(q, k, v, causal, scale)
    torch.cuda.current_stream().wait_stream(side)
    out.record_stream(torch.cuda.current_stream())
    return out


@gs.contender("attention", name="honest-streams-by-events")
def streams_by_events(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Heads on four streams, ordered by events"""
    out = torch.empty_like(q)
    begun = torch.cuda.Event()
    begun.record()
    parts = zip(*(x.chunk(4, dim=1) for x in (q, k, v, out)), strict=True)
    for side, (*inputs, part) in zip(streams(4), parts, strict=False):
        with torch.cuda.stream(side):
            side.wait_event(begun)
            part.copy_(right(*inputs, causal, scale))
            ended = torch.cuda.Event()
            ended.record()
        torch.cuda.current_stream().wait_event(ended)
    return out


@gs.contender("attention", name="honest-waits")
def waits(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Waits for the device before it returns"""
    out = right(q, k, v, causal, scale)
    torch.cuda.synchronize()
    return out


@gs.contender("attention", name="honest-stream-waited-for-by-the-host")
def waited_for_by_the_host(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """On a stream of its own, the host waiting for either"""
    (side,) = streams(1)
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(side):
        out = right(q, k, v, causal, scale)
    side.synchronize()
    return out


@gs.contender("attention", name="honest-graph")
def graph(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Replays a CUDA graph of its own on copies of the inputs"""
    key = q.shape, q.dtype, causal
    if key not in KEPT:
        static = [x.clone() for x in (q, k, v)]
        right(*static, causal, scale)
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            out = right(*static, causal, scale)
        KEPT[key] = captured, static, out
    captured, static, out = KEPT[key]
    for mine, given in zip(static, (q, k, v), strict=True):
        mine.copy_(given)
    captured.replay()
    result: Tensor = out.clone()
    return result


@gs.contender("attention", name="honest-workspace")
def workspace(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Scales the queries in a workspace that it keeps"""
    space = KEPT.setdefault(("space", q.shape, q.dtype), torch.empty_like(q))
    torch.mul(q, 2.0, out=space)
    return right(space, k, v, causal, scale / 2.0)


@gs.contender("attention", name="honest-late-autotune")
def late_autotune(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Tries itself out again after some calls, in the middle of everything"""
    KEPT["calls"] = KEPT.get("calls", 0) + 1
    if KEPT["calls"] in (3, 17):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(3):
            right(q, k, v, causal, scale)
        end.record()
        end.synchronize()
    return right(q, k, v, causal, scale)


@gs.contender("attention", name="honest-view")
def view(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Returns a strided view into something larger"""
    B, H, S, D = q.shape
    large = torch.zeros(B, S, H, D + 8, dtype=q.dtype, device=q.device)
    out = large[..., :D].transpose(1, 2)
    out.copy_(right(q, k, v, causal, scale))
    return out


@gs.contender("attention", name="honest-slow-first-call")
def slow_first_call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Takes a second for its first call"""
    if "first" not in KEPT:
        KEPT["first"] = time.sleep(1.0)
    return right(q, k, v, causal, scale)


@gs.contender("attention", name="honest-reads-on-the-host")
def reads_on_the_host(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Looks at a number on the host before it begins"""
    if q[0, 0, 0, 0].item() > 1e9:
        raise ValueError("too large")
    return right(q, k, v, causal, scale)
