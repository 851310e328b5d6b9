"""The judgements that most tests of the reports look at, and what the screen shows of one."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from judgements import MEANS, Shown, judgement_of
from rich.console import Console
from texts import House, build

from groundspeed.judge.judgement import Judgement
from groundspeed.report import screen


@pytest.fixture(scope="session")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """Two cases, four processes, a baseline, two contenders that are faster; two that could not be measured."""
    absent = [("flash-attn-3", "ABSENT", "needs an NVIDIA GPU"), ("naive", "SKIPPED", "not in preset quick")]
    return judgement_of(tmp_path_factory.mktemp("ordinary"), unmeasured=absent)


@pytest.fixture(scope="session")
def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """The same on a GPU of the table of peaks: with shares of peak."""
    means = {name: 50 * mean for name, mean in MEANS.items()}
    return judgement_of(tmp_path_factory.mktemp("gpu"), means, gpu="NVIDIA H200", shapes=["B=8,S=4096,causal=0"])


@pytest.fixture
def shown() -> Shown:
    """What `show` prints of a judgement on a terminal of some width, or into a pipe."""

    def render(judgement: Judgement, width: int = 200, *, terminal: bool = False, **console: Any) -> str:
        file = io.StringIO()
        kind = {"force_terminal": True, "color_system": "truecolor"} if terminal else {"force_terminal": False}
        options: dict[str, Any] = {"width": width, "highlight": False, "markup": False, "emoji": False, **kind}
        screen.show(Console(file=file, **{**options, **console}), judgement, Path("runs/x"), "x", every_claim=True)
        return file.getvalue()

    return render


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return build(tmp_path_factory.mktemp("house"))
