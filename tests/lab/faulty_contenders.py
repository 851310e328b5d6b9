"""Contenders for `--with` that go wrong, each in its own way; `test_faults.py` says how each must end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import groundspeed as gs

calls: Counter[str] = Counter()
hoard: list[Tensor] = []
kept: dict[int, Tensor] = {}


def right(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


def timed() -> bool:
    """Whether the laboratory is timing this very call for a block; no honest contender would ask."""
    frame: Any = sys._getframe()
    while frame := frame.f_back:
        if frame.f_code.co_name == "_sample":
            return True
    return False


@gs.contender("attention")
def slightly_wrong(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    return right(q, k, v, causal, scale) * 1.0001


@gs.contender("attention")
def zeros(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    return torch.zeros_like(q)


@gs.contender("attention")
def unwritten(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    return torch.empty_like(q)


@gs.contender("attention")
def skips_its_tail(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    out = torch.empty_like(q)
    out[..., :-1, :] = right(q, k, v, causal, scale)[..., :-1, :]
    return out


@gs.contender("attention")
def wrong_shape(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    return right(q, k, v, causal, scale).transpose(1, 2)


@gs.contender("attention")
def wrong_dtype(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    return right(q, k, v, causal, scale).double()


@gs.contender("attention")
def a_list(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Any:
    return right(q, k, v, causal, scale).tolist()


@gs.contender("attention")
def overwrites_q(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    return q.copy_(right(q, k, v, causal, scale))


@gs.contender("attention")
def overwrites_k_when_warm(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    calls["warm"] += 1
    out = right(q, k, v, causal, scale)
    if calls["warm"] > 2:
        k.zero_()
    return out


@gs.contender("attention")
def overwrites_v_when_timed(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    out = right(q, k, v, causal, scale)
    if timed():
        v.mul_(2)
    return out


@gs.contender("attention")
def wrong_later(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    calls["later"] += 1
    return right(q, k, v, causal, scale) * (1.0 if calls["later"] <= 2 else 1.5)


@gs.contender("attention")
def wrong_when_timed(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    return right(q, k, v, causal, scale) * (1.5 if timed() else 1.0)


@gs.contender("attention")
def remembers(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    if q.data_ptr() not in kept:
        kept[q.data_ptr()] = right(q, k, v, causal, scale)
    return kept[q.data_ptr()]


@gs.contender("attention")
def raises(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    raise ValueError("this kernel does not like you")


@gs.contender("attention")
def raises_when_timed(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    if timed():
        raise ValueError("not while you are looking")
    return right(q, k, v, causal, scale)


@gs.contender("attention")
def hands_on_other_arguments(*inputs: Tensor, **arguments: Any) -> Tensor:
    return right(*inputs, **arguments, bias=None)


@gs.contender("attention")
def sys_exits(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    sys.exit()


@gs.contender("attention")
def interrupts(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    raise KeyboardInterrupt


@gs.contender("attention")
def imports_what_is_missing(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    import no_such_module_anywhere

    return no_such_module_anywhere.attention(q, k, v)


def _broken_supports(case: Any, device: str) -> str | None:
    raise RuntimeError("supports() itself is broken")


@gs.contender("attention", supports=_broken_supports)
def broken_supports(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    return right(q, k, v, causal, scale)


@gs.contender("attention", supports=lambda case, device: True)  # type: ignore[arg-type, return-value]
def misread_supports(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    return right(q, k, v, causal, scale)


@gs.contender("attention", supports=lambda case, device: "sequences over a million only")
def unsupported(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    return right(q, k, v, causal, scale)


@gs.contender("attention")
def chatters(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    print("x" * 10_000)
    os.write(1, b'{"kind": "block end"}\n')
    return right(q, k, v, causal, scale)


@gs.contender("attention")
def spins_when_timed(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    while timed():
        pass
    return right(q, k, v, causal, scale)


@gs.contender("attention")
def sleeps(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    time.sleep(600)
    return right(q, k, v, causal, scale)


@gs.contender("attention")
def exits(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    os._exit(3)


@gs.contender("attention")
def segfaults_when_timed(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    if timed():
        os.kill(os.getpid(), signal.SIGSEGV)
    return right(q, k, v, causal, scale)


@gs.contender("attention")
def hoards(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    while True:
        hoard.append(torch.ones(1 << 24))
