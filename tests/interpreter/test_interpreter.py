"""Whether kernels are interpreted is fixed when triton is imported, so their tests run in a process of their own."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


PARTS = ["fp64", "not fp64"]


@pytest.mark.parametrize(
    ("module", "part"),
    [
        *itertools.product(["attention_values.py", "decode_values.py"], PARTS),
        ("listing_values.py", "listed or sequence"),
        ("moe_values.py", "test"),
        ("rows_values.py", "test"),
        ("paged_values.py", "test"),
        ("linear_values.py", "test"),
    ],
)
def test_values_in_the_interpreter(module: str, part: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        str(HERE / module),
        "-k",
        part,
    ]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
