"""The formats of other tools: what those tools read is there, and says what the report says.

pytest-benchmark itself runs here. The others are held to what their projects publish, written down in our own words:
Bencher's schema (bencher.dev, bmf.json) and what its adapter takes (bencherdev/bencher, bencher_adapter); the table
`oss_ci_benchmark_v3` and its queries (pytorch/test-infra, clickhouse_db_schema and torchci); nvbench's scripts
(NVIDIA/nvbench, python/scripts)."""

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

import numpy as np
import pytest
from judgements import IDENTITY, MEANS, judgement_of, renamed

from fakes import Died
from groundspeed.errors import BadInput
from groundspeed.judge.figures import Latency
from groundspeed.judge.judgement import Judgement
from groundspeed.report import formats
from groundspeed.report.formats.pytest_benchmark import stats_of

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
        ours = stats_of(seconds)
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


def test_bencher_takes_all_or_nothing(ordinary: Judgement) -> None:
    """With one name that is too long it would refuse the whole file, so that is said here."""
    case = ordinary.cases[0].facts.name
    long = renamed(ordinary, {case: "注" * 200})
    assert json.loads(formats.to_bencher(long, IDENTITY))
    longer = replace(long, record=replace(long.record, run=replace(long.record.run, suite="意" * 200)))
    with pytest.raises(BadInput, match="Bencher takes names of up to 1,024 bytes"):
        formats.to_bencher(longer, IDENTITY)


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


MORE = {str: str}
NUMBER, WHOLE = "a 32-bit float", "32 bits without a sign"
TABLE: dict[str, Any] = {
    "runners": [
        {
            **dict.fromkeys(("name", "type", "cpu_info", "mem_info", "gpu_info", "gpu_mem_info"), str),
            **dict.fromkeys(("cpu_count", "avail_mem_in_gb", "gpu_count", "avail_gpu_mem_in_gb"), WHOLE),
            "extra_info": MORE,
        }
    ],
    "benchmark": {"name": str, "mode": str, "dtype": str, "extra_info": MORE},
    "model": {"name": str, "type": str, "backend": str, "origins": [str], "extra_info": MORE},
    "inputs": {str: {"dtype": str, "extra_info": MORE}},
    "dependencies": {str: {**dict.fromkeys(("repo", "branch", "sha", "version"), str), "extra_info": MORE}},
    "metric": {"name": str, "benchmark_values": [NUMBER], "target_value": NUMBER, "extra_info": MORE},
}
"""What a run tells of the table's columns; {str: …} is a map, [...] an array, and what a row leaves out is empty."""


def is_of(kind: Any, value: Any) -> bool:
    if isinstance(kind, dict):
        every = kind.get(str)
        return isinstance(value, dict) and all(
            (every or key in kind) and is_of(every or kind[key], item) for key, item in value.items()
        )
    if isinstance(kind, list):
        return isinstance(value, list) and all(is_of(kind[0], item) for item in value)
    if kind is NUMBER:
        return isinstance(value, float) and abs(value) < 3e38
    if kind is WHOLE:
        return type(value) is int and 0 <= value < 1 << 32
    return isinstance(value, kind)


def test_hud(on_gpu: Judgement) -> None:
    rows = [json.loads(line) for line in formats.to_hud(on_gpu, IDENTITY).splitlines()]
    assert all(is_of(TABLE, row) for row in rows)
    assert all({"benchmark", "model", "metric"} <= set(row) for row in rows), "without a metric it is not uploaded"
    mine = {row["metric"]["name"]: row["metric"] for row in rows if row["model"]["backend"] == "mine"}
    assert set(mine) == {"latency_us", "tflops", "speedup_vs_sdpa-math"}
    values = mine["latency_us"]["benchmark_values"]
    assert len(values) == on_gpu.record.declared_processes
    median = math.exp(statistics.fmean(map(math.log, values)))
    assert median == pytest.approx(1e6 * latency_of(on_gpu, "mine").median)
    rates = on_gpu.cases[0].result("mine").rates
    assert rates is not None
    assert statistics.fmean(mine["tflops"]["benchmark_values"]) == pytest.approx(rates.flops / 1e12, rel=0.01)
    assert rows[0]["runners"][0]["gpu_info"] == "NVIDIA H200"


