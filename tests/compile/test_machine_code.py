"""D4: the machine code of the portable kernel, made again for an H200 that is not here, changes with what the kernel
does and with nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from test_compile import OLDEST, environment_with

import groundspeed
from groundspeed.measure.binaries import FORM

CASES = [
    {"B": 2, "H": 4, "S": 1024, "D": 64, "causal": True, "dtype": "bf16"},
    {"B": 8, "H": 4, "S": 4096, "D": 64, "causal": True, "dtype": "bf16"},
    {"B": 2, "H": 4, "S": 1024, "D": 64, "causal": False, "dtype": "bf16"},
]
PACKED = [
    {"H": 4, "D": 64, "lengths": "500+17", "dtype": "bf16", "causal": True},
    {"H": 4, "D": 64, "lengths": "500+17", "dtype": "bf16", "causal": False},
]
TILES = "    tiles = tl.cdiv(M, BLOCK_M)\n"
TILE_OF_MOST = "            return cls(min(64, rows), 32 if short else 64, 4, 3)\n"


def binaries(
    home: Path,
    environment: dict[str, str],
    capability: tuple[int, int] = (9, 0),
    contender: str = "ours-portable",
    cases: Sequence[dict[str, Any]] = CASES,
) -> list[list[str]]:
    """What the kernel in this copy of the package compiles to, by case."""
    path = os.pathsep.join(filter(None, [str(home), environment.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "groundspeed.lab.standin"],
        input=json.dumps({"suite": "attention", "contender": contender, "capability": capability, "cases": cases}),
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    made: list[list[str]] = json.loads(done.stdout)["binaries"]
    return made


def copy_with(tmp_path: Path, old: str, new: str) -> Path:
    """The package in another place, with another line in its kernel."""
    home = tmp_path / "else where"
    shutil.copytree(
        Path(groundspeed.__file__).parent, home / "groundspeed", ignore=shutil.ignore_patterns("__pycache__")
    )
    kernel = home / "groundspeed" / "kernels" / "attention" / "triton.py"
    source = kernel.read_text()
    assert source.count(old) == 1
    kernel.write_text(source.replace(old, new))
    return home


@pytest.fixture(scope="module")
def here() -> list[list[str]]:
    return binaries(Path(groundspeed.__file__).parents[1], dict(os.environ))


@pytest.mark.slow
def test_each_case_has_its_machine_code(here: list[list[str]]) -> None:
    assert [len(found) for found in here] == [1, 1, 1]
    assert all(found.startswith(FORM) for (found,) in here)
    assert here[0] == here[1] != here[2], "the mask is compiled in, the length is not"


@pytest.mark.slow
@pytest.mark.parametrize(("contender", "kernels"), [("ours-portable", 1), ("ours-hopper", 2)])
def test_packed_sequences_have_their_own(contender: str, kernels: int) -> None:
    """For Hopper two kernels: the first lists the tiles."""
    dense = {"B": 1, "S": 500, **{key: value for key, value in PACKED[0].items() if key != "lengths"}}
    home = Path(groundspeed.__file__).parents[1]
    made = binaries(home, dict(os.environ), contender=contender, cases=[*PACKED, dense])
    assert [len(found) for found in made] == [kernels, kernels, 1]
    assert made[0] != made[1]
    assert not {*made[0], *made[1]} & {*made[2]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (TILES, f"    # a line more\n\n    # and another\n{TILES}"),
        (TILES, "    count = tl.cdiv(M, BLOCK_M)\n    tiles = count + 0\n"),
    ],
    ids=["comments", "the same in other words"],
)
def test_what_changes_nothing(tmp_path: Path, here: list[list[str]], old: str, new: str) -> None:
    assert binaries(copy_with(tmp_path, old, new), dict(os.environ)) == here


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (TILE_OF_MOST, TILE_OF_MOST.replace("else 64", "else 32")),
        ("tl.sum(p, 1)", "2 * tl.sum(p, 1)"),
    ],
    ids=["another tile", "another sum"],
)
def test_what_changes_it(tmp_path: Path, here: list[list[str]], old: str, new: str) -> None:
    changed = binaries(copy_with(tmp_path, old, new), dict(os.environ))
    assert all(now != then for now, then in zip(changed, here, strict=True))


@pytest.mark.slow
def test_the_oldest_triton_makes_its_own(here: list[list[str]]) -> None:
    """So a bundle is held to the version that compiled it."""
    made = binaries(Path(groundspeed.__file__).parents[1], environment_with(OLDEST))
    assert [len(found) for found in made] == [1, 1, 1]
    assert made != here
