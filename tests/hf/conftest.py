"""Small models with random weights, real Transformers, one thread. A model's weights are large enough for attention to
matter: with those of a usual beginning everything looks alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers

import groundspeed as gs
from groundspeed.kernels import calls


def rms_norm(x: Any, weight: Any, *, eps: float = 1e-6) -> Any:
    return torch.nn.functional.rms_norm(x.float(), x.shape[-1:], eps=eps).mul(weight.float()).to(x.dtype)


def rotary(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    def turned(x: Any) -> Any:
        half = cos.shape[-1]
        c, s, (a, b, rest) = cos[:, None].float(), sin[:, None].float(), x.float().tensor_split((half, 2 * half), -1)
        return torch.cat([a * c - b * s, b * c + a * s, rest], -1).to(x.dtype)

    return turned(q), turned(k)


def activate(x: Any, activation: str = "swiglu", *, gate: Any = None) -> Any:
    assert activation == "swiglu"
    return (torch.nn.functional.silu(gate.float()) * x.float()).to(x.dtype)


STAND_INS = {"rms_norm": rms_norm, "rotary": rotary, "activate": activate}


@pytest.fixture(autouse=True, scope="session")
def kernels() -> Iterator[None]:
    """What groundspeed itself does not have, by PyTorch."""
    with pytest.MonkeyPatch.context() as patch:
        for name, stand_in in STAND_INS.items():
            if not hasattr(gs, name):
                patch.setattr(gs, name, stand_in, raising=False)
        yield


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """One thread, and nothing said of taking PyTorch's path, which on a CPU everything does."""
    threads, said = torch.get_num_threads(), calls.say_once.__globals__["_said"]
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    before = set(said)
    yield
    said.clear()
    said.update(before)
    torch.set_num_threads(threads)
