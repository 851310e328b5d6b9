"""Targets of one's own: the form of the specification's, and errors that name file and key (B9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundspeed.errors import BadInput
from groundspeed.judge.grading.specification import PACKAGED, Gate, packaged, read

ROW = '[columns]\nH100 = ["H100"]\n[[target]]\nsuite = "attention"\ncase = "mine"\nunit = "ms"\n'


def written(folder: Path, content: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(content, encoding="utf-8")
    return path


def test_the_packaged_file_reads_like_any_other() -> None:
    own, ours = read(PACKAGED), packaged()
    assert (own.targets, own.gates, own.letters) == (ours.targets, ours.gates, ours.letters)
    assert ours.letters == (("A", 0.8), ("B", 0.7), ("C", 0.6), ("D", 0.4))
    assert ours.gates == (Gate("attention", 0.6), Gate("moe", 0.7), Gate("inference", 1.4, "naive"))


def test_what_a_file_leaves_out_is_not_asked_for(tmp_path: Path) -> None:
    found = read(written(tmp_path, "[gates]\nattention = { speed = 0.9 }\n"))
    assert found.gates == (Gate("attention", 0.9),)
    assert (found.targets, found.graded, found.letters, found.excellent) == ((), (), (), None)


def test_units_become_seconds_and_bytes(tmp_path: Path) -> None:
    content = ROW + "H100 = { target = 2.5, excellent = 2 }\n"
    content += '[[target]]\nsuite = "gemm"\ncase = "m"\nunit = "TFLOP/s"\nflops = 2e12\nH100 = { target = 500 }\n'
    content += '[[target]]\nsuite = "memory"\ncase = "s"\nunit = "GB"\nH100 = { target = 0.5 }\n'
    time, rate, memory = read(written(tmp_path, content)).targets
    assert time.goals == {"target": 2.5e-3, "excellent": 2e-3}
    assert rate.target_s == pytest.approx(4e-3)
    assert (memory.goals["target"], memory.target_s) == (5e8, None)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[gate]\n", "'gate'; did you mean gates"),
        ("[gates]\nattention = { sped = 0.6 }\n", "[gates.attention] of"),
        ("[gates]\nattention = {}\n", "gates.attention has no speed"),
        ("[gates]\nattention = 0.6\n", "gates.attention is not a table"),
        ("[gates]\nattention = { speed = -1 }\n", "gates.attention.speed is -1"),
        ("[gates]\nattention = { speed = true }\n", "gates.attention.speed is True"),
        ("[gates]\nattention = { speed = nan }\n", "gates.attention.speed is nan"),
        ("[gates]\nattention = { speed = 1, reference = 3 }\n", "gates.attention.reference is 3"),
        ("[grades]\nletter = 1\n", "'letter'"),
        ("[numerical]\nperfect = 1\n", "'perfect'"),
        ("[columns]\nunit = ['x']\n", "columns.unit has the name of a key"),
        ("[columns]\nH100 = 'H100'\n", "columns.H100 is not a list"),
        ("target = 1\n", "target must be a list"),
        (ROW + "H200 = { target = 1 }\n", "'H200'; did you mean H100"),
        (ROW + "H100 = { goal = 1 }\n", "[[target]] 1.H100 of"),
        (ROW.replace('"ms"', '"s"'), "[[target]] 1.unit is 's'"),
        (ROW.replace('"ms"', '"TFLOP/s"'), "[[target]] 1 has no flops"),
        (ROW.replace('case = "mine"\n', ""), "[[target]] 1 has no case"),
        ("[[target]\n", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, content: str, named: str) -> None:
    with pytest.raises(BadInput) as raised:
        read(written(tmp_path, content))
    assert "mine.toml" in str(raised.value)
    assert named in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*none\.toml"):
        read(tmp_path / "none.toml")
