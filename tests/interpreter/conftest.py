"""Kernels in Triton's interpreter, on CPU tensors: see test_interpreter.py for how these modules are run."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="session")
def bf16_as_numbers() -> None:
    _multiply_bf16_as_numbers()


@pytest.fixture(scope="session")
def kernel(bf16_as_numbers: None) -> ModuleType:
    """The portable attention module, interpreted."""
    return importlib.import_module("groundspeed.kernels.attention.triton")


@pytest.fixture(scope="session")
def decode(bf16_as_numbers: None) -> ModuleType:
    """The one for a few queries, interpreted."""
    return importlib.import_module("groundspeed.kernels.attention.decode")


@pytest.fixture(scope="session")
def relay(bf16_as_numbers: None) -> ModuleType:
    """The one in which splits hand on what they found, interpreted."""
    return importlib.import_module("groundspeed.kernels.attention.relay")


@pytest.fixture(scope="session")
def paged_kernel(bf16_as_numbers: None) -> ModuleType:
    """The one for keys in pages, interpreted."""
    return importlib.import_module("groundspeed.kernels.attention.paged")


@pytest.fixture(scope="session")
def append() -> ModuleType:
    """What writes to pages, interpreted."""
    return importlib.import_module("groundspeed.kernels.attention.append")


@pytest.fixture(scope="session")
def linear(bf16_as_numbers: None) -> ModuleType:
    """A few rows times a matrix, interpreted."""
    return importlib.import_module("groundspeed.kernels.linear.triton")


@pytest.fixture(scope="session")
def qkv(bf16_as_numbers: None) -> ModuleType:
    """The same of queries, keys and values, interpreted."""
    return importlib.import_module("groundspeed.kernels.linear.qkv")


@cache
def _multiply_bf16_as_numbers() -> None:
    """The interpreter keeps bf16 as its bit patterns and multiplies those; give its dot the numbers instead."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    original = InterpreterBuilder.create_dot

    def numbers(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        return original(self, numbers(a), numbers(b), d, *rest)

    InterpreterBuilder.create_dot = create_dot
