"""The line-up before a run on a GPU: which kernels each contender launches, once a shape (D9; statistics.md 16)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from scripted import CONTENDERS, DIES, HANGS, HUNGRY, KILLED_FOR_MEMORY, MEANS, RAISES, faults

from fakes import FakeClock, Fault, Silence, SurveyWorker, begin, header, no_fault, noisy, protocol
from groundspeed.case import Case, with_clock
from groundspeed.errors import GroundspeedError
from groundspeed.evidence import journal
from groundspeed.evidence.launched import Launched
from groundspeed.lab.declare import case_facts
from groundspeed.measure.channel import Died, Message
from groundspeed.measure.greeting import START_LIMIT_S
from groundspeed.measure.lineup import LineUp
from groundspeed.measure.runner import Plan
from groundspeed.measure.survey import spent, survey
from groundspeed.suites.registry import suite_module

STICKY = {"status": "ERROR", "reason": "AcceleratorError: CUDA error", "broken": True}
SMALL, LARGE = (
    case for size in (1, 2) for case in suite_module("attention").shape_cases(f"B={size},S=64,causal=0", ("bf16",))
)
BY_CLOCKS = (SMALL, with_clock(SMALL, "graph"), with_clock(SMALL, "eager"))


class Hall:
    """A line-up over `cases` with scripted workers, and what is left of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[SurveyWorker] = []
        self.told: list[str] = []
        self.line_up: LineUp | None = None

    def run(
        self,
        fault: Fault = no_fault,
        cases: Sequence[Case] = (SMALL,),
        *,
        known: Sequence[tuple[str, str]] = (),
        refused: Mapping[tuple[str, str], tuple[str, str]] | None = None,
        worker_type: Callable[..., SurveyWorker] = SurveyWorker,
    ) -> None:
        facts = header(CONTENDERS)
        facts["cases"] = [case_facts(case) for case in cases]
        log = begin(self.folder, facts)
        plan = Plan(protocol(timeout_s=7.0), cases, CONTENDERS, 7, {"loader": "none"}, refused or {})

        def spawn() -> SurveyWorker:
            assert all(worker.closed for worker in self.workers), "one worker at a time"
            assert len(self.workers) < 10, "it goes round in circles"
            self.workers.append(worker_type(FakeClock(), noisy(MEANS), fault))
            return self.workers[-1]

        self.line_up = LineUp(plan, log, spawn, known, self.told.append)
        try:
            self.line_up.run()
        finally:
            log.close()
            assert all(worker.closed for worker in self.workers)

    @property
    def launched(self) -> tuple[Launched, ...]:
        return journal.to_record(journal.read_events(self.folder), "journal").launched

    @property
    def seen(self) -> list[tuple[str, str]]:
        return [(one.case, one.contender) for one in self.launched]

    @property
    def asked(self) -> list[tuple[int, list[str]]]:
        """Batch size and contenders of every survey, worker by worker."""
        return [(survey["params"]["B"], survey["contenders"]) for worker in self.workers for survey in worker.surveys]

    @property
    def refused(self) -> dict[tuple[str, str], tuple[str, str]]:
        assert self.line_up is not None
        return self.line_up.refused


@pytest.fixture
def hall(tmp_path: Path) -> Hall:
    return Hall(tmp_path)


def all_on(*cases: Case, but: Sequence[str] = ()) -> list[tuple[str, str]]:
    return [(case.name, name) for case in cases for name in CONTENDERS if name not in but]


