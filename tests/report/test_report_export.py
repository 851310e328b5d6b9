"""CSV, JSON, JSONL and Markdown (A9): every metric of A4 is in them, and all of them tell the same numbers."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from judgements import IDENTITY, MEANS, judgement_of, markdown_tables

from fakes import Died, noisy
from groundspeed.judge.claims import ratio_text
from groundspeed.judge.judgement import Judgement
from groundspeed.report import experts, export, markdown, table, text, words
from groundspeed.report.environment import environment_lines

DOCS = Path(__file__).parents[2] / "docs"

LATENCY = ("mean_s", "std_s", "median_s", "min_s", "max_s", "p5_s", "p95_s", "p99_s")
METRICS = (
    *LATENCY,
    "tokens_per_s",
    "queries_per_s",
    "samples_per_s",
    "host_peak_bytes",
    "host_extra_bytes",
    "speed_up",
    "difference_to_sdpa_flash",
    "tflop_per_s",
    "share_of_peak",
    "algorithmic_gb_per_s",
    "algorithmic_share_of_bandwidth",
)


def strict_json(content: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(content, parse_constant=refuse)


def csv_rows(judgement: Judgement) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(export.to_csv(judgement, IDENTITY)), strict=True))


def jsonl_rows(judgement: Judgement) -> list[dict[str, Any]]:
    return [strict_json(line) for line in export.to_jsonl(judgement, IDENTITY).splitlines()]


def json_rows(judgement: Judgement) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = strict_json(export.to_json(judgement, IDENTITY))["rows"]
    return rows


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_of_a4_is_in_csv_json_and_jsonl(on_gpu: Judgement, metric: str) -> None:
    """A4, on a GPU of the table of peaks, where every one of them has a value."""
    for row in (*csv_rows(on_gpu), *json_rows(on_gpu), *jsonl_rows(on_gpu)):
        if metric == "speed_up" and row["contender"] == row["baseline"]:
            assert row[metric] in ("", None)
        else:
            assert math.isfinite(float(row[metric]))


def test_speed_ups_over_the_configurations_are_in_json_and_markdown(ordinary: Judgement) -> None:
    """A4: the speed-up's mean, median, least and greatest over the configurations."""
    grids = strict_json(export.to_json(ordinary, IDENTITY))["grid"]
    told = markdown_tables(markdown.to_markdown(ordinary, IDENTITY))["Over all cases"]
    assert [grid["contender"] for grid in grids] == ["sdpa-flash", "mine"] == [row["contender"] for row in told]
    for grid, row in zip(grids, told, strict=True):
        ratios = [row["speed_up"] for row in json_rows(ordinary) if row["contender"] == grid["contender"]]
        assert grid["mean"] == pytest.approx(sum(ratios) / 2)
        assert grid["median"] == pytest.approx(sum(ratios) / 2)
        assert (grid["min"], grid["max"]) == (min(ratios), max(ratios))
        assert grid["low"] < grid["geometric_mean"] < grid["high"]
        for name in ("mean", "median", "min", "max"):
            assert row[name] == f"{ratio_text(grid[name])}×"


def test_the_latency_figures_are_those_of_the_samples(ordinary: Judgement) -> None:
    record = ordinary.record
    for row in json_rows(ordinary):
        samples = [
            seconds
            for (_, case, contender), blocks in record.seconds.items()
            if (case, contender) == (row["case"], row["contender"])
            for seconds in blocks.values()
        ]
        assert row["samples"] == len(samples)
        assert row["mean_s"] == pytest.approx(sum(samples) / len(samples))
        assert (row["min_s"], row["max_s"]) == (min(samples), max(samples))
        assert row["min_s"] <= row["p5_s"] <= row["median_s"] <= row["p95_s"] <= row["p99_s"] <= row["max_s"]
        assert row["median_s"] == pytest.approx(MEANS[row["contender"]], rel=0.01)
        assert row["tokens_per_s"] == pytest.approx(row["B"] * row["S"] / row["median_s"])
        assert row["queries_per_s"] == pytest.approx(row["B"] * row["H"] * row["S"] / row["median_s"])
        assert row["samples_per_s"] == pytest.approx(row["B"] / row["median_s"])


def test_the_difference_to_flash_is_against_flash_whatever_the_baseline(ordinary: Judgement) -> None:
    for row in json_rows(ordinary):
        expected = MEANS[row["contender"]] / MEANS["sdpa-flash"] - 1
        assert row["difference_to_sdpa_flash"] == pytest.approx(expected, abs=0.02)


