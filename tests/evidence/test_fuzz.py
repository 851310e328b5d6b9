"""Facts and samples changed at random, with every hash right: only a GroundspeedError is ever raised, by `verify` and
by all that judges what verifies."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import (
    columns_of,
    facts_file,
    facts_of,
    forged,
    raw_facts_of,
    samples_file,
    small_record,
    write,
    write_schema_1,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes import Died
from groundspeed.errors import GroundspeedError
from groundspeed.evidence import bundle
from groundspeed.evidence.bundle import read
from groundspeed.evidence.coherence import LONGEST_S, SHORTEST_S, from_facts
from groundspeed.evidence.integrity import FACTS, SAMPLES, pack_samples, unpack_samples
from groundspeed.evidence.journal import from_record, to_record
from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import Samples
from groundspeed.evidence.tables import TABLES, expand, tabulate, to_facts
from groundspeed.judge.claims import case_claim, headline
from groundspeed.judge.judgement import judge
from groundspeed.lab.check import verify

fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

ABSURD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 10, 32767, 32768, 10**6, 2**31, 2**62, 2**63 - 1, -(2**62)),
    *(0.0, -1.0, 0.5, 5e-324, 1e-12, 1e300, 1.7e308, -1.7e308),
    *("", "x", "\x1b[2J", "9" * 150, "base", "ours", "cuda", "NVIDIA H200", "PASSED", "ERROR", "budget", "last look"),
    *([], {}, [[]], {"a": 1}, [1, 2, 3], "x" * 10_000),
]
REMOVE, REPEAT = "remove", "repeat"


@pytest.fixture(scope="module")
def eventful() -> Record:
    """Two cases, and a contender that died in the first process."""

    def fault(contender: str, case: str, block: int | None) -> Exception | None:
        return Died("killed") if (contender, case, block) == ("ours", "b2-s8", 1) else None

    return small_record(fault, shapes=("B=1,S=8,causal=0", "B=2,S=8,causal=0"))


@pytest.fixture(scope="module")
def source(eventful: Record, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(eventful, tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def first_schema(eventful: Record, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_schema_1(eventful, tmp_path_factory.mktemp("first"))


def survives(source: Path, parent: Path, **changed: bytes) -> None:
    """It verifies and can be judged, told and gone on with; or it is refused in a short sentence."""
    path = forged(source, parent, **changed)
    try:
        found, replay = verify(path)
    except GroundspeedError as refusal:  # whether it is refused depends on the example
        assert refusal.exit_code in (1, 2) and len(str(refusal)) < 2000  # noqa: PT017, PT018
    else:
        judgement = replay.judgement
        for grid in judgement.grids:
            assert headline(judgement, grid)[1]
        for case in judgement.cases:
            assert len([case_claim(judgement, case, result) for result in case.results]) == len(case.results)
        assert to_record(from_record(found.record), "journal").cases == found.record.cases
        rewritten(found.record)
    finally:
        shutil.rmtree(path)


def rewritten(record: Record) -> None:
    """Gone on with, it will be written again: the same facts, and times that are rounded at most."""
    written = json.loads(bundle.dump_facts(tabulate(to_facts(record))))
    assert expand(written, "file") == to_facts(record)
    try:
        again = unpack_samples(pack_samples(record.samples), "x")
    except GroundspeedError as refusal:  # the first schema had room for any number
        assert refusal.exit_code == 2 and len(str(refusal)) < 2000  # noqa: PT017, PT018
    else:
        assert np.allclose(again["seconds"], record.samples["seconds"], rtol=1e-15, atol=1e-9)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


def change(facts: Any, path: tuple[Any, ...], how: str, value: Any) -> None:
    for key in path[:-1]:
        facts = facts[key]
    if how == REMOVE:
        del facts[path[-1]]
    elif how == REPEAT and isinstance(facts, list):
        facts.insert(path[-1], facts[path[-1]])
    else:
        facts[path[-1]] = value


@given(st.data())
@settings(fuzz, max_examples=150)
def test_absurd_values_in_well_formed_facts(source: Path, tmp_path: Path, data: st.DataObject) -> None:
    facts = facts_of(source)
    for _ in range(data.draw(st.integers(1, 3))):
        places = list(paths(facts))
        path = data.draw(st.sampled_from(places))
        how = data.draw(st.sampled_from([REMOVE, REPEAT, "replace", "replace", "replace"]))
        change(facts, path, how, json.loads(json.dumps(data.draw(st.sampled_from(ABSURD)))))
    survives(source, tmp_path, facts=facts_file(facts))


@given(st.data())
@settings(fuzz, max_examples=150)
def test_absurd_values_in_the_tables_of_the_file(source: Path, tmp_path: Path, data: st.DataObject) -> None:
    """As a text editor would change it: rows, columns and cells of the tables as they stand in the file."""
    facts = raw_facts_of(source)
    for _ in range(data.draw(st.integers(1, 3))):
        places = [path for path in paths(facts) if path[0] in TABLES]
        if not places:
            break
        path = data.draw(st.sampled_from(places))
        how = data.draw(st.sampled_from([REMOVE, REPEAT, "replace", "replace", "replace"]))
        change(facts, path, how, json.loads(json.dumps(data.draw(st.sampled_from(ABSURD)))))
    survives(source, tmp_path, facts=json.dumps(facts).encode())


@given(st.data())
@settings(fuzz, max_examples=100)
def test_absurd_values_in_facts_of_the_first_schema(first_schema: Path, tmp_path: Path, data: st.DataObject) -> None:
    facts = facts_of(first_schema)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(paths(facts))))
        how = data.draw(st.sampled_from([REMOVE, REPEAT, "replace", "replace", "replace"]))
        change(facts, path, how, json.loads(json.dumps(data.draw(st.sampled_from(ABSURD)))))
    survives(first_schema, tmp_path, facts=json.dumps(facts).encode())


@given(st.data())
@settings(fuzz, max_examples=150)
def test_bytes_of_the_facts(source: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray((source / FACTS).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        # Digits and signs keep the JSON readable, so that what reads it is reached too.
        content[place] = data.draw(st.sampled_from(b'0123456789-.eE"[]{},:ntf ') | st.integers(0, 255))
    survives(source, tmp_path, facts=bytes(content))


@given(st.data())
@settings(fuzz, max_examples=100)
def test_digits_of_the_facts(source: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray((source / FACTS).read_bytes())
    digits = [place for place, byte in enumerate(content) if chr(byte).isdigit()]
    for place in data.draw(st.lists(st.sampled_from(digits), min_size=1, max_size=6)):
        content[place] = data.draw(st.sampled_from(b"0123456789"))
    survives(source, tmp_path, facts=bytes(content))


@given(st.data())
@settings(fuzz, max_examples=150)
def test_values_of_the_samples(source: Path, tmp_path: Path, data: st.DataObject) -> None:
    survives(source, tmp_path, samples=samples_file(absurd_columns(columns_of(source), data)))


@given(st.data())
@settings(fuzz, max_examples=150)
def test_values_of_the_samples_of_the_first_schema(first_schema: Path, tmp_path: Path, data: st.DataObject) -> None:
    survives(first_schema, tmp_path, samples=samples_file(absurd_columns(columns_of(first_schema), data)))


def absurd_columns(columns: Samples, data: st.DataObject) -> Samples:
    """The columns of a file with rows and numbers changed, whatever their types have room for."""
    for _ in range(data.draw(st.integers(1, 5))):
        name = data.draw(st.sampled_from(sorted(columns)))
        row = data.draw(st.integers(0, len(columns[name]) - 1))
        how = data.draw(st.sampled_from([REMOVE, REPEAT, "replace", "replace", "replace", "replace"]))
        if how == REMOVE:
            columns = {key: np.delete(column, row) for key, column in columns.items()}
        elif how == REPEAT:
            columns = {key: np.insert(column, row, column[row]) for key, column in columns.items()}
        elif columns[name].dtype.kind == "f":
            with np.errstate(over="ignore"):  # telemetry is narrower
                columns[name][row] = data.draw(st.floats() | st.sampled_from([1e-12, 1e7, 5e-324, 1e300]))
        else:
            limits = np.iinfo(columns[name].dtype)
            columns[name][row] = data.draw(st.integers(int(limits.min), int(limits.max)) | st.integers(0, 3))
    return columns


def test_the_largest_ratios_that_are_admitted(source: Path) -> None:
    """A picosecond against a hundred days, and the other way round in the next process: no overflow anywhere."""
    record = bundle.read(source).record
    first = record.samples["contender"] == record.samples["process"]
    seconds = np.where(first, SHORTEST_S, LONGEST_S)
    judgement = judge(from_facts(to_facts(record), {**record.samples, "seconds": seconds}, "file"))
    made = judgement.cases[0].result("ours").comparison
    assert made is not None
    assert made.low < 1e-200 < 1e200 < made.high < math.inf
    assert headline(judgement, judgement.grids[0])[1].startswith("No claim about ours")


@pytest.mark.parametrize("part", ["cases", "contenders", "processes", "outcomes", "stops", "launched"])
def test_an_empty_list(source: Path, tmp_path: Path, part: str) -> None:
    facts = facts_of(source)
    facts[part] = []
    survives(source, tmp_path, facts=facts_file(facts))


def test_nothing_at_all_but_a_declaration(source: Path, tmp_path: Path) -> None:
    facts = facts_of(source) | {"cases": [], "processes": [], "outcomes": [], "stops": []}
    nothing = pack_samples({n: c[:0] for n, c in unpack_samples((source / SAMPLES).read_bytes(), "x").items()})
    survives(source, tmp_path, facts=facts_file(facts), samples=nothing)


def test_counts_of_the_case_may_be_missing(source: Path, tmp_path: Path) -> None:
    """A suite that this version does not know may count other things than tokens."""
    facts = facts_of(source)
    facts["run"]["suite"] = "sorting"
    for case in facts["cases"]:
        case.update(counts={}, flops=0, bytes=0, params={}, tolerance={})
    path = forged(source, tmp_path, facts=facts_file(facts))
    rates = judge(read(path).record).cases[0].results[0].rates
    assert rates is not None
    assert (rates.flops, rates.bytes, rates.counts) == (0.0, 0.0, {})
