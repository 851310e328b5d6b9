"""A run on a GPU from declaration to bundle: line-up, telemetry, lock, resume; GPU and workers are scripted
(statistics.md 6, 16; D3, D9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fakes import Died, FakeClock, Silence, SurveyWorker, no_fault, noisy
from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import store
from groundspeed.evidence.bundle import Bundle
from groundspeed.evidence.record import Outcome
from groundspeed.evidence.samples import TIMED, WARMUP
from groundspeed.judge.judgement import judge
from groundspeed.lab import declare, session
from groundspeed.lab.check import verify
from groundspeed.lab.request import Request
from groundspeed.measure import environment
from groundspeed.measure.channel import Message
from groundspeed.measure.gpu import identity_of, only_run_on
from groundspeed.measure.runner import Progress

FIRST, OTHER, TESLA = "GPU-aaaa", "GPU-bbbb", "GPU-cccc"
NAMES = {FIRST: "NVIDIA H200", OTHER: "NVIDIA H200", TESLA: "Tesla T4"}
BEGAN = 5000.0
"""When a worker began, on the clock that it shares with the readings."""

MEANS = {"sdpa-cudnn": 1e-3, "sdpa-flash": 2e-3, "mine": 3e-3}
KERNELS = {"sdpa-cudnn": ["cudnn_sm90_sdpa"], "sdpa-flash": ["pytorch_FLASH_fwd"], "mine": ["mine_a", "mine_b"]}
MINE = "import groundspeed as gs\n\n@gs.contender('attention')\ndef mine(q, k, v, *, causal, scale): ...\n"
SHORT, LONG = "b1-h8-s16-d64-full-bf16", "b16-h16-s1024-d128-full-bf16"
CLOCKS = [SHORT, f"{SHORT}@graph", f"{SHORT}@eager"]


class FakeGpu:
    """Tells of every sample when it began and how long it took, so that one can see whose reading it got."""

    def __init__(self, lab: Lab, uuid: str) -> None:
        self.lab, self.uuid, self.state = lab, uuid, "new"
        self.identity = identity_of(uuid)
        lab.gpus.append(self)

    def __enter__(self) -> FakeGpu:
        self.state = "on"
        return self

    def __exit__(self, *exception: object) -> None:
        self.state = "off"

    def other_users(self) -> list[str]:
        assert all(worker.closed for worker in self.lab.workers), "or our own worker would be a stranger"
        return self.lab.users

    def readings(self, start: float, seconds: float) -> list[float | None] | None:
        assert self.state == "on"
        since_start_ms = (start - BEGAN) * 1e3
        return None if since_start_ms < 1.5 else [since_start_ms, None, seconds * 1e6, 4]


class Lab:
    """`session` on a machine with a GPU, of which nothing is real but the lock."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs, self.locks = folder / "runs", folder / "locks"
        self.file = folder / "mine.py"
        self.file.write_text(MINE)
        self.locks.mkdir()
        self.uuid: str | None = FIRST
        self.users: list[str] = []
        self.kernels: Mapping[str, Sequence[str]] = KERNELS
        self.odd: Mapping[int, Mapping[str, Sequence[str]]] = {}
        """By batch size: kernels that are others there."""
        self.fault: Any = no_fault
        self.stop_after: tuple[str, int] | None = None
        """Kind of message, and how many of them until Ctrl-C."""
        self.seen: dict[str, int] = {}
        self.gpus: list[FakeGpu] = []
        self.workers: list[SurveyWorker] = []
        self.started: list[tuple[Message, str | None]] = []
        """The first message of every worker, and its GPU."""
        self.prepared: list[tuple[dict[str, Any], list[str]]] = []
        self.was_free = False
        """Whether another run could have had the GPU while a worker was at work."""
        self.told: list[Progress] = []
        torch = folder / "torch"
        (torch / "lib").mkdir(parents=True)
        (torch / "lib" / "libtorch_cuda.so").touch()
        find_spec = declare.importlib.util.find_spec
        with_cuda = SimpleNamespace(submodule_search_locations=[str(torch)])
        monkeypatch.setattr(
            declare.importlib.util, "find_spec", lambda name: with_cuda if name == "torch" else find_spec(name)
        )
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(self.locks))
        for module in (declare, session):
            monkeypatch.setattr(module, "visible_uuid", lambda: self.uuid)
        monkeypatch.setattr(environment, "gpu_environment", self.gpu_environment)
        monkeypatch.setattr(session, "Gpu", lambda uuid: FakeGpu(self, uuid))
        monkeypatch.setattr(session, "ProcessWorker", self.spawn)

    def gpu_environment(self) -> dict[str, Any] | None:
        return None if self.uuid is None else {"name": NAMES[self.uuid], "id": identity_of(self.uuid)}

    def spawn(self, command: list[str], threads: int, gpu: str | None) -> SurveyWorker:
        lab = self

        class Worker(SurveyWorker):
            def send(self, message: Message) -> None:
                lab.look_at_the_lock()
                if "loader" in message:
                    lab.started.append((message, gpu))
                if "prepare" in message:
                    lab.prepared.append((message["prepare"]["params"], message["prepare"]["contenders"]))
                super().send(message)

            def kernels(self, name: str, params: Mapping[str, Any]) -> list[str]:
                return list(lab.odd.get(params["B"], {}).get(name, lab.kernels[name]))

            def receive(self, timeout_s: float) -> Message:
                message = super().receive(timeout_s)
                kind = message["kind"]
                lab.seen[kind] = lab.seen.get(kind, 0) + 1
                if lab.stop_after and lab.seen.get(lab.stop_after[0], 0) > lab.stop_after[1]:
                    raise KeyboardInterrupt
                return {**message, "began": BEGAN} if kind == "hello" else message

        self.workers.append(Worker(FakeClock(), noisy(MEANS, 0.003), self.fault))
        return self.workers[-1]

    def look_at_the_lock(self) -> None:
        assert self.uuid is not None
        try:
            with only_run_on(self.uuid):
                self.was_free = True
        except GroundspeedError:
            pass

    def run(self, shape: Sequence[str] = ("S=16,causal=0",), **changes: Any) -> Bundle:
        request = Request(
            "attention",
            "quick",
            shape=tuple(shape),
            dtype=("bf16",),
            only=("sdpa-flash",),
            with_files=(str(self.file),),
            processes=3,
            out=self.runs,
            **changes,
        )
        return session.run(request, self.told.append)

    def resume(self, path: Path) -> Bundle:
        """In a process of its own, as it were: with other workers and without an interrupt."""
        self.stop_after, self.workers, self.started, self.prepared = None, [], [], []
        return session.resume(path, self.told.append)

    @property
    def asked(self) -> list[tuple[int, list[str]]]:
        """Batch size and contenders of every survey."""
        return [(s["params"]["B"], s["contenders"]) for worker in self.workers for s in worker.surveys]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


