"""Tests that need an NVIDIA GPU: `python -m pytest tests/gpu` on a machine that has one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:  # of the whole run, not of this folder only
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))
