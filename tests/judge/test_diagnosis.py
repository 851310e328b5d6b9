"""B6 and B7: every rule is seen on a bundle that was measured, and items are ticked by measured facts alone."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from measured_bundles import CPU, DECODE, HALVES, LATENCY, NAIVE, ODD_LENGTHS, PADDED, PLANTED, SWEEP, measured

from groundspeed.evidence.samples import TIMED
from groundspeed.judge.grading.checklist import ITEMS, checklist
from groundspeed.judge.grading.diagnosis import RULES, diagnose
from groundspeed.judge.grading.sizes import odd_lengths
from groundspeed.judge.grading.traits import Evidence
from groundspeed.judge.judgement import judge
from groundspeed.judge.views import ANY
from records import run

# rule → a bundle, a contender that has the symptom there, and one that has not (None where all have it)
SHOWN = {
    "small work": (PLANTED, "planted", "again-2"),
    "eager": (LATENCY, "flash-attn-4", None),
    "kernels": (SWEEP, "sdpa-math", "ours-hopper"),
    "latency-bound": (LATENCY, "ours-hopper", None),
    "compute-bound": (SWEEP, "ours-portable", None),
    "memory-bound": (LATENCY, "ours-portable", None),
    "causal": (SWEEP, "sdpa-math", "ours-portable"),
    "quadratic memory": (SWEEP, "sdpa-math", "ours-hopper"),
    "odd lengths": (PADDED, "padded", "sdpa-flash"),
    "wide heads": (SWEEP, "ours-portable", "ours-hopper"),
    "processes": (SWEEP, "ours-portable", "ours-hopper"),
    "throttled": (SWEEP, "ours-hopper", None),
    "errors": (NAIVE, "naive", "sdpa-math"),
    "timers": (LATENCY, "ours-hopper", None),
    "warm-up": (SWEEP, "ours-portable", "ours-hopper"),
    "first call": (SWEEP, "ours-hopper", "sdpa-cudnn"),
}


def found(piece: str, contender: str) -> dict[str, str]:
    return {f.rule.name: f.facts[0].case for f in diagnose([measured(piece)], contender)}


def test_no_rule_is_without_a_measured_bundle() -> None:
    assert {rule.name for rule in RULES} == set(SHOWN)


@pytest.mark.parametrize("rule", SHOWN)
def test_a_rule_is_seen_where_the_symptom_was_measured(rule: str) -> None:
    bundle, sick, well = SHOWN[rule]
    assert rule in found(bundle, sick)
    if well:
        assert rule not in found(bundle, well)


@pytest.mark.parametrize(
    ("rule", "bundle", "contender"),
    [
        ("eager", SWEEP, "ours-hopper"),  # no such clock
        ("latency-bound", SWEEP, "ours-hopper"),  # long work
        ("throttled", LATENCY, "ours-hopper"),
        ("causal", SWEEP, "ours-hopper"),  # of 512 keys it saves little, of 16,384 nearly half
        ("timers", HALVES, "ours-hopper"),
        ("quadratic memory", LATENCY, "sdpa-flash"),  # what it adds when it splits the keys is no matrix of scores
        ("kernels", CPU, "sdpa-math"),  # nobody looked
    ],
)
def test_a_rule_is_not_seen_elsewhere(rule: str, bundle: str, contender: str) -> None:
    assert rule not in found(bundle, contender)


OF_A_GPU = re.compile("tensor core|warp|occupancy|stall|graph|launch|coalesced|shared memory|programs|multiproc", re.I)


def test_nobody_tells_a_cpu_of_tensor_cores() -> None:
    (found,) = (f for f in diagnose([measured(CPU)], "sdpa-flash") if f.rule.name == "compute-bound")
    assert not OF_A_GPU.search(" ".join((*found.causes, *found.tries)))
    (found,) = (f for f in diagnose([measured(SWEEP)], "ours-portable") if f.rule.name == "compute-bound")
    assert OF_A_GPU.search(" ".join(found.causes))
    of_one = {"eager", "kernels", "throttled", "timers"}  # what shows these is only of a GPU
    spoken = [rule for rule in RULES if rule.name not in of_one]
    assert not [rule.name for rule in spoken if OF_A_GPU.search(" ".join(sum(rule.advice("cpu"), ())))]


def test_an_item_that_a_cpu_cannot_have_asks_for_nothing_there() -> None:
    asked = {t.item: t.why for t in checklist([measured(CPU)], "sdpa-flash")}
    assert {asked[item] for item in (CORES, GRAPH, OVERHEAD)} == {"does not apply to a CPU"}
    asked = {t.item: t.why for t in checklist([measured(SWEEP)], "ours-hopper")}
    assert asked[GRAPH] == "needs --clock graph"


def test_facts_lead_to_what_was_measured() -> None:
    evidence = measured(PADDED)
    names = {case.name for case in evidence.judgement.record.cases}
    for finding in diagnose([evidence], "padded"):
        for fact in finding.facts:
            assert fact.bundle == evidence.identity
            assert fact.case in names
            assert fact.figures


def ticks(piece: str, contender: str) -> dict[str, str]:
    return {ticked.item: ticked.tick for ticked in checklist([measured(piece)], contender)}


SCORES, CORES, ONE, SUMS = (item.item for item in ITEMS[:4])
BLOCKS, EDGES, GRAPH, OVERHEAD = (ITEMS[4].item, ITEMS[6].item, ITEMS[19].item, ITEMS[20].item)


@pytest.mark.parametrize(
    ("piece", "contender", "expected"),
    [
        (SWEEP, "ours-hopper", {SCORES: "yes", CORES: "yes", ONE: "yes", SUMS: "yes", BLOCKS: "yes"}),
        (SWEEP, "sdpa-math", {SCORES: "no", ONE: "no", BLOCKS: "no", CORES: "not determined"}),
        (LATENCY, "ours-hopper", {GRAPH: "yes", OVERHEAD: "not determined"}),
        (LATENCY, "flash-attn-4", {GRAPH: "yes", OVERHEAD: "not determined"}),
        (CPU, "sdpa-flash", {SCORES: "yes", BLOCKS: "no", ONE: "not determined", GRAPH: "not determined"}),
        (PADDED, "padded", {EDGES: "no", SCORES: "not determined"}),
    ],
)
def test_the_checklist_says_what_was_measured(piece: str, contender: str, expected: dict[str, str]) -> None:
    found = ticks(piece, contender)
    assert {item: found[item] for item in expected} == expected


@pytest.mark.parametrize("piece", [SWEEP, CPU])
def test_nothing_is_ticked_without_a_fact(piece: str) -> None:
    evidence = measured(piece)
    for contender in evidence.judgement.record.measured:
        for ticked in checklist([evidence], contender.name):
            assert bool(ticked.facts) == (ticked.tick != "not determined")
            assert bool(ticked.why) == (ticked.tick == "not determined")
            assert ticked.part != "moe" or ticked.why == "there is no bundle of moe"


@pytest.mark.parametrize(
    ("item", "rule", "piece", "contender"),
    [
        ("two timers agree", "timers", LATENCY, "ours-hopper"),
        ("one kernel, no copies", "kernels", SWEEP, "sdpa-math"),
        ("masked blocks are skipped", "causal", SWEEP, "sdpa-math"),
    ],
)
def test_what_crosses_an_item_is_the_gravest_that_was_seen(item: str, rule: str, piece: str, contender: str) -> None:
    """B6: not the first of them; the diagnosis finds the same one."""
    evidence = measured(piece)
    (ticked,) = (t for t in checklist([evidence], contender) if t.item == item)
    (finding,) = (f for f in diagnose([evidence], contender) if f.rule.name == rule)
    assert ticked.tick == "no"
    assert finding.seen > 1
    assert ticked.facts[0].case == finding.facts[0].case


def test_what_ticks_an_item_is_the_one_nearest_to_crossing_it() -> None:
    """Of odd lengths the pair that keeps least of its speed against the baseline, which is what is compared."""
    evidence = measured(ODD_LENGTHS)
    (ticked,) = (t for t in checklist([evidence], "ours-hopper") if t.item == EDGES)
    worst = min(odd_lengths(evidence, "ours-hopper"), key=lambda one: one.near / one.far)
    assert (ticked.tick, ticked.facts) == ("yes", (worst.fact,))
    assert ticked.item.endswith("keep 85% of the speed against the baseline")


def test_heads_that_share_keys_in_decoding_are_not_what_the_item_needs() -> None:
    (ticked,) = (t for t in checklist([measured(DECODE)], "ours-portable") if "grouped heads" in t.item)
    assert ticked.tick == "not determined"
    assert "as many keys as queries" in ticked.why


def test_one_who_was_not_measured_has_no_ticks_and_no_symptoms() -> None:
    evidence = [measured(CPU)]
    assert {ticked.tick for ticked in checklist(evidence, "ours-hopper")} == {"not determined"}
    assert diagnose(evidence, "ours-hopper") == ()


def test_one_who_failed_has_no_ticks() -> None:
    def wrong(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": "INCORRECT", "reason": "far off"} if contender == "ours" else None

    evidence = Evidence("0" * 64, judge(run(fault=wrong)))
    attention = [t for t in checklist([evidence], "ours") if t.part == "attention"]
    assert {ticked.tick for ticked in attention} == {"not determined"}


def clocks(*told: dict[int, int]) -> str:
    """The tick, of a bundle for each: of these samples the device told other bits than that nothing held it back."""
    bundles = []
    for number, bits in enumerate(told):
        record = run({"base": 1e-3, "ours": 1e-3}, seed=number + 1)
        column = record.samples["throttle"] * 0
        for place, value in bits.items():
            column[np.flatnonzero(record.samples["phase"] == TIMED)[place]] = value
        record = replace(record, samples={**record.samples, "throttle": column})
        bundles.append(Evidence(f"{number:064}", judge(record)))
    return next(t.tick for t in checklist(bundles, "ours") if t.item == "clocks were never throttled")


@pytest.mark.parametrize(
    ("told", "tick"),
    [
        ([{}], "yes"),
        ([{5: -1}], "not determined"),
        ([{}, {5: -1}], "not determined"),
        ([{5: -1, 9: ANY}], "no"),
        ([{5: -1}, {9: ANY}], "no"),
    ],
)
def test_clocks_were_never_held_back_where_the_device_told_of_every_sample(
    told: list[dict[int, int]], tick: str
) -> None:
    assert clocks(*told) == tick


def test_what_held_clocks_back_is_told_of_the_case_that_is_named() -> None:
    """As the diagnosis tells it: not the share of all blocks of the run, beside the name of one case."""
    evidence = [measured(SWEEP)]
    ticked = next(t for t in checklist(evidence, "ours-hopper") if t.item == "clocks were never throttled")
    finding = next(f for f in diagnose(evidence, "ours-hopper") if f.rule.name == "throttled")
    assert ticked.facts[0] == finding.facts[0]
