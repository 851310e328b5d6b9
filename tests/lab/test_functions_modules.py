"""What a fresh process imports is what the user has: a module that is otherwise is refused, whatever it differs in."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from groundspeed.errors import BadInput
from groundspeed.lab import modules
from groundspeed.lab.contained import used_by

KERNEL = """
import triton, triton.language as tl
@triton.autotune(configs=[triton.Config({'BLOCK': 64})], key=['n'])
@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr, 1.0)
"""
NETWORK = "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())\n"


def loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("mine", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["mine"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    def make(text: str) -> ModuleType:
        (tmp_path / "mine.py").write_text(text)
        return loaded(tmp_path / "mine.py")

    yield make
    sys.modules.pop("mine", None)


def compare(here: ModuleType, used: Any = ()) -> None:
    names = used_by(used)
    there = modules.tell({"mine": loaded(Path(str(here.__file__)))}, names)
    modules.refuse_changed(modules.tell({"mine": here}, names), there)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "from its source"])
@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (KERNEL, "x_ptr, 1.0", "x_ptr, 2.00"),
        (KERNEL, "64", "128"),
        (NETWORK, "GELU", "Sigmoid"),
        ("def f(x):\n    return x\n", "x\n", "x + 1\n"),
    ],
    ids=["kernel", "configs", "network", "function"],
)
def test_a_file_that_was_edited_is_refused_each_time(
    mine: Any, text: str, old: str, new: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", not compiled)
    here = mine(text)
    compare(here)
    Path(here.__file__).write_text(text.replace(old, new))
    told = "mine.py was changed after module mine was imported" if compiled else "mine.* is not what .*mine.py defines"
    for _ in range(2):
        with pytest.raises(BadInput, match=told):
            compare(here)
    compare(loaded(Path(here.__file__)))


def test_a_comment_is_no_change(mine: Any) -> None:
    here = mine("def f(x):\n    return x\n")
    Path(here.__file__).write_text("# a comment\n\n\ndef f(x):\n    return x  # as ever\n")
    compare(here)


def test_a_network_that_was_switched_to_evaluation_is_another(mine: Any) -> None:
    here = mine(NETWORK)
    here.net.eval()
    with pytest.raises(BadInput, match=r"mine\.net is not what"):
        compare(here)


def test_a_constant_in_capitals_is_compared_whoever_reads_it(mine: Any) -> None:
    here = mine("SIZE = 64\nLARGE = {'a': [1, 2]}\n")
    compare(here)
    here.SIZE = 4096
    with pytest.raises(BadInput, match=r"mine\.SIZE is 4096 here, and 64 in a fresh process"):
        compare(here)


def reads(x: Any) -> Any:
    return x + settings.size  # type: ignore[name-defined] # noqa: F821


class Net(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return reads(x)


class Caller:
    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, x: Any) -> Any:
        return self.function(x)


def by_default(x: Any, f: Any = reads) -> Any:
    return f(x)


def by_keyword(x: Any, *, f: Any = reads) -> Any:
    return f(x)


def given(f: Any, x: Any) -> Any:
    return f(x)


@pytest.mark.parametrize(
    "function",
    [
        reads,
        by_default,
        by_keyword,
        functools.partial(given, reads),
        functools.partial(given, f=reads),
        functools.lru_cache(reads),
        functools.wraps(reads)(lambda x: x),
        Net(),
        torch.nn.Sequential(torch.nn.GELU(), Net()),
        Caller(reads),
        Caller([reads]).__call__,
        Net,
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_a_function_uses_is_found_through_whatever_holds_it(function: Any, mine: Any) -> None:
    assert {"settings", "size"} <= {*used_by([function])}
    here = mine("size = 64\n")
    here.size = 128
    with pytest.raises(BadInput, match=r"mine\.size is 128 here"):
        compare(here, [function])


def test_what_is_installed_is_not_followed() -> None:
    assert used_by([torch.nn.functional.multi_head_attention_forward, torch.nn.Linear(2, 2)]) == []
