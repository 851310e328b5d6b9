"""B4: what each kernel of a call took is kept for all of them or for none, and is a time that one can take."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from bundles import same, small_record, write

from groundspeed.errors import BadInput
from groundspeed.evidence.coherence import from_facts
from groundspeed.evidence.launched import Launched
from groundspeed.evidence.tables import to_facts
from groundspeed.lab.check import verify

KERNELS, MOVES = ("a<1>", "b"), ("Memcpy DtoD (Device -> Device)",)


def launched(**changes: Any) -> Launched:
    told = {"moves": MOVES, "times": (3, 1, 2), "seconds": (3e-5, 1e-5, 0.0), **changes}
    return Launched(small_record().cases[0].name, "ours", KERNELS, (), (), **told)


def test_it_is_read_again_as_it_was_written(tmp_path: Any) -> None:
    record = replace(small_record(), launched=(launched(),))
    assert same(verify(write(record, tmp_path))[0].record, record)


@pytest.mark.parametrize(
    "changes",
    [
        {"times": ()},
        {"seconds": ()},
        {"times": (), "seconds": ()},
        {"moves": ()},
        {"times": (3, 1)},
        {"times": (3, 1, 0)},
        {"times": (3, 1, 2**40)},
        {"seconds": (1e-5, 1e-5, -1e-9)},
        {"seconds": (1e-5, 1e-5, math.nan)},
        {"seconds": (1e-5, 1e-5, math.inf)},
    ],
)
def test_what_no_profiler_tells_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"count|launched|impossible"):
        launched(**changes)


@pytest.mark.parametrize(("times", "said"), [(0, "less than once"), (2**31 + 1, r"more than 2,147,483,648 times")])
def test_it_is_said_which_end_was_passed(times: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        launched(times=(3, 1, times))


@pytest.mark.parametrize(("key", "value"), [("times", [True, 1, 2]), ("times", [3, 1, 2.5]), ("seconds", ["1", 0, 0])])
def test_nor_is_what_is_no_number(key: str, value: Any) -> None:
    record = replace(small_record(), launched=(launched(),))
    facts = to_facts(record)
    facts["launched"][0][key] = value
    with pytest.raises(BadInput, match=key):
        from_facts(facts, record.samples, "file")
