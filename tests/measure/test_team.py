"""Each contender in a process of its own: to the runner, and in the record, they are one worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeClock, FakeWorker, Fault, Seconds, begin, continue_run, header, no_fault, noisy
from groundspeed.evidence.record import Record
from groundspeed.judge.replay import replay
from groundspeed.measure.channel import Died, Message, Silence
from groundspeed.measure.team import Team

MEANS = {"base": 1e-3, "ours": 0.8e-3, "third": 2e-3}
FILES = {"ours": "ours.py"}
LATE = 5.0


class Member(FakeWorker):
    """One that remembers what it was told, and whose clock began later than the one before it. Time is everybody's."""

    now = 100.0

    def __init__(self, clock: FakeClock, seconds: Seconds, fault: Fault, began: float) -> None:
        super().__init__(clock, seconds, fault)
        self.began, self.heard = began, list[Message]()

    def send(self, message: Message) -> None:
        self.heard.append(message)
        super().send(message)
        if "loader" in message:
            self.outbox[-1]["began"] = self.began  # type: ignore[index]

    def spend(self, seconds: float) -> float:
        begin, Member.now = Member.now, Member.now + seconds
        return begin - self.began


class Hired:
    """Teams as the runner asks for them."""

    def __init__(self) -> None:
        self.teams: list[list[Member]] = []

    def __call__(self, clock: FakeClock, seconds: Seconds, fault: Fault) -> Any:
        members: list[Member] = []

        def spawn() -> Member:
            members.append(Member(clock, seconds, fault, LATE * len(members)))
            return members[-1]

        self.teams.append(members)
        return Team(spawn, list(MEANS), FILES)


def measured(folder: Path, hired: Hired, fault: Fault = no_fault, means: Mapping[str, float] = MEANS) -> Record:
    begin(folder, header(list(means), isolated=True, processes=2)).close()
    return continue_run(folder, noisy(means), fault, worker_type=hired)


@pytest.fixture
def hired() -> Hired:
    return Hired()


def test_the_record_is_one_that_its_protocol_would_have_produced(tmp_path: Path, hired: Hired) -> None:
    record = measured(tmp_path, hired)
    assert record.complete
    assert {outcome.status for outcome in record.outcomes} == {"PASSED"}
    replay(record)  # of the starts too, which are on one clock: no sample begins before the one before it ended
    assert len(hired.teams) == 2
    assert all(member.closed for team in hired.teams for member in team)


def test_nobody_hears_of_another(tmp_path: Path, hired: Hired) -> None:
    """Neither of its calls nor of its file."""
    measured(tmp_path, hired)
    for name, member in zip(MEANS, hired.teams[0], strict=True):
        start, *requests = member.heard
        assert start["with_files"] == ([FILES[name]] if name in FILES else [])
        for request in requests:
            asked = request["prepare"]["contenders"] if "prepare" in request else request["blocks"][0][1]
            assert asked == [name]


def test_they_take_turns(tmp_path: Path, hired: Hired) -> None:
    """One is asked when the one before it has answered."""
    busy: list[str] = []

    def seconds(name: str, case: str, block: int) -> float:
        waiting = [m for member in hired.teams[-1] for m in member.outbox if isinstance(m, dict)]
        assert not [m for m in waiting if m["kind"] == "sample" and m["contender"] != name]
        busy.append(name)
        return MEANS[name]

    begin(tmp_path, header(list(MEANS), isolated=True, processes=2)).close()
    continue_run(tmp_path, seconds, worker_type=hired)
    assert set(busy) == set(MEANS)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Died("the process was killed by SIGSEGV"), "ERROR"),
        (Died("killed", out_of_memory=True), "OOM"),
        (Silence(), "TIMEOUT"),
        ({"status": "INCORRECT", "reason": "wrong"}, "INCORRECT"),
        ({"status": "ERROR", "reason": "a sticky error", "broken": True}, "ERROR"),
    ],
)
@pytest.mark.parametrize("block", [None, 3])
def test_a_fault_costs_its_own_contender_alone(
    tmp_path: Path, hired: Hired, fault: Any, status: str, block: int | None
) -> None:
    record = measured(tmp_path, hired, lambda name, case, at: fault if (name, at) == ("ours", block) else None)
    replay(record)
    found: dict[str, set[str]] = {}
    for outcome in record.outcomes:
        found.setdefault(outcome.contender, set()).add(outcome.status)
    assert found["base"] == found["third"] == {"PASSED"}
    assert status in found["ours"] <= {status, "SKIPPED"}


def test_a_member_that_died_before_its_turn_is_blamed_itself(tmp_path: Path, hired: Hired) -> None:
    """It cannot even be asked."""

    class Dead(Member):
        def send(self, message: Message) -> None:
            if "prepare" in message:
                raise Died("the process was killed by SIGKILL")
            super().send(message)

    def team(clock: FakeClock, seconds: Seconds, fault: Fault) -> Any:
        kinds = iter((Member, Dead, Member))
        spawn: Callable[[], Member] = lambda: next(kinds)(clock, seconds, fault, 0.0)  # noqa: E731
        return Team(spawn, list(MEANS), {})

    begin(tmp_path, header(list(MEANS), isolated=True, processes=2)).close()
    record = continue_run(tmp_path, noisy(MEANS), worker_type=team)
    assert {o.contender for o in record.outcomes if o.status != "PASSED"} == {"ours"}


def test_inputs_that_cannot_be_made_are_everybodys(tmp_path: Path, hired: Hired) -> None:
    class Hungry(Member):
        def prepare(self, request: Mapping[str, Any]) -> None:
            self.outbox.append({"kind": "fault all", "status": "OOM", "reason": "too large"})

    def team(clock: FakeClock, seconds: Seconds, fault: Fault) -> Any:
        return Team(lambda: Hungry(clock, seconds, fault, 0.0), list(MEANS), {})

    begin(tmp_path, header(list(MEANS), isolated=True, processes=2)).close()
    record = continue_run(tmp_path, noisy(MEANS), worker_type=team)
    assert {(o.contender, o.status) for o in record.outcomes} == {(name, "OOM") for name in MEANS}