class TestWhoIsAsked:
    def test_the_kernels_of_every_contender_on_every_shape_are_written_down(self, hall: Hall) -> None:
        hall.run(cases=(SMALL, LARGE))
        assert hall.seen == all_on(SMALL, LARGE)
        assert {one.kernels for one in hall.launched if one.contender == "fast"} == {("fast_kernel",)}
        assert {(one.moves, one.times, one.seconds) for one in hall.launched} == {
            (("Memset (Device)",), (1, 1), (1e-5, 1e-5))
        }
        assert hall.told == [f"{case}, {name}" for case, name in hall.seen]
        assert len(hall.workers) == 1
        assert hall.refused == {}

    def test_a_shape_is_looked_at_once_whatever_clocks_measure_it(self, hall: Hall) -> None:
        hall.run(cases=(*BY_CLOCKS, LARGE))
        assert hall.seen == all_on(SMALL, LARGE)
        assert hall.asked == [(1, list(CONTENDERS)), (2, list(CONTENDERS))]

    def test_its_first_case_stands_for_it_also_where_that_has_a_clock(self, hall: Hall) -> None:
        hall.run(cases=BY_CLOCKS[1:])
        assert hall.seen == all_on(BY_CLOCKS[1])
        assert hall.workers[0].surveys[0]["params"] == dict(SMALL.params)

    def test_clocks_that_are_apart_in_the_list_are_one_shape_too(self, hall: Hall) -> None:
        hall.run(cases=(SMALL, LARGE, BY_CLOCKS[2]))
        assert hall.seen == all_on(SMALL, LARGE)

    def test_what_is_known_is_not_asked_again(self, hall: Hall) -> None:
        hall.run(cases=(*BY_CLOCKS, LARGE), known=[(SMALL.name, "fast"), (LARGE.name, "base")])
        assert hall.asked == [(1, ["base", "slow"]), (2, ["fast", "slow"])]

    def test_where_all_is_known_no_worker_is_started(self, hall: Hall) -> None:
        hall.run(cases=(*BY_CLOCKS, LARGE), known=all_on(SMALL, LARGE))
        assert hall.workers == []

    def test_what_will_not_be_measured_by_any_clock_is_not_asked(self, hall: Hall) -> None:
        refused = {(case.name, "slow"): ("SKIPPED", "not in this preset") for case in BY_CLOCKS}
        refused[SMALL.name, "fast"] = ("SKIPPED", "not by this clock")
        hall.run(cases=BY_CLOCKS, refused=refused)
        assert hall.asked == [(1, ["base", "fast"])]

    def test_the_inputs_come_from_the_seed_of_the_run(self, hall: Hall, tmp_path: Path) -> None:
        hall.run(cases=(SMALL, LARGE))
        again = Hall(tmp_path / "again")
        again.run(cases=(SMALL, LARGE))
        seeds, same = ([survey["seed"] for survey in one.workers[0].surveys] for one in (hall, again))
        assert seeds == same
        assert len(set(seeds)) == 2


def after(who: str) -> list[tuple[int, list[str]]]:
    """What a new worker is asked about the small shape when `who` has cost the first one."""
    rest = list(CONTENDERS[CONTENDERS.index(who) + 1 :])
    return [(1, rest)] if rest else []