def test_table_markdown_csv_json_and_jsonl_tell_the_same_numbers(ordinary: Judgement) -> None:
    told = markdown_tables(markdown.to_markdown(ordinary, IDENTITY))["Results"]
    sources = csv_rows(ordinary), json_rows(ordinary), jsonl_rows(ordinary)
    results = [(case, result) for case in ordinary.cases for result in case.results]
    assert len(results) == len(told) == 6 == len(sources[0]) == len(sources[1]) == len(sources[2])
    for i, (case, result) in enumerate(results):
        cells = table.cells(ordinary, result)
        assert {key: told[i].get(key, text.NOTHING) for key in cells} == cells  # no column of nothings
        for rows in sources:
            row = rows[i]
            assert (row["case"], row["contender"]) == (case.facts.name, result.contender)
            assert text.seconds(float(row["median_s"])) == cells["median"]
            assert text.significant(float(row["tflop_per_s"]) * 1e3) == cells["GFLOP/s"]
            assert text.significant(float(row["algorithmic_gb_per_s"])) == cells["GB/s"]
            assert text.count(float(row["tokens_per_s"])) == cells["tokens/s"]
            assert text.amount_of_bytes(float(row["host_extra_bytes"])) == cells["memory"]
            if result.comparison:
                low, ratio, high = (float(row[f"speed_up{part}"]) for part in ("_low", "", "_high"))
                options = [tuple(ratio_text(x, more) for x in (ratio, low, high)) for more in range(3)]
                assert cells["speed-up"] in [f"{r}× ({a}–{b})" for r, a, b in options]
                assert row["verdict"] == cells["verdict"]


def test_the_claims_are_the_same_everywhere(ordinary: Judgement) -> None:
    """A11: a claim is generated once and only repeated."""
    data, prose = strict_json(export.to_json(ordinary, IDENTITY)), markdown.to_markdown(ordinary, IDENTITY)
    claims = [sentence for supported, sentence in words.claim_lines(ordinary) if supported]
    assert len(claims) == 2
    assert data["claims"] == claims
    assert data["case_claims"] == list(words.case_claims(ordinary))
    assert all(f"**{claim}**" in prose for claim in claims)
    assert data["bundle"] == IDENTITY
    assert IDENTITY in prose


def test_json_has_no_nan_or_infinity_where_there_is_no_interval(tmp_path: Path) -> None:
    judgement = judgement_of(tmp_path, processes=1)
    for row in (*json_rows(judgement), *jsonl_rows(judgement)):
        assert row["high_s"] is None
        assert row["speed_up_high"] is None
    for row in csv_rows(judgement):
        assert row["speed_up_high"] == ""
        assert not {"inf", "nan", "None"} & set(row.values())


def test_a_contender_that_died_keeps_its_row_with_reason_and_without_numbers(tmp_path: Path) -> None:
    def dies(contender: str, case: str, block: int | None) -> Exception | None:
        return Died("it ended itself") if contender == "mine" and block == 3 else None

    judgement = judgement_of(tmp_path, MEANS, dies)
    for rows in (csv_rows(judgement), json_rows(judgement)):
        (row, *_) = (row for row in rows if row["contender"] == "mine")
        assert (row["status"], row["median_s"] or None, row["verdict"] or None) == ("ERROR", None, None)
        assert "it ended itself" in row["reason"]
    prose = markdown_tables(markdown.to_markdown(judgement, IDENTITY))
    assert [row["status"] for row in prose["Correctness"] if row["contender"] == "mine"] == ["ERROR", "ERROR"]


def test_every_row_has_the_same_columns(ordinary: Judgement) -> None:
    rows = export.rows(ordinary, IDENTITY)
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    assert list(rows[0])[:8] == ["case", "B", "H", "S", "D", "dtype", "causal", "contender"]
    assert list(csv_rows(ordinary)[0]) == list(rows[0])


def test_a9_every_column_is_described_in_the_docs_and_no_other(ordinary: Judgement, on_gpu: Judgement) -> None:
    part = (DOCS / "commands.md").read_text().partition("### Columns of `--csv` and `--jsonl`")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[0] for line in part.splitlines() if line.startswith("| `")]
    described = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    for judgement in (ordinary, on_gpu):
        parameters = {name for case in judgement.cases for name in case.facts.params}
        found = [name for name in export.rows(judgement, IDENTITY)[0] if name not in parameters]
        assert [*found, *experts.columns(None)] == described


def test_a_parameter_cannot_take_the_place_of_a_figure(ordinary: Judgement) -> None:
    facts = ordinary.cases[0].facts
    before = dict(facts.params)
    facts.params.update({"median_s": 1.0, "case": "another"})
    try:
        row = export.rows(ordinary, IDENTITY)[0]
    finally:
        facts.params.clear()
        facts.params.update(before)
    assert row["case"] == facts.name
    assert row["median_s"] == pytest.approx(3e-4, rel=0.01)
    assert (row["param_median_s"], row["param_case"]) == (1.0, "another")


