"""Workers that do not start, die without a culprit, or cannot hold the inputs (statistics.md 16)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted import (
    CONTENDERS,
    DIES,
    MEANS,
    faults,
    judged,
    outcomes,
)

from fakes import Died, FakeWorker, Silence, begin, continue_run, header, noisy, seed_of
from groundspeed.errors import GroundspeedError
from groundspeed.evidence import journal
from groundspeed.evidence.protocol import draw
from groundspeed.evidence.samples import TIMED
from groundspeed.measure.channel import Message
from groundspeed.measure.greeting import START_LIMIT_S


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (Died("the process exited with code 1"), "did not start: the process exited with code 1"),
        (Silence(), f"did not start within {START_LIMIT_S:.0f} s"),
    ],
)
def test_a_worker_that_does_not_start_ends_the_run_with_one_sentence(
    tmp_path: Path, answer: Exception, sentence: str
) -> None:
    class Dead(FakeWorker):
        def send(self, message: Message) -> None:
            self.outbox.append(answer)

    workers: list[FakeWorker] = []
    begin(tmp_path, header(CONTENDERS)).close()
    with pytest.raises(GroundspeedError, match=sentence):
        continue_run(tmp_path, noisy(MEANS), workers=workers, worker_type=Dead)
    assert all(worker.closed for worker in workers)
    judged(continue_run(tmp_path, noisy(MEANS)))  # nothing is lost: it can go on


def test_a_worker_that_cannot_be_replaced_ends_the_run_and_keeps_what_was_measured(tmp_path: Path) -> None:
    started: list[FakeWorker] = []

    class OnlyOnce(FakeWorker):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            started.append(self)

        def send(self, message: Message) -> None:
            if len(started) > 1:
                raise Died("the process exited with code 1")
            super().send(message)

    begin(tmp_path, header(CONTENDERS)).close()
    with pytest.raises(GroundspeedError, match="did not start"):
        continue_run(tmp_path, noisy(MEANS), faults({("fast", 4): DIES}), worker_type=OnlyOnce)
    kept = journal.to_record(journal.read_events(tmp_path), "journal")
    assert len(set(kept.samples["block"][kept.samples["phase"] == TIMED].tolist())) == 5
    record = judged(continue_run(tmp_path, noisy(MEANS)))
    assert record.complete
    assert [o.status for o in outcomes(record, "fast") if o.case == kept.outcomes[0].case and o.attempt == 1] == [
        "SKIPPED"
    ]


@pytest.mark.parametrize(
    ("status", "reason"), [("OOM", "could not make the inputs: MemoryError"), ("ERROR", "the inputs: ValueError")]
)
def test_inputs_that_do_not_fit_cost_the_case_and_not_the_run(tmp_path: Path, status: str, reason: str) -> None:
    class TooLarge(FakeWorker):
        def prepare(self, request: Any) -> None:
            if request["params"]["B"] == 2:
                self.outbox.append({"kind": "fault all", "status": status, "reason": reason, "errors": {}})
            else:
                super().prepare(request)

    begin(tmp_path, header(CONTENDERS)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), worker_type=TooLarge))
    by_case = {case.params["B"]: {o.status for o in record.outcomes if o.case == case.name} for case in record.cases}
    assert by_case == {1: {"PASSED"}, 2: {status}}
    assert {o.reason for o in record.outcomes if o.status == status} == {reason}
    assert {(s.blocks, s.why) for s in record.stops if s.case.startswith("b2-")} == {(0, "no pair left")}


def test_a_worker_that_died_between_two_cases_is_replaced_and_nobody_is_blamed(tmp_path: Path) -> None:
    started: list[FakeWorker] = []

    class DiesAfterItsFirstCase(FakeWorker):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            started.append(self)
            self.cases = 0

        def send(self, message: Message) -> None:
            self.cases += "prepare" in message
            if self.cases > 1 and len(started) == 1:
                raise Died("the process was killed by SIGKILL")
            super().send(message)

    begin(tmp_path, header(CONTENDERS, processes=1)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), worker_type=DiesAfterItsFirstCase))
    assert {o.status for o in record.outcomes} == {"PASSED"}
    assert record.processes[0].workers == 2


@pytest.mark.parametrize("where", ["sending", "receiving"])
def test_a_case_that_kills_every_worker_without_a_culprit_ends(tmp_path: Path, where: str) -> None:
    class Kills(FakeWorker):
        def send(self, message: Message) -> None:
            if "prepare" in message and message["prepare"]["params"]["B"] == 2:
                if where == "sending":
                    raise Died("the process was killed by SIGBUS")
                self.outbox.append(Died("the process was killed by SIGBUS"))
                return
            super().send(message)

    begin(tmp_path, header(CONTENDERS)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), worker_type=Kills))
    assert record.complete
    ended = {(o.process, o.status) for o in record.outcomes if o.case.startswith("b2-")}
    assert ended == {(0, "ERROR"), (1, "SKIPPED"), (2, "SKIPPED"), (3, "SKIPPED")}
    assert {o.status for o in record.outcomes if o.case.startswith("b1-")} == {"PASSED"}


def test_a_worker_that_dies_after_the_last_sample_of_a_block_blames_who_was_last(tmp_path: Path) -> None:
    class DiesAtTheEnd(FakeWorker):
        def block(self, block: int, order: Any) -> None:
            super().block(block, order)
            if block == 4 and "slow" in order:
                assert isinstance(self.outbox[-1], dict)
                self.outbox[-1] = DIES

    begin(tmp_path, header(CONTENDERS, ("B=1,S=64,causal=0",), processes=1)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), worker_type=DiesAtTheEnd))
    last = draw(seed_of(record), CONTENDERS, 0, 0, record.cases[0].name, 4)[-1]
    assert [(o.contender, o.status) for o in record.outcomes if o.status != "PASSED"] == [(last, "ERROR")]


def test_d6_a_file_that_is_refused_for_its_import_is_not_imported_again(tmp_path: Path) -> None:
    """Every worker without it from there on, in all processes; the worker that had imported it measures nothing."""
    starts: list[Message] = []

    class Imports(FakeWorker):
        def send(self, message: Message) -> None:
            super().send(message)
            if "loader" in message:
                starts.append(dict(message))
                refused = {"bad.py": {"slow": "its file did it"}} if "bad.py" in message["with_files"] else {}
                self.outbox[-1] = {**self.outbox[-1], "refused": refused}  # type: ignore[dict-item]

    workers: list[FakeWorker] = []
    begin(tmp_path, header(CONTENDERS)).close()
    start = {"loader": "", "with_files": ["good.py", "bad.py"]}
    record = judged(continue_run(tmp_path, noisy(MEANS), workers=workers, worker_type=Imports, start=start))
    assert [start["with_files"] for start in starts] == [["good.py", "bad.py"], *[["good.py"]] * (len(starts) - 1)]
    assert all(start["refused"] == {"slow": "its file did it"} for start in starts[1:])
    assert len(starts) == len(workers) == record.protocol.processes + 1
    assert workers[0].closed
    assert not workers[0].entered


@pytest.mark.parametrize("kind", ["ready", "checked"])
def test_d6_what_a_worker_tolerates_is_not_what_the_runner_does(tmp_path: Path, kind: str) -> None:
    class Tolerant(FakeWorker):
        def receive(self, timeout_s: float) -> Message:
            message = super().receive(timeout_s)
            if message["kind"] == kind and message["contender"] == "slow":
                message["errors"]["max_abs"] = 1.001e-5
            return message

    begin(tmp_path, header(CONTENDERS)).close()
    record = judged(continue_run(tmp_path, noisy(MEANS), worker_type=Tolerant))
    first, *later = outcomes(record, "slow")
    assert (first.status, first.lost_worker) == ("INCORRECT", True)
    assert "max_abs error 1.001e-05 is over the tolerance of 1e-05, which it changed" in str(first.reason)
    assert {outcome.status for outcome in later} <= {"INCORRECT", "SKIPPED"}
    assert {o.status for name in ("base", "fast") for o in outcomes(record, name)} == {"PASSED"}