def passed(outcomes: Sequence[Outcome]) -> set[tuple[str, str]]:
    return {(o.case, o.contender) for o in outcomes if o.status == "PASSED"}


def everywhere(*names: str) -> set[tuple[str, str]]:
    return {(case, name) for case in CLOCKS for name in names}


class TestRun:
    def test_it_ends_in_a_bundle_that_verifies_and_leaves_nothing_else(self, lab: Lab) -> None:
        made = lab.run()
        record = verify(made.path)[0].record
        assert record.complete
        assert (record.run.device, record.run.baseline) == ("cuda", "sdpa-cudnn")
        assert [case.name for case in record.cases] == CLOCKS
        assert passed(record.outcomes) == everywhere(*MEANS)
        assert record.environment["gpu"]["name"] == "NVIDIA H200"
        assert judge(record).device_name == "NVIDIA H200"
        assert [path.name for path in lab.runs.iterdir()] == [made.path.name]
        assert [gpu.state for gpu in lab.gpus] == ["off"]
        assert all(worker.closed for worker in lab.workers)

    def test_each_worker_gets_the_gpu_that_is_read_and_no_limit_of_host_memory(self, lab: Lab) -> None:
        lab.run()
        assert len(lab.started) == 4, "one for the line-up and one for each process"
        assert {uuid for _, uuid in lab.started} == {FIRST} == {gpu.uuid for gpu in lab.gpus}
        assert {message["device"] for message, _ in lab.started} == {"cuda"}
        assert {message["memory_limit_bytes"] for message, _ in lab.started} == {0}

    def test_d3_samples_have_the_readings_of_their_own_time(self, lab: Lab) -> None:
        columns = lab.run().record.samples
        start, known = columns["start"] * 1e3, columns["throttle"] >= 0
        assert {WARMUP, TIMED} == set(columns["phase"][known].tolist())
        assert known.tolist() == (start >= 1.5).tolist()
        assert columns["sm_clock_mhz"][known] == pytest.approx(start[known], abs=2e-3)
        assert columns["power_w"][known] == pytest.approx(columns["seconds"][known] * 1e6, rel=1e-5)
        assert np.isnan(columns["temperature_c"]).all(), "what the device does not tell is not a number"
        assert set(columns["throttle"].tolist()) == {-1, 4}
        assert np.isnan(columns["sm_clock_mhz"][~known]).all()

    def test_d3_readings_survive_the_bundle(self, lab: Lab) -> None:
        made = lab.run()
        read = verify(made.path)[0].record.samples
        for name in ("sm_clock_mhz", "temperature_c", "power_w", "throttle"):
            assert np.array_equal(read[name], made.record.samples[name], equal_nan=name != "throttle")

    def test_each_process_says_which_gpu_it_had_and_who_else_was_there(self, lab: Lab) -> None:
        lab.users = ["ollama, 512 MiB"]
        record = lab.run().record
        assert {p.gpu for p in record.processes} == {identity_of(FIRST)}
        assert {p.gpu_users for p in record.processes} == {("ollama, 512 MiB",)}
        assert FIRST not in repr(record), "a UUID is not published"
        codes = {warning.code for warning in judge(record).warnings}
        assert "neighbours" in codes
        assert "several-gpus" not in codes

    def test_d9_the_kernels_are_in_the_record_once_a_shape(self, lab: Lab) -> None:
        record = verify(lab.run(("S=16,causal=0", "B=16,H=16,D=128,causal=0")).path)[0].record
        assert {(one.case, one.contender): list(one.kernels) for one in record.launched} == {
            (case, name): kernels for case in (SHORT, LONG) for name, kernels in KERNELS.items()
        }
        assert len(record.launched) == 6
        assert [progress.text for progress in lab.told if progress.line_up] == [
            f"{one.case}, {one.contender}" for one in record.launched
        ]

    def test_the_worker_of_the_line_up_measures_nothing(self, lab: Lab) -> None:
        """The profiler was on in it."""
        lab.run()
        first, *rest = lab.workers
        assert first.surveys
        assert first.time == 0.0
        assert not any(worker.surveys for worker in rest)

    def test_on_a_cpu_nobody_is_lined_up(self, lab: Lab) -> None:
        made = lab.run(device="cpu", baseline="sdpa-flash")
        assert verify(made.path)[0].record.launched == ()
        assert (lab.gpus, lab.asked) == ([], [])
        assert lab.was_free
        assert {uuid for _, uuid in lab.started} == {None}
        assert (made.record.samples["throttle"] == -1).all()
        assert {p.gpu for p in made.record.processes} == {None}


