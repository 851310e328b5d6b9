"""B2, B6: variation, balance loss and the router's share are computed from what was told, and tick the checklist."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

import experts
from experts import EVEN, SKEWED, on_gpu, routed_profile
from groundspeed.evidence.record import Record
from groundspeed.evidence.usage import Usage
from groundspeed.judge.beside import beside
from groundspeed.judge.experts import ROUTER, expert_use, router_shares
from groundspeed.judge.grading.checklist import Ticked, checklist
from groundspeed.judge.grading.profiled import Profiled
from groundspeed.judge.grading.traits import Evidence
from groundspeed.judge.judgement import judge
from groundspeed.judge.profile import picture

OURS = "ours-portable"
USAGE, SHARE = "expert usage varies by less than 10%", "router under 5% of the time"
ROUTING = tuple((name, 1.0) for name in ROUTER[:3])


def used(record: Record, *tokens: int, loss: float = 1.0) -> Record:
    return replace(record, usage=(Usage(experts.CASE, tokens, loss),))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return on_gpu(experts.run(tmp_path_factory.mktemp("experts"), SKEWED))


def test_variation_and_balance(measured: Record) -> None:
    (one,) = expert_use(measured)
    assert (one.most, one.least) == (10, 0)
    assert one.variation == pytest.approx(math.sqrt((36 + 0 + 4 + 16) / 4) / 4)
    assert one.over_ideal == pytest.approx(0.5)
    (even,) = expert_use(used(measured, 4, 4, 4, 4))
    assert (even.variation, even.over_ideal) == (0, 0)


def test_a_case_of_which_nobody_told_has_none(measured: Record) -> None:
    assert expert_use(replace(measured, usage=())) == ()


def ticked(item: str, record: Record, *profiles: Any) -> Ticked:
    evidence = [Evidence("0" * 64, judge(record))]
    looks = [Profiled("1" * 64, picture(profile)) for profile in profiles]
    return next(one for one in checklist(evidence, OURS, profiles=looks) if one.item == item)


@pytest.mark.parametrize(
    ("tokens", "tick"),
    [
        (EVEN[0], "yes"),
        ((1000, 1000, 1100, 900), "yes"),
        ((1000, 1000, 1200, 800), "no"),
        ((10, 0, 0, 0), "no"),
        ((1, 1, 0, 0), "not determined"),  # a single token: chance
        ((22, 18, 28, 12), "not determined"),
    ],
)
def test_the_checklist_crosses_what_is_more_than_chance(measured: Record, tokens: tuple[int, ...], tick: str) -> None:
    found = ticked(USAGE, used(measured, *tokens))
    assert found.tick == tick
    if tick == "not determined":
        assert "chance" in found.why
    else:
        (figure,) = found.facts[0].figures
        assert figure.value == expert_use(used(measured, *tokens))[0].variation


def test_who_did_not_pass_says_nothing_of_experts(measured: Record) -> None:
    failed = tuple(replace(o, status="ERROR", reason="no") if o.contender == OURS else o for o in measured.outcomes)
    assert ticked(USAGE, replace(measured, outcomes=failed)).tick == "not determined"


@pytest.mark.parametrize(
    ("kernels", "share"),
    [
        ((*ROUTING, ("moe_up_kernel", 96.0)), 0.03),
        ((*ROUTING, ("moe_up_kernel", 6.0)), 0.3),
        (((ROUTER[0], 9.0), ("moe_up_kernel", 90.0)), 0.09),
        ((("route", 9.0), ("moe_up_kernel", 90.0)), None),
    ],
)
def test_the_share_of_the_router(measured: Record, kernels: Any, share: float | None) -> None:
    """Of all that ran, the copy included; nobody can tell of a router by another name."""
    profile = routed_profile(measured.cases[0], *kernels)
    found = router_shares(measured.cases[0], [beside(measured, "1" * 64, picture(profile))])
    assert found == ({} if share is None else {OURS: pytest.approx(share)})
    ticks = {None: "not determined", 0.03: "yes"}
    assert ticked(SHARE, measured, profile).tick == ticks.get(share, "no")


def test_a_profile_that_left_events_out_tells_no_share(measured: Record) -> None:
    profile = routed_profile(measured.cases[0], *ROUTING, left_out=1)
    assert router_shares(measured.cases[0], [beside(measured, "1" * 64, picture(profile))]) == {}


def test_nor_does_one_of_another_case(measured: Record) -> None:
    profile = routed_profile(measured.cases[0], *ROUTING)
    other = replace(measured.cases[0], params={**measured.cases[0].params, "T": 9})
    one = beside(measured, "1" * 64, picture(profile))
    assert router_shares(other, [one]) == {}
    clocked = replace(other, params={**measured.cases[0].params, "clock": "graph"})
    assert router_shares(clocked, [one]) == router_shares(measured.cases[0], [one])


def test_without_a_profile_it_is_not_determined(measured: Record) -> None:
    found = ticked(SHARE, measured)
    assert found.tick == "not determined"
    assert "groundspeed profile" in found.why


def test_what_a_case_skews_on_purpose_is_not_held_against_anybody(measured: Record) -> None:
    (case,) = measured.cases
    planted = replace(measured, cases=(replace(case, params={**case.params, "routing": "zipf"}),))
    assert ticked(USAGE, used(planted, 10, 0, 0, 0)).tick == "not determined"
