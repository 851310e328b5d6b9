"""B6, B9: what a profile ticks, and what stays open. That of the H200 is a real one, reduced to its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from measured_bundles import ROOT

from groundspeed.errors import BadInput
from groundspeed.evidence import profile_bundle
from groundspeed.evidence.profile import Profile
from groundspeed.judge.grading.grade import Grade, Graded, grade
from groundspeed.judge.grading.profiled import Profiled
from groundspeed.judge.grading.specification import packaged
from groundspeed.judge.grading.traits import Evidence
from groundspeed.judge.judgement import judge
from groundspeed.judge.profile import picture
from records import on_gpu, run

(PATH,) = (ROOT / "tests" / "measured" / "profiles").iterdir()
READ = profile_bundle.read(PATH)
Change = Callable[[Profile], Profile]


@cache
def measured(gpu: str = "NVIDIA H200", code: str | None = None) -> Evidence:
    """By the same contenders as the profile, in version and file."""
    record = on_gpu(run({"sdpa-cudnn": 1e-3, "ours-hopper": 9e-4}), gpu)
    environment = {**record.environment, "code_sha256": {OURS: code}}
    return Evidence("0" * 64, judge(replace(record, environment=environment, contenders=READ.profile.contenders)))


OURS = "ours-hopper"


def whole(change: Change = lambda profile: profile, evidence: Evidence | None = None) -> Grade:
    profiles = [Profiled(READ.identity, picture(change(READ.profile)))]
    return grade([evidence or measured()], packaged(), [OURS, "sdpa-cudnn"], profiles=profiles)


def answers(graded: Graded) -> dict[str, str]:
    return {one.what: one.answer for one in graded.used}


def ticks(graded: Graded) -> dict[str, str]:
    return {one.item: one.tick for one in graded.checklist}


def counters(**changed: float | None) -> Change:
    """The metrics whose names hold these pieces, with another value or without one."""

    def change(profile: Profile) -> Profile:
        def metrics(old: dict[str, float]) -> dict[str, float]:
            new = {k: next((v for piece, v in changed.items() if piece in k), old[k]) for k in old}
            return {k: v for k, v in new.items() if v is not None}

        return replace(profile, counted=tuple(replace(c, metrics=metrics(c.metrics)) for c in profile.counted))

    return change


def test_what_is_used_of_an_h200() -> None:
    ours, cudnn = whole().contenders
    expected = {"attention: SM": "yes", "attention: tensor cores": "yes"}
    for graded, share in ((ours, 0.8153), (cudnn, 0.7294)):
        assert {k: v for k, v in answers(graded).items() if v != "not determined"} == expected
        for used in graded.used[:2]:
            (fact,) = used.facts
            assert (fact.bundle, fact.case) == (READ.identity, "sweep-d128-s4096-full-bf16")
            assert fact.figures[0].value == pytest.approx(share, abs=5e-4)


def test_the_checklist_of_an_h200() -> None:
    ours, cudnn = whole().contenders
    told = {"multiplies on tensor cores", "one kernel, no copies", "copies under 1% of the time"}
    gaps, spills = "device idle for under 1% between kernels", "registers do not spill"
    assert {ticks(g)[item] for g in (ours, cudnn) for item in told} == {"yes"}
    assert (ticks(ours)[gaps], ticks(cudnn)[gaps]) == ("yes", "not determined")  # cuDNN waits 1.7%, or its profiler
    assert ticks(ours)[spills] == ticks(ours)["launch overhead under 50 µs"] == "not determined"
    assert next(one.why for one in ours.checklist if one.item == spills) == "the profiles have no counter for it"
    assert all(fact.bundle == READ.identity for one in ours.checklist if one.item in told for fact in one.facts)


def spilling(requests: float) -> Change:
    return lambda profile: replace(
        profile,
        counted=tuple(
            replace(c, metrics={**c.metrics, "derived__local_spilling_requests": requests}) for c in profile.counted
        ),
    )


def copying(profile: Profile) -> Profile:
    copies = [replace(e, kind="copy", name="Memcpy", start_s=e.start_s + e.seconds) for e in profile.events]
    return replace(profile, events=(*profile.events, *copies))


@pytest.mark.parametrize(
    ("change", "item", "tick"),
    [
        (spilling(0), "registers do not spill", "yes"),
        (spilling(12), "registers do not spill", "no"),
        (copying, "copies under 1% of the time", "no"),
        (copying, "one kernel, no copies", "no"),
        (counters(sm__pipe_tensor=0.0), "multiplies on tensor cores", "no"),
    ],
)
def test_an_item_is_crossed_by_what_is_against_it(change: Change, item: str, tick: str) -> None:
    assert ticks(whole(change).contenders[0])[item] == tick


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (counters(sm__throughput=59.0), "no"),
        (counters(sm__throughput=60.0), "no"),
        (counters(sm__throughput=None), "not determined"),
        (counters(sm__throughput=900.0), "not determined"),
    ],
)
def test_a_share_that_falls_short_or_is_not_told(change: Change, answer: str) -> None:
    assert answers(whole(change).contenders[0])["attention: SM"] == answer


def other_code(profile: Profile) -> Profile:
    return replace(profile, environment={**profile.environment, "code_sha256": {OURS: "a" * 64}})


def faster_than_light(profile: Profile) -> Profile:
    events = tuple(replace(e, start_s=e.start_s / 9, seconds=e.seconds / 9) for e in profile.events)
    return replace(profile, events=events)


def of_another_suite(profile: Profile) -> Profile:
    """Whose contender of that name is another."""
    return replace(profile, suite="moe")


@pytest.mark.parametrize("change", [other_code, of_another_suite, faster_than_light])
def test_a_profile_of_other_code_or_beyond_physics_tells_nothing(change: Change) -> None:
    code = READ.profile.environment["code_sha256"][OURS]
    graded = whole(change, measured(code=code)).contenders[0]
    assert set(answers(graded).values()) == {"not determined"}
    assert ticks(graded)["copies under 1% of the time"] == "not determined"
    assert answers(whole(evidence=measured(code=code)).contenders[0])["attention: SM"] == "yes"


def test_without_a_profile_nothing_is_known_of_what_is_used() -> None:
    found = grade([measured()], packaged()).contenders[0].used
    assert {(one.answer, one.why) for one in found} == {("not determined", "no profile was given")}


def test_a_profile_of_another_device_is_not_mixed_in() -> None:
    with pytest.raises(BadInput, match="is from NVIDIA H200, but the bundles are from NVIDIA A10; grade one device"):
        whole(evidence=measured("NVIDIA A10"))
