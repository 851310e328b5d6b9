"""Cheats that change the oracle, the case, or the laboratory's own functions."""

# mypy: disable-error-code="misc, assignment, method-assign, call-arg, attr-defined, no-any-return, union-attr"

from __future__ import annotations

import gc
import sys
from types import FunctionType
from typing import Any

import torch
from cheating import cheat, right
from torch import Tensor

from groundspeed.case import Case

KEPT: dict[Any, Tensor] = {}


def by_pointer(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    """A copy of a result that is right as long as nobody changes the inputs."""
    key = q.data_ptr()
    if key not in KEPT:
        KEPT[key] = right(q, k, v, causal, scale)
    return KEPT[key].clone()


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
    case.oracle.__setstate__((false_oracle, (), {}, {}))


@cheat("cheat-case-partial", supports=change_partial)
def case_partial(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The partial that is the oracle of the Case gets another function inside"""
    return torch.zeros_like(q)


def widen(case: Case, device: str) -> None:
    case.tolerance.update(dict.fromkeys(case.tolerance, 1e9))


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
    object.__setattr__(case, "refresh", lambda inputs, earlier: None)


@cheat("cheat-case-refresh", supports=no_refresh)
def case_refresh(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The Case gets a refresh that does nothing, and a kept result stays right"""
    return by_pointer(q, k, v, causal, scale)


def _nothing(*inputs: Any) -> None: ...


def no_shift(case: Case, device: str) -> None:
    refresh: Any = case.refresh
    getattr(refresh, "func", refresh).__code__ = _nothing.__code__


@cheat("cheat-refresh-code", supports=no_shift)
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
