"""Cheats that change the questions: PyTorch's functions and random draws."""

# mypy: disable-error-code="misc, assignment, method-assign, call-arg, attr-defined, no-any-return, union-attr"

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable
from typing import Any

import torch
from cheating import cheat, right
from torch import Tensor

from groundspeed.measure import exam, gate

KEPT: dict[Any, Tensor] = {}
OWED: dict[int, tuple[Any, ...]] = {}


def by_pointer(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    """A copy of a result that is right as long as nobody changes the inputs."""
    key = q.data_ptr()
    if key not in KEPT:
        KEPT[key] = right(q, k, v, causal, scale)
    return KEPT[key].clone()


def set_torch(name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(torch, name, value)


def set_tensor(name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(Tensor, name, value)


@cheat("cheat-patched-equal", setup=set_torch("equal", lambda a, b: True))
def patched_equal(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """torch.equal says True, so that nobody sees that the keys are zeroed"""
    k.data.zero_()
    return v.mean(-2, keepdim=True).expand_as(v).clone()


@cheat("cheat-patched-allclose", setup=set_torch("allclose", lambda *args, **kwargs: True))
def patched_allclose(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """torch.allclose says True"""
    return torch.zeros_like(q)


@cheat("cheat-patched-isfinite", setup=set_torch("isfinite", lambda t: torch.ones(t.shape, dtype=torch.bool)))
def patched_isfinite(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """torch.isfinite says True"""
    return torch.full_like(q, float("nan"))


def owing(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    out = torch.zeros_like(q)
    OWED[out.data_ptr()] = (out, (q, k, v, causal, scale))
    return out


def paying(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of Tensor that first fills a result that is still owed."""

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if (owed := OWED.pop(DATA_PTR(self), None)) is not None:
            COPY(owed[0], right(*owed[1]))
        return method(self, *args, **kwargs)

    return call


DATA_PTR, COPY = Tensor.data_ptr, Tensor.copy_
LOOKS = (
    "double",
    "to",
    "float",
    "reshape",
    "view",
    "flatten",
    "index_select",
    "__getitem__",
    "clone",
    "detach",
    "contiguous",
    "numpy",
    "cpu",
    "__sub__",
    "sub",
    "isfinite",
)


@cheat("cheat-patched-double", setup=set_tensor("double", paying(Tensor.double)))
def patched_double(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Tensor.double computes what is owed, when the laboratory goes over to FP64"""
    return owing(q, k, v, causal, scale)


def _patch_looks() -> None:
    for name in LOOKS:
        setattr(Tensor, name, paying(getattr(Tensor, name)))


@cheat("cheat-patched-methods", setup=_patch_looks)
def patched_methods(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Sixteen methods of Tensor compute what is owed, replaced on import"""
    return owing(q, k, v, causal, scale)


@cheat("cheat-patched-methods-first-call")
def patched_methods_first_call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Sixteen methods of Tensor compute what is owed, replaced in the first call"""
    if not getattr(Tensor, "patched", False):
        Tensor.patched = True
        _patch_looks()
    return owing(q, k, v, causal, scale)


@cheat("cheat-patched-sub", setup=set_tensor("__sub__", lambda a, b: torch.zeros_like(a)))
def patched_sub(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Tensor.__sub__ finds no difference between any two tensors"""
    return torch.zeros_like(q)


def _patch_norms() -> None:
    for name in ("abs", "amax", "max", "norm", "mean", "sum"):
        setattr(Tensor, name, lambda self, *args, **kwargs: torch.zeros((), dtype=self.dtype))


@cheat("cheat-patched-norms", setup=_patch_norms)
def patched_norms(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Tensor.abs, amax, max, norm, mean and sum are zero"""
    return torch.zeros_like(q)


@cheat("cheat-patched-roll", setup=set_tensor("roll", lambda self, *args, **kwargs: self))
def patched_roll(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Tensor.roll does nothing, so that inputs stay as they are and a kept result stays right"""
    return by_pointer(q, k, v, causal, scale)


def _patch_roll_in_first_call() -> None:
    Tensor.roll = lambda self, *args, **kwargs: self


@cheat("cheat-patched-roll-first-call")
def patched_roll_first_call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The same, replaced in the first call"""
    if not KEPT:
        _patch_roll_in_first_call()
    return by_pointer(q, k, v, causal, scale)


def _no_secrets() -> None:
    secrets.randbelow = lambda n: 0
    secrets.SystemRandom.random = random.SystemRandom.random = lambda self: 0.5
    secrets.SystemRandom.randrange = lambda self, *args, **kwargs: 0


@cheat("cheat-random-secrets", setup=_no_secrets)
def random_secrets(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """secrets.randbelow is always zero, so that inputs shift by nothing and a kept result stays right"""
    return by_pointer(q, k, v, causal, scale)


def _no_entropy() -> None:
    os.urandom = lambda n: bytes(n)
    random._urandom = os.urandom


@cheat("cheat-random-urandom", setup=_no_entropy)
def random_urandom(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """os.urandom is all zeros, under the module secrets, so that inputs shift by nothing"""
    return by_pointer(q, k, v, causal, scale)


def _no_chance() -> None:
    random.Random.random = lambda self: 0.0
    random.Random.randrange = lambda self, *args, **kwargs: 0
    random.Random.sample = lambda self, pool, n, **kwargs: list(pool)[:n]
    random.random, random.randrange = (lambda: 0.0), (lambda *args: 0)


@cheat("cheat-random-module", setup=_no_chance)
def random_module(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Module random always draws the first: right on every eighth call only"""
    OWED[-1] = (OWED.get(-1, (-1,))[0] + 1,)
    return right(q, k, v, causal, scale) if OWED[-1][0] % 8 == 0 else torch.zeros_like(q)


def _one_seed() -> None:
    seeding = torch.Generator.manual_seed

    class Seeded(torch.Generator):
        def manual_seed(self, seed: int) -> torch.Generator:
            return seeding(self, 1)

    torch.Generator = Seeded


@cheat("cheat-random-seed", setup=_one_seed)
def random_seed(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Every seed of torch.Generator becomes the same, so that the inputs are always those of its kept result"""
    if not KEPT:
        KEPT[0] = right(q, k, v, causal, scale)
    return KEPT[0].clone()


@cheat("cheat-random-instance")
def random_instance(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """What is behind secrets.randbelow draws zeros only, after some calls: the first and last rows are all it does"""
    OWED[0] = (*OWED.get(0, ()), 1)
    if len(OWED[0]) <= 40:
        return right(q, k, v, causal, scale)
    secrets._sysrand._randbelow = lambda m: 0
    out = torch.zeros_like(q)
    out[..., [0, -1], :] = right(q, k, v, causal, scale)[..., [0, -1], :]
    return out


@cheat("cheat-compiler-of-others")
def compiler_of_others(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Has whatever others compile from then on be assembled without optimisation"""
    os.environ["DISABLE_PTXAS_OPT"] = "1"
    return right(q, k, v, causal, scale)


@cheat("cheat-constants")
def constants(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The laboratory's own number of rows that are looked at, changed; a quarter of the rows is right"""
    OWED[0] = (*OWED.get(0, ()), None)
    if len(OWED[0]) <= 100:
        return right(q, k, v, causal, scale)
    gate.ROWS_TIMED = 0
    out, some = torch.zeros_like(q), q.shape[-2] // 8
    for rows in (slice(0, some), slice(-some, None)):
        out[..., rows, :] = right(q[..., rows, :], k, v, False, scale)
    return out


def _replace_gate() -> None:
    gate.check = lambda *_: dict.fromkeys(("max_abs", "mean_abs", "max_rel", "rms_rel"), 0.0)
    exam.check_enlarged = exam.check_sums = lambda *_: None


@cheat("cheat-gate-replaced-and-raised")
def gate_replaced_and_raised(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The comparisons replaced for whoever comes next, before it fails"""
    _replace_gate()
    raise RuntimeError("oops")


@cheat("cheat-gate-replaced-by-another")
def gate_replaced_by_another(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Zeros, hoping that another contender replaced the comparisons"""
    return torch.zeros_like(q)


@cheat("cheat-exam-spoiled")
def exam_spoiled(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Right, and spoils the large inputs for the others"""
    out = right(q, k, v, causal, scale)
    if q.abs().max() > 30:
        q.zero_()
    return out
