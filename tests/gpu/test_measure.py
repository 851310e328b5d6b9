"""Measuring on a real GPU: clocks, faults, kernel names, telemetry (statistics.md 2, 6, 16; D3, D8, D9)."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groundspeed.errors import GroundspeedError
from groundspeed.evidence.bundle import Bundle
from groundspeed.judge.judgement import judge
from groundspeed.lab import rebuild, session
from groundspeed.lab.check import verify
from groundspeed.lab.request import Request
from groundspeed.measure import gpu
from groundspeed.measure.cuda import EagerClock, EventClock, GraphClock, make_clock
from groundspeed.measure.environment import ptxas
from groundspeed.measure.survey import survey
from groundspeed.suites import registry

BROKEN = str(Path(__file__).with_name("broken_contenders.py"))
UNCAPTURABLE = str(Path(__file__).with_name("uncapturable_contender.py"))


def seconds(clock: Any, *calls: Callable[[], Any]) -> float:
    """Per call, at the clock's own batch."""
    launches = 1
    for _ in range(5):
        timing = clock.time(calls, 0, launches)
        launches = max(launches, clock.launches_for(timing.seconds / timing.launches))
    timings = [clock.time(calls, 0, launches) for _ in range(20)]
    return statistics.median(timing.seconds / timing.launches for timing in timings)