class TestStrangers:
    """A contender that launches the kernels of another is not what it is called (D9)."""

    def test_one_is_an_error_by_all_clocks_and_nobody_else_is(self, lab: Lab) -> None:
        lab.odd = {1: {"sdpa-flash": ["fmha_cutlassF_f16", "cudnn_sm90"]}}
        record = verify(lab.run().path)[0].record
        assert record.complete
        stranger = [o for o in record.outcomes if o.contender == "sdpa-flash"]
        assert sorted((o.process, o.case) for o in stranger) == sorted((p, case) for p in range(3) for case in CLOCKS)
        assert {(o.status, o.block, o.lost_worker) for o in stranger} == {("ERROR", None, False)}
        assert {o.reason for o in stranger} == {
            "none of the kernels it launched has 'flash' in its name, but: fmha_cutlassF_f16, cudnn_sm90"
        }
        assert passed(record.outcomes) == everywhere("sdpa-cudnn", "mine")
        assert not any("sdpa-flash" in contenders for _, contenders in lab.prepared), "it was not even tried"
        assert [p.workers for p in record.processes] == [1, 1, 1]
        names = [contender.name for contender in record.contenders]
        assert names.index("sdpa-flash") not in record.samples["contender"]

    def test_on_another_shape_it_may_be_itself(self, lab: Lab) -> None:
        lab.odd = {1: {"sdpa-flash": ["fmha_cutlassF_f16"]}}
        record = lab.run(("S=16,causal=0", "B=16,H=16,D=128,causal=0")).record
        statuses = {(o.case, o.status) for o in record.outcomes if o.contender == "sdpa-flash"}
        assert statuses == {*((case, "ERROR") for case in CLOCKS), (LONG, "PASSED")}

    def test_where_the_profiler_saw_nothing_it_is_unknown_and_not_wrong(self, lab: Lab) -> None:
        lab.odd = {1: {"sdpa-flash": []}}
        record = lab.run().record
        assert {o.status for o in record.outcomes} == {"PASSED"}

    def test_a_stranger_as_baseline_leaves_no_pair(self, lab: Lab) -> None:
        lab.odd = {1: {"sdpa-cudnn": ["flash_fwd"]}}
        judgement = judge(verify(lab.run().path)[0].record)
        assert {result.comparison for case in judgement.cases for result in case.results} == {None}

    def test_it_stays_one_when_the_run_goes_on(self, lab: Lab) -> None:
        lab.odd = {1: {"sdpa-flash": ["fmha_cutlassF_f16"]}}
        lab.stop_after = "sample", 80
        left = lab.run()
        assert left.record.finished_attempts == {0: 0}
        made = lab.resume(left.path)
        assert lab.asked == []
        record = verify(made.path)[0].record
        assert record.complete
        assert {o.status for o in record.outcomes if o.contender == "sdpa-flash"} == {"ERROR"}

    @pytest.mark.parametrize(
        ("how", "status"), [(Silence(), "TIMEOUT"), (Died("killed by SIGSEGV"), "ERROR")], ids=["hangs", "dies"]
    )
    def test_one_that_was_lost_in_the_line_up_is_not_measured(self, lab: Lab, how: Exception, status: str) -> None:
        lab.fault = lambda name, case, block: how if (name, block) == ("mine", None) else None
        record = verify(lab.run().path)[0].record
        assert {(o.case, o.status) for o in record.outcomes if o.contender == "mine"} == {(c, status) for c in CLOCKS}
        assert passed(record.outcomes) == everywhere("sdpa-cudnn", "sdpa-flash")
        assert not any("mine" in contenders for _, contenders in lab.prepared)
        assert [p.workers for p in record.processes] == [1, 1, 1]


