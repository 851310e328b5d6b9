"""A12: what a run cost, in seconds of the device and in money."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fakes import fake_run, noisy
from groundspeed.evidence.record import Record
from groundspeed.judge.cost import cost_of, device_s, gate_share
from groundspeed.judge.judgement import judge
from groundspeed.report import words
from groundspeed.report.export import to_json
from groundspeed.report.html.document import to_html
from groundspeed.report.markdown import to_markdown
from groundspeed.report.screen import show

MEANS = {"base": 2e-4, "ours": 1e-4, "other": 4e-4}


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return fake_run(tmp_path, noisy(MEANS, 0.01), list(MEANS))


def test_the_time_of_every_process_counts(record: Record) -> None:
    spans = [p.finished - p.started for p in record.processes if p.finished is not None]
    assert len(spans) == record.declared_processes
    assert min(spans) > 0
    assert device_s(record) == pytest.approx(sum(spans))


def test_of_a_lost_process_as_far_as_its_last_sample(record: Record) -> None:
    *others, last = record.processes
    mine = record.samples["process"] == last.process
    end = float((record.samples["start"] + record.samples["seconds"])[mine].max())
    lost = replace(record, processes=(*others, replace(last, finished=None)))
    assert device_s(lost) == pytest.approx(sum(p.finished - p.started for p in others if p.finished is not None) + end)
    nothing = replace(lost, processes=(*others, replace(last, finished=None, attempt=7)))
    assert device_s(nothing) < device_s(lost)


def test_each_worker_of_a_lost_process_counts(record: Record) -> None:
    """The clock of a worker begins with it."""
    *others, last = record.processes
    lost = replace(record, processes=(*others, replace(last, finished=None)))
    workers = record.samples["worker"].copy()
    mine = (record.samples["process"] == last.process).nonzero()[0]
    workers[mine[len(mine) // 2 :]] += 1
    twice = replace(lost, samples={**record.samples, "worker": workers})
    ends = record.samples["start"] + record.samples["seconds"]
    halves = sum(float(ends[part].max()) for part in (mine[: len(mine) // 2], mine[len(mine) // 2 :]))
    assert device_s(twice) - device_s(lost) == pytest.approx(halves - float(ends[mine].max()))


def test_a_process_that_ended_before_it_began_costs_nothing(record: Record) -> None:
    wrong = replace(record, processes=tuple(replace(p, finished=p.started - 1) for p in record.processes))
    assert device_s(wrong) == 0


def test_the_share_of_the_gate_is_that_of_the_processes_that_told(record: Record) -> None:
    first, second, *_ = record.processes
    assert first.finished is not None
    assert second.finished is not None
    told = (replace(first, gate_s=0.1 * (first.finished - first.started)), replace(second, gate_s=0.0))
    share = 0.1 * (first.finished - first.started) / sum(p.finished - p.started for p in (first, second) if p.finished)
    known = replace(record, processes=(*told, *record.processes[2:]))
    assert gate_share(known) == pytest.approx(share)
    assert gate_share(record) is None


def test_every_report_tells_the_share_of_the_gate(record: Record) -> None:
    took = [replace(p, gate_s=0.14 * (p.finished - p.started)) for p in record.processes if p.finished is not None]
    said = "The gate took 14.0% of the process time"
    for known in (True, False):
        judgement = judge(replace(record, processes=tuple(took)) if known else record)
        console = Console(record=True, width=100, file=io.StringIO())
        show(console, judgement, Path("bundle"), "bundle")
        for text in (console.export_text(), to_markdown(judgement, "0" * 64), to_html(judgement, "0" * 64)):
            assert (said in text) is known
        share = json.loads(to_json(judgement, "0" * 64))["cost"]["gate_share"]
        assert share == (pytest.approx(0.14) if known else None)


def test_money_for_the_run_and_for_each_claim(record: Record) -> None:
    judgement = judge(record)
    cost = cost_of(judgement, 7200.0)
    assert cost.claims == 2
    assert cost.money == pytest.approx(2 * cost.device_s)
    assert cost.money_per_claim == pytest.approx(cost.device_s)
    assert words.cost(replace(cost, device_s=90.0, price_per_hour=4.0)) == (
        "90.0 s of device time, without line-up and calibration, 0.100 at 4 per hour, 0.0500 for each of 2 headlines"
    )


def test_without_a_price_or_a_claim(record: Record) -> None:
    cost = cost_of(judge(record))
    assert cost.money is None
    assert words.cost(replace(cost, device_s=90.0)) == "90.0 s of device time, without line-up and calibration"
    assert words.cost(replace(cost, device_s=90.0, claims=0, price_per_hour=4.0)).endswith(
        "at 4 per hour, and no headline claim"
    )