class TestFaults:
    """The baseline is the first to be looked at, `slow` the last."""

    @pytest.mark.parametrize("who", CONTENDERS)
    def test_one_that_raises_is_left_out_and_the_others_go_on(self, hall: Hall, who: str) -> None:
        """The run will tell how it fails."""
        hall.run(faults({(who, None): RAISES}), (SMALL, LARGE))
        assert hall.seen == all_on(SMALL, LARGE, but=[who])
        assert len(hall.workers) == 1
        assert hall.refused == {}

    @pytest.mark.parametrize("who", CONTENDERS)
    @pytest.mark.parametrize("what", [STICKY, HUNGRY], ids=["broken", "hungry"])
    def test_the_rest_get_a_new_worker_after_one_that_spoilt_it(self, hall: Hall, who: str, what: Message) -> None:
        hall.run(faults({(who, None): what}, case="b1-s64"), (*BY_CLOCKS, LARGE))
        assert hall.seen == [*all_on(SMALL, but=[who]), *all_on(LARGE)]
        assert hall.asked == [(1, list(CONTENDERS)), *after(who), (2, list(CONTENDERS))]
        assert len(hall.workers) == 2
        assert hall.refused == {}, "it may be all right when it is measured"

    @pytest.mark.parametrize("who", CONTENDERS)
    @pytest.mark.parametrize(
        ("what", "why"),
        [
            (HANGS, ("TIMEOUT", "no answer within 70 s")),
            (DIES, ("ERROR", "the process was killed by SIGSEGV")),
            (KILLED_FOR_MEMORY, ("OOM", "the kernel killed the process because memory ran out")),
        ],
        ids=["hangs", "dies", "killed for memory"],
    )
    def test_one_that_takes_the_worker_is_refused_by_all_clocks_of_the_shape(
        self, hall: Hall, who: str, what: Exception, why: tuple[str, str]
    ) -> None:
        hall.run(faults({(who, None): what}, case="b1-s64"), (*BY_CLOCKS, LARGE))
        assert hall.refused == {(case.name, who): why for case in BY_CLOCKS}
        assert hall.seen == [*all_on(SMALL, but=[who]), *all_on(LARGE)]
        assert len(hall.workers) == 2
        assert hall.asked == [(1, list(CONTENDERS)), *after(who), (2, list(CONTENDERS))], "it is not asked again"

    def test_all_of_them_take_their_workers(self, hall: Hall) -> None:
        hall.run(faults({(name, None): HANGS for name in CONTENDERS}), (SMALL, LARGE))
        assert set(hall.refused) == set(all_on(SMALL, LARGE))
        assert hall.seen == []
        assert len(hall.workers) == 6

    @pytest.mark.parametrize("where", ["sending", "receiving"])
    @pytest.mark.parametrize("how", [Died("the process was killed by SIGBUS"), Silence()], ids=["dies", "hangs"])
    def test_a_worker_lost_before_the_first_of_them_is_nobodys_fault(
        self, hall: Hall, where: str, how: Exception
    ) -> None:
        class Lost(SurveyWorker):
            def survey(self, request: Message) -> None:
                if request["params"]["B"] == 2:
                    super().survey(request)
                elif where == "sending" and isinstance(how, Died):
                    raise how
                else:
                    self.outbox.append(how)

        hall.run(cases=(SMALL, LARGE), worker_type=Lost)
        assert hall.refused == {}
        assert hall.seen == all_on(LARGE)
        assert len(hall.workers) == 2

    def test_inputs_that_cannot_be_made_leave_the_shape_out(self, hall: Hall) -> None:
        class TooLarge(SurveyWorker):
            def survey(self, request: Message) -> None:
                if request["params"]["B"] == 2:
                    super().survey(request)
                else:
                    self.outbox.append({"kind": "fault all", "status": "OOM", "reason": "too large", "errors": {}})

        hall.run(cases=(SMALL, LARGE), worker_type=TooLarge)
        assert hall.refused == {}
        assert hall.asked == [(1, list(CONTENDERS)), (2, list(CONTENDERS))]
        assert hall.seen == all_on(LARGE)
        assert len(hall.workers) == 1


@pytest.mark.parametrize("where", ["sending", "receiving"])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        (Died("the process exited with code 1"), "did not start: the process exited with code 1"),
        (Silence(), "did not start within 300 s"),
    ],
    ids=["dies", "hangs"],
)
def test_a_worker_that_does_not_start_is_told_in_one_sentence(
    hall: Hall, where: str, how: Exception, said: str
) -> None:
    limits = []

    class Dead(SurveyWorker):
        def send(self, message: Message) -> None:
            if where == "sending" and isinstance(how, Died):
                raise how
            self.outbox.append(how)

        def receive(self, timeout_s: float) -> Message:
            limits.append(timeout_s)
            return super().receive(timeout_s)

    with pytest.raises(GroundspeedError, match=said):
        hall.run(worker_type=Dead)
    assert [worker.closed for worker in hall.workers] == [True]
    assert set(limits) <= {START_LIMIT_S}


