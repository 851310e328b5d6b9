"""B6 and B7 of products of matrices and of decoding: they are told what fits them, by bundles of an H200."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from measured_bundles import LATENCY, PLANTED, SWEEP, measured

from groundspeed.judge.grading import diagnosis
from groundspeed.judge.grading.checklist import Ticked, checklist
from groundspeed.judge.grading.diagnosis import ELSEWHERE, MEASURE_GRAPH, REPLAY, RULES, diagnose
from groundspeed.judge.grading.grade import grade
from groundspeed.judge.grading.sizes import small_work
from groundspeed.judge.grading.specification import packaged
from groundspeed.judge.grading.traits import Evidence
from groundspeed.judge.judgement import judge
from records import run

GEMM, DECODING = "-f579-", "-cb2c-"
ROOF, SUMS = "half of the roof on compute-bound work", "sums in FP32"


def ticked(evidence: list[Evidence], contender: str, *parts: str) -> dict[str, Ticked]:
    return {one.item: one for one in checklist(evidence, contender, parts)}


@pytest.mark.parametrize("parts", [(), ("gemm",)])
def test_what_is_asked_of_the_system_is_answered_by_products_of_matrices(parts: tuple[str, ...]) -> None:
    found = ticked([measured(GEMM)], "ours-hopper", *parts)
    assert {one.item: one.tick for one in found.values() if one.tick != "not determined"} == {
        "the machine is calibrated, without an alarm": "no",
        "clocks were never throttled": "no",
        "runs from a CUDA graph": "yes",
        "two timers agree": "yes",
        "processes agree within 10%": "no",
        "every warm-up settled": "yes",
    }
    assert found["launch overhead under 50 µs"].why == "its launches were not counted"


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("this machine was never calibrated", "never calibrated"),
        ("calibrations were turned off for this run", "measured without a calibration"),
    ],
)
def test_a_machine_without_a_calibration_is_told_how_to_make_one(why: str, said: str) -> None:
    evidence = Evidence("0" * 64, judge(replace(run(), uncalibrated=why)))
    item = ticked([evidence], "ours")["the machine is calibrated, without an alarm"]
    (figure,) = item.facts[0].figures
    assert (item.tick, figure.value) == ("no", 0)
    assert figure.name.startswith(f"{said} (groundspeed calibrate --preset quick), ")


@pytest.mark.parametrize("suite", ["attention", "moe", "gemm"])
def test_the_system_is_asked_in_every_suite(suite: str) -> None:
    record = run()
    evidence = Evidence("0" * 64, judge(replace(record, run=replace(record.run, suite=suite))))
    assert ticked([evidence], "ours", suite)["processes agree within 10%"].tick == "yes"


def test_of_suites_that_are_not_graded_nothing_is_told_of_the_system() -> None:
    products, decoding = measured(GEMM), measured(DECODING)
    found = ticked([products, decoding], "ours-portable", "attention").values()
    assert {fact.bundle for one in found for fact in one.facts} == {decoding.identity}
    assert {one.why for one in ticked([decoding], "ours-portable", "gemm").values()} == {"there is no bundle of gemm"}
    assert ticked([products], "sdpa-math", "gemm")["two timers agree"].why == "no bundle of gemm has sdpa-math"


def test_a_suite_without_gates_is_named_where_a_bundle_is_of_it() -> None:
    assert grade([measured(GEMM)], packaged(), suites=["gemm"]).ungated == ("gemm",)
    assert grade([measured(GEMM), measured(DECODING)], packaged()).ungated == ("gemm",)
    assert grade([measured(GEMM), measured(DECODING)], packaged(), suites=["attention"]).ungated == ()


def test_work_is_told_by_a_size_that_it_has() -> None:
    evidence = measured(GEMM)
    findings = diagnose([evidence], "ours-hopper")
    (small,) = (found for found in findings if found.rule.name == "small work")
    assert [figure.name for figure in small.facts[0].figures] == [
        "M=16 speed against pytorch",
        "M=8192 speed against pytorch",
    ]
    names = [figure.name for found in findings for fact in found.facts for figure in fact.figures]
    assert not [name for name in names if "None" in name]


@pytest.mark.parametrize(("piece", "size"), [(DECODING, "N"), (GEMM, "M"), (LATENCY, "S"), (PLANTED, "S")])
def test_the_smallest_work_and_the_largest_differ_in_one_size(piece: str, size: str) -> None:
    """Not one query in the one and sixteen in the other, among other things."""
    evidence, seen = measured(piece), 0
    cases = [case.facts.params for case in evidence.judgement.cases]
    for contender in evidence.judgement.record.measured:
        for found in small_work(evidence, contender.name):
            smallest = evidence.case(found.fact.case).facts.params
            first, last = (figure.name.partition(" ")[0] for figure in found.fact.figures)
            assert first == f"{size}={smallest[size]}"
            assert {**smallest, size: int(last.removeprefix(f"{size}="))} in cases
            seen += 1
    assert seen


ATTENTION = re.compile(r"softmax|key|quer|score|probabilit|mask|\bhead|attention", re.I)
OF_ATTENTION = {"causal", "quadratic memory", "odd lengths", "wide heads"}
"""What shows these no product of matrices has: a mask, a length, heads."""


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("suite", ["gemm", "moe"])
def test_nobody_tells_a_product_of_matrices_of_the_softmax(suite: str, device: str) -> None:
    spoken = [rule for rule in RULES if rule.name not in OF_ATTENTION]
    assert not [rule.name for rule in spoken if ATTENTION.search(" ".join(sum(rule.advice(device, suite), ())))]
    said = {line for rule in RULES for on in ("cuda", "cpu") for lines in rule.advice(on) for line in lines}
    assert set(ELSEWHERE) <= said, "each replaces something"


def test_causes_are_those_of_the_suite_that_showed_the_symptom() -> None:
    for piece, softmax in ((GEMM, False), (SWEEP, True)):
        (found,) = (f for f in diagnose([measured(piece)], "ours-portable") if f.rule.name == "compute-bound")
        assert ("softmax" in found.causes[0]) is softmax
    found_of = {f.rule.name for f in diagnose([measured(GEMM)], "ours-portable")}
    assert not found_of & OF_ATTENTION


def test_sums_are_those_over_the_keys_however_few_the_queries() -> None:
    """The gate of the run tries long sums from 512 keys on."""
    found = ticked([measured(DECODING)], "ours-portable")[SUMS]
    assert found.tick == "yes"
    assert found.facts[0].case.startswith("decode-")


@pytest.mark.parametrize(
    ("piece", "contender", "why"),
    [
        (DECODING, "ours-portable", "every case is memory-bound"),
        (LATENCY, "ours-hopper", "needs compute-bound work that no cache serves and that takes 50 µs or more"),
        (PLANTED, "planted", "needs the roofs of the device (groundspeed calibrate) and enough work"),
    ],
)
def test_what_is_lacking_under_the_roof_is_what_the_bundle_lacks(piece: str, contender: str, why: str) -> None:
    found = ticked([measured(piece)], contender)[ROOF]
    assert (found.tick, found.why) == ("not determined", why)


@pytest.mark.parametrize("piece", [DECODING, LATENCY, GEMM])
def test_nobody_is_told_to_measure_by_a_graph_what_was_measured_so(piece: str) -> None:
    """Each case of these bundles on which such a symptom was seen was measured by that clock too."""
    evidence = measured(piece)
    named = [c.name for c in evidence.judgement.record.measured]
    findings = [found for name in named for found in diagnose([evidence], name)]
    assert "timers" in {found.rule.name for found in findings}
    assert not [found.facts[0].case for found in findings if MEASURE_GRAPH in found.tries]


def test_one_is_told_to_where_nobody_did() -> None:
    (found,) = (f for f in diagnose([measured(SWEEP)], "ours-hopper") if f.rule.name == "timers")
    assert MEASURE_GRAPH in found.tries


@pytest.mark.parametrize(
    ("case", "left_out"),
    [
        ("decode-x1-n1024-full-bf16@graph", {MEASURE_GRAPH, REPLAY}),
        ("decode-x1-n1024-full-bf16", {MEASURE_GRAPH}),  # to replay a graph may still be the way to use it
    ],
)
def test_what_was_done_on_the_case_that_is_named_is_not_advised(
    monkeypatch: pytest.MonkeyPatch, case: str, left_out: set[str]
) -> None:
    advice = (MEASURE_GRAPH, REPLAY, "allocate less")
    rule = replace(RULES[0], tries=advice, see=lambda evidence, contender: [(1.0, evidence.fact(case))])
    monkeypatch.setattr(diagnosis, "RULES", (rule,))
    (found,) = diagnose([measured(DECODING)], "ours-portable")
    assert set(advice) - set(found.tries) == left_out
