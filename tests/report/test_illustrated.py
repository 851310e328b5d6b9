"""A10: a report in Markdown has the charts of the page in files beside it."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from judgements import IDENTITY, enlarged, judgement_of, sweep_of
from test_report_charts import FEW, TRICKY, texts

from groundspeed.judge.judgement import Judgement, judge
from groundspeed.report.charts.frame import DARK, LIGHT
from groundspeed.report.illustrated import KINDS, illustrated

NAMES = ["base", "flash", "ours-hopper"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    rates = {"base": 5e14, "flash": 4.8e14, "ours-hopper": 5.5e14}
    lengths = (512, 1024, 2048)
    return sweep_of(tmp_path_factory.mktemp("swept"), rates, lengths=lengths, dims=[64, 128], **FEW)


def test_a_sweep_has_every_chart_for_light_and_dark_pages(swept: Judgement) -> None:
    files = illustrated(swept, IDENTITY, "r.md")
    names = [*(kind.name for kind in KINDS), "samples", "samples-2"]
    assert set(files) == {"r.md", *(f"r-{name}{dark}.svg" for name in names for dark in ("", "-dark"))}
    linked = re.findall(r'(?:src|srcset)="([^"]+)"', files["r.md"])
    assert sorted(linked) == sorted(set(files) - {"r.md"})
    for kind in ("latencies", "roofline", "memory"):
        said = texts(files[f"r-{kind}.svg"])
        assert set(NAMES) <= set(said), "in a legend"
        assert any(IDENTITY[:12] in line for line in said)
        assert ("D = 128, full mask" in said) == (kind != "roofline")
        assert "var(" not in files[f"r-{kind}.svg"], "a colour that only the page has"
        assert texts(files[f"r-{kind}-dark.svg"]) == said
        assert files[f"r-{kind}-dark.svg"] != files[f"r-{kind}.svg"]
    assert any("all S × S scores" in line for line in texts(files["r-memory.svg"]))


def test_no_sweep_has_no_curves_and_tricky_names_stay_text(tmp_path: Path) -> None:
    means = {"base": 1e-3, **dict.fromkeys(TRICKY, 0.9e-3)}
    files = illustrated(judgement_of(tmp_path, means, shapes=["B=1,S=64,causal=0"], **FEW), IDENTITY, "a.md")
    assert {name for name in files if "dark" not in name} == {
        *("a.md", "a-speedups.svg", "a-roofline.svg", "a-samples.svg", "a-samples-2.svg")
    }
    said = texts(files["a-roofline.svg"])
    for name in TRICKY:
        whole = [line for line in said if line.strip() == name.strip()]
        cut = [line for line in said if line.endswith("…") and len(line) > 10 and name.startswith(line[:-1])]
        assert whole or cut or not name.strip(), name


@pytest.fixture(scope="module")
def throttled(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """Two cases on a GPU; `mine` is noisy on the second, and the device held its clocks back in process 1 of 3."""
    generator = random.Random(5)

    def seconds(contender: str, case: str, block: int) -> float:
        wild = 0.2 if contender == "mine" and case == "b1-s128" else 0.005
        return 1e-3 * generator.lognormvariate(0.0, wild)

    folder = tmp_path_factory.mktemp("throttled")
    means = {"base": 1e-3, "mine": 1e-3, "other": 1e-3}
    plain = judgement_of(
        folder,
        means,
        seconds=seconds,
        gpu="NVIDIA H200",
        processes=3,
        shapes=["B=1,S=64,causal=0", "B=1,S=128,causal=0"],
        judged=["mine"],
    )
    columns = {**plain.record.samples}
    first = columns["process"] == 0
    columns["sm_clock_mhz"] = np.where(first, 1500.0, 1980.0)
    columns["temperature_c"] = np.full(len(first), 60.0)
    columns["throttle"] = np.where(first, 4, 0)
    return judge(replace(plain.record, samples=columns))


def test_the_samples_of_the_widest_interval_are_drawn(throttled: Judgement) -> None:
    """In the order they were taken, with clock and temperature; of those who were judged, beside the baseline."""
    files = illustrated(throttled, IDENTITY, "r.md")
    assert "r-samples-2.svg" not in files, "one was judged"
    (wide,) = (case for case in throttled.cases if case.facts.params["S"] == 128)
    said = texts(files["r-samples.svg"])
    assert any(f"The samples of mine and base on {wide.facts.name}, " in line for line in said)
    assert not any("other" in line for line in said)
    rows = [line for line in said if line.startswith(("mine, ", "base, "))]
    assert len(rows) == 2
    assert {"1", "2", "3", "SM clock, MHz", "temperature, °C"} <= set(said)
    stops = {stop.process: stop.blocks for stop in throttled.record.stops if stop.case == wide.facts.name}
    assert f"red: the device throttled its clocks, in {stops[0]} of {sum(stops.values())} blocks" in said
    assert f'alt="samples of mine and base on {wide.facts.name}, ' in files["r.md"]
    assert LIGHT.bad in files["r-samples.svg"]
    assert DARK.bad in files["r-samples-dark.svg"]
    assert "var(" not in files["r-samples.svg"], "a colour that only the page has"


def test_many_samples_are_thinned_and_that_is_said(throttled: Judgement) -> None:
    whole = illustrated(throttled, IDENTITY, "r.md")["r-samples.svg"]
    assert "is drawn" not in whole
    large = illustrated(enlarged(throttled, 1, 12), IDENTITY, "r.md")["r-samples.svg"]
    assert re.search(r"one block in every \d+ is drawn, the bundle has all", large)
    assert len(large) < 100_000


def test_without_telemetry_or_verdict(ordinary: Judgement) -> None:
    files = illustrated(ordinary, IDENTITY, "r.md")
    assert "SM clock, MHz" not in texts(files["r-samples.svg"])
    record = ordinary.record
    unjudged = judge(replace(record, run=replace(record.run, judged=())))
    assert not any("samples" in name for name in illustrated(unjudged, IDENTITY, "r.md"))
