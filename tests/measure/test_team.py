"""Each contender in a process of its own: to the runner, and in the record, they are one worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        self.asked_for: list[str] = []

    def __call__(self, clock: FakeClock, seconds: Seconds, fault: Fault) -> Any:
        members: list[Member] = []

        def spawn(contender: str) -> Member:
            self.asked_for.append(contender)
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
    for member in hired.teams[0]:
        start, *requests = member.heard
        (name,) = requests[0]["prepare"]["contenders"]
        assert start["with_files"] == ([FILES[name]] if name in FILES else [])
        for request in requests:
            asked = (
                request["prepare"]["contenders"] if "prepare" in request else request.get("blocks", [(0, [name])])[0][1]
            )
            assert asked == [name]


def test_each_has_the_worker_that_is_meant_for_it(tmp_path: Path, hired: Hired) -> None:
    """Which may be one of another interpreter, where revisions ask for other packages."""
    measured(tmp_path, hired)
    for number, team in enumerate(hired.teams):
        names = hired.asked_for[number * len(MEANS) : (number + 1) * len(MEANS)]
        assert [member.heard[1]["prepare"]["contenders"] for member in team] == [[name] for name in names]


def test_the_record_tells_whose_environment_is_another(tmp_path: Path) -> None:
    """That of the baseline, whichever of them came first, and what the others have otherwise."""

    class Newer(Member):
        def send(self, message: Message) -> None:
            super().send(message)
            if "loader" in message:
                self.outbox[-1]["environment"] = {"torch": "1", "clock_tick_s": 1e-9}  # type: ignore[index]

    class Spoken(Member):
        def send(self, message: Message) -> None:
            super().send(message)
            if "loader" in message:
                self.outbox[-1]["environment"] = ["no", "environment"]  # type: ignore[index]

    kinds = {"base": Member, "ours": Newer, "third": Spoken}

    def hire(clock: FakeClock, seconds: Seconds, fault: Fault) -> Any:
        return Team(lambda name: kinds[name](clock, seconds, fault, 0.0), list(MEANS), {})

    begin(tmp_path, header(list(MEANS), isolated=True, processes=2)).close()
    record = continue_run(tmp_path, noisy(MEANS), no_fault, worker_type=hire)
    differs = {"ours": {"torch": "1"}, "third": {"torch": None}}
    assert record.environment["worker"] == {"torch": "0", "by_contender": differs}


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


def team_of(changed: Callable[[str], type[Member]]) -> Callable[[FakeClock, Seconds, Fault], Any]:
    """A team in which the member of a contender is of the kind that is given for it."""

    def hire(clock: FakeClock, seconds: Seconds, fault: Fault) -> Any:
        class Undecided(Member):
            def send(self, message: Message) -> None:
                if "prepare" in message:
                    self.__class__ = changed(message["prepare"]["contenders"][0])
                    self.send(message)
                else:
                    super().send(message)

        return Team(lambda contender: Undecided(clock, seconds, fault, 0.0), list(MEANS), {})

    return hire


def isolated(folder: Path, hire: Callable[[FakeClock, Seconds, Fault], Any], fault: Fault = no_fault) -> Record:
    begin(folder, header(list(MEANS), isolated=True, processes=2)).close()
    return continue_run(folder, noisy(MEANS), fault, worker_type=hire)


def failed(record: Record) -> set[tuple[str, str]]:
    return {(o.contender, o.status) for o in record.outcomes if o.status not in ("PASSED", "SKIPPED")}


class Hungry(Member):
    def prepare(self, request: Mapping[str, Any]) -> None:
        self.outbox.append({"kind": "fault all", "status": "OOM", "reason": "too large"})


def test_inputs_that_nobody_can_make_are_everybodys_loss(tmp_path: Path) -> None:
    assert failed(isolated(tmp_path, team_of(lambda name: Hungry))) == {(name, "OOM") for name in MEANS}


def test_inputs_that_one_cannot_make_are_his(tmp_path: Path) -> None:
    """Who hoards memory, or breaks his own process, says nothing about the others'."""
    assert failed(isolated(tmp_path, team_of(lambda name: Hungry if name == "ours" else Member))) == {("ours", "OOM")}


class Liar(Member):
    """Says something about another in the middle of its own sample."""

    lie: Message

    def block(self, block: int, order: Sequence[str]) -> None:
        self.outbox.append({"errors": {}, **self.lie})
        super().block(block, order)


SAMPLE = {"kind": "sample", "start": 1e3, "seconds": 1e-6, "launches": 1, "check": True}


@pytest.mark.parametrize(
    "lie",
    [
        {"kind": "fault", "contender": "base", "status": "INCORRECT", "reason": "wrong"},
        {**SAMPLE, "contender": "base"},
        {**SAMPLE, "contender": "ours", "start": "x"},
        {"kind": "checked", "contender": "nobody"},
        {"kind": 7},
    ],
)
def test_nobody_speaks_for_another(tmp_path: Path, lie: Message) -> None:
    class Forger(Liar):
        pass

    Forger.lie = lie
    record = isolated(tmp_path, team_of(lambda name: Forger if name == "ours" else Member))
    replay(record)
    assert failed(record) == {("ours", "ERROR")}


def test_two_samples_of_one_are_refused(tmp_path: Path) -> None:
    class Twice(Liar):
        lie = {**SAMPLE, "contender": "ours"}  # noqa: RUF012

    record = isolated(tmp_path, team_of(lambda name: Twice if name == "ours" else Member))
    assert failed(record) == {("ours", "ERROR")}


def test_one_who_fell_and_dies_later_is_nobody_elses_fault(tmp_path: Path) -> None:
    class Dying(Member):
        def send(self, message: Message) -> None:
            if "blocks" in message and message["blocks"][0][0] > 3:
                raise Died("the process was killed by SIGKILL")
            super().send(message)

    def fault(name: str, case: str, block: int | None) -> Message | None:
        return {"status": "INCORRECT", "reason": "wrong"} if (name, block) == ("ours", 3) else None

    record = isolated(tmp_path, team_of(lambda name: Dying if name == "ours" else Member), fault)
    assert failed(record) == {("ours", "INCORRECT")}


def test_a_member_that_died_before_its_turn_is_blamed_itself(tmp_path: Path) -> None:
    """It cannot even be asked."""

    class Dead(Member):
        def send(self, message: Message) -> None:
            raise Died("the process was killed by SIGKILL")

    assert failed(isolated(tmp_path, team_of(lambda name: Dead if name == "ours" else Member))) == {("ours", "ERROR")}
