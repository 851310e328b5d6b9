"""A run from declaration to bundle, and going on with one that was interrupted; workers are scripted."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import fakes
import groundspeed
from fakes import FakeClock, FakeWorker, Silence, no_fault, noisy
from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import bundle, store
from groundspeed.lab import session
from groundspeed.lab.check import declared, verify
from groundspeed.lab.request import Request, repetition
from groundspeed.measure.channel import Message
from groundspeed.measure.runner import Progress

MEANS = {"sdpa-math": 2e-3, "sdpa-flash": 1e-3, "mine": 3e-3}
MINE = "import groundspeed as gs\n\n@gs.contender('attention')\ndef mine(q, k, v, *, causal, scale): ...\n"


class Lab:
    """`session` with scripted workers, of which one raises after so many samples."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = folder / "runs"
        self.file = folder / "mine.py"
        self.file.write_text(MINE)
        self.raises: tuple[int, BaseException] | None = None
        self.fault: Any = no_fault
        self.commands: list[list[str]] = []
        self.told: list[Message] = []
        self.samples = 0
        monkeypatch.setattr(session, "ProcessWorker", self.spawn)

    def spawn(self, command: list[str], threads: int, gpu: str | None) -> FakeWorker:
        self.commands.append(command)
        lab = self

        class Worker(FakeWorker):
            def send(self, message: Message) -> None:
                if "loader" in message:
                    lab.told.append(message)
                super().send(message)

            def receive(self, timeout_s: float) -> Message:
                message = super().receive(timeout_s)
                lab.samples += message["kind"] == "sample"
                if lab.raises and lab.samples > lab.raises[0]:
                    raise lab.raises[1]
                return message

        return Worker(FakeClock(), noisy(MEANS), self.fault)

    @property
    def request(self) -> Request:
        return Request(
            "attention", "quick", shape=("S=16,causal=0",), with_files=(str(self.file),), processes=3, out=self.runs
        )


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


def test_a_run_ends_in_a_bundle_that_verifies_and_leaves_nothing_else(lab: Lab) -> None:
    told: list[Progress] = []
    made = session.run(lab.request, told.append)
    assert [path.name for path in lab.runs.iterdir()] == [made.path.name]
    assert made.path.name.endswith(made.identity)
    assert verify(made.path)[0].record.complete
    assert told[-1].done == told[-1].total == 3
    assert made.record.run.judged == ("mine",)
    assert "worker" in made.record.environment


@pytest.mark.parametrize(
    ("processes", "own", "one_in"),
    [(1, True, [1, 1, 1]), (8, True, [3, 6, 10]), (40, True, [10, 10, 10]), (8, False, [20])],
)
def test_d6_what_somebody_brings_along_is_checked_often_enough(
    lab: Lab, processes: int, own: bool, one_in: list[int]
) -> None:
    """Whichever fifth of the blocks somebody is wrong in, and at whichever look its processes end."""
    request = replace(lab.request, processes=processes, with_files=lab.request.with_files if own else ())
    looks = session.run(request).record.protocol.looks
    told = lab.told[0]["check_one_in"]
    assert [one for _, one in told] == one_in
    assert all(message["check_one_in"] == told for message in lab.told)
    if own:
        assert [end for end, _ in told] == list(looks)
        assert all((1 - 1 / one) ** (processes * look / 5) <= 1 / 300 for look, one in told)


def test_ctrl_c_leaves_a_bundle_from_which_the_run_goes_on(lab: Lab) -> None:
    lab.raises = 35, KeyboardInterrupt()
    left = session.run(lab.request)
    assert not left.record.complete
    assert left.record.finished_attempts == {0: 0}
    verify(left.path)
    lab.raises = None
    made = session.resume(left.path)
    assert verify(made.path)[0].record.complete
    assert made.record.finished_attempts == {0: 0, 1: 1, 2: 0}
    count = len(left.record.samples["start"])
    assert made.record.samples["start"][:count].tolist() == left.record.samples["start"].tolist()


def test_ctrl_c_before_the_first_sample_leaves_a_bundle_too(lab: Lab) -> None:
    lab.raises = -1, KeyboardInterrupt()
    left = session.run(lab.request)
    verify(left.path)
    assert len(left.record.samples["process"]) == 0
    lab.raises = None
    assert session.resume(left.path).record.complete


def test_a_failure_of_the_tool_keeps_the_journal_to_go_on_from(lab: Lab) -> None:
    lab.raises = 35, GroundspeedError("the disk is full")
    with pytest.raises(GroundspeedError, match="the disk is full"):
        session.run(lab.request)
    (partial,) = lab.runs.iterdir()
    assert partial.name.endswith(store.PARTIAL)
    lab.raises = None
    made = session.resume(partial)
    assert verify(made.path)[0].record.complete
    assert not partial.exists()


def test_a_complete_run_is_not_gone_on_with(lab: Lab) -> None:
    made = session.run(lab.request)
    with pytest.raises(BadInput, match="this run is complete; there is nothing to resume"):
        session.resume(made.path)


