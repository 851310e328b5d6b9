"""D4: what a sentence says of many cases at once, which no tie can hold, is what the committed bundles say."""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path

import pytest

from groundspeed.evidence import bundle, store
from groundspeed.judge.judgement import CaseJudgement, Judgement, judge
from groundspeed.judge.verdict import Comparison

ROOT = Path(__file__).parent.parent
NOISE = "typical noise", "H200, cudnn/portable"


@functools.cache
def judged(name: str) -> Judgement:
    return judge(bundle.read(store.find_committed(name, ROOT)).record)


def said(document: str) -> str:
    return " ".join((ROOT / document).read_text().split())


def median(case: CaseJudgement, contender: str) -> float:
    latency = case.result(contender).latency
    assert latency
    return latency.median


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("118076f7", "All 10 planted delays are found; they add {} to {}% to the time"),
        ("b48be3c2", "All 36 planted delays are found; they add {} to {}% to the time"),
        ("2e5cb8cb", "All 42 planted delays are found; here they add {} to {}% to the time"),
    ],
)
def test_planted_delays_are_found_and_as_long_as_it_says(name: str, sentence: str) -> None:
    found = [case.result("planted").comparison for case in judged(name).cases]
    assert {one.verdict for one in found if one} == {"SLOWER"}
    added = [100 * math.expm1(-one.interval.mean) for one in found if one]
    assert len(added) == len(judged(name).cases)
    assert sentence.format(round(min(added)), round(max(added))) in said("docs/evidence.md")


def test_of_comparisons_with_itself_and_planted_delays_as_many_as_the_readme_says() -> None:
    """Those with another contender's name: what is compared with the baseline is the same function."""
    found: dict[str, list[Comparison]] = {"again": [], "planted": []}
    for name in ("118076f7", "2443a119", "b48be3c2", "2e5cb8cb"):
        judgement = judged(name)
        assert judgement.record.protocol.preset == "standard"
        for case in judgement.cases:
            for kind, comparisons in found.items():
                comparisons += [r.comparison for r in case.results if r.contender.startswith(kind) and r.comparison]
    assert {one.verdict for one in found["again"]} == {"SAME", "UNCLEAR"}
    assert {one.verdict for one in found["planted"]} == {"SLOWER"}
    assert f"In {len(found['again'])} comparisons of a function with itself in `standard` runs" in said("README.md")
    added = [round(100 * math.expm1(-one.interval.mean)) for one in found["planted"]]
    told = f"it found all {len(added)} planted delays, of {min(added)} to {max(added)}%"
    assert told in said("README.md")


def test_the_readme_says_of_power_what_the_simulation_says() -> None:
    rows = re.findall(r"^\| (.+?) \| .+? \| (.+?) \| .+? \|$", (ROOT / "docs/simulation.md").read_text(), re.MULTILINE)
    power = dict(rows)
    typical, portable = (round(float(power[f"{noise}, one of 60"].strip("%"))) for noise in NOISE)
    assert f"in {typical}% of runs at typical noise, and in {portable}% with the noise between" in said("README.md")


def test_for_small_work_what_is_picked_is_ahead_of_every_rival_by_medians() -> None:
    small = [case for case in judged("b07ff6af").cases if case.clock in ("graph", "eager")]
    assert len(small) == 36
    for case in small:
        picked = "ours-hopper" if re.match("t[34]-", case.facts.name) else "ours-portable"
        rivals = [one.contender for one in case.results if one.latency and not one.contender.startswith("ours-")]
        assert len(rivals) == 5
        assert median(case, picked) < min(median(case, rival) for rival in rivals), case.facts.name
    assert "By medians, that choice is ahead of every rival at each shape" in said("docs/results.md")


def test_without_a_mask_long_sequences_are_nearly_level_with_the_cute_kernels() -> None:
    cases = [case for case in judged("e816ba4c").cases if re.search(r"s(8192|16384)-full", case.facts.name)]
    assert len(cases) == 6
    assert all(0.98 < median(case, "flash-attn-4") / median(case, "ours-hopper") < 1.02 for case in cases)
    assert "S ≥ 8192: by medians they are nearly level there" in said("docs/results.md")
    assert "nearly level from S = 8192 on" in said("docs/kernels/attention.md")


def test_of_odd_lengths_one_loses_the_most() -> None:
    rates = {}
    for case in judged("9b22416b").cases:
        rate = case.result("ours-hopper").rates
        assert rate
        assert rate.flops
        rates[case.facts.name] = rate.flops
    whole = {"ragged": "whole", "s4099": "s4224", "s1777": "s1792"}
    near = {"ragged-d64-s1000": "sweep-d64-s1024", "ragged-d128-s1000": "claim"}
    kept = {}
    for name in (name for name in rates if name.startswith("ragged-")):
        other = name
        for odd, longer in (near | whole).items():
            other = other.replace(odd, longer)
        kept[name] = rates[name] / rates[other]
    assert len(kept) == 12
    least = min(kept, key=kept.__getitem__)
    assert least == "ragged-d64-s4099-full-bf16"
    assert "the least with 4,099 keys at D = 64 without a mask" in said("docs/kernels/attention.md")


def test_with_one_query_decoding_is_slower_than_cudnn_nowhere() -> None:
    slower = [
        case.facts.params["S"]
        for case in judged("f58bab93").cases
        if (found := case.result("ours-portable").comparison) and found.verdict == "SLOWER"
    ]
    assert slower == [16, 16], "one shape by two clocks"
    told = said("docs/results.md")
    assert "With one query, it is faster at 8 of 15, in a graph at 7, the same or unclear at the others" in told
    assert "slower at none. It is slower at one shape, 16 queries" in told