class TestClocks:
    def test_events_tell_a_microsecond_apart(self) -> None:
        assert 1e-9 <= EventClock(cold=True).tick_s <= 1.1e-6

    @pytest.mark.parametrize("clock", ["warm", "default", "graph", "eager"])
    def test_each_tells_the_time_of_work_of_known_length(self, clock: str) -> None:
        """A kernel that spins for a number of cycles."""
        cycles = 2_000_000
        measured = seconds(make_clock(clock), lambda: torch.cuda._sleep(cycles))
        slowest, fastest = cycles / 1.0e9, cycles / 2.1e9
        assert fastest * 0.98 < measured < slowest

    def test_d8_events_and_graph_agree_on_long_work(self) -> None:
        a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        by_event, by_graph = (seconds(clock, lambda: a @ a) for clock in (EventClock(cold=False), GraphClock()))
        assert math.isclose(by_event, by_graph, rel_tol=0.1)

    def test_a_flushed_cache_is_cold(self) -> None:
        """Reading what fits the L2 is slower where it was flushed."""
        size = torch.cuda.get_device_properties(0).L2_cache_size // 4
        data = torch.ones(size // 4, device="cuda")
        out = torch.empty((), device="cuda")
        cold, warm = (seconds(EventClock(cold=flag), lambda: torch.sum(data, 0, out=out)) for flag in (True, False))
        assert cold > 1.05 * warm

    def test_launching_is_not_part_of_the_devices_time(self) -> None:
        """The host takes 200 µs for a call whose kernel takes a few."""
        import time

        x = torch.ones(1, device="cuda")

        def slow_to_launch() -> None:
            begin = time.perf_counter()
            while time.perf_counter() - begin < 2e-4:
                pass
            x.add_(1)

        assert seconds(EventClock(cold=True), slow_to_launch) < 5e-5
        assert seconds(EagerClock(), slow_to_launch) > 1.9e-4

    def test_every_launch_of_a_batch_finds_the_cache_cold(self) -> None:
        size = torch.cuda.get_device_properties(0).L2_cache_size // 4
        data = torch.ones(size // 4, device="cuda")
        out = torch.empty((), device="cuda")
        clock, calls = EventClock(cold=True), [lambda: torch.sum(data, 0, out=out)]
        per_call = {
            least: statistics.median(t.seconds / t.launches for t in (clock.time(calls, 0, least) for _ in range(40)))
            for least in (1, 4)
        }
        assert math.isclose(per_call[1], per_call[4], rel_tol=0.05)

    @pytest.mark.parametrize("clock", ["default", "warm"])
    def test_a_host_that_stalls_now_and_then_is_in_no_sample(self, clock: str) -> None:
        """3 ms of every tenth launch, of work of some µs."""
        import time

        x, made = torch.ones(1 << 16, device="cuda"), [0]

        def stalls() -> None:
            made[0] += 1
            if made[0] % 10 == 0:
                time.sleep(3e-3)
            x.add_(1)

        timer = make_clock(clock)
        times = [timer.time([stalls], 0, 1).seconds for _ in range(200)]
        assert max(times[20:]) < 1e-3

    @pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
    def test_d6_a_graph_that_captured_nothing_leaves_its_output_as_it_was_spoilt(self) -> None:
        kept = torch.zeros(8, device="cuda")
        clock, calls = GraphClock(), [lambda: kept]
        clock.time(calls, 0, 1).output.fill_(math.nan)
        assert bool(torch.isnan(clock.time(calls, 0, 1).output).all())

    def test_a_graph_ends_with_the_call_that_it_says(self) -> None:
        inputs = [torch.full((4,), float(i), device="cuda") for i in range(3)]
        clock = GraphClock()
        calls = [lambda x=x: x * 2 for x in inputs]
        for least in (1, 2, 3, 5, 8):
            timing = clock.time(calls, 0, least)
            assert least <= timing.launches < 2 * least
            assert timing.output[0].item() == 2 * timing.used[-1]


def run_with(file: str, out: Path, **asked: Any) -> Bundle:
    """Two cases in two processes, with the contenders of a file."""
    shape: dict[str, Any] = {"shape": ("B=2,H=4,S=256,D=64",), "dtype": ("bf16",), "timeout_s": 4.0, "processes": 2}
    return session.run(Request("attention", "quick", with_files=(file,), out=out, **shape, **asked))


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """One run with every fault in it."""
    return run_with(BROKEN, tmp_path_factory.mktemp("runs"), clock=("default",), only=("sdpa-flash",))


class TestFaults:
    @pytest.mark.parametrize(
        ("name", "status", "reason"),
        [
            ("sticky", "ERROR", "assert"),
            ("hungry", "OOM", "out of memory"),
            ("hanging", "TIMEOUT", "no answer within 4 s"),
            ("wrong", "INCORRECT", "tolerance"),
            ("on-another-device", "INCORRECT", "cpu"),
        ],
    )
    def test_each_costs_its_contender_the_case_it_fails_on(
        self, broken: Bundle, name: str, status: str, reason: str
    ) -> None:
        first = [o for o in broken.record.outcomes if o.contender == name and o.process == 0]
        assert {o.status for o in first} == {status}
        assert all(reason in str(o.reason).lower() for o in first)

    @pytest.mark.parametrize("name", ["sdpa-cudnn", "sdpa-flash", "honest"])
    def test_and_nobody_else_anything(self, broken: Bundle, name: str) -> None:
        outcomes = [o for o in broken.record.outcomes if o.contender == name]
        assert len(outcomes) == 4
        assert {o.status for o in outcomes} == {"PASSED"}

    def test_the_bundle_verifies(self, broken: Bundle) -> None:
        assert broken.record.complete
        verify(broken.path)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """One run by the graph clock with a contender that cannot be captured."""
    only = ("sdpa-flash", "ours-portable")
    return run_with(UNCAPTURABLE, tmp_path_factory.mktemp("runs"), clock=("graph",), only=only)


class TestCapture:
    def test_what_cannot_be_captured_says_so(self, captured: Bundle) -> None:
        outcomes = [o for o in captured.record.outcomes if o.contender == "waiting" and o.process == 0]
        assert {o.status for o in outcomes} == {"ERROR"}
        assert all("captur" in str(o.reason) for o in outcomes)

    @pytest.mark.parametrize("name", ["sdpa-cudnn", "sdpa-flash", "ours-portable"])
    def test_and_costs_nobody_else_anything(self, captured: Bundle, name: str) -> None:
        outcomes = [o for o in captured.record.outcomes if o.contender == name]
        assert len(outcomes) == 4
        assert {o.status for o in outcomes} == {"PASSED"}


class TestRecord:
    def test_d3_samples_have_telemetry(self, broken: Bundle) -> None:
        columns = broken.record.samples
        for name, low, high in (("sm_clock_mhz", 100, 3000), ("temperature_c", 5, 120), ("power_w", 20, 1500)):
            known = columns[name][~np.isnan(columns[name])]
            assert len(known) > 0.9 * len(columns[name])
            assert ((known > low) & (known < high)).all()
        assert (columns["throttle"] >= 0).mean() > 0.9

    def test_d9_the_kernels_that_ran_are_named(self, broken: Bundle) -> None:
        kernels = {launched.contender: " ".join(launched.kernels) for launched in broken.record.launched}
        assert "cudnn" in kernels["sdpa-cudnn"]
        assert "flash" in kernels["sdpa-flash"]

    def test_device_memory_is_told(self, broken: Bundle) -> None:
        output = 2 * 4 * 256 * 64 * 2
        for outcome in broken.record.outcomes:
            if outcome.status == "PASSED":
                assert outcome.device_extra_bytes is not None
                assert output <= outcome.device_extra_bytes < 64 * output
                assert outcome.device_peak_bytes is not None

    def test_the_environment_says_what_it_ran_on(self, broken: Bundle) -> None:
        environment = broken.record.environment
        assert environment["gpu"]["name"] == torch.cuda.get_device_name(0)
        assert environment["worker"]["multiprocessors"] > 0
        assert environment["worker"]["l2_bytes"] > 0

    def test_no_speed_beats_the_device(self, broken: Bundle) -> None:
        judgement = judge(broken.record)
        assert not [r for case in judgement.cases for r in case.results if r.status == "INVALID"]


def launched_by(shape: str, *names: str) -> list[dict[str, Any]]:
    reports: list[tuple[str, dict[str, Any]]] = []
    suite = registry.load("attention")
    case = suite.module.shape_cases(shape, ("bf16",))[0]
    clocks = {name: ["default", "graph"] for name in names}
    survey(suite, "cuda", lambda kind, **m: reports.append((kind, m)), dict(case.params), names, 1, clocks)
    assert [message for kind, message in reports if kind.startswith("fault")] == []
    return [message for kind, message in reports if kind == "launched"]


@pytest.mark.filterwarnings("default")  # a worker of the line-up does not mind them
def test_d3_the_machine_code_of_a_triton_kernel_is_hashed() -> None:
    names = ("ours-portable", "sdpa-flash")
    launched = [*launched_by("S=256,causal=1", *names), *launched_by("S=256,causal=1", *names)]  # now, and again
    ours = [m for m in launched if m["contender"] == "ours-portable"]
    assert ours[0]["kernels"] == ["attention_forward_kernel"]
    assert (ours[0]["moves"], ours[0]["times"]) == ([], [1])
    assert 1e-7 < ours[0]["seconds"][0] < 1e-3
    assert len(ours[0]["binaries"]) == 1
    assert ours[0]["binaries"] == ours[1]["binaries"]
    assert all(not m["binaries"] for m in launched if m["contender"] == "sdpa-flash")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("shape", ["S=256,causal=1", "B=2,H=4,S=1024,D=128,causal=0", "S=333,D=72,causal=1"])
def test_d4_the_machine_code_made_without_a_gpu_is_that_of_the_gpu(shape: str) -> None:
    """So that a bundle can be held to the kernels of today where no GPU is."""
    (launched,) = launched_by(shape, "ours-portable")
    (case,) = registry.load("attention").module.shape_cases(shape, ("bf16",))
    of = torch.cuda.get_device_capability()
    made = rebuild.compiled("attention", "ours-portable", of, [dict(case.params)], version("triton"), ptxas(of))
    assert made == [launched["binaries"]]


@pytest.mark.filterwarnings("default")
def test_d3_the_machine_code_of_flex_attention_is_hashed_once_and_again() -> None:
    """Compiled in another process or found in the cache, it is launched past Triton's hooks."""
    first, again = (launched_by("S=512,causal=1", "flex")[0] for _ in range(2))
    assert first["binaries"]
    assert first["binaries"] == again["binaries"]


@pytest.mark.filterwarnings("default")
def test_flex_attention_is_fused() -> None:
    flex = registry.load("attention").contenders["flex"]
    for shape in ("S=512,causal=0", "S=512,causal=1"):
        (launched,) = launched_by(shape, "flex")
        assert flex.launches(launched["kernels"]) is None


def test_the_gpu_of_nvml_is_that_of_pytorch() -> None:
    uuid = gpu.visible_uuid()
    assert uuid is not None
    assert str(torch.cuda.get_device_properties(0).uuid) in uuid


def test_two_runs_do_not_share_the_gpu(tmp_path: Path) -> None:
    uuid = gpu.visible_uuid()
    assert uuid is not None
    request = Request("attention", "quick", shape=("S=64",), dtype=("bf16",), out=tmp_path)
    with gpu.only_run_on(uuid), pytest.raises(GroundspeedError, match="another groundspeed"):
        session.run(request)
    assert list(tmp_path.iterdir()) == []


def test_this_process_is_seen_on_the_gpu() -> None:
    """By another one, which itself is no neighbour; where the system lets NVML see processes at all."""
    held = torch.ones(1 << 28, device="cuda", dtype=torch.uint8)
    uuid = gpu.visible_uuid()
    assert uuid is not None
    asked = f"from groundspeed.measure import gpu; print(gpu.Gpu({uuid!r}).other_users())"
    users = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    del held
    if users.strip() == "[]":
        pytest.skip("NVML shows no processes here")
    assert Path(f"/proc/{os.getpid()}/comm").read_text().strip() in users
