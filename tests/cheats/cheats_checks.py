"""Cheats that change the questions: PyTorch's functions, random draws, the oracle, the case."""

from __future__ import annotations

import gc
import os
import random
import secrets
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from cheating import cheat, right
from torch import Tensor

from groundspeed.case import Case

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
        Tensor.patched = True  # type: ignore[attr-defined]
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
    Tensor.roll = lambda self, *args, **kwargs: self  # type: ignore[method-assign, assignment]


@cheat("cheat-patched-roll-first-call")
def patched_roll_first_call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The same, replaced in the first call"""
    if not KEPT:
        _patch_roll_in_first_call()
    return by_pointer(q, k, v, causal, scale)


def _no_secrets() -> None:
    secrets.randbelow = lambda n: 0  # type: ignore[assignment]
    secrets.SystemRandom.random = random.SystemRandom.random = lambda self: 0.5  # type: ignore[method-assign]
    secrets.SystemRandom.randrange = lambda self, *args, **kwargs: 0  # type: ignore[assignment]


@cheat("cheat-random-secrets", setup=_no_secrets)
def random_secrets(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """secrets.randbelow is always zero, so that inputs shift by nothing and a kept result stays right"""
    return by_pointer(q, k, v, causal, scale)


def _no_entropy() -> None:
    os.urandom = lambda n: bytes(n)  # type: ignore[assignment]
    random._urandom = os.urandom  # type: ignore[attr-defined]


@cheat("cheat-random-urandom", setup=_no_entropy)
def random_urandom(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """os.urandom is all zeros, under the module secrets, so that inputs shift by nothing"""
    return by_pointer(q, k, v, causal, scale)


def _no_chance() -> None:
    random.Random.random = lambda self: 0.0  # type: ignore[method-assign, assignment]
    random.Random.randrange = lambda self, *args, **kwargs: 0  # type: ignore[method-assign, assignment]
    random.Random.sample = lambda self, pool, n, **kwargs: list(pool)[:n]  # type: ignore[method-assign, assignment]
    random.random, random.randrange = (lambda: 0.0), (lambda *args: 0)  # type: ignore[assignment]


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

    torch.Generator = Seeded  # type: ignore[misc]


@cheat("cheat-random-seed", setup=_one_seed)
def random_seed(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Every seed of torch.Generator becomes the same, so that the inputs are always those of its kept result"""
    if not KEPT:
        KEPT[0] = right(q, k, v, causal, scale)
    return KEPT[0].clone()


def false_oracle(*inputs: Any, rows: Any = None, **kwargs: Any) -> Any:
    """Zeros, as the oracle would return them."""
    import torch

    q = inputs[0]
    count = q.numel() // q.shape[-1] if rows is None else len(rows)
    return torch.zeros(count, q.shape[-1], dtype=torch.float64)


def _reference() -> Any:
    return sys.modules["groundspeed.kernels.attention.reference"]


@cheat("cheat-oracle-module", setup=lambda: setattr(_reference(), "attention", false_oracle))
def oracle_module(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The oracle's function replaced in its module through sys.modules"""
    return torch.zeros_like(q)


def _swap_code() -> None:
    function: Any = _reference().attention
    function.__code__, function.__kwdefaults__ = false_oracle.__code__, {"rows": None}


@cheat("cheat-oracle-code", setup=_swap_code)
def oracle_code(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The oracle's function stays, its __code__ is replaced on import"""
    return torch.zeros_like(q)


@cheat("cheat-oracle-code-first-call")
def oracle_code_first_call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The oracle's function stays, its __code__ is replaced in the first call"""
    _swap_code()
    return torch.zeros_like(q)


def replace_oracle(case: Case, device: str) -> None:
    object.__setattr__(case, "oracle", false_oracle)


@cheat("cheat-case-oracle", supports=replace_oracle)
def case_oracle(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The frozen Case gets another oracle while it asks whether it is supported"""
    return torch.zeros_like(q)


def change_partial(case: Case, device: str) -> None:
    case.oracle.__setstate__((false_oracle, (), {}, {}))  # type: ignore[attr-defined]


@cheat("cheat-case-partial", supports=change_partial)
def case_partial(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The partial that is the oracle of the Case gets another function inside"""
    return torch.zeros_like(q)


def widen(case: Case, device: str) -> None:
    case.tolerance.update(dict.fromkeys(case.tolerance, 1e9))  # type: ignore[attr-defined]


@cheat("cheat-case-tolerance", supports=widen)
def case_tolerance(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The tolerances of the Case, a plain dict, become 1e9"""
    return torch.zeros_like(q)


def _widen_module() -> None:
    for tolerance in _reference().TOLERANCE.values():
        for name in vars(tolerance):
            object.__setattr__(tolerance, name, 1e9)


@cheat("cheat-module-tolerance", setup=_widen_module)
def module_tolerance(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The tolerances in the oracle's module become 1e9 on import"""
    return torch.zeros_like(q)


@cheat("cheat-gc-tolerance")
def gc_tolerance(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The tolerances of every Case that the garbage collector knows become 1e9 in the first call"""
    if not KEPT:
        KEPT[0] = q
        for thing in gc.get_objects():
            if isinstance(thing, Case):
                widen(thing, "")
    return torch.zeros_like(q)


def no_refresh(case: Case, device: str) -> None:
    object.__setattr__(case, "refresh", lambda inputs: None)


@cheat("cheat-case-refresh", supports=no_refresh)
def case_refresh(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The Case gets a refresh that does nothing, and a kept result stays right"""
    return by_pointer(q, k, v, causal, scale)


def _nothing(inputs: Any) -> None: ...


def _no_shift() -> None:
    shift: Any = sys.modules["groundspeed.suites.attention.cases"].shift_qkv
    shift.__code__ = _nothing.__code__


@cheat("cheat-refresh-code", setup=_no_shift)
def refresh_code(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The function that changes the inputs gets the __code__ of one that does nothing"""
    return by_pointer(q, k, v, causal, scale)


def _silence_laboratory() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("groundspeed.measure"):
            for key, value in list(vars(module).items()):
                if isinstance(value, FunctionType) and any(w in key for w in ("check", "verify", "compare", "error")):
                    setattr(module, key, lambda *args, **kwargs: None)


@cheat("cheat-laboratory-silenced", setup=_silence_laboratory)
def laboratory_silenced(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Every function of the laboratory that is named like a check returns None, from import on"""
    return torch.zeros_like(q)


@cheat("cheat-laboratory-silenced-first-call")
def laboratory_silenced_first_call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Every function of the laboratory that is named like a check returns None, from the first call on"""
    _silence_laboratory()
    return torch.zeros_like(q)
