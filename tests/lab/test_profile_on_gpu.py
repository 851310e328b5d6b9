"""A8: `groundspeed profile` on a GPU of which nothing is real, neither workers nor Nsight Compute."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gpu_lab import Lab

from fakes import FakeClock, FakeWorker, no_fault, noisy
from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence.profile_bundle import ProfileBundle
from groundspeed.lab import profile
from groundspeed.lab.request import Request
from groundspeed.measure import ncu
from groundspeed.measure.channel import Died, Message, Silence
from groundspeed.measure.traced import events_of
from profiles import cuda_trace, fake_ncu, ncu_csv

COUNTS = "report.write_bytes(b'a report')"


class Workshop:
    """The GPU of `gpu_lab`, with workers that answer to a trace."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lab = Lab(folder, monkeypatch)
        self.folder, self.fault = folder, no_fault
        self.kernels = {"sdpa-cudnn": "cudnn_sm90_sdpa", "sdpa-flash": "pytorch_FLASH_fwd", "mine": "mine"}
        self.answers: dict[str, Message | Exception] = {}
        self.started: list[Message] = []
        self.workers: list[FakeWorker] = []
        monkeypatch.setattr(profile, "visible_uuid", lambda: self.lab.uuid)
        monkeypatch.setattr(profile, "ProcessWorker", self.spawn)
        monkeypatch.setattr("shutil.which", lambda name, path=None: None)

    def spawn(self, command: list[str], threads: int, gpu: str | None) -> FakeWorker:
        shop = self

        class Worker(FakeWorker):
            def send(self, message: Message) -> None:
                shop.lab.look_at_the_lock()
                if "loader" in message:
                    shop.started.append(message)
                super().send(message)
                if "trace" in message:
                    name = message["trace"]["contender"]
                    self.outbox.append(shop.answers.get(name) or shop.traced(name))

        self.workers.append(Worker(FakeClock(), noisy(dict.fromkeys(self.kernels, 1e-3)), self.fault))
        return self.workers[-1]

    def traced(self, name: str) -> Message:
        calls, events = events_of(cuda_trace(6, [("kernel", self.kernels[name], 20.0, 200.0, 7)]), on_gpu=True)
        return {"kind": "traced", "contender": name, "calls": calls, "events": events, "left_out": 0}

    def run(self, named: Path | None = None, **options: Any) -> ProfileBundle:
        asked: Mapping[str, Any] = {"only": ("sdpa-cudnn", "sdpa-flash"), "with_files": (str(self.lab.file),)}
        request = Request("attention", "quick", case=("claim-full-bf16",), out=self.folder / "profiles", **asked)
        return profile.run(request, named, **options)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch)


def test_every_contender_has_a_fresh_process_and_only_its_own_file(shop: Workshop) -> None:
    found, picture, _ = profile.verify(shop.run().path)
    assert [look.contender for look in picture.looks] == ["sdpa-flash", "sdpa-cudnn", "mine"]
    assert {look.seen.status for look in picture.looks} == {"PASSED"}
    assert [len(start["with_files"]) for start in shop.started] == [0, 0, 1]
    assert all(worker.closed for worker in shop.workers)
    assert not shop.lab.was_free, "a GPU is one's alone"
    assert found.profile.environment["worker"] == {"torch": "0"}
    assert len(found.profile.calls) == 15
    assert picture.looks[2].span_s == pytest.approx(200e-6)


def test_without_nsight_compute_it_says_so_and_how_to_get_it(shop: Workshop) -> None:
    facts = shop.run().profile
    assert {seen.no_counters for seen in facts.seen} == {ncu.NOT_HERE}
    assert (facts.counters_by, facts.counted) == (None, ())


def test_nobody_asks_it_who_was_told_not_to(shop: Workshop) -> None:
    program = fake_ncu(shop.folder / "bin", COUNTS, ncu_csv({}))
    assert {seen.no_counters for seen in shop.run(program, no_ncu=True).profile.seen} == {ncu.NOT_ASKED}
    assert not (shop.folder / "bin" / "asked.jsonl").exists()


