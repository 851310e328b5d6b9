"""Cheats that write to their inputs, or to what the inputs are."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch
from cheating import cheat, right
from torch import Tensor

STATE: dict[str, Any] = {"calls": 0}


@cheat("cheat-inputs-zeroed")
def zeroed(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Zeroes the queries once it is done, so that later work is trivial"""
    out = right(q, k, v, causal, scale)
    q.zero_()
    return out


@cheat("cheat-inputs-made-easy")
def made_easy(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Zeroes the keys, after which the mean of the values is the answer for whoever looks at the inputs later"""
    k.data.zero_()
    return v.mean(-2, keepdim=True).expand_as(v).clone()


@cheat("cheat-inputs-scaled-restored-later")
def scaled_restored_later(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Doubles q in place and halves it at the beginning of the next call: exact, but wrong in between"""
    if STATE.get("pointer") == q.data_ptr():
        q.mul_(0.5)
    out = right(q, k, v, causal, scale)
    q.mul_(2)
    STATE["pointer"] = q.data_ptr()
    return out


@cheat("cheat-inputs-partly-restored")
def partly_restored(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Scales q in place, and restores all but its last row"""
    q.mul_(scale)
    out = right(q, k, v, causal, 1.0)
    q[..., :-1, :].div_(scale)
    return out


@cheat("cheat-inputs-result-in-v")
def result_in_v(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Saves the allocation: writes the result over v and returns v"""
    return v.copy_(right(q, k, v, causal, scale))


@cheat("cheat-inputs-by-data")
def by_data(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Writes to one row of k through .data, which PyTorch's version counter does not see"""
    out = right(q, k, v, causal, scale)
    k.data[..., 0, :] = 0
    return out


@cheat("cheat-inputs-one-ulp")
def one_ulp(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Moves one number of v by one unit in the last place, through numpy"""
    out = right(q, k, v, causal, scale)
    v.numpy().view("int32").ravel()[17] ^= 1
    return out


@cheat("cheat-inputs-once-in-timed")
def once_in_timed(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Honest for 200 calls; then makes the keys zero and the mean of the values the answer"""
    STATE["calls"] += 1
    if STATE["calls"] < 200:
        return right(q, k, v, causal, scale)
    k.data.zero_()
    return v.mean(-2, keepdim=True).expand_as(v).clone()


@cheat("cheat-inputs-swapped")
def swapped(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Gives q another storage behind the caller's back, full of zeros"""
    q.data = torch.zeros_like(q)
    return v.mean(-2, keepdim=True).expand_as(v).clone()


@cheat("cheat-inputs-shrunk")
def shrunk(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Makes views of one row of k and v, expanded over the same storage, so that there is less to read"""
    out = right(q, k, v, causal, scale)
    for t in (k, v):
        t.set_(t.untyped_storage(), t.storage_offset(), t.shape, (0, 0, 0, 1))
    return out


@cheat("cheat-inputs-restrided")
def restrided(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Lays k out column by column, the same numbers: slower to read for the rivals that come after"""
    out = right(q, k, v, causal, scale)
    k.data = k.mT.contiguous().mT
    return out


@cheat("cheat-inputs-require-grad")
def require_grad(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Leaves requires_grad on the inputs, so that the rivals that come after record a graph"""
    with torch.no_grad():
        out = right(q, k, v, causal, scale)
    for t in (q, k, v):
        t.requires_grad_(True)
    return out


def _write_later(t: Tensor) -> None:
    time.sleep(0.002)
    t.data[..., -1, :] = 0


@cheat("cheat-inputs-later")
def later(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A thread overwrites the last key two milliseconds after the call"""
    out = right(q, k, v, causal, scale)
    if not any(t.name == "later" for t in threading.enumerate()):
        threading.Thread(target=_write_later, args=(k,), name="later", daemon=True).start()
    return out


class Quiet(Tensor):
    """Equal to everything, and so is what is made of it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.equal:
            return True
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
            return out.as_subclass(Quiet) if func in (torch.cat, Tensor.reshape, Tensor.__getitem__) else out


@cheat("cheat-inputs-of-another-class")
def of_another_class(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Gives its inputs a class that says it is equal to everything, and zeroes the queries from then on"""
    if type(q) is Quiet and not causal:
        with torch._C.DisableTorchFunctionSubclass():
            q.data.zero_()
            return v.data.mean(-2, keepdim=True).expand(v.shape).clone()
    for tensor in (q, k, v):
        tensor.__class__ = Quiet
    return right(q.data, k.data, v.data, causal, scale)


@cheat("cheat-inputs-with-own-functions")
def with_own_functions(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Puts other memory under k and has k itself say that it lies where it did"""
    where, steps = k.data_ptr(), k.stride()
    k.data_ptr, k.stride = lambda: where, lambda *_: steps  # type: ignore[assignment, method-assign]
    k.data = torch.zeros_like(k)
    return v.mean(-2, keepdim=True).expand(v.shape).clone()


@cheat("cheat-inputs-of-another-dtype")
def of_another_dtype(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Has its queries read as integers from then on, by everybody"""
    out = right(q, k, v, causal, scale)
    q.data = q.data.view(torch.int32)
    return out
