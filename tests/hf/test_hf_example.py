"""The example runs, and says what it did."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama_generate.py"


@pytest.mark.filterwarnings("ignore:groundspeed.* falls back to PyTorch")
def test_llama_generate(capsys: pytest.CaptureFixture[str]) -> None:
    assert "python examples/llama_generate.py" in EXAMPLE.read_text()
    runpy.run_path(str(EXAMPLE))["main"](["--device", "cpu", "--hidden", "64", "--layers", "2", "--words", "4"])
    first, *rows, last = capsys.readouterr().out.splitlines()
    assert first == "Patched(norms=5, rotary=2, mlps=2, experts=0)"
    assert [row.split()[0] for row in rows] == ["sdpa", "sdpa", "groundspeed", "groundspeed"]
    assert [row.split()[1:] for row in rows[:2]] == [row.split()[1:] for row in rows[2:]]
    assert last == "8 of 8 words are the same"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--device", "gpu"), "invalid choice: 'gpu'"),
        (("--words", "0"), "--layers and --words are 1 or more"),
        (("--hidden", "100"), "--hidden is a multiple of 64"),
    ],
)
def test_what_it_cannot_do_is_a_sentence(flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        runpy.run_path(str(EXAMPLE))["main"](flags)
    assert said in capsys.readouterr().err


def test_without_transformers_it_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "transformers.py").write_text("raise ModuleNotFoundError('none here', name='transformers')\n")
    command = [sys.executable, str(EXAMPLE)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    needs = "groundspeed.hf needs Hugging Face Transformers 5 or newer: pip install 'groundspeed[hf]'\n"
    assert (done.returncode, done.stderr) == (1, needs)
