"""The presets: how much evidence a run gathers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """How much evidence a run gathers (docs/protocol.md)."""

    processes: int
    looks: tuple[int, ...]
    half_width: float
    budget_s: float | None
    warmup_s: float


PRESETS = {
    "quick": Preset(processes=4, looks=(10, 20, 40), half_width=0.025, budget_s=60.0, warmup_s=0.05),
    "standard": Preset(processes=8, looks=(10, 20, 40), half_width=0.015, budget_s=None, warmup_s=0.2),
    "paper": Preset(processes=12, looks=(20, 40, 80), half_width=0.010, budget_s=None, warmup_s=0.5),
}
