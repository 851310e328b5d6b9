"""C2 with real processes: what a revision does is measured, and a revision that does nothing new is no regression."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from groundspeed.lab import compare, revisions
from groundspeed.lab.request import Request
from repositories import CONTENDER, KERNEL, commit, git, write

STEADY = CONTENDER.replace("def mine", "def steady").replace("range(ROUNDS)", "range(1)")
STEADY = STEADY.replace("from project.kernel import ROUNDS", "")


@pytest.mark.slow
def test_a_planted_slow_down_is_found_and_what_did_not_change_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "repository"
    commit(top, {"bench.py": CONTENDER, KERNEL: "ROUNDS = 1\n"})
    commit(top, {KERNEL: "ROUNDS = 10\n"})  # ten times, so that three processes of a busy machine do
    write(tmp_path, {"steady.py": STEADY})
    monkeypatch.chdir(top)
    request = Request(
        "attention",
        "quick",
        shape=("S=64,causal=0",),
        with_files=("bench.py", "../steady.py"),
        device="cpu",
        processes=3,
        calibration="none",
        out=tmp_path / "runs",
    )
    with revisions.checked_out("HEAD~1", "HEAD") as pair:
        compared = compare.measured(pair, request, ())
    found = {change.contender: change for change in compared.result.changes}
    slower = found["mine"]
    assert slower.interval is not None
    assert slower.interval.high < -math.log(3)
    if "outliers decide" not in slower.reason:  # other work on the machine may have that said, however great the change
        assert slower.word == compared.result.overall == "REGRESSED"
    if found["steady"].word not in ("SAME", "UNCLEAR"):  # one run in twenty may err; what is biased does so again
        with revisions.checked_out("HEAD~1", "HEAD") as pair:
            again = compare.measured(pair, request, ()).result.changes
        assert next(change.word for change in again if change.contender == "steady") in ("SAME", "UNCLEAR")
    assert git(top, "worktree", "list").count("\n") == 0
    (same,) = (note for note in compared.result.notes if "same Python code" in note)
    assert same.startswith("steady: ../steady.py is the same in both revisions, and nothing else was imported")
