"""Records of schema 1 are read as what they are: the same facts, and nothing known that they do not say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import (
    as_schema_1,
    as_schema_2,
    as_schema_3,
    as_schema_4,
    as_schema_5,
    facts_of,
    files_of,
    forged,
    raw_facts_of,
    same,
    small_record,
    write,
)

from groundspeed.errors import BadInput
from groundspeed.evidence.coherence import from_facts
from groundspeed.evidence.integrity import FACTS
from groundspeed.evidence.launched import Launched
from groundspeed.evidence.record import SCHEMA, Record
from groundspeed.evidence.tables import to_facts
from groundspeed.evidence.upgrade import NEW_IN_2, NEW_IN_3, PARTS_NEW_IN_3, PARTS_NEW_IN_6
from groundspeed.judge.cost import gate_share
from groundspeed.lab.check import verify


@pytest.mark.parametrize("schema", range(1, SCHEMA))
def test_the_committed_bundle_of_each_earlier_schema_verifies(schema: int) -> None:
    (folder,) = Path(__file__).with_name(f"schema-{schema}").iterdir()
    assert facts_of(folder)["schema"] == schema
    found, replay = verify(folder)
    assert replay.judgement.cases
    assert found.record.schema == SCHEMA
    assert schema > 2 or found.record.uncalibrated == NEW_IN_3["uncalibrated"]
    assert schema > 3 or gate_share(found.record) is None
    assert not found.record.usage


@pytest.mark.parametrize("key", PARTS_NEW_IN_6["launched"])
@pytest.mark.parametrize("value", [None, [], ["x"], "x", 1])
def test_schema_5_with_the_time_of_each_kernel_is_refused(key: str, value: Any) -> None:
    plain = small_record()
    record = replace(plain, launched=(Launched(plain.cases[0].name, "ours", ("kernel",), (), ()),))
    facts = as_schema_5(record)
    assert same(from_facts(facts, record.samples, "file"), record)
    facts["launched"][0][key] = value
    with pytest.raises(BadInput, match=rf"file: it says schema 5, but has launched\.{key}, which is new in schema 6"):
        from_facts(facts, record.samples, "file")


@pytest.mark.parametrize("value", [None, [], {}, "x", [{"case": "b1-s8", "tokens": [1], "balance_loss": 1.0}]])
def test_schema_4_with_the_usage_of_experts_is_refused(value: Any) -> None:
    record = small_record()
    facts = as_schema_4(record)
    assert same(from_facts(facts, record.samples, "file"), record)
    with pytest.raises(BadInput, match="it says schema 4, but has usage, which is new in schema 5"):
        from_facts({**facts, "usage": value}, record.samples, "file")


@pytest.mark.parametrize("value", [None, 0.1, "x"])
def test_schema_3_with_the_time_of_the_gate_is_refused(value: Any) -> None:
    record = small_record()
    facts = as_schema_3(record)
    assert same(from_facts(facts, record.samples, "file"), record)
    facts["processes"][-1]["gate_s"] = value
    with pytest.raises(BadInput, match=r"it says schema 3, but has processes\.gate_s, which is new in schema 4"):
        from_facts(facts, record.samples, "file")


@pytest.mark.parametrize("key", NEW_IN_3)
@pytest.mark.parametrize("value", [None, "because", 7, {}])
def test_schema_2_with_what_only_schema_3_knows_is_refused(key: str, value: Any) -> None:
    record = small_record()
    facts = as_schema_2(record)
    assert same(from_facts(facts, record.samples, "file"), record)
    with pytest.raises(BadInput, match=f"it says schema 2, but has {key}, which is new in schema 3"):
        from_facts({**facts, key: value}, record.samples, "file")


@pytest.mark.parametrize("part", ["run", "protocol", "contenders"])
@pytest.mark.parametrize("value", [None, False, "x", 7])
def test_so_is_one_with_what_only_its_parts_know(part: str, value: Any) -> None:
    facts = as_schema_2(small_record())
    target = facts[part][-1] if isinstance(facts[part], list) else facts[part]
    target |= dict.fromkeys(PARTS_NEW_IN_3[part], value)
    with pytest.raises(BadInput, match="file"):
        from_facts(facts, small_record().samples, "file")


def test_what_it_could_not_say_is_unknown() -> None:
    record = small_record()
    read = from_facts(*as_schema_1(record), "file")
    assert to_facts(read) == to_facts(record)
    assert all(np.isnan(read.samples[name]).all() for name in ("sm_clock_mhz", "temperature_c", "power_w"))
    assert (read.samples["throttle"] == -1).all()


def test_a_bundle_of_it_is_read_from_disk(record: Record, old: Path) -> None:
    found, replay = verify(old)
    assert same(found.record, record)
    assert replay.blocks == 4


def test_written_again_it_is_a_bundle_of_the_present_schema(record: Record, good: Path, tmp_path: Path) -> None:
    facts, samples = as_schema_1(record)
    again = write(from_facts(facts, samples, "file"), tmp_path)
    assert verify(again)[1].blocks == 4
    assert files_of(again) == files_of(good)


@pytest.mark.parametrize("schema", [True, 1.0, "1", 0, -1, 2, None, [1]])
def test_what_is_not_the_number_1_is_not_schema_1(old: Path, tmp_path: Path, schema: Any) -> None:
    """To Python, True and 1.0 are 1; in the file they are not."""
    facts = {**raw_facts_of(old), "schema": schema}
    with pytest.raises(BadInput, match=FACTS):
        verify(forged(old, tmp_path, facts=json.dumps(facts).encode()))


@pytest.mark.parametrize("part", ["run", "protocol", "processes", "outcomes", "stops"])
@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [None], [7], [[]], [{}], {"columns": [], "rows": []}])
def test_a_damaged_part_is_refused(part: str, value: Any) -> None:
    facts, samples = as_schema_1(small_record())
    facts[part] = value
    try:
        from_facts(facts, samples, "file")
    except BadInput as refusal:
        assert "file" in str(refusal)  # noqa: PT017
    else:
        assert (part, value) in (("outcomes", []), ("stops", []))  # nothing refers to them


@pytest.mark.parametrize("part", NEW_IN_2)
@pytest.mark.parametrize("value", [None, 0, False, True, [], "x", 7])
def test_schema_1_with_what_only_schema_2_knows_is_refused(part: str, value: Any) -> None:
    """Be it one key or all that are new, with a value that schema 2 would take or not."""
    for key in NEW_IN_2[part]:
        _refused_with(part, {key: value})
    _refused_with(part, dict.fromkeys(NEW_IN_2[part], value))
    _refused_with(part, NEW_IN_2[part])


def _refused_with(part: str, new: dict[str, Any]) -> None:
    for entry in (0, -1):
        facts, samples = as_schema_1(small_record())
        target = facts[part][entry] if isinstance(facts[part], list) else facts[part]
        target.update(new)
        with pytest.raises(BadInput, match="file"):
            from_facts(facts, samples, "file")


def test_schema_1_with_telemetry_is_refused() -> None:
    record = small_record()
    facts, _ = as_schema_1(record)
    with pytest.raises(BadInput, match=r"it says schema 1, but has samples of .*, which is new in schema 2"):
        from_facts(facts, record.samples, "file")


def test_schema_2_without_telemetry_is_refused() -> None:
    record = small_record()
    _, samples = as_schema_1(record)
    with pytest.raises(BadInput, match="columns"):
        from_facts(to_facts(record), samples, "file")