def test_markdown_has_every_part_of_a_report(ordinary: Judgement) -> None:
    content = markdown.to_markdown(ordinary, IDENTITY)
    assert content.startswith("# attention on Test CPU (1 thread)\n")
    assert re.findall(r"^## (.+)$", content, re.MULTILINE) == [
        "At a glance",
        "Interpretation",
        "Recommendations",
        "Side by side",
        "Results",
        "Speed-ups",
        "Over all cases",
        "Grade",
        "Checklist",
        "Notes",
        "Correctness",
        "Distribution",
        "Every process",
        "Fairness record",
        "Profile",
        "Optimisation attempts",
        "Protocol",
        "Environment",
        "Cost",
        "Terms",
        "Reproduce it",
    ]
    tables = markdown_tables(content)
    assert len(tables["Every process"]) == 2 * 2 * 4, "every θ of every process is printed"
    assert {row["process"] for row in tables["Every process"]} == {"1", "2", "3", "4"}, (
        "as the progress bar counts them"
    )
    assert {row["process"] for row in strict_json(export.to_json(ordinary, IDENTITY))["processes"]} == {0, 1, 2, 3}
    assert {row["category"] for row in tables["Speed-ups"]} <= {"excellent", "good", "good to excellent"}
    assert [row["status"] for row in tables["Fairness record"]] == ["measured"] * 3 + ["ABSENT", "SKIPPED"]
    assert "within process" in content
    assert "algorithmic bytes" in content
    for command in ("verify {}", "run --reproduce {}", "report {} --md report.md"):
        assert f"\ngroundspeed {command.format(IDENTITY[:12])}\n" in content
    assert "None" not in content.replace("None of the kernels", "")


def test_of_who_is_not_judged_every_process_is_in_one_row(tmp_path: Path) -> None:
    """They would be most of a long report, and no claim is about them."""
    judgement = judgement_of(tmp_path, judged=["mine"])
    found = markdown_tables(markdown.to_markdown(judgement, IDENTITY))["Every process"]
    assert [row["process"] for row in found if row["contender"] == "sdpa-flash"] == ["1 2 3 4"] * 2
    assert [row["process"] for row in found if row["contender"] == "mine"] == ["1", "2", "3", "4"] * 2
    assert all(len(row["speed-up"].split()) == len(row["process"].split()) for row in found)


def test_markdown_of_a_baseline_alone_has_no_empty_table(tmp_path: Path) -> None:
    content = markdown.to_markdown(judgement_of(tmp_path, {"sdpa-math": 1e-3}), IDENTITY)
    assert content.count("There is no pair to compare.") == 3
    assert all(markdown_tables(content).values())


def test_the_distribution_counts_the_samples_outside_the_fences(tmp_path: Path) -> None:
    """A6: the 1.5×IQR view is shown, and what lies outside of it stays in."""
    steady = noisy(MEANS, 0.001)

    def seconds(contender: str, case: str, block: int) -> float:
        return steady(contender, case, block) * (10 if (contender, block) == ("mine", 3) else 1)

    judgement = judgement_of(tmp_path, seconds=seconds, shapes=["B=1,S=64,causal=0"])
    told = {row["contender"]: row for row in distribution(judgement)}
    rows = {row["contender"]: row for row in json_rows(judgement)}
    assert list(told) == list(MEANS)
    for name, row in told.items():
        assert row["outside 1.5×IQR"] == f"{rows[name]['outliers_iqr']} of {rows[name]['samples']}"
        for column in ("min", "p5", "median", "p95", "p99", "max", "mean", "std"):
            assert row[column] == text.seconds(rows[name][f"{column}_s"])
    assert rows["mine"]["outliers_iqr"] >= 4, "one in each of four processes"
    assert rows["mine"]["max_s"] == pytest.approx(10 * MEANS["mine"], rel=0.01)


def test_a_contender_without_a_time_has_no_distribution(tmp_path: Path) -> None:
    def wrong(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": "INCORRECT", "reason": "far off"} if contender == "mine" else None

    assert {row["contender"] for row in distribution(judgement_of(tmp_path / "one", MEANS, wrong))} == {
        "sdpa-math",
        "sdpa-flash",
    }
    content = markdown.to_markdown(judgement_of(tmp_path / "all", {"mine": 1e-3}, wrong), IDENTITY)
    assert "No contender has a time." in content


def distribution(judgement: Judgement) -> list[dict[str, str]]:
    return markdown_tables(markdown.to_markdown(judgement, IDENTITY))["Distribution"]


def test_environment_lines_put_units_to_numbers() -> None:
    environment = {
        "memory": {"total_bytes": 25_276_518_400, "swap_used_bytes": 0},
        "cpu": {"name": "A_B", "on_battery": False, "governor": None, "logical_cores": 2},
        "worker": {"clock_tick_s": 6.000000000000001e-08, "build": ["a", "b"], "flags": {"CXX": "-O2"}},
        "variables": {"OMP_NUM_THREADS": "2"},
        "gpu": None,
        "note": 1234567,
    }
    assert list(environment_lines(environment)) == [
        "- **memory**: total 23.5 GiB, swap used 0 B",
        "- **cpu**: name A\\_B, on battery no, logical cores 2",
        "- **worker**: clock tick 60.0 ns",
        "  - build a; b",
        "  - flags CXX -O2",
        "- **variables**: OMP\\_NUM\\_THREADS 2",
        "- **gpu**: none",
        "- **note**: 1,234,567",
    ]


def test_the_script_of_times_is_the_same_in_every_run() -> None:
    """Guards the comparisons above: two scripts with one seed agree."""
    one, two = noisy(MEANS), noisy(MEANS)
    assert [one("mine", "", 0) for _ in range(5)] == [two("mine", "", 0) for _ in range(5)]