def test_the_hud_cuts_off_no_times(tmp_path: Path) -> None:
    """Its queries keep two decimals of a mean, which must be enough for what takes microseconds."""
    judgement = judgement_of(tmp_path, {"sdpa-math": 31e-6, "mine": 17e-6})
    for line in formats.to_hud(judgement, IDENTITY).splitlines():
        metric = json.loads(line)["metric"]
        if metric["name"].startswith("latency"):
            mean = statistics.fmean(metric["benchmark_values"])
            assert math.floor(100 * mean) / 100 == pytest.approx(mean, rel=1e-3)


COMPARED = (
    "min",
    "q1",
    "median",
    "q3",
    "max",
    "mean",
    "stdev/absolute",
    "iqr/absolute",
    "stdev/relative",
    "iqr/relative",
)


def test_nvbench(on_gpu: Judgement) -> None:
    """What nvbench_compare.py, nvbench_compare_robust.py and nvbench_json_summary.py look for, as they do; they would
    not say of a gap whether it is clear without the clock."""
    samples = {**on_gpu.record.samples}
    samples["sm_clock_mhz"] = np.where(samples["contender"] == 2, 1500.0, 1980.0)
    told = json.loads(formats.to_nvbench(replace(on_gpu, record=replace(on_gpu.record, samples=samples)), IDENTITY))
    assert told["meta"]["version"]["json"]["string"] == "1.0.0"
    assert [device["id"] for device in told["devices"]] == [0]
    assert [b["name"] for b in told["benchmarks"]] == [f"attention/{name}" for name in MEANS]
    mine = told["benchmarks"][-1]
    (state,) = mine["states"]
    axes = {axis["name"]: axis for axis in mine["axes"]}
    for value in state["axis_values"]:
        assert value["value"] in [known["value"] for known in axes[value["name"]]["values"]]
        assert f"{value['name']}={value['value']}" in state["name"].split()
    for summary in state["summaries"]:
        (data,) = summary["data"]
        assert (data["name"], data["type"]) == ("value", "int64" if summary["name"] == "Samples" else "float64")
        assert {"name", "hint"} <= set(summary)
    figures = {summary["tag"]: float(summary["data"][0]["value"]) for summary in state["summaries"]}
    times = {tag: figures[f"nv/cold/time/gpu/{tag}"] for tag in COMPARED}
    latency = latency_of(on_gpu, "mine")
    assert times["mean"] == pytest.approx(latency.mean)
    assert times["stdev/absolute"] == pytest.approx(latency.std) == times["stdev/relative"] * times["mean"]
    assert times["min"] == latency.min <= times["q1"] <= times["median"] <= times["q3"] <= latency.max == times["max"]
    assert times["iqr/absolute"] == pytest.approx(times["q3"] - times["q1"]) == times["iqr/relative"] * times["median"]
    assert figures["nv/cold/sample_size"] == latency.samples
    assert figures["nv/cold/sm_clock_rate/mean"] == 1500e6
    shown = [summary["name"] for summary in state["summaries"] if "hide" not in summary]
    assert shown == ["Samples", "GPU Time", "Noise"]
    assert "sm_clock" not in formats.to_nvbench(on_gpu, IDENTITY), "where the device told nothing"


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
    assert all(state["summaries"] == [] for state in mine["states"]), "nvbench_walltime.py goes through them"


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"gpu": ["x"], "cpu": {"name": "\x1b]0;x\x07", "cores": {"a": 1}}, "packages": 3, "os": None},
        {"gpu": {"name": "\x1b[31m", "compute_capability": "nine", "memory_bytes": "\u202e"}, "packages": {"a": [1]}},
        {"gpu": {"compute_capability": "²", "memory_bytes": -1.5}, "cpu": {"cores": -1.5}},
        {"gpu": {"compute_capability": "9" * 400, "memory_bytes": 1 << 70}, "cpu": {"cores": 1 << 40}},
    ],
    ids=["nothing", "other types", "text that acts", "odd numbers", "large numbers"],
)
def test_whatever_an_environment_says(on_gpu: Judgement, make: Any, environment: dict[str, Any]) -> None:
    told = make(replace(on_gpu, record=replace(on_gpu.record, environment=environment)), IDENTITY)
    if make is formats.to_hud:
        assert all(is_of(TABLE, json.loads(line)) for line in told.splitlines())
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
