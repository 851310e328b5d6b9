"""What makes a claim of the laboratory hold, on a real GPU: two timers, long sums, processes of one's own, and finding
a delay that was planted (D4, D6, D7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groundspeed.evidence.bundle import Bundle
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.observed import Observed
from groundspeed.lab import session
from groundspeed.lab.check import verify
from groundspeed.lab.request import Request
from groundspeed.measure import gpu
from groundspeed.measure.channel import ProcessWorker, worker_command
from groundspeed.measure.spares import Spares, early
from groundspeed.suites import registry

ITSELF = str(Path(__file__).parents[2] / "examples" / "itself.py")


def run(folder: Path, **asked: Any) -> Bundle:
    usual: dict[str, Any] = {"shape": ("B=4,H=16,S=2048,D=128,causal=0",), "dtype": ("bf16",), "clock": ("default",)}
    return session.run(Request("attention", "quick", out=folder, **{**usual, "processes": 2, **asked}))


def judged(made: Bundle) -> Judgement:
    return verify(made.path)[1].judgement


def statuses(made: Bundle) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for outcome in made.record.outcomes:
        found.setdefault(outcome.contender, set()).add(f"{outcome.status} {outcome.reason or ''}".strip())
    return found


@pytest.fixture(scope="module")
def both_clocks(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    only = ("sdpa-flash", "sdpa-cudnn", "ours-portable")
    return run(tmp_path_factory.mktemp("runs"), clock=("default", "graph"), only=only)


def test_two_timers_watched_the_same_calls(both_clocks: Bundle) -> None:
    for launched in both_clocks.record.launched:
        by_clock = {clock: [t for t in launched.timings if t.clock == clock] for clock in ("default", "graph")}
        assert [len(timings) for timings in by_clock.values()] == [5, 5], launched.contender
        for timing in launched.timings:
            assert 0.97 < timing.seconds / timing.kernels_s < 1.1, (launched.contender, timing)


def test_they_agree(both_clocks: Bundle) -> None:
    judgement = judged(both_clocks)
    assert all(0 <= t.overhead_s < 1e-5 for seen in both_clocks.record.launched for t in seen.timings)
    for case in judgement.cases:
        for result in case.results:
            if result.comparison:
                assert result.comparison.timers is not None
                assert abs(result.comparison.timers.apart) < 0.01
    assert {"timers", "unwatched"}.isdisjoint(warning.code for warning in judgement.warnings)


def test_no_sample_is_near_the_limit_at_the_clock_that_was_seen(both_clocks: Bundle) -> None:
    judgement, columns = judged(both_clocks), both_clocks.record.samples
    observed = Observed(judgement.record, judgement.peaks)
    assert np.isfinite(observed.clocks).mean() > 0.9
    for number, case in enumerate(judgement.cases):
        mine = observed.timed & (columns["case"] == number) & np.isfinite(observed.clocks)
        seconds = columns["seconds"][mine] / columns["launches"][mine]
        for clock in np.unique(observed.clocks[mine]).tolist():
            limit = observed.limit_at(case.facts, clock)
            assert limit is not None
            assert seconds[observed.clocks[mine] == clock].min() > 1.05 * limit.seconds


EVERYBODY = (
    "sdpa-math",
    "sdpa-flash",
    "sdpa-mem-efficient",
    "naive",
    "naive-compiled",
    "flex",
    "xformers",
    "flash-attn-4",
)


def test_everybody_adds_up_in_fp32_and_keeps_scores_in_range(tmp_path: Path) -> None:
    shapes = ("B=1,H=2,S=4096,D=64,causal=1", "B=1,H=2,S=1000,D=256,causal=0")
    asked = {"shape": shapes, "dtype": ("bf16", "fp16"), "only": (*EVERYBODY, "ours-portable"), "processes": 1}
    made = run(tmp_path, **asked)
    told = "long sums", "on large inputs"
    refused = {n: found for n, found in statuses(made).items() if any(why in text for text in found for why in told)}
    assert refused == {}
    assert statuses(made)["ours-portable"] == {"PASSED"}


def test_each_in_a_process_of_its_own(tmp_path: Path) -> None:
    made = run(tmp_path, only=("sdpa-flash", "ours-portable"), with_files=(ITSELF,), isolated=True)
    assert set().union(*statuses(made).values()) == {"PASSED"}
    assert judged(made).record.protocol.isolated


def test_d4_nobody_is_faster_than_himself_and_a_planted_delay_is_found(tmp_path: Path) -> None:
    everyone = ("again-1", "again-2", "again-3", "again-4", "again-5", "planted")
    asked = {"baseline": "again-1", "only": everyone, "with_files": (ITSELF,), "processes": 8}
    made = run(tmp_path, shape=("B=4,H=16,S=4096,D=128",), **asked)
    for case in judged(made).cases:
        for name in ("again-2", "again-3", "again-4", "again-5"):
            comparison = case.result(name).comparison
            assert comparison is not None
            assert comparison.verdict in {"SAME", "UNCLEAR"}
        planted = case.result("planted").comparison
        assert planted is not None
        assert planted.verdict == "SLOWER"


def test_nobody_who_comes_early_gets_onto_the_gpu() -> None:
    """Such a worker is let go, and the run takes minutes longer: with every rival that is installed."""
    suite = registry.load("attention")
    names = [name for name, contender in suite.contenders.items() if contender.absent("cuda") is None]
    params = dict(suite.module.shape_cases("B=2,H=8,S=512,D=64,causal=0", ("bf16",))[0].params)
    known = gpu.gpu_environment()
    assert known is not None
    start = {"loader": "groundspeed.suites:load", "suite": "attention", "device": "cuda"}
    told = early(start, params, names, known["compute_capability"])
    spares = Spares(lambda: ProcessWorker(worker_command(), 1, gpu.visible_uuid()), told, 1)
    try:
        assert spares.settle() == 0, names
    finally:
        spares.close()
