"""B2: what workers tell of the usage of experts is kept once for each case, and what cannot be is no message."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from benches import Bench, of, right
from scripted import judged

import experts
from experts import CASE, EVEN, SKEWED
from fakes import continue_run, noisy
from groundspeed.evidence import journal
from groundspeed.evidence.usage import Usage
from groundspeed.suites.moe.cases import shape_cases
from groundspeed.suites.moe.pytorch import expert_loop


def test_a_worker_tells_once_before_anybody_is_called() -> None:
    (case,) = shape_cases(f"{experts.SHAPE},routing=balanced", ("fp32",))
    messages = Bench({"one": expert_loop, "two": expert_loop}, case).prepare()
    (told,) = of(messages, "usage")
    assert told == messages[0]
    assert told["of"][0] == [4, 4, 4, 4]
    assert told["of"][1] == pytest.approx(1.0)
    assert len(of(messages, "ready")) == 2
    assert not of(Bench({"one": right}).prepare(), "usage")


def test_the_first_that_tells_is_kept(tmp_path: Path) -> None:
    """Other inputs have another balance loss, and as many tokens for each expert."""
    record = judged(experts.run(tmp_path, SKEWED, [SKEWED[0], 1.4]))
    assert record.usage == (Usage(CASE, (10, 4, 2, 0), 1.5),)
    assert {outcome.status for outcome in record.outcomes} == {"PASSED"}


FORGED: list[Any] = [
    *(None, [], {}, "x", 7, [EVEN[0]], [*EVEN, 1], [None, 1.0], ["4444", 1.0]),
    *([[4, 4, 4, tokens], 1.0] for tokens in (4.0, True, "4", None, 5, -4)),
    *([tokens, 1.0] for tokens in ([4, 4, 8], [4] * 5, [16, 4, 0, -4])),
    *([EVEN[0], loss] for loss in (1, True, "1", None, -0.1, 4.1, math.nan, math.inf)),
]


@pytest.mark.parametrize("told", FORGED, ids=str)
def test_what_is_no_usage_is_no_message(tmp_path: Path, told: Any) -> None:
    """A contender may write in the worker's place: there is no time then, and the record can be read."""
    record = judged(experts.run(tmp_path, told))
    assert not record.usage
    assert {outcome.status for outcome in record.outcomes} <= {"ERROR", "SKIPPED"}
    assert any("not a message" in str(outcome.reason) for outcome in record.outcomes)


def test_nor_are_other_tokens_than_before(tmp_path: Path) -> None:
    record = judged(experts.run(tmp_path, EVEN, SKEWED))
    assert record.usage == (Usage(CASE, (4, 4, 4, 4), 1.0),)
    assert [o.status for o in record.outcomes if o.process == 1] == ["ERROR", "ERROR"]


def test_nor_is_the_usage_of_a_case_without_experts(tmp_path: Path) -> None:
    facts = experts.header(["base", "ours"], processes=2, looks=(2,))
    experts.begin(tmp_path, facts).close()
    record = judged(continue_run(tmp_path, noisy({"base": 2e-3, "ours": 1e-3}), worker_type=experts.telling(EVEN)))
    assert not record.usage
    assert {outcome.status for outcome in record.outcomes} <= {"ERROR", "SKIPPED"}


@pytest.mark.parametrize(("later", "status"), [(EVEN, "PASSED"), (SKEWED, "ERROR")])
def test_a_resumed_run_holds_to_what_was_told_before(tmp_path: Path, later: Any, status: str) -> None:
    record = experts.run(tmp_path, EVEN)
    begun = [event for event in journal.from_record(record) if event.get("process") != 1]
    again = tmp_path / "again"
    log = experts.begin(again, begun[0]["facts"])
    for event in begun[1:]:
        log.write(**event)
    log.close()
    resumed = judged(continue_run(again, noisy(experts.MEANS), worker_type=experts.telling(later)))
    assert resumed.usage == record.usage
    assert {outcome.status for outcome in resumed.outcomes if outcome.process == 1} == {status}
