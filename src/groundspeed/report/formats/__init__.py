"""The figures of a run in the formats of other tools: pytest-benchmark, nvbench, PyTorch's benchmark HUD and Bencher.

Each tool gets what it calls a result for the contenders that passed, and the verdict if its format has room for more.
How a tool evaluates the figures is its own matter; the bundle remains the evidence."""

from groundspeed.report.formats.bencher import to_bencher
from groundspeed.report.formats.hud import to_hud
from groundspeed.report.formats.nvbench import to_nvbench
from groundspeed.report.formats.pytest_benchmark import to_pytest_benchmark

__all__ = ["to_bencher", "to_hud", "to_nvbench", "to_pytest_benchmark"]
