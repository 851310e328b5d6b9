"""Going on with a run on a GPU, and the lock that keeps two runs off it."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_lab import FIRST, MEANS, OTHER, TESLA, Lab

from fakes import Died, FakeClock, SurveyWorker, no_fault, noisy
from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import store
from groundspeed.evidence.bundle import Bundle
from groundspeed.judge.judgement import judge
from groundspeed.lab import session
from groundspeed.lab.check import verify
from groundspeed.measure.channel import Message
from groundspeed.measure.gpu import identity_of, only_run_on


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


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
        assert all(worker.closed for worker in lab.workers)
        assert [worker.started for worker in lab.workers].count(True) == 1

    def test_a_line_up_that_cannot_start_keeps_the_journal(self, lab: Lab) -> None:
        class Dead(SurveyWorker):
            def send(self, message: Message) -> None:
                raise Died("the process exited with code 1")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "ProcessWorker", lambda *arguments: Dead(FakeClock(), noisy(MEANS), no_fault))
            with pytest.raises(GroundspeedError, match=r"did not start: .* code 1; .*--resume"):
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
        with pytest.raises(BadInput, match=r"the GPU changed since this run began .*NVIDIA H200, now"):
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
