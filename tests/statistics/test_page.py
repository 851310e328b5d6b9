"""docs/simulation.md says what the study found, and the study can be made again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import study
from noise import MODELS
from procedure import PLANS
from real import real

ROOT = Path(__file__).parents[2]
RESULT = json.loads((ROOT / "docs" / "simulation.json").read_text())


def test_page_and_charts_are_those_of_the_result() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "simulate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_noise_was_studied_with_every_preset_and_extension() -> None:
    found = {(f["noise"], f["plan"]): f["runs"] for f in RESULT["single"]}
    assert {found[noise, plan] for noise in (*MODELS, *real(swap=True)) for plan in PLANS} == {9000}


def test_a_figure_can_be_made_again() -> None:
    """From its seed, to within what another version of numpy may round differently."""
    kept = next(f for f in RESULT["single"] if (f["noise"], f["plan"]) == ("normal", "quick"))
    again = study.single(MODELS["normal"], PLANS["quick"], kept["runs"], RESULT["seed"])
    assert again == {**kept, **{key: pytest.approx(kept[key], abs=3) for key in again if isinstance(kept[key], int)}}
