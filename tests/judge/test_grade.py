"""B8 and B9: gates and letters, and what they never rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from measured_bundles import CPU, SWEEP, measured

from groundspeed.case import Case
from groundspeed.errors import BadInput
from groundspeed.evidence.revision import KEY
from groundspeed.judge.grading.gates import Letter, Ruling
from groundspeed.judge.grading.grade import Grade, Graded, grade
from groundspeed.judge.grading.specification import Specification, packaged
from groundspeed.judge.grading.traits import Evidence
from groundspeed.judge.judgement import judge
from groundspeed.report.grade import reason, unmeasured
from groundspeed.suites.registry import suite_module
from records import biased, interrupted, on_gpu, run

CASES = {case.name: case for case in suite_module("attention").all_cases()}


def evidence(record: object, identity: str = "0" * 64) -> Evidence:
    return Evidence(identity, judge(record))  # type: ignore[arg-type]


def graded(*found: Evidence, specification: Specification | None = None, **asked: object) -> Graded:
    return whole(*found, specification=specification, **asked).contenders[0]


def whole(*found: Evidence, specification: Specification | None = None, **asked: object) -> Grade:
    return grade(found, specification or packaged(), **asked)  # type: ignore[arg-type]


def at(speed: float) -> Evidence:
    """A contender at this speed of the baseline, on both of its cases."""
    return evidence(run({"base": 1e-3, "ours": 1e-3 / speed}))


def gate(found: Graded, name: str) -> Ruling:
    return next(ruling for ruling in found.rulings if ruling.gate == name)


@pytest.mark.parametrize(
    ("speed", "letter", "answer"),
    [
        (1.2, ("A",), "passed"),
        (0.75, ("B",), "passed"),
        (0.65, ("C",), "passed"),
        (0.5, ("D",), "failed"),
        (0.3, ("F",), "failed"),
    ],
)
def test_the_letters_and_the_gate(speed: float, letter: tuple[str, ...], answer: str) -> None:
    found = graded(at(speed))
    assert found.letters["attention"].letters == letter
    assert gate(found, "attention performance").answer == answer


def test_an_interval_over_a_border_has_both_letters_and_decides_no_gate() -> None:
    found = graded(at(0.6))
    assert found.letters["attention"].letters == ("C", "D")
    assert gate(found, "attention performance").answer == "not determined"


def test_the_letter_is_that_of_the_worst_case() -> None:
    def seconds(contender: str, case: str, block: int) -> float:
        slow = contender == "ours" and case == "b2-s64"
        return (2e-3 if slow else 1e-3) * (1 + 1e-4 * (block % 7))

    found = graded(evidence(run(seconds, ["base", "ours"])))
    assert found.letters["attention"].letters == ("D",)
    assert "b2-h8-s64" in found.letters["attention"].why


def test_without_a_bundle_of_moe_the_letter_is_of_attention_alone() -> None:
    found = graded(at(1.2))
    assert found.letters["attention"].letters == ("A",)
    assert found.letter == Letter((), "there is no bundle of moe")
    assert gate(found, "moe performance").answer == "not determined"
    assert gate(found, "inference numerical").why == "there is no bundle of inference"
    assert graded(at(0.3)).letter.letters == ("F",)  # whatever MoE would be


def test_asking_for_one_suite_can_be_answered() -> None:
    assert whole(at(1.2)).answer == "not determined"
    assert whole(at(1.2), suites=["attention"]).answer == "passed"
    assert whole(at(0.5)).answer == "failed"


def failing(status: str) -> Evidence:
    def fault(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": status, "reason": "far off"} if contender == "ours" and case == "b2-s64" else None

    return evidence(run({"base": 1e-3, "ours": 1e-4}, fault=fault))


@pytest.mark.parametrize("status", ["INCORRECT", "ERROR"])
def test_one_who_fails_a_case_fails_however_fast_he_is(status: str) -> None:
    found = graded(failing(status))
    assert found.letters["attention"].letters == ("F",)
    assert gate(found, "attention numerical").answer == "failed"
    assert gate(found, "attention performance").answer == "failed"
    assert status in gate(found, "attention performance").why


def test_a_time_beyond_physics_fails() -> None:
    record = run({"base": 1.0, "ours": 1e-9}, cases=[CASES["ref-64-full-fp16"]])
    found = graded(evidence(on_gpu(record, "NVIDIA H100 80GB HBM3")))
    assert gate(found, "attention performance").answer == "failed"
    assert "INVALID" in gate(found, "attention performance").why


@pytest.mark.parametrize("finished", [1, 3])
def test_nothing_rests_on_a_run_that_was_interrupted(finished: int) -> None:
    found = graded(evidence(interrupted(run({"base": 1e-3, "ours": 1e-4}), finished)), suites=["attention"])
    assert {ruling.answer for ruling in found.rulings} == {"not determined"}
    assert found.letter.letters == ()
    assert "--resume" in found.letter.why


def test_a_run_of_two_revisions_is_made_again_and_not_resumed() -> None:
    record = interrupted(run({"base": 1e-3, "ours": 1e-4}), 3)
    revision = {"contender": "ours", "side": "head", "asked": "HEAD", "commit": "a" * 40}
    compared = replace(record, environment={**record.environment, KEY: {"ours@head": revision}})
    why = graded(evidence(compared), suites=["attention"]).letter.why
    assert "compare the revisions again" in why
    assert "--resume" not in why


def test_nothing_rests_on_one_process() -> None:
    found = graded(evidence(run({"base": 1e-3, "ours": 1e-4}, processes=1)))
    assert gate(found, "attention performance").answer == "not determined"


def test_nothing_rests_on_a_machine_that_tells_a_contender_from_itself() -> None:
    quiet = run({"base": 1e-3, "ours": 1e-3 / 1.2})
    assert gate(graded(evidence(quiet)), "attention performance").answer == "passed"
    found = graded(evidence(biased(quiet)))
    assert gate(found, "attention performance").answer == "not determined"
    assert "alarm" in gate(found, "attention performance").why


def test_the_measured_sweep() -> None:
    found = {g.contender: g for g in whole(measured(SWEEP)).contenders}
    assert list(found) == ["ours-portable", "ours-hopper"]
    assert found["ours-hopper"].letters["attention"].letters == ("A",)
    assert found["ours-portable"].letters["attention"].letters == ("C",)
    assert gate(found["ours-hopper"], "attention numerical").answer == "passed"


def test_a_case_that_was_skipped_leaves_it_open() -> None:
    found = graded(measured(SWEEP), contenders=["flex"])
    assert gate(found, "attention performance").answer in ("failed", "not determined")
    assert gate(found, "attention numerical").answer == "not determined"
    assert "SKIPPED" in gate(found, "attention numerical").why


def test_errors_are_excellent_under_a_tenth_of_the_tolerance() -> None:
    assert gate(graded(at(1.0)), "attention numerical").excellent is True  # 1e-7 of 1e-5
    strict = replace(packaged(), excellent=0.001)
    assert gate(graded(at(1.0), specification=strict), "attention numerical").excellent is False


def test_the_error_that_decides_what_is_excellent_is_told() -> None:
    """Not the RMS alone, which may be nearer to its tolerance and of which the specification has no figure."""
    bundle = at(1.0)
    record = bundle.judgement.record
    errors = {"max_abs": 0.4e-6, "mean_abs": 0.0, "max_rel": 0.0, "rms_rel": 0.5 * record.cases[0].tolerance["rms_rel"]}
    outcomes = tuple(replace(o, **errors) if o.contender == "ours" else o for o in record.outcomes)
    found = gate(graded(evidence(replace(record, outcomes=outcomes))), "attention numerical")
    assert found.excellent is True
    assert [one.figures[0].name for one in found.facts] == [
        "rms rel as share of tolerance",
        "max abs as share of tolerance",
    ]
    assert reason(found).endswith("max abs as share of tolerance 4.0%; excellent (by max abs, mean abs, max rel)")


def test_the_reference_may_be_another_contender_or_the_specification() -> None:
    against = graded(measured(CPU), contenders=["sdpa-math"], reference="sdpa-flash")
    assert gate(against, "attention performance").answer in ("failed", "not determined")
    itself = graded(measured(CPU), contenders=["sdpa-math"])
    assert "is the reference itself" in gate(itself, "attention performance").why
    no_times = graded(measured(CPU), reference="spec")
    assert gate(no_times, "attention performance").answer == "not determined"


def ref_64(means: Mapping[str, float], gpu: str, case: str = "ref-64-full-fp16") -> Evidence:
    cases: list[Case] = [CASES[case]]
    return evidence(on_gpu(run(means, cases=cases), gpu))


def test_the_times_of_the_specification() -> None:
    """The H100 column has 3.2 ms as reference and 4.5 ms as target."""
    found = whole(ref_64({"base": 5e-3, "ours": 3.6e-3}, "NVIDIA H200"), reference="spec")
    assert found.column == "H100"
    assert found.contenders[0].letters["attention"].letters == ("A",)
    assert "H100 time of the specification" in found.contenders[0].letters["attention"].why
    aim = found.aims[0]
    assert [(g.name, g.label, g.reached) for g in aim.goals] == [
        ("target", "trivial", ("ours",)),
        ("excellent", "trivial", ("ours",)),
        ("reference", "trivial", ()),
    ]
    assert {aim.bundle for aim in found.aims[1:]} == {None}


def test_a_target_is_reached_only_on_all_cases_that_it_is_about() -> None:
    """Whatever the order of the bundles; and a case by another clock answers no target."""
    fast, slow = (ref_64({"base": 5e-3, "ours": ours}, "NVIDIA H200") for ours in (3.6e-3, 4.9e-3))
    for found in ((fast, slow), (slow, fast)):
        aim = whole(*(replace(one, identity=f"{one is slow}") for one in found)).aims[0]
        assert (aim.cases, aim.bundle) == (2, "True")
        assert {(g.reached, *sorted(g.missed)) for g in aim.goals} == {((), "base", "ours")}
    assert whole(fast).aims[0].goals[0].reached == ("ours",)
    record = fast.judgement.record
    warm = replace(record.cases[0], params={**record.cases[0].params, "clock": "warm"})
    assert whole(evidence(replace(record, cases=(warm,)))).aims[0].bundle is None


@pytest.mark.parametrize(("there", "alike"), [("ref-64-full-bf16", True), ("ref-64-causal-bf16", False)])
def test_a_target_that_was_measured_in_another_dtype_alone_says_so(there: str, alike: bool) -> None:
    bundle = ref_64({"base": 5e-3, "ours": 3e-3}, "NVIDIA H200", there)
    found, called = whole(bundle), bundle.judgement.cases[0].facts.name
    aim = next(aim for aim in found.aims if aim.target.case == "ref-64")
    assert (aim.bundle, aim.alike) == (None, (called,) if alike else ())
    instead = f"; measured in another dtype: {called}" if alike else ""
    assert f"ref-64 full fp16 (goal under 4.50 ms, trivial{instead})" in unmeasured(found)["attention"]


def test_no_target_is_reached_in_a_run_that_was_interrupted() -> None:
    record = run({"base": 5e-3, "ours": 3e-3}, cases=[CASES["ref-64-full-fp16"]])
    aim = whole(evidence(on_gpu(interrupted(record, 2), "NVIDIA H200"))).aims[0]
    assert {(g.reached, g.missed, g.undecided) for g in aim.goals} == {((), (), ("base", "ours"))}
    assert "--resume" in aim.why


def test_devices_are_not_mixed() -> None:
    with pytest.raises(BadInput, match="one device at a time"):
        whole(measured(CPU), at(1.0))
