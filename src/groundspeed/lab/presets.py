"""The presets: how much evidence a run gathers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groundspeed.evidence.protocol import PROCESSES


@dataclass(frozen=True)
class Preset:
    """How much evidence a run gathers (docs/protocol.md)."""

    processes: int
    looks: tuple[int, ...]
    half_width: float
    budget_s: Mapping[str, float | None]
    """The time budget of a run, by device; None for no budget."""
    warmup_s: Mapping[str, float]
    """The minimum warm-up, by device: a GPU's clocks settle in some ms under load, and its cases are many and short."""


PRESETS = {
    "quick": Preset(PROCESSES["quick"], (10, 20, 40), 0.025, {"cpu": 60.0, "cuda": 90.0}, {"cpu": 0.05, "cuda": 0.01}),
    "standard": Preset(
        PROCESSES["standard"], (10, 20, 40), 0.015, {"cpu": None, "cuda": None}, {"cpu": 0.2, "cuda": 0.01}
    ),
    "paper": Preset(PROCESSES["paper"], (20, 40, 80), 0.010, {"cpu": None, "cuda": None}, {"cpu": 0.5, "cuda": 0.1}),
}
