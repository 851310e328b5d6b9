"""Odd but honest contenders, none of which may be refused: each computes every result from the inputs it is given."""

# mypy: disable-error-code="misc, assignment, method-assign, call-arg, attr-defined, no-any-return, union-attr"

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
import torch
from cheating import by_hand, right
from cheating import cheat as honest
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

STATE: dict[str, Any] = {}


@honest("honest-thread-joined")
def thread_joined(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A thread for every call, joined before it returns"""
    out = torch.empty_like(q)
    thread = threading.Thread(target=lambda: out.copy_(right(q, k, v, causal, scale)))
    thread.start()
    thread.join()
    return out


@honest("honest-thread-pool")
def thread_pool(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A pool of two threads that lives on between calls; each computes half of the queries"""
    pool = STATE.setdefault("pool", ThreadPoolExecutor(2))
    half = q.shape[-2] // 2
    if causal:
        return right(q, k, v, causal, scale)
    parts = pool.map(lambda part: right(part, k, v, False, scale), (q[..., :half, :], q[..., half:, :]))
    return torch.cat(list(parts), dim=-2)


@honest("honest-workspace")
def workspace(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Scores in a workspace that is allocated once"""
    space = STATE.setdefault("space", torch.empty(*q.shape[:-1], k.shape[-2]))
    torch.matmul(q, k.mT, out=space)
    space.mul_(scale)
    if causal:
        space.masked_fill_(torch.ones(space.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return space.softmax(-1) @ v


@honest("honest-own-output")
def own_output(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Owns one output buffer, writes to it in every call and returns it"""
    out: Tensor = STATE.setdefault("out", torch.empty_like(q))
    return out.copy_(right(q, k, v, causal, scale))


@honest("honest-two-outputs")
def two_outputs(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Writes to two output buffers in turn"""
    outs = STATE.setdefault("outs", [torch.empty_like(q), torch.empty_like(q)])
    STATE["two-outputs"] = STATE.get("two-outputs", 0) + 1
    out: Tensor = outs[STATE["two-outputs"] % 2]
    return out.copy_(right(q, k, v, causal, scale))


@honest("honest-late-autotune")
def late_autotune(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Goes over to another algorithm after 30 calls"""
    STATE["late-autotune"] = STATE.get("late-autotune", 0) + 1
    return (by_hand if STATE["late-autotune"] <= 30 else right)(q, k, v, causal, scale)


@honest("honest-transposed")
def transposed(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A result laid out column by column"""
    return right(q, k, v, causal, scale).mT.contiguous().mT


@honest("honest-bshd")
def bshd(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A result laid out [batch, sequence, heads, dimension], returned as a transposed view"""
    return right(q, k, v, causal, scale).transpose(1, 2).contiguous().transpose(1, 2)


@honest("honest-strided")
def strided(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A view of every other number in a larger buffer"""
    buffer = torch.empty(*q.shape[:-1], 2 * q.shape[-1])
    out = buffer[..., ::2]
    out.copy_(right(q, k, v, causal, scale))
    return out


@honest("honest-padded")
def padded(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A view of a padded buffer whose padding is not a number"""
    buffer = torch.full((*q.shape[:-2], q.shape[-2] + 16, q.shape[-1] + 8), float("nan"))
    out = buffer[..., : q.shape[-2], : q.shape[-1]]
    out.copy_(right(q, k, v, causal, scale))
    return out


@honest("honest-slow-first-call")
def slow_first_call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Half a second for its first call"""
    STATE["slow-first-call"] = STATE.get("slow-first-call", 0) + 1
    if STATE["slow-first-call"] == 1:
        time.sleep(0.5)
    return right(q, k, v, causal, scale)


@honest("honest-lazily-imported")
def lazily_imported(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Writes its kernel as source and compiles it on its first call"""
    if "kernel" not in STATE:
        source = "def kernel(f, q, k, v, causal, scale):\n    return f(q, k, v, is_causal=causal, scale=scale)"
        exec(compile(source, "<made>", "exec"), STATE)
    out: Tensor = STATE["kernel"](scaled_dot_product_attention, q, k, v, causal, scale)
    return out


@honest("honest-compiled")
def compiled(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """torch.compile, on its first call, with a backend that needs no C++ compiler"""
    if "compiled" not in STATE:
        STATE["compiled"] = torch.compile(by_hand, backend="aot_eager", dynamic=False)
    out: Tensor = STATE["compiled"](q, k, v, causal, scale)
    return out


@honest("honest-fx-graph")
def fx_graph(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A graph made by torch.fx on its first call"""
    if "graph" not in STATE:
        STATE["graph"] = torch.fx.symbolic_trace(by_hand, {"causal": causal, "scale": scale})
    out: Tensor = STATE["graph"](q, k, v, causal, scale)
    return out


@honest("honest-double")
def double(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """FP64 inside"""
    return right(q.double(), k.double(), v.double(), causal, scale).to(q.dtype)


@honest("honest-odd-chunks")
def odd_chunks(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Queries in chunks of 13"""
    if causal:
        return right(q, k, v, causal, scale)
    return torch.cat([right(part, k, v, False, scale) for part in q.split(13, dim=-2)], dim=-2)


def _configured(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float, f: Callable[..., Tensor]) -> Tensor:
    """A functools.partial"""
    return f(q, k, v, causal, scale)


configured = honest("honest-partial")(partial(_configured, f=by_hand))


class Attention(torch.nn.Module):
    """A module of torch.nn with a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
        self.calls += 1
        return right(q, k, v, causal, scale)


module = honest("honest-module")(Attention())


class Plain:
    """A plain object that can be called."""

    __slots__ = ()

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
        return right(q, k, v, causal, scale)


instance = honest("honest-callable")(Plain())


@honest("honest-autograd")
def autograd(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Autograd on inside; the result has a graph"""
    with torch.enable_grad():
        return by_hand(q.detach().requires_grad_(), k, v, causal, scale)


@honest("honest-inference-mode")
def inference_mode(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The result is an inference tensor"""
    with torch.inference_mode():
        return by_hand(q, k, v, causal, scale)


@honest("honest-copies")
def copies(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Works on copies of its inputs, and in place there"""
    q, k, v = (t.clone() for t in (q, k, v))
    return right(q.mul_(scale), k, v, causal, 1.0).contiguous().clone()


@honest("honest-einsum")
def einsum(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """torch.einsum"""
    scores = torch.einsum("bhsd,bhtd->bhst", q, k) * scale
    if causal:
        scores += mask(q.shape[-2])
    return torch.einsum("bhst,bhtd->bhsd", scores.softmax(-1), v)


@cache
def mask(S: int) -> Tensor:
    return torch.full((S, S), float("-inf")).triu(1)


@honest("honest-gqa")
def gqa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """torch.nn.functional with enable_gqa"""
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)


@lru_cache
def zero_mask(S: int) -> Tensor:
    return torch.zeros(S, S)


@honest("honest-cached-masks")
def cached_masks(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Masks kept by shape: constants only"""
    S = q.shape[-2]
    return scaled_dot_product_attention(q, k, v, attn_mask=mask(S) if causal else zero_mask(S), scale=scale)


@honest("honest-much-memory")
def much_memory(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """64 MiB of workspace, touched, in every call"""
    space = torch.zeros(1 << 24)
    space[: q.numel()] = q.flatten()
    return right(space[: q.numel()].view_as(q), k, v, causal, scale)


@honest("honest-prints")
def prints(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Prints to both streams, in every call"""
    print("honest kernel at work", q.shape)
    print("honest kernel at work", file=sys.stderr)
    return right(q, k, v, causal, scale)


@honest("honest-warns")
def warns(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Warns in every call"""
    warnings.warn("this kernel is deprecated", DeprecationWarning, stacklevel=1)
    return right(q, k, v, causal, scale)


@honest("honest-logs")
def logs(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Logs in every call"""
    logging.getLogger("honest").warning("at work on %s", tuple(q.shape))
    return right(q, k, v, causal, scale)


@honest("honest-numpy")
def by_numpy(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """numpy inside"""
    scores = q.numpy() @ k.mT.numpy() * np.float32(scale)
    if causal:
        scores = scores + mask(q.shape[-2]).numpy()
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return torch.from_numpy(weights @ v.numpy() / weights.sum(-1, keepdims=True))


@honest("honest-thread-idle")
def thread_idle(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Has a thread of its own that sleeps, as a logger or a prefetcher would"""
    if "idle" not in STATE:
        STATE["idle"] = threading.Thread(target=threading.Event().wait, args=(30,), daemon=True)
        STATE["idle"].start()
    return right(q, k, v, causal, scale)


@honest("honest-thread-polling")
def thread_polling(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Has a thread of its own that looks a hundred times a second whether there is something to do"""
    if "polling" not in STATE:
        STATE["polling"] = threading.Thread(target=_poll, daemon=True)
        STATE["polling"].start()
    return right(q, k, v, causal, scale)


def _poll() -> None:
    while True:
        time.sleep(0.01)


@honest("honest-process-starting")
def process_starting(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Has a process of its own that takes a second to start, and sleeps then, as those do that PyTorch compiles in"""
    if "process" not in STATE:
        script = "import time, torch; time.sleep(30)"
        STATE["process"] = subprocess.Popen([sys.executable, "-c", script])
    return right(q, k, v, causal, scale)


@honest("honest-random-rounding")
def random_numbers(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Draws random numbers and seeds PyTorch's generator, as dropout would, without any effect on the result"""
    torch.manual_seed(0)
    noise = torch.rand(4).sum() * 0
    return right(q, k, v, causal, scale).add_(noise)


@honest("honest-raises-inside")
def raises_inside(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Tries a fast path that raises, catches that, and takes the other"""
    try:
        raise NotImplementedError("no fast path here")
    except NotImplementedError:
        return right(q, k, v, causal, scale)


@honest("honest-varying-time")
def varying_time(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Takes ten times as long on every 16th call, as a kernel that compacts its workspace would"""
    STATE["varying-time"] = STATE.get("varying-time", 0) + 1
    for _ in range(10 if STATE["varying-time"] % 16 == 0 else 1):
        out = right(q, k, v, causal, scale)
    return out


@honest("honest-restores-flags")
def restores_flags(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Changes a flag of PyTorch for its own work and puts it back before it returns"""
    old = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    out = right(q, k, v, causal, scale)
    torch.set_float32_matmul_precision(old)
    return out
