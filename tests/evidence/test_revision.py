"""Which commit a contender is from, read from whatever somebody wrote there."""

from __future__ import annotations

from typing import Any

import pytest

from groundspeed.errors import BadInput
from groundspeed.evidence.revision import KEY, revisions_of

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
