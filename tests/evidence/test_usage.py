"""B2: the usage of experts in a record: kept, and refused where no run could have told it."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bundles import same, write

import experts
from experts import CASE, SKEWED
from groundspeed.errors import BadInput, VerificationFailed
from groundspeed.evidence import bundle, journal
from groundspeed.evidence.coherence import from_facts
from groundspeed.evidence.record import Record
from groundspeed.evidence.tables import to_facts
from groundspeed.evidence.usage import MOST_EXPERTS, MOST_TOKENS, Usage
from groundspeed.judge.replay import replay
from groundspeed.lab.check import declared


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return experts.run(tmp_path_factory.mktemp("experts"), SKEWED)


def test_a_bundle_and_a_journal_keep_it(used: Record, tmp_path: Path) -> None:
    assert used.usage == (Usage(CASE, (10, 4, 2, 0), 1.5),)
    assert same(bundle.read(write(used, tmp_path)).record, used)
    assert same(journal.to_record(journal.from_record(used), "journal"), used)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("tokens", value) for value in ([], {}, None, 16, "16", [1.5], [True], [-1, 2], [0, 0], [[4], [4]])),
        *(("tokens", value) for value in ([1] * (MOST_EXPERTS + 1), [MOST_TOKENS, 1], [2**62] * 4)),
        *(("balance_loss", value) for value in (None, "1", True, -1e-9, 4.001, [1.0])),
        *(("case", value) for value in (None, 7, "other", "\x1b[2J")),
    ],
    ids=lambda value: f"{value!s:.20}",
)
def test_what_no_run_tells_is_refused(used: Record, key: str, value: Any) -> None:
    facts = copy.deepcopy(to_facts(used))
    facts["usage"][0][key] = value
    with pytest.raises(BadInput, match="file") as failure:
        from_facts(facts, used.samples, "file")
    assert len(str(failure.value)) < 1000
    assert failure.value.args[0].isprintable()


def test_so_is_a_case_told_twice(used: Record) -> None:
    facts = to_facts(used)
    with pytest.raises(BadInput, match="twice"):
        from_facts({**facts, "usage": facts["usage"] * 2}, used.samples, "file")


@pytest.mark.parametrize("tokens", [(10, 4, 2), (10, 4, 2, 1), (8, 8)])
def test_verify_wants_the_experts_and_tokens_of_the_shape(used: Record, tokens: tuple[int, ...]) -> None:
    replay(used, declared)
    with pytest.raises(VerificationFailed, match=f"{CASE}: the record has .* but its shape has 16 for 4"):
        replay(replace(used, usage=(Usage(CASE, tokens, 1.0),)), declared)