def test_a_contender_that_took_its_worker_is_not_tried_again_from_a_bundle_either(lab: Lab) -> None:
    lab.fault = lambda name, case, block: Silence() if (name, block) == ("mine", 3) else None
    lab.raises = 40, KeyboardInterrupt()
    left = session.run(lab.request)
    lab.raises, lab.fault = None, no_fault
    made = session.resume(left.path)
    verify(made.path)
    later = [o for o in made.record.outcomes if o.contender == "mine" and o.process > 0]
    assert later
    assert {o.reason for o in later} == {"not tried again: no answer within 30 s in process 1"}


def test_samples_of_two_versions_of_a_contender_are_not_mixed(lab: Lab) -> None:
    lab.raises = 35, KeyboardInterrupt()
    left = session.run(lab.request)
    lab.raises = None
    lab.file.write_text(MINE + "\n# faster now\n")
    with pytest.raises(BadInput, match="mine has changed since this run began, and its samples cannot be mixed"):
        session.resume(left.path)
    lab.file.write_text(MINE.replace("mine", "other"))
    with pytest.raises(BadInput, match="unknown contender 'mine'"):
        session.resume(left.path)
    lab.file.unlink()
    with pytest.raises(BadInput, match="there is no such file"):
        session.resume(left.path)
    lab.file.write_text(MINE)
    assert session.resume(left.path).record.complete


def test_a_worker_is_told_its_runner_and_its_share_of_the_memory(lab: Lab) -> None:
    session.run(lab.request)
    assert {command[-1] for command in lab.commands} == {str(os.getpid())}
    free = psutil.virtual_memory().available
    assert {message["memory_limit_bytes"] < free for message in lab.told} == {True}
    assert {message["memory_limit_bytes"] > free // 2 for message in lab.told} == {True}


def test_what_is_declared_about_a_case_comes_from_its_suite() -> None:
    params: Any = {"B": 1, "H": 2, "S": 8, "D": 16, "dtype": "fp16", "causal": False}
    found = declared("attention", params)
    assert found.flops == 4 * 2 * 8 * 8 * 16
    with pytest.raises(BadInput, match="unknown suite"):
        declared("no-such-suite", params)
    with pytest.raises(BadInput):
        declared("attention", {"B": 1})


@pytest.mark.parametrize(
    ("part", "value", "what"),
    [("cpu", {"name": "Intel 386", "cores": 1}, "CPU"), ("packages", {"torch": "1.0"}, "installed packages")],
)
def test_a_run_does_not_go_on_elsewhere(tmp_path: Path, part: str, value: dict[str, Any], what: str) -> None:
    """D3: the samples of one bundle come from one machine and one set of packages."""
    facts = fakes.header(["sdpa-math", "sdpa-flash"])
    facts["environment"] = {**session.host_environment(), part: value}
    facts["run"].update(version=groundspeed.__version__, commit=session.source_commit())
    fakes.begin(tmp_path / "x.partial", facts).close()
    with pytest.raises(BadInput, match=f"^the {what} changed since this run began"):
        session.resume(tmp_path / "x.partial")


def test_a_repetition_beside_it_counts_for_the_trust_in_a_bundle(lab: Lab) -> None:
    made = session.run(lab.request)
    assert verify(made.path)[1].judgement.repetitions == ()
    again = session.run(repetition(made.record, made.identity, None, None, lab.runs))
    assert again.record.run.reproduces == made.identity
    (found,) = verify(made.path)[1].judgement.repetitions
    assert {claim.answer for claim in found.claims.values()} == {"agrees"}
    assert not found.elsewhere
    assert verify(again.path)[1].judgement.repetitions == ()


def test_a_repetition_without_the_file_of_the_contenders_says_which(lab: Lab) -> None:
    made = session.run(lab.request)
    record = replace(made.record, run=replace(made.record.run, with_files=("bench/mine.py",)))
    with pytest.raises(BadInput, match=r"measured contenders of 'bench/mine\.py', and there is no such file here"):
        repetition(record, made.identity, None, None, lab.runs)


def test_one_that_was_changed_does_not(lab: Lab) -> None:
    made = session.run(lab.request)
    again = session.run(repetition(made.record, made.identity, None, None, lab.runs))
    with (again.path / "facts.json").open("a") as facts:
        facts.write(" ")
    assert verify(made.path)[1].judgement.repetitions == ()


def test_nor_does_one_that_only_says_so(lab: Lab) -> None:
    """Whoever names a bundle in some text of his own has not repeated it."""
    made = session.run(lab.request)
    other = session.run(lab.request)
    said = json.dumps({"reproduces": made.identity})
    forged = replace(other.record, run=replace(other.record.run, commit=said))
    bundle.write(forged, lab.runs, "forged")
    assert verify(made.path)[1].judgement.repetitions == ()


def test_in_isolation_each_contender_has_its_workers_and_nobody_elses_file(lab: Lab) -> None:
    made = session.run(replace(lab.request, isolated=True))
    assert made.record.complete
    names = [contender.name for contender in made.record.measured]
    assert len(lab.told) == 3 * len(names)
    assert sorted(told["with_files"] for told in lab.told) == sorted([[], [], [str(lab.file)]] * 3)