def test_counters_are_in_the_bundle_and_reports_beside_it_on_request(shop: Workshop) -> None:
    program = fake_ncu(shop.folder / "bin", COUNTS, ncu_csv({}))
    plain = shop.run(program)
    assert plain.profile.counters_by == "Nsight Compute 2025.3.1.0"
    assert {one.contender for one in plain.profile.counted} == {"sdpa-flash", "sdpa-cudnn", "mine"}
    assert {seen.report_sha256 for seen in plain.profile.seen} == {hashlib.sha256(b"a report").hexdigest()}
    assert list(plain.path.parent.glob("*.ncu-rep")) == []
    assert b"secret-host" not in (plain.path / "facts.json").read_bytes()
    kept = shop.run(program, keep_reports=True)
    assert len(list(kept.path.parent.glob(f"{kept.path.name}.*.ncu-rep"))) == 3
    assert profile.verify(kept.path)[2] == 3


def test_where_counters_may_not_be_read_there_is_still_a_timeline(shop: Workshop) -> None:
    program = fake_ncu(shop.folder / "bin", "print('==ERROR== ERR_NVGPUCTRPERM - no'); sys.exit(1)")
    _, picture, _ = profile.verify(shop.run(program).path)
    assert {look.seen.no_counters for look in picture.looks} == {ncu.REASONS["ERR_NVGPUCTRPERM"]}
    assert all(look.tops and not look.readings for look in picture.looks)


def test_a_wrong_kernel_is_not_profiled(shop: Workshop) -> None:
    wrong = {"status": "INCORRECT", "reason": "max_abs error 1", "broken": False}
    shop.fault = lambda name, case, block: wrong if name == "mine" else None
    program = fake_ncu(shop.folder / "bin", COUNTS, ncu_csv({}))
    facts = shop.run(program).profile
    seen = facts.seen[2]
    assert (seen.contender, seen.status, seen.reason) == ("mine", "INCORRECT", "max_abs error 1")
    assert "mine" not in {one.contender for one in (*facts.events, *facts.counted, *facts.calls)}
    assert len((shop.folder / "bin" / "asked.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (Died("the process was killed by SIGSEGV"), "ERROR", "SIGSEGV"),
        (Died("no more", out_of_memory=True), "OOM", "no more"),
        (Silence(), "TIMEOUT", "no answer within 300 s"),
        (
            {"kind": "fault", "status": "INCORRECT", "reason": "late", "errors": {}, "broken": False},
            "INCORRECT",
            "late",
        ),
    ],
)
def test_who_fails_under_the_profiler_is_told_and_the_others_go_on(
    shop: Workshop, answer: Message | Exception, status: str, reason: str
) -> None:
    shop.answers["sdpa-cudnn"] = answer
    facts = shop.run().profile
    assert [seen.status for seen in facts.seen] == ["PASSED", status, "PASSED"]
    assert reason in str(facts.seen[1].reason)


def test_who_launches_other_kernels_than_its_name_says_is_told(shop: Workshop) -> None:
    shop.kernels["sdpa-cudnn"] = "pytorch_FLASH_fwd"
    facts = shop.run().profile
    assert facts.seen[1].status == "ERROR"
    assert "cudnn" in str(facts.seen[1].reason)
    profile.verify(shop.run().path)


def test_a_profile_is_of_one_case(shop: Workshop) -> None:
    for case, said in (("claim", "means 4"), ("claim-full-bf16@graph", "leave out the @ and what follows it")):
        with pytest.raises(BadInput, match=said):
            profile.run(Request("attention", "quick", case=(case,), out=shop.folder))


def test_nobody_who_can_run_is_an_error_with_the_reason(shop: Workshop) -> None:
    request = Request("attention", "quick", case=("claim-full-bf16",), only=("cutlass",), out=shop.folder)
    with pytest.raises(GroundspeedError, match="no requested contender can run here"):
        profile.run(request)