class TestResume:
    def interrupted(self, lab: Lab) -> Bundle:
        lab.stop_after = "sample", 110
        left = lab.run()
        assert left.record.finished_attempts == {0: 0}
        verify(left.path)
        assert [gpu.state for gpu in lab.gpus] == ["off"]
        assert all(worker.closed for worker in lab.workers)
        return left

    def test_what_is_known_is_not_surveyed_again(self, lab: Lab) -> None:
        left = self.interrupted(lab)
        made = lab.resume(left.path)
        assert verify(made.path)[0].record.complete
        assert lab.asked == []
        assert len(lab.started) == 2, "one worker for each process that was missing, none for the line-up"
        assert made.record.launched == left.record.launched
        assert len(made.record.launched) == 3

    def test_ctrl_c_in_the_line_up_leaves_a_bundle_and_the_rest_of_it_to_do(self, lab: Lab) -> None:
        lab.stop_after = "launched", 2
        left = lab.run()
        assert (left.record.processes, len(left.record.launched)) == ((), 2)
        assert all(worker.closed for worker in lab.workers)
        missing = set(MEANS) - {one.contender for one in left.record.launched}
        made = lab.resume(left.path)
        assert lab.asked == [(1, list(missing))]
        assert verify(made.path)[0].record.complete
        assert {one.contender for one in made.record.launched} == set(MEANS)

    def test_ctrl_c_while_the_worker_of_the_line_up_starts_leaves_none_behind(self, lab: Lab) -> None:
        lab.stop_after = "hello", 0
        lab.run()
        assert [worker.closed for worker in lab.workers] == [True]

    def test_a_line_up_that_cannot_start_keeps_the_journal(self, lab: Lab) -> None:
        class Dead(SurveyWorker):
            def send(self, message: Message) -> None:
                raise Died("the process ended itself with exit code 1")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "ProcessWorker", lambda *arguments: Dead(FakeClock(), noisy(MEANS), no_fault))
            with pytest.raises(GroundspeedError, match=r"did not start: .* exit code 1; .*--resume"):
                lab.run()
        (partial,) = lab.runs.iterdir()
        assert partial.name.endswith(store.PARTIAL)
        assert [gpu.state for gpu in lab.gpus] == ["off"]
        assert verify(lab.resume(partial).path)[0].record.complete

    def test_another_gpu_of_the_same_name_is_allowed_and_warned_of(self, lab: Lab) -> None:
        left = self.interrupted(lab)
        lab.uuid = OTHER
        made = lab.resume(left.path)
        record = verify(made.path)[0].record
        assert {p.process: p.gpu for p in record.processes if p.finished is not None} == {
            0: identity_of(FIRST),
            1: identity_of(OTHER),
            2: identity_of(OTHER),
        }
        assert {uuid for _, uuid in lab.started} == {OTHER}
        (warning,) = (w for w in judge(record).warnings if w.code == "several-gpus")
        assert "2 GPUs" in warning.message

    def test_on_the_same_gpu_there_is_nothing_to_warn_of(self, lab: Lab) -> None:
        made = lab.resume(self.interrupted(lab).path)
        assert "several-gpus" not in {w.code for w in judge(made.record).warnings}

    @pytest.mark.parametrize("uuid", [TESLA, None], ids=["of another name", "none"])
    def test_another_gpu_is_refused(self, lab: Lab, uuid: str | None) -> None:
        left = self.interrupted(lab)
        lab.uuid = uuid
        with pytest.raises(BadInput, match=r"began with another GPU .*NVIDIA H200, here"):
            lab.resume(left.path)
        assert lab.started == []


