"""docs/inference.md shows what its examples print on a CPU."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from groundspeed.kernels import calls

PAGE = (Path(__file__).parent.parent.parent / "docs" / "inference.md").read_text()
BLOCK = r"((?:(?!```).)*)```"
SHOWN = re.findall(rf"```python\n{BLOCK}\n\n[^\n]*\n\n```\n{BLOCK}", PAGE, re.DOTALL)
HELD = re.compile(r"(; the whole process held [\d.,]+ [KMG]iB of the host)?\.\n\nphase")
"""By the process, which is another one here, and told on Linux alone."""


def test_both_examples_print_what_the_page_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    calls._said.clear()
    names: dict[str, Any] = {"__name__": "__main__"}
    assert len(SHOWN) == 2
    for code, shown in SHOWN:
        said = ""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                exec(compile(code, "example.py", "exec"), names)
            except ValueError as error:
                said = f"ValueError: {error}\n"
        told = "".join(f"UserWarning: {one.message}\n" for one in seen)
        found = f"{told}{capsys.readouterr().out}{said}"
        assert HELD.sub("", found) == HELD.sub("", shown)
