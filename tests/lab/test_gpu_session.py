"""A run on a GPU from declaration to bundle: line-up, telemetry, lock, resume; GPU and workers are scripted
(statistics.md 6, 16; D3, D9)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gpu_lab import CLOCKS, FIRST, KERNELS, LONG, MEANS, SHORT, Lab, everywhere, passed

from fakes import Died, Silence
from groundspeed.evidence.samples import TIMED, WARMUP
from groundspeed.judge.judgement import judge
from groundspeed.lab.check import verify
from groundspeed.measure import ahead
from groundspeed.measure.gpu import identity_of
from groundspeed.measure.lineup import LINE_UP


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(ahead, "usable_cores", lambda: 2)  # whatever this machine has
    return Lab(tmp_path, monkeypatch)


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
        assert [progress.text for progress in lab.told if progress.stage == LINE_UP] == [
            "starting the processes",
            *(f"{one.case}, {one.contender}" for one in record.launched),
        ]

    def test_with_many_cores_it_compiles_ahead(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ahead, "usable_cores", lambda: 16)
        record = verify(lab.run(("S=16,causal=0", "B=16,H=16,D=128,causal=0")).path)[0].record
        assert next(progress.text for progress in lab.told) == "compiling ahead in 2 processes"
        assert len(record.launched) == 6
        assert len(lab.started) == 6, "two, one for the line-up and one for each process"
        assert all(worker.closed for worker in lab.workers)
        assert [message["with_files"] for message, _ in lab.started][:2] == [[], []]
        assert all(message["with_files"] for message, _ in lab.started[2:])

    def test_the_worker_of_the_line_up_measures_nothing(self, lab: Lab) -> None:
        """The profiler was on in it."""
        lab.run()
        (surveyed,) = (worker for worker in lab.workers if worker.surveys)
        assert surveyed.time == 0.0

    def test_workers_come_early_and_each_has_its_turn(self, lab: Lab) -> None:
        record = verify(lab.run().path)[0].record
        assert len(lab.workers) == len(lab.started) == record.protocol.processes + 1, "and one for the line-up"
        assert {c.name for c in record.measured} == {"sdpa-cudnn", "sdpa-flash", "mine"}
        assert [sorted(message["early"]["contenders"]) for message in lab.early] == [["sdpa-cudnn", "sdpa-flash"]] * 3
        assert {message["early"]["capability"] for message in lab.early} == {"9.0"}

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
            "no kernel that it launched has 'flash' in its name; it launched fmha_cutlassF_f16, cudnn_sm90"
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
