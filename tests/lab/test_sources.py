"""D3, D4: a hash of what Python runs, that comments, docstrings and empty lines do not change."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundspeed.case import Contender
from groundspeed.lab.sources import code_hash, code_hashes

SOURCE = '''"""What it is: 64×16."""

import math  # for pi


class Tile:
    """µ-kernels"""  # a comment behind it

    size = 64


async def wait():
    """Only this."""


def area(r):
    """Of a circle."""
    text = "# no comment"
    return math.pi * r  # pi r
'''


def of(tmp_path: Path, source: str) -> str | None:
    path = tmp_path / "kernel.py"
    path.write_text(source)
    contender = Contender("attention", "mine", "", lambda case: print, source=str(path))
    assert contender.source_hash()
    return code_hash(contender)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("64×16", "128 by 16\n\nand more"),
        ("  # for pi", ""),
        ('    """µ-kernels"""  # a comment behind it\n', '    """kernels"""\n'),
        ("# pi r", "# not squared"),
        ("    size = 64\n", "    size = 64   \n\n\n    # more to come\n"),
        ("    size = 64\n", '    size = 64\n    """Columns\n    of it."""\n'),
        ('"""Of a circle."""', "'''Of\na\n\ncircle'''"),
    ],
)
def test_what_changes_nothing(tmp_path: Path, old: str, new: str) -> None:
    assert old in SOURCE
    assert of(tmp_path, SOURCE.replace(old, new)) == of(tmp_path, SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [("size = 64", "size = 128"), ("math.pi * r", "math.pi * r * r"), ("# no comment", "# a comment"), ("async ", "")],
)
def test_what_changes_the_code(tmp_path: Path, old: str, new: str) -> None:
    assert old in SOURCE
    assert of(tmp_path, SOURCE.replace(old, new)) != of(tmp_path, SOURCE)


def test_what_is_no_python_has_none(tmp_path: Path) -> None:
    for source in ("def", "x = '", "\x00", "(" * 500):
        assert of(tmp_path, source) is None
    nothing = Contender("attention", "theirs", "", lambda case: print)
    assert code_hashes({"theirs": nothing}, ["theirs"]) == {}


def test_an_empty_file_has_one(tmp_path: Path) -> None:
    assert of(tmp_path, "") == of(tmp_path, "# only this\n")
