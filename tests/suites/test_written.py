"""The file that an error of a function given to `gs.compare` names."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from groundspeed.suites.functions.written import written_in


def plain(x: torch.Tensor) -> torch.Tensor:
    return x + x


@functools.wraps(torch.nn.functional.gelu)
def wraps_c(x: torch.Tensor) -> torch.Tensor:
    return x


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Called:
    __slots__ = ()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def of_none(x: torch.Tensor) -> torch.Tensor:
        return x


class AnswersToAnyName:
    def __getattr__(self, name: str) -> AnswersToAnyName:
        return AnswersToAnyName()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


class WrapsItself:
    def __init__(self) -> None:
        self.__wrapped__ = self

    __call__ = plain


@pytest.mark.parametrize(
    "function",
    [
        plain,
        functools.partial(functools.partial(plain), torch.ones(1)),
        functools.lru_cache(plain),
        functools.wraps(plain)(lambda x: x),
        torch.compile(plain, backend="eager"),
        Net(),
        torch.compile(Net(), backend="eager"),
        Net().forward,
        Called(),
        Called.of_none,
        AnswersToAnyName(),
        WrapsItself(),
    ],
)
def test_what_is_written_here(function: Any) -> None:
    assert written_in(function) == __file__


@pytest.mark.parametrize("function", [torch.relu, len, wraps_c, int])
def test_what_is_not_python(function: Any) -> None:
    assert written_in(function) is None


def test_what_is_written_elsewhere() -> None:
    assert "torch" in str(written_in(torch.nn.Linear(2, 2)))
