"""The house of docs and design: its walls stand, and each of them shows when it is broken."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "groundspeed"
MODULES = sorted(SOURCE.rglob("*.py"))

CONTRACTS = [
    contract["name"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
]

OFFENCES = {
    "Data walks through the house in one direction": ("judge/limits.py", "import groundspeed.report.text"),
    "Kernels know nothing of the laboratory": ("kernels/work.py", "import groundspeed.case"),
    "Evidence, judge and report work without torch": (
        "judge/limits.py",
        "def lazily():\n    import torch\n    return torch",
    ),
    "Measuring knows no judge, no suite and no kernel": ("measure/clock.py", "import groundspeed.kernels.work"),
    "Suites see kernels and the shared words only": ("suites/registry.py", "import groundspeed.evidence.record"),
    "Rivals are imported in suites only": ("lab/check.py", "import xformers"),
}
"""For each contract a module and the line that breaks it; in a function too, for lazy imports count."""


def lint(folder: Path) -> tuple[int, dict[str, str]]:
    """lint-imports on the source in `folder`: its exit code, and KEPT or BROKEN by contract."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.findall(r"^(.+) (KEPT|BROKEN)", re.sub(r"\x1b\[[0-9;]*m", "", done.stdout), re.M)
    assert found, done.stdout + done.stderr
    return done.returncode, dict(found)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_contracts_are_kept(house: Path) -> None:
    code, found = lint(house)
    assert found == dict.fromkeys(CONTRACTS, "KEPT")
    assert code == 0


def test_every_contract_has_an_offence_here() -> None:
    assert list(OFFENCES) == CONTRACTS


@pytest.mark.parametrize("contract", OFFENCES)
def test_a_broken_contract_is_named(house: Path, contract: str) -> None:
    module, line = OFFENCES[contract]
    path = house / "src" / "groundspeed" / module
    path.write_text(f"{path.read_text()}\n\n{line}\n")
    code, found = lint(house)
    assert code == 1
    assert found[contract] == "BROKEN"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_holds_one_idea(path: Path) -> None:
    """Under 300 lines, a kernel file under 500: over that it holds two, and becomes a package."""
    limit = 500 if path.is_relative_to(SOURCE / "kernels") else 300
    assert len(path.read_text().splitlines()) < limit


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_says_what_it_is(path: Path) -> None:
    assert path.read_text().startswith('"""')
    assert path.stem not in ("utils", "common", "helpers", "manager", "data")


def test_the_rooms_are_those_of_the_design() -> None:
    """A new room is a decision: it gets a wall in pyproject.toml and a line here."""
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")} | {path.stem for path in SOURCE.glob("*.py")}
    layers = {"cli", "lab", "report", "judge", "measure", "suites", "evidence", "kernels", "nn", "hf", "case", "errors"}
    layers |= {"pytest_plugin"}
    assert rooms - {"__init__", "__main__"} == layers