class TestLock:
    def test_it_is_held_while_workers_are_at_work_and_released_after(self, lab: Lab) -> None:
        lab.run()
        assert len(lab.workers) == 4
        assert not lab.was_free
        assert list(lab.locks.iterdir())
        with only_run_on(FIRST):
            pass

    def test_it_is_held_by_a_run_that_goes_on_and_released_by_one_that_stops(self, lab: Lab) -> None:
        lab.stop_after = "sample", 110
        left = lab.run()
        with only_run_on(FIRST):
            pass
        lab.resume(left.path)
        assert not lab.was_free
        with only_run_on(FIRST):
            pass

    def test_a_second_run_is_refused_and_leaves_nothing(self, lab: Lab) -> None:
        with only_run_on(FIRST), pytest.raises(GroundspeedError, match="another groundspeed"):
            lab.run()
        assert not lab.runs.exists()
        assert lab.workers == []

    def test_another_gpu_is_free(self, lab: Lab) -> None:
        with only_run_on(OTHER):
            assert lab.run().record.complete

    def test_a_run_does_not_go_on_beside_another(self, lab: Lab) -> None:
        lab.stop_after = "sample", 110
        left = lab.run()
        with only_run_on(FIRST), pytest.raises(GroundspeedError, match="another groundspeed"):
            lab.resume(left.path)
        assert lab.started == []
        assert lab.resume(left.path).record.complete

    def test_it_is_released_after_a_failure(self, lab: Lab) -> None:
        lab.fault = lambda name, case, block: 1 / 0
        with pytest.raises(ZeroDivisionError):
            lab.run()
        with only_run_on(FIRST):
            pass
        assert [gpu.state for gpu in lab.gpus] == ["off"]
