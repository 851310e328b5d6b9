"""Records of schema 1 are read as what they are: the same facts, and nothing known that they do not say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bundles import as_schema_1, facts_of, small_record, write

from groundspeed.errors import BadInput
from groundspeed.evidence.coherence import from_facts
from groundspeed.evidence.record import to_facts
from groundspeed.lab.check import verify

EVIDENCE = Path(__file__).parents[2] / "evidence"


def test_the_committed_bundle_of_schema_1_verifies() -> None:
    folders = [folder for folder in EVIDENCE.glob("*/*") if facts_of(folder)["schema"] == 1]
    assert folders
    for folder in folders:
        assert verify(folder)[1].judgement.cases


def test_what_it_could_not_say_is_unknown() -> None:
    record = small_record()
    read = from_facts(*as_schema_1(record), "file")
    assert to_facts(read) == to_facts(record)
    assert all(np.isnan(read.samples[name]).all() for name in ("sm_clock_mhz", "temperature_c", "power_w"))
    assert (read.samples["throttle"] == -1).all()


def test_a_bundle_of_it_is_read_from_disk(tmp_path: Path) -> None:
    record = small_record()
    facts, samples = as_schema_1(record)
    assert verify(write(from_facts(facts, samples, "file"), tmp_path))[1].blocks == 4


@pytest.mark.parametrize("part", ["run", "protocol"])
def test_schema_1_with_what_only_schema_2_knows_is_refused(part: str) -> None:
    facts, samples = as_schema_1(small_record())
    facts[part]["extended" if part == "run" else "sequential"] = 0
    with pytest.raises(BadInput):
        from_facts(facts, samples, "file")


def test_schema_1_with_telemetry_is_refused() -> None:
    record = small_record()
    facts, _ = as_schema_1(record)
    with pytest.raises(BadInput):
        from_facts(facts, record.samples, "file")


def test_schema_2_without_telemetry_is_refused() -> None:
    record = small_record()
    _, samples = as_schema_1(record)
    with pytest.raises(BadInput, match="columns"):
        from_facts(to_facts(record), samples, "file")
