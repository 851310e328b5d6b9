"""`--isolate` with real processes: who has one of his own cannot reach the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundspeed.lab import session
from groundspeed.lab.check import verify
from groundspeed.lab.request import Request

pytestmark = pytest.mark.slow

CONTENDER = """
import os
from pathlib import Path

import torch

import groundspeed as gs


def leave(word):
    with Path(__file__).with_suffix(".txt").open("a") as file:
        file.write(f"{word} {os.getpid()}\\n")


leave("imported")


@gs.contender("attention", name=Path(__file__).stem)
def call(q, k, v, *, causal, scale):
    leave("called")
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
"""


def test_nobodys_file_is_in_anothers_process(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.py" for name in ("one", "two")]
    for file in files:
        file.write_text(CONTENDER)
    request = Request(
        "attention",
        "quick",
        shape=("S=16,causal=0",),
        with_files=tuple(map(str, files)),
        device="cpu",
        processes=2,
        isolated=True,
        out=tmp_path / "runs",
    )
    made = session.run(request)
    judgement = verify(made.path)[1].judgement
    assert {result.status for case in judgement.cases for result in case.results} == {"PASSED"}
    said = [{tuple(line.split()) for line in file.with_suffix(".txt").read_text().splitlines()} for file in files]
    imported = [{pid for word, pid in lines if word == "imported"} for lines in said]
    called = [{pid for word, pid in lines if word == "called"} for lines in said]
    assert [len(pids) for pids in called] == [2, 2]
    assert called[0].isdisjoint(called[1])
    (asked,) = imported[0] & imported[1]  # the process that listed what is in them
    assert [pids - {asked} for pids in imported] == called