@pytest.mark.parametrize("after", range(8))
def test_an_interrupt_closes_the_worker_and_keeps_what_was_seen(hall: Hall, after: int) -> None:
    """hello, then "at" and "launched" of each, then "surveyed"."""

    class Interrupted(SurveyWorker):
        received = 0

        def receive(self, timeout_s: float) -> Message:
            if self.received == after:
                raise KeyboardInterrupt
            self.received += 1
            return super().receive(timeout_s)

    with pytest.raises(KeyboardInterrupt):
        hall.run(worker_type=Interrupted)
    assert hall.seen == all_on(SMALL)[: max(0, after - 1) // 2]
    assert [worker.closed for worker in hall.workers] == [True]


class TestSurvey:
    """What a worker answers, as far as that can be seen without a GPU."""

    def reports(self, monkeypatch: pytest.MonkeyPatch, launched: Any, inputs: Any = lambda seed, device: ()) -> Any:
        case = SimpleNamespace(inputs=inputs)
        suite = SimpleNamespace(
            module=SimpleNamespace(case_of_params=lambda params: case),
            contenders=dict.fromkeys(CONTENDERS, SimpleNamespace(source=None, written=None)),
        )
        said: list[Message] = []
        calls = iter(CONTENDERS)
        monkeypatch.setattr("groundspeed.measure.survey._seen", lambda *arguments: launched(next(calls)))
        clocks = {name: ["default"] for name in CONTENDERS}
        survey(suite, "cpu", lambda kind, **message: said.append({"kind": kind, **message}), {}, CONTENDERS, 1, clocks)
        return said

    def test_what_a_case_left_in_a_circle_is_gone_before_the_next(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As a compiled model is left with its weights, in a worker that collects nothing by itself."""

        class Circle:
            pass

        def launched(name: str) -> tuple[dict[str, Any], str | None]:
            one = Circle()
            one.itself = one  # type: ignore[attr-defined]
            left.append(weakref.ref(one))
            return {"kernels": [], "binaries": [], "timings": []}, None

        left: list[weakref.ref[Circle]] = []
        monkeypatch.setattr(gc, "freeze", lambda: None)
        gc.disable()
        try:
            self.reports(monkeypatch, launched)
            first = [*left]
            assert any(one() is not None for one in first)
            self.reports(monkeypatch, launched)
        finally:
            gc.enable()
        assert all(one() is None for one in first)

    def test_each_is_announced_before_it_is_called(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def launched(name: str) -> tuple[dict[str, Any], str | None]:
            if name == "fast":
                raise SystemExit("enough")
            return {"kernels": [f"{name}_kernel"], "binaries": ["ab" * 32], "timings": []}, None

        said = self.reports(monkeypatch, launched)
        assert [(m["kind"], m.get("contender")) for m in said] == [
            ("at", "base"),
            ("launched", "base"),
            ("at", "fast"),
            ("fault", "fast"),
            ("at", "slow"),
            ("launched", "slow"),
            ("surveyed", None),
        ]
        assert (said[1]["kernels"], said[1]["binaries"]) == (["base_kernel"], ["ab" * 32])
        assert (said[3]["status"], said[3]["reason"], said[3]["broken"]) == ("ERROR", "SystemExit: enough", False)

    def test_a_broken_device_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def launched(name: str) -> Any:
            raise RuntimeError("CUDA error")

        monkeypatch.setattr("groundspeed.measure.survey.device_is_broken", lambda device: True)
        said = self.reports(monkeypatch, launched)
        assert {m["broken"] for m in said if m["kind"] == "fault"} == {True}

    def test_a_clock_that_breaks_off_costs_the_worker_and_not_what_was_seen(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = {"kernels": ["a_kernel"], "binaries": [], "timings": []}
        broken = {"fast": "graph"}
        said = self.reports(monkeypatch, lambda name: (seen, broken.get(name)))
        about = [m for m in said if m.get("contender") == "fast"]
        assert [m["kind"] for m in about] == ["at", "launched", "fault"]
        assert (about[2]["broken"], about[2]["clock"]) == (True, "graph")

    def test_without_inputs_nobody_is_called(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def inputs(seed: int, device: str) -> Any:
            raise MemoryError("too large")

        (said,) = self.reports(monkeypatch, lambda name: pytest.fail("called"), inputs)
        assert (said["kind"], said["status"]) == ("fault all", "OOM")
        assert said["reason"] == "could not make the inputs: MemoryError: too large"


class TestFiles:
    """Of contenders of `--with`: who is looked at where, and who not at all."""

    @pytest.fixture(autouse=True)
    def nobody_yet(self) -> None:
        self.asked_for: list[str] = []

    def look(self, folder: Path, worker_type: type[SurveyWorker], **changes: Any) -> tuple[LineUp, list[SurveyWorker]]:
        facts = header(CONTENDERS)
        facts["cases"] = [case_facts(SMALL), case_facts(LARGE)]
        workers: list[SurveyWorker] = []

        def spawn(contender: str = "") -> SurveyWorker:
            self.asked_for.append(contender)
            workers.append(worker_type(FakeClock(), noisy(MEANS), no_fault))
            return workers[-1]

        start = {"loader": "none", "with_files": ["fast.py", "slow.py"], "sources": {}}
        files = {"fast": "fast.py", "slow": "slow.py"}
        plan = Plan(protocol(**changes), (SMALL, LARGE), CONTENDERS, 7, start, files=files)
        log = begin(folder, facts)
        line_up = LineUp(plan, log, spawn, ())
        line_up.run()
        log.close()
        return line_up, workers

    def test_in_isolation_each_has_a_worker_with_nobody_elses_file(self, tmp_path: Path) -> None:
        class Heard(SurveyWorker):
            def send(self, message: Message) -> None:
                if "loader" in message:
                    self.files = message["with_files"]
                super().send(message)

        _, workers = self.look(tmp_path, Heard, isolated=True)
        seen = {survey["contenders"][0]: worker for worker in workers for survey in worker.surveys}
        assert all(survey["contenders"] == [name] for name, worker in seen.items() for survey in worker.surveys)
        assert {name: worker.files for name, worker in seen.items()} == {  # type: ignore[attr-defined]
            "base": [],
            "fast": ["fast.py"],
            "slow": ["slow.py"],
        }
        assert tuple(self.asked_for) == CONTENDERS, "each by an interpreter of its own, if it has one"

    @pytest.mark.parametrize("isolated", [False, True])
    def test_who_is_refused_for_his_import_is_not_called(self, tmp_path: Path, isolated: bool) -> None:
        class Tampered(SurveyWorker):
            def send(self, message: Message) -> None:
                super().send(message)
                if "fast.py" in message.get("with_files", ()):
                    refused = {"fast.py": {"fast": "its file did it"}}
                    self.outbox[-1]["refused"] = refused  # type: ignore[index]

        line_up, workers = self.look(tmp_path, Tampered, isolated=isolated)
        assert line_up.refused == {(case.name, "fast"): ("INCORRECT", "its file did it") for case in (SMALL, LARGE)}
        assert {name for worker in workers for survey in worker.surveys for name in survey["contenders"]} == {
            "base",
            "slow",
        }
        assert all(worker.closed for worker in workers)


class Event(NamedTuple):
    """As PyTorch's profiler hands them out."""

    called: str
    length_ns: int

    def name(self) -> str:
        return self.called

    def duration_ns(self) -> int:
        return self.length_ns


def test_b4_what_the_device_did_is_added_up_by_name() -> None:
    """Kernels first, then what moves without one, each in the order of its first."""
    events = [Event("Memset (Device)", 900), Event("b", 2000), Event("a", 1500), Event("b", 2500)]
    assert spent(events) == {
        "kernels": ["b", "a"],
        "moves": ["Memset (Device)"],
        "times": [2, 1, 1],
        "seconds": [4.5e-6, 1.5e-6, 9e-7],
    }
    assert spent([]) == {"kernels": [], "moves": [], "times": [], "seconds": []}
