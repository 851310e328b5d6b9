"""A9: a line is drawn through cases that differ in one length alone, whatever else the run has; and no other line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from judgements import IDENTITY, judgement_of, sweep_of

from groundspeed.judge.judgement import Judgement, judge
from groundspeed.report.html import to_html
from groundspeed.report.html.series import groups

FEW: dict[str, Any] = {"processes": 2, "looks": (4,), "half_width": 1.0}
SMALL = [f"H=1,S={S}" for S in (32, 64, 128)]


def run_of(folder: Path, *shapes: str, gpu: str | None = None) -> Judgement:
    return judgement_of(folder, {"base": 1e-3, "mine": 1e-3}, shapes=shapes, gpu=gpu, **FEW)


def test_small_shapes_have_curves_though_the_run_has_others(tmp_path: Path) -> None:
    judgement = run_of(tmp_path, *SMALL, "B=2,H=4,S=128")
    (group,) = groups(judgement)
    assert (group.axis, group.held) == ("S", "B = 1, H = 1, D = 64, fp32")
    assert [one.title for one in group.series] == ["full mask", "causal mask"]
    assert [[x for x, _ in one.points] for one in group.series] == [[32, 64, 128]] * 2
    page = to_html(judgement, IDENTITY)
    assert "Median time by sequence length S, at B = 1, H = 1, D = 64, fp32" in page
    assert "2 of 8 cases are on none of these lines." in page


def test_each_clock_has_a_line_of_its_own(tmp_path: Path) -> None:
    record = run_of(tmp_path, *(f"{s},causal=0" for s in (*SMALL, "B=2,H=4,S=128")), gpu="NVIDIA H200").record
    again = judge(record)
    for case in again.cases[:2]:
        case.facts.params["clock"] = "graph"
    assert groups(again) == [], "two lengths by one clock and one by another are no line"
    again.cases[2].facts.params["clock"] = "graph"
    (group,) = groups(again)
    assert group.held == "B = 1, H = 1, D = 64, fp32, full mask, device time in a CUDA graph"


def test_decoding_is_drawn_over_its_keys(tmp_path: Path) -> None:
    judgement = run_of(tmp_path, *(f"H=2,S=1,N={N},causal=0" for N in (256, 512, 1024)))
    (group,) = groups(judgement)
    assert (group.axis, group.held) == ("N", "B = 1, H = 2, S = 1, D = 64, fp32, full mask")
    assert [x for x, _ in group.series[0].points] == [256, 512, 1024]
    memory = to_html(judgement, IDENTITY).partition('<section id="memory">')[2].partition("</section>")[0]
    assert "all S × N scores" in memory, "a query sees other keys than itself"
    assert not re.search("S²|S × S", memory)
    assert "a workspace" in memory, "which may grow with the keys as scores do"


@pytest.mark.parametrize(
    ("axis", "said", "others"),
    [
        ("T", "number of tokens T, at H = 64, E = 8, fp32", {"H": 64, "E": 8}),
        ("M", "number of rows M, at N = 512, K = 256, fp32", {"N": 512, "K": 256}),
        ("N", "number of columns N, at M = 512, K = 256, fp32", {"M": 512, "K": 256}),
    ],
)
def test_other_suites_have_curves_over_their_own_sizes(
    tmp_path: Path, axis: str, said: str, others: dict[str, int]
) -> None:
    """And nothing of attention's: no keys, and no scores beside their memory."""
    judgement = run_of(tmp_path, *(f"{size},causal=0" for size in SMALL))
    for size, case in zip((16, 64, 256), judgement.cases, strict=True):
        case.facts.params.clear()
        case.facts.params.update({axis: size, **others, "dtype": "fp32"})
    (group,) = groups(judgement)
    assert [x for x, _ in group.series[0].points] == [16, 64, 256]
    page = to_html(judgement, IDENTITY)
    assert f"Median time by {said}" in page
    assert "scores" not in page.partition('<section id="memory">')[2].partition("</section>")[0]


@pytest.mark.parametrize("more", ["W=128", "cap=50", "N=8192"])
def test_other_work_of_the_same_sizes_is_not_taken_for_a_point_of_the_sweep(tmp_path: Path, more: str) -> None:
    lengths = (512, 1024, 2048)
    found = sweep_of(
        tmp_path, {"base": 5e14, "ours": 4e14}, lengths=lengths, dims=[64], others=[f"B=8,H=32,S=2048,{more}"], **FEW
    )
    (group,) = groups(found)
    names = [case.facts.name for one in group.series for _, case in one.points]
    assert len(names) == 6
    assert all({"W", "cap", "N"}.isdisjoint(case.facts.params) for one in group.series for _, case in one.points)
