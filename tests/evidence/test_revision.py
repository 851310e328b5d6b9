"""Which commit a contender is from, read from whatever somebody wrote there."""

from __future__ import annotations

from typing import Any

import pytest

from groundspeed.errors import BadInput
from groundspeed.evidence.revision import INSTALLED, KEY, installed_of, packages_of, revisions_of

GOOD = {"contender": "mine", "side": "base", "asked": "main", "commit": "a" * 40}


def test_a_record_without_revisions_has_none() -> None:
    assert revisions_of({}) == {}
    assert revisions_of({KEY: {"mine@base": GOOD}})["mine@base"].short == "a" * 12


@pytest.mark.parametrize(
    "told",
    [
        [],
        "main",
        {"mine@base": []},
        {"mine@head": GOOD},
        {"mine@base": {**GOOD, "commit": "HEAD; rm"}},
        {"mine@base": {**GOOD, "side": "left"}},
        {"mine@base": {**GOOD, "asked": "\x1b[2J"}},
        {"mine@base": {**GOOD, "more": 1}},
    ],
)
def test_what_is_no_revision_is_refused(told: Any) -> None:
    with pytest.raises(BadInput):
        revisions_of({KEY: told})


HAD = {"asked": ["speedlib==2.0"], "met": "venv", "packages": {"torch": "2.14.0", "speedlib": "2.0"}}


def test_the_packages_of_a_contender_are_those_it_was_measured_with() -> None:
    environment = {"packages": {"torch": "2.13.0", "triton": "3.7.1"}, INSTALLED: {"mine@head": HAD}}
    assert packages_of(environment, "mine@base") == {"torch": "2.13.0", "triton": "3.7.1"}
    assert packages_of(environment, "mine@head") == {"torch": "2.14.0", "triton": "3.7.1", "speedlib": "2.0"}
    assert packages_of({"packages": ["torch"]}, "mine@head") == {}


@pytest.mark.parametrize(
    "told",
    [
        [],
        {"mine@head": None},
        {"mine@head": {**HAD, "met": "maybe"}},
        {"mine@head": {**HAD, "packages": {"torch": 2}}},
        {"mine@head": {**HAD, "packages": {"torch": "2\x1b[2J"}}},
        {"mine@head": {**HAD, "asked": ["x" * 1000]}},
    ],
)
def test_what_tells_of_no_packages_is_refused(told: Any) -> None:
    with pytest.raises(BadInput):
        installed_of({INSTALLED: told})
