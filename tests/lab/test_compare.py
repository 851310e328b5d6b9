"""C2 with real processes: what a revision does is measured, and a revision that does nothing new is no regression."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groundspeed import case
from groundspeed.errors import GroundspeedError
from groundspeed.evidence.revision import SIDES
from groundspeed.lab import compare, revisions
from groundspeed.lab.request import Request
from repositories import CONTENDER, KERNEL, commit, git, write

ABSENT = replace(case.Contender("attention", "", "", lambda case: None), absent=lambda device: "needs an NVIDIA GPU")


@pytest.mark.parametrize(
    ("runs", "way"),
    [(False, "name the file of one that can, with --with FILE"), (True, "name others with --only, as mine")],
)
def test_who_cannot_run_here_is_told_what_can(runs: bool, way: str) -> None:
    """--only chooses among those that are in both revisions."""
    pair = SimpleNamespace(base=SimpleNamespace(asked="HEAD~1"), head=SimpleNamespace(asked="HEAD"))
    mine = replace(ABSENT, absent=lambda device: None)
    here = {"ours": ABSENT, **({"mine": mine} if runs else {})}
    suites: Any = {
        side: SimpleNamespace(contenders={f"{name}@{side}": one for name, one in here.items()}, files={})
        for side in SIDES
    }
    request, only = Request("attention", device="cpu"), ("ours",) if runs else ()
    with pytest.raises(GroundspeedError) as caught:
        compare._in_both(pair, request, suites, only)  # type: ignore[arg-type]
    assert str(caught.value) == f"ours cannot run here (needs an NVIDIA GPU); {way}"


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
