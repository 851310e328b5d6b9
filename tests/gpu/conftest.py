"""Tests that need an NVIDIA GPU: `python -m pytest tests/gpu` on a machine that has one."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
HANGS_S = float(os.environ.get("GS_HANGS_S", "300"))
"""The longest test takes half of the 300 seconds; who runs only short ones need not wait that long."""


@pytest.fixture(autouse=True)
def hangs(pytestconfig: pytest.Config) -> Iterator[None]:
    """A kernel that waits for ever holds whoever waits for it, and no exception ends that: the process ends, and says
    where it stood."""
    with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        seen = os.dup(2)
    faulthandler.dump_traceback_later(HANGS_S, exit=True, file=seen)
    yield
    faulthandler.cancel_dump_traceback_later()
    os.close(seen)


PYTORCHS = "ignore::DeprecationWarning:torch", "ignore:\\s*Online softmax is disabled:UserWarning"
"""Warnings of PyTorch's compiler about its own code, which come in whichever test is the first of its process to use
it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.is_relative_to(HERE)]  # they are those of the whole run
    for item in here:
        if not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))
        for one in PYTORCHS:
            item.add_marker(pytest.mark.filterwarnings(one))
