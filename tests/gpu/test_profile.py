"""A4, A8: a profile on a real GPU: kernels of the timeline, and counters where they can be read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from groundspeed.evidence.profile_bundle import ProfileBundle
from groundspeed.judge.profile import Picture
from groundspeed.lab import profile
from groundspeed.lab.request import Request
from groundspeed.measure import ncu

CASE = "sweep-d128-s4096-full-bf16"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[ProfileBundle, Picture, int]:
    hopper = torch.cuda.get_device_capability() == (9, 0)
    only = ("ours-hopper" if hopper else "ours-portable", "sdpa-cudnn")
    request = Request("attention", "quick", case=(CASE,), only=only, out=tmp_path_factory.mktemp("profiles"))
    return profile.verify(profile.run(request, keep_reports=True).path)


def test_both_have_kernels_with_sizes_and_a_place_under_the_roof(made: tuple[ProfileBundle, Picture, int]) -> None:
    found, picture, _ = made
    assert [look.seen.status for look in picture.looks] == ["PASSED", "PASSED"]
    for look in picture.looks:
        top = look.tops[0]
        assert top.kind == "kernel"
        assert top.share > 0.5
        assert top.launch.registers
        assert top.launch.grid
        assert look.span_s is not None
        assert look.call_s is not None
        assert 0 < look.span_s <= look.call_s
        assert look.before_s is not None
        assert look.before_s > 0
        assert look.point is not None
        assert not look.point.impossible
        assert look.point.share is None or 0.05 < look.point.share <= 1
        assert len([call for call in found.profile.calls if call.contender == look.contender]) == 5


def test_counters_or_the_reason_why_there_are_none(made: tuple[ProfileBundle, Picture, int]) -> None:
    found, picture, reports = made
    for look in picture.looks:
        if look.seen.no_counters:
            if ncu.find(None):
                known = tuple(ncu.REASONS.values())
                assert look.seen.no_counters in known, "a reason that nobody has put into words yet"
            continue
        reading = look.readings[0]
        assert reading.tensor is not None
        assert reading.tensor > 0
        for share in (reading.sm, reading.dram, reading.l2_hits, reading.achieved, reading.possible):
            assert share is not None
            assert 0 <= share <= 1.01
        assert reading.registers
        assert reading.stalls
    assert reports == len(picture.counted)
    assert len(list(Path(found.path).parent.glob("*.ncu-rep"))) == reports
