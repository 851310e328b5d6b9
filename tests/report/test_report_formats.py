"""The formats of other tools: what those tools read is there, and says what the report says."""

from __future__ import annotations

import importlib
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from judgements import IDENTITY, MEANS, judgement_of

from fakes import Died
from groundspeed.errors import BadInput
from groundspeed.judge.figures import Latency
from groundspeed.judge.judgement import Judgement
from groundspeed.report import formats

MAKERS = (formats.to_pytest_benchmark, formats.to_bencher, formats.to_hud, formats.to_nvbench)


def latency_of(judgement: Judgement, contender: str) -> Latency:
    latency = judgement.cases[0].result(contender).latency
    assert latency is not None
    return latency


class TestPytestBenchmark:
    def test_it_reads_it(self, ordinary: Judgement, tmp_path: Path) -> None:
        """The real one: its table has every case as a group, and our figures."""
        file = tmp_path / "benchmark.json"
        file.write_text(formats.to_pytest_benchmark(ordinary, IDENTITY), "utf-8")
        command = "import sys; from pytest_benchmark.cli import main; main()"
        arguments = ["compare", str(file), "--group-by", "group", "--columns", "min,mean,rounds", "--sort", "name"]
        done = subprocess.run([sys.executable, "-c", command, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for case in ordinary.cases:
            assert f"benchmark '{case.facts.name}': 3 tests" in done.stdout
        mine = next(line for line in done.stdout.splitlines() if f"{ordinary.cases[0].facts.name}[mine]" in line)
        assert f"{1e6 * latency_of(ordinary, 'mine').mean:,.4f}" in mine

    def test_its_figures(self, ordinary: Judgement) -> None:
        told = json.loads(formats.to_pytest_benchmark(ordinary, IDENTITY))["benchmarks"]
        (mine,) = [b for b in told if b["param"] == "mine" and b["group"] == ordinary.cases[0].facts.name]
        latency, stats = latency_of(ordinary, "mine"), mine["stats"]
        for name in ("min", "max", "mean"):
            assert stats[name] == pytest.approx(getattr(latency, name))
        assert stats["stddev"] == pytest.approx(latency.std)
        assert stats["rounds"] == latency.samples
        assert stats["ld15iqr"] <= stats["q1"] <= stats["median"] <= stats["q3"] <= stats["hd15iqr"]
        assert stats["total"] == pytest.approx(stats["mean"] * stats["rounds"])

    @pytest.mark.parametrize("rounds", [1, 2, 3, 8, 101])
    def test_its_own_statistics_say_the_same(self, rounds: int) -> None:
        """But for the quartiles of an odd number, of which it has its own."""
        stats = importlib.import_module("pytest_benchmark.stats").Stats()
        seconds = [1e-3 * (1 + math.sin(37 * i) ** 7 / 2) for i in range(rounds)]
        for second in seconds:
            stats.update(second)
        ours = formats._stats(seconds)
        odd = (
            {"q1", "q3", "iqr", "ld15iqr", "hd15iqr", "iqr_outliers", "outliers"}
            if rounds % 2 and rounds > 1
            else set()
        )
        for name, value in stats.as_dict().items():
            if name not in odd:
                assert ours[name] == pytest.approx(value), name


def test_bencher(ordinary: Judgement) -> None:
    """Its schema: of a benchmark measures, of a measure a value and perhaps its bounds, all of them numbers."""
    told = json.loads(formats.to_bencher(ordinary, IDENTITY))
    assert len(told) == 3 * len(ordinary.cases)
    for measures in told.values():
        for metric in measures.values():
            assert {"value"} <= set(metric) <= {"value", "lower_value", "upper_value"}
            assert all(isinstance(number, float) and number > 0 for number in metric.values())
            assert metric["lower_value"] <= metric["value"] <= metric["upper_value"]
    mine = told[f"attention/{ordinary.cases[0].facts.name}/mine"]
    assert mine["latency"]["value"] == pytest.approx(1e9 * latency_of(ordinary, "mine").median)
    assert mine["latency"]["value"] * mine["throughput"]["value"] == pytest.approx(1e9)
    assert mine["speed-up"]["value"] == pytest.approx(1.5, rel=0.02)
    assert set(told[f"attention/{ordinary.cases[0].facts.name}/sdpa-math"]) == {"latency", "throughput"}


def test_what_has_no_verdict_has_no_speed_up_or_says_so(tmp_path: Path) -> None:
    judgement = judgement_of(tmp_path, {"sdpa-math": 3e-4, "sdpa-flash": 3.01e-4, "mine": 2.95e-4}, noise=0.2)
    comparison = judgement.cases[0].result("mine").comparison
    assert comparison is not None
    assert comparison.verdict == "UNCLEAR"
    for measures in json.loads(formats.to_bencher(judgement, IDENTITY)).values():
        assert set(measures) == {"latency", "throughput"}
    rows = [json.loads(line) for line in formats.to_hud(judgement, IDENTITY).splitlines()]
    speed_ups = [row["metric"] for row in rows if row["metric"]["name"].startswith("speedup")]
    assert {metric["extra_info"]["verdict"] for metric in speed_ups} == {"UNCLEAR"}
    told = json.loads(formats.to_pytest_benchmark(judgement, IDENTITY))["benchmarks"]
    assert {one["extra_info"].get("verdict") for one in told} == {None, "UNCLEAR"}


def test_one_process_has_no_bounds(tmp_path: Path) -> None:
    judgement = judgement_of(tmp_path, processes=1)
    for measures in json.loads(formats.to_bencher(judgement, IDENTITY)).values():
        assert all(set(metric) == {"value"} for metric in measures.values())


STRINGS = {"name", "type", "mode", "dtype", "backend", "cpu_info", "gpu_info", "version"}


def is_row(value: Any, key: str = "") -> bool:
    """As the table `oss_ci_benchmark_v3` has it: names are text, and maps of further information have text alone."""
    if isinstance(value, dict):
        if key == "extra_info":
            return all(isinstance(item, str) for item in value.values())
        return all(is_row(item, name) for name, item in value.items())
    if key == "benchmark_values":
        return isinstance(value, list) and all(isinstance(number, float) for number in value)
    if isinstance(value, list):
        return all(is_row(item) for item in value)
    return isinstance(value, str) if key in STRINGS else True


def test_hud(on_gpu: Judgement) -> None:
    rows = [json.loads(line) for line in formats.to_hud(on_gpu, IDENTITY).splitlines()]
    assert all(is_row(row) for row in rows)
    assert all({"benchmark", "model", "metric"} <= set(row) for row in rows)
    mine = {row["metric"]["name"]: row["metric"] for row in rows if row["model"]["backend"] == "mine"}
    assert set(mine) == {"latency_ms", "tflops", "speedup_vs_sdpa-math"}
    values = mine["latency_ms"]["benchmark_values"]
    assert len(values) == on_gpu.record.declared_processes
    median = math.exp(statistics.fmean(map(math.log, values)))
    assert median == pytest.approx(1e3 * latency_of(on_gpu, "mine").median)
    rates = on_gpu.cases[0].result("mine").rates
    assert rates is not None
    assert statistics.fmean(mine["tflops"]["benchmark_values"]) == pytest.approx(rates.flops / 1e12, rel=0.01)
    assert rows[0]["runners"][0]["gpu_info"] == "NVIDIA H200"


def test_nvbench(on_gpu: Judgement) -> None:
    """What nvbench_compare.py looks for, as it does."""
    told = json.loads(formats.to_nvbench(on_gpu, IDENTITY))
    assert told["meta"]["version"]["json"]["string"] == "1.0.0"
    assert [device["id"] for device in told["devices"]] == [0]
    assert [b["name"] for b in told["benchmarks"]] == [f"attention/{name}" for name in MEANS]
    mine = told["benchmarks"][-1]
    (state,) = mine["states"]
    axes = {axis["name"]: axis for axis in mine["axes"]}
    for value in state["axis_values"]:
        assert value["value"] in [known["value"] for known in axes[value["name"]]["values"]]
        assert f"{value['name']}={value['value']}" in state["name"].split()
    summaries = {summary["tag"]: summary["data"][0] for summary in state["summaries"]}
    mean, noise = summaries["nv/cold/time/gpu/mean"], summaries["nv/cold/time/gpu/stdev/relative"]
    assert mean["type"] == noise["type"] == "float64"
    latency = latency_of(on_gpu, "mine")
    assert float(mean["value"]) == pytest.approx(latency.mean)
    assert float(noise["value"]) == pytest.approx(latency.std / latency.mean)


def test_nvbench_has_no_place_for_a_cpu(ordinary: Judgement) -> None:
    with pytest.raises(BadInput, match="on a GPU with a cold cache"):
        formats.to_nvbench(ordinary, IDENTITY)


def test_who_failed_has_no_figures(tmp_path: Path) -> None:
    def fault(contender: str, case: str, block: int | None) -> Any:
        return Died("broken") if contender == "mine" and block is None else None

    judgement = judgement_of(tmp_path, fault=fault, gpu="NVIDIA H200")
    assert judgement.cases[0].result("mine").status == "ERROR"
    for make in (formats.to_pytest_benchmark, formats.to_bencher, formats.to_hud):
        assert "mine" not in make(judgement, IDENTITY)
    mine = json.loads(formats.to_nvbench(judgement, IDENTITY))["benchmarks"][-1]
    assert mine["name"] == "attention/mine"
    assert all(state["is_skipped"] and state["skip_reason"] for state in mine["states"])


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"gpu": ["x"], "cpu": {"name": "\x1b]0;x\x07", "cores": {"a": 1}}, "packages": 3, "os": None},
        {"gpu": {"name": "\x1b[31m", "compute_capability": "nine", "memory_bytes": "\u202e"}, "packages": {"a": [1]}},
        {"gpu": {"compute_capability": "²", "memory_bytes": -1.5}, "cpu": {"cores": -1.5}},
        {"gpu": {"compute_capability": "9" * 400, "memory_bytes": 1 << 70}, "cpu": {"cores": True}},
    ],
    ids=["nothing", "other types", "text that acts", "odd numbers", "large numbers"],
)
def test_whatever_an_environment_says(on_gpu: Judgement, make: Any, environment: dict[str, Any]) -> None:
    told = make(replace(on_gpu, record=replace(on_gpu.record, environment=environment)), IDENTITY)
    for value in texts(json.loads(line) for line in (told.splitlines() if make is formats.to_hud else [told])):
        assert value.isprintable(), value


def texts(value: Any) -> Iterator[str]:
    """All keys and all text in it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from value
        yield from texts(value.values())
    elif isinstance(value, Iterable):
        for item in value:
            yield from texts(item)
