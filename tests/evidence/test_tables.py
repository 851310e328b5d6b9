"""The long lists of the facts as tables: nothing is lost in them, and what is no table of a bundle is refused."""

from __future__ import annotations

import copy
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from bundles import facts_of, forged, put, raw_facts_of, same, small_record, write
from hypothesis import given
from hypothesis import strategies as st

from fakes import Died
from groundspeed.errors import BadInput
from groundspeed.evidence import bundle
from groundspeed.evidence.integrity import FACTS, SAMPLES, make_manifest, pack_samples
from groundspeed.evidence.launched import Launched
from groundspeed.evidence.protocol import NAME
from groundspeed.evidence.record import SCHEMA, Record
from groundspeed.evidence.tables import TABLES, expand, tabulate, to_facts
from groundspeed.lab.check import verify

pytestmark = pytest.mark.usefixtures("within_seconds")

CELLS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def entries(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Objects with the same keys; without keys where there are none."""
    columns = draw(st.lists(st.text(max_size=5), unique=True, min_size=1, max_size=5))
    rows = draw(st.lists(st.lists(CELLS, min_size=len(columns), max_size=len(columns)), max_size=5))
    return [dict(zip(columns, row, strict=True)) for row in rows]


def with_facts(source: Path, parent: Path, facts: Any) -> Path:
    return forged(source, parent, facts=json.dumps(facts).encode())


def refused(source: Path, parent: Path, facts: Any, said: str) -> None:
    with pytest.raises(BadInput) as failure:
        verify(with_facts(source, parent, facts))
    assert FACTS in str(failure.value)
    assert said in str(failure.value)
    assert len(str(failure.value)) < 1000


def with_table(source: Path, key: str, table: Any) -> Any:
    return {**raw_facts_of(source), key: table}


class TestRoundTrip:
    @given(st.fixed_dictionaries({key: entries() for key in TABLES}), CELLS)
    def test_any_list_of_objects_with_the_same_keys(self, lists: dict[str, Any], other: Any) -> None:
        facts = {"schema": SCHEMA, **lists, "environment": other}
        assert expand(tabulate(facts), "file") == facts
        assert expand(json.loads(json.dumps(tabulate(facts))), "file") == facts

    @given(entries())
    def test_through_the_file_as_it_is_written(self, stops: list[dict[str, Any]]) -> None:
        facts = {"schema": SCHEMA, "stops": stops}
        assert expand(json.loads(bundle.dump_facts(tabulate(facts))), "file") == facts

    def test_of_a_run(self, record: Record, good: Path) -> None:
        assert raw_facts_of(good) == tabulate(to_facts(record))
        assert facts_of(good) == to_facts(record)

    def test_of_a_run_in_which_much_happened(self, tmp_path: Path) -> None:
        def fault(contender: str, case: str, block: int | None) -> Exception | None:
            return Died("killed") if (contender, block) == ("ours", 1) else None

        eventful = small_record(fault, processes=3)
        assert same(verify(write(eventful, tmp_path))[0].record, eventful)

    def test_of_kernels_that_were_launched(self, record: Record, good: Path, tmp_path: Path) -> None:
        """Lists may stand in a cell."""
        columns = [field.name for field in fields(Launched)]
        (case,) = record.cases
        timing = {"clock": "default", "launches": 1, "seconds": 2e-5, "kernels_s": 1.9e-5, "overhead_s": 1e-6}
        rows = [
            [case.name, name, [f"{name}_kernel", "memset"], ["0" * 64], [timing], [], [1, 1], [0.1, 0]]
            for name in ("base", "ours")
        ]
        path = with_facts(good, tmp_path, with_table(good, "launched", {"columns": columns, "rows": rows}))
        launched = verify(path)[0].record.launched
        assert [(one.contender, one.kernels) for one in launched] == [
            ("base", ("base_kernel", "memset")),
            ("ours", ("ours_kernel", "memset")),
        ]
        assert raw_facts_of(write(bundle.read(path).record, tmp_path, "again"))["launched"]["rows"] == rows

    def test_neither_changes_what_it_is_given(self, record: Record) -> None:
        facts = to_facts(record)
        before = copy.deepcopy(facts)
        table = tabulate(facts)
        assert facts == before
        expand(table, "file")
        assert table == tabulate(before)

    def test_the_order_of_columns_does_not_matter(self, record: Record, good: Path, tmp_path: Path) -> None:
        facts = raw_facts_of(good)
        for key in TABLES:
            facts[key]["columns"].reverse()
            for row in facts[key]["rows"]:
                row.reverse()
        assert same(verify(with_facts(good, tmp_path, facts))[0].record, record)

    @pytest.mark.parametrize("key", TABLES)
    def test_no_entries(self, key: str) -> None:
        assert tabulate({key: []}) == {key: {"columns": [], "rows": []}}
        for columns in ([], ["process", "attempt"]):
            assert expand({"schema": SCHEMA, key: {"columns": columns, "rows": []}}, "file")[key] == []

    def test_a_record_without_any(self, record: Record, good: Path, tmp_path: Path) -> None:
        nothing = {"columns": [], "rows": []}
        facts = raw_facts_of(good) | dict.fromkeys(TABLES, nothing)
        columns = {name: column[:0] for name, column in record.samples.items()}
        files = {FACTS: json.dumps(facts).encode(), SAMPLES: pack_samples(columns)}
        read = verify(put(tmp_path, make_manifest(files, NAME), files))[0].record
        assert (read.processes, read.outcomes, read.stops, read.launched, read.usage) == ((), (), (), (), ())

    def test_other_lists_are_no_tables(self, good: Path) -> None:
        facts = raw_facts_of(good)
        assert all(isinstance(facts[key], list) for key in ("cases", "contenders"))


@pytest.mark.parametrize("key", TABLES)
class TestHostile:
    @pytest.mark.parametrize(
        "columns",
        [
            ["process", "process"],
            ["process", "attempt", "case", "process"],
            [1, 2],
            ["process", 1],
            ["process", None],
            [["process"]],
            [["process"], ["process"]],
            [{}],
            [True, False],
            [1.0],
            "process",
            {"process": 0},
            None,
            7,
            True,
        ],
    )
    @pytest.mark.parametrize("cells", [0, 1, 2])
    def test_columns_that_are_no_different_names(
        self, good: Path, tmp_path: Path, key: str, columns: Any, cells: int
    ) -> None:
        table = {"columns": columns, "rows": [[0] * cells] * cells}
        refused(
            good, tmp_path, with_table(good, key, table), f"{key}: a table needs rows, and columns with different names"
        )

    @pytest.mark.parametrize("rows", [None, 7, "ab", {}, {"a": [0]}, True, 1.5])
    def test_rows_that_are_no_list(self, good: Path, tmp_path: Path, key: str, rows: Any) -> None:
        for columns in ([], ["process"], ["process", "attempt"]):
            table = {"columns": columns, "rows": rows}
            refused(
                good,
                tmp_path,
                with_table(good, key, table),
                f"{key}: a table needs rows, and columns with different names",
            )

    @pytest.mark.parametrize(
        "row", [[], [0], [0, 0, 0], [[0, 0]], None, 7, "ab", {"process": 0, "attempt": 0}, {"a": 1, "b": 2}, True]
    )
    def test_ragged_rows(self, good: Path, tmp_path: Path, key: str, row: Any) -> None:
        columns, fine = ["process", "attempt"], [0, 0]
        for rows in ([row], [fine, row], [row, fine], [fine, row, fine]):
            table = {"columns": columns, "rows": rows}
            refused(
                good, tmp_path, with_table(good, key, table), f"{key}: a row does not have one value for each column"
            )

    def test_one_row_shorter_or_longer(self, good: Path, tmp_path: Path, key: str) -> None:
        table = raw_facts_of(good)[key]
        if not table["rows"]:
            table = {"columns": ["case"], "rows": [["x"]]}
        *rows, last = table["rows"]
        for row in (last[:-1], [*last, None], []):
            facts = with_table(good, key, {**table, "rows": [*rows, row]})
            refused(good, tmp_path, facts, f"{key}: a row does not have one value for each column")

    @pytest.mark.parametrize("rows", [[[]], [[], []], [[]] * 10_000])
    def test_rows_without_columns(self, good: Path, tmp_path: Path, key: str, rows: Any) -> None:
        refused(good, tmp_path, with_table(good, key, {"columns": [], "rows": rows}), f"{key}[0]: key ")

    def test_a_column_that_is_unknown_missing_or_renamed(self, good: Path, tmp_path: Path, key: str) -> None:
        table = raw_facts_of(good)[key]
        if not table["rows"]:
            table = {
                "launched": {
                    "columns": [field.name for field in fields(Launched)],
                    "rows": [["x", "y", [], [], [], [], [], []]],
                },
                "usage": {"columns": ["case", "tokens", "balance_loss"], "rows": [["x", [1], 1.0]]},
            }[key]
        columns, rows = table["columns"], table["rows"]
        more = {"columns": [*columns, "verdict"], "rows": [[*row, "FASTER"] for row in rows]}
        refused(good, tmp_path, with_table(good, key, more), f"{key}[0]: unknown key 'verdict'")
        fewer = {"columns": columns[:-1], "rows": [row[:-1] for row in rows]}
        refused(good, tmp_path, with_table(good, key, fewer), f"{key}[0]: key {columns[-1]!r} is missing")
        for name in ("", "\x1b[2J", "x" * 10_000, "__class__", columns[0].upper()):
            renamed = {"columns": [name, *columns[1:]], "rows": rows}
            refused(good, tmp_path, with_table(good, key, renamed), f"{key}[0]: unknown key")

    def test_thousands_of_columns(self, good: Path, tmp_path: Path, key: str) -> None:
        columns = [f"x{i}" for i in range(20_000)]
        table = {"columns": columns, "rows": [[0] * 20_000] * 3}
        refused(good, tmp_path, with_table(good, key, table), f"{key}[0]: unknown key 'x0'")

    def test_the_plain_list_of_the_first_schema(self, good: Path, tmp_path: Path, key: str) -> None:
        refused(good, tmp_path, with_table(good, key, facts_of(good)[key]), f"{key}: expected a table, found list")

    @pytest.mark.parametrize("value", [[], [[]], [{}], [7], [{"columns": [], "rows": []}]])
    def test_any_other_list(self, good: Path, tmp_path: Path, key: str, value: Any) -> None:
        refused(good, tmp_path, with_table(good, key, value), f"{key}: expected a table, found list")

    @pytest.mark.parametrize(
        "value",
        [
            None,
            7,
            "x",
            True,
            {},
            {"columns": []},
            {"rows": []},
            {"columns": [], "rows": [], "more": []},
            {"Columns": [], "Rows": []},
            {"columns": [], "rows": [], "": []},
        ],
    )
    def test_what_is_neither_table_nor_list(self, good: Path, tmp_path: Path, key: str, value: Any) -> None:
        refused(good, tmp_path, with_table(good, key, value), f"{key}: expected a list, found")

    def test_missing(self, good: Path, tmp_path: Path, key: str) -> None:
        facts = raw_facts_of(good)
        del facts[key]
        refused(good, tmp_path, facts, f"key {key!r} is missing")

    def test_a_table_of_tables(self, good: Path, tmp_path: Path, key: str) -> None:
        table = raw_facts_of(good)[key]
        refused(good, tmp_path, with_table(good, key, {"columns": table, "rows": table}), f"{key}: a table needs rows")

    def test_a_table_that_names_a_column_twice_in_json(self, good: Path, tmp_path: Path, key: str) -> None:
        """Two readers might take different ones."""
        text = json.dumps(with_table(good, key, {"columns": [], "rows": []}))
        twice = text.replace(f'"{key}": {{"columns": [],', f'"{key}": {{"columns": ["a"], "columns": [],')
        assert twice != text
        with pytest.raises(BadInput, match="a key appears twice"):
            verify(forged(good, tmp_path, facts=twice.encode()))


class TestElsewhere:
    @pytest.mark.parametrize("key", ["cases", "contenders"])
    def test_a_table_where_a_plain_list_stood(self, good: Path, tmp_path: Path, key: str) -> None:
        facts = raw_facts_of(good)
        columns = list(facts[key][0])
        table = {"columns": columns, "rows": [[entry[name] for name in columns] for entry in facts[key]]}
        refused(good, tmp_path, {**facts, key: table}, f"{key}: expected a list, found dict")

    @pytest.mark.parametrize("key", ["run", "protocol"])
    def test_a_table_where_an_object_stood(self, good: Path, tmp_path: Path, key: str) -> None:
        facts = raw_facts_of(good)
        table = {"columns": list(facts[key]), "rows": [list(facts[key].values())]}
        refused(good, tmp_path, {**facts, key: table}, f"{key}: unknown key 'columns'")

    def test_a_table_in_a_cell(self, good: Path, tmp_path: Path) -> None:
        facts = raw_facts_of(good)
        column = facts["processes"]["columns"].index("gpu_users")
        facts["processes"]["rows"][0][column] = {"columns": [], "rows": []}
        refused(good, tmp_path, facts, "processes[0].gpu_users: expected a list, found dict")

    def test_a_list_that_no_schema_knows(self, good: Path, tmp_path: Path) -> None:
        refused(good, tmp_path, with_table(good, "verdicts", {"columns": [], "rows": []}), "unknown key 'verdicts'")

    @pytest.mark.parametrize("facts", [None, [], 7, "x", True, [{"stops": []}], {}, {"schema": []}, {"schema": None}])
    def test_what_are_no_facts_stays_as_it_is(self, facts: Any) -> None:
        assert expand(facts, "file") == facts


class TestSchemas:
    """Tables are of the present schema: the first has none, and of a newer one nobody knows."""

    def test_a_file_of_the_first_has_none(self, record: Record, old: Path) -> None:
        facts = raw_facts_of(old)
        assert all(isinstance(facts[key], list) for key in TABLES[:3])
        assert expand(facts, "file") == facts
        assert same(verify(old)[0].record, record)

    @pytest.mark.parametrize("key", TABLES[:3])
    def test_a_table_in_it_is_refused(self, old: Path, tmp_path: Path, key: str) -> None:
        facts = raw_facts_of(old)
        facts[key] = tabulate(facts)[key]
        refused(old, tmp_path, facts, f"{key}: expected a list, found dict")

    def test_so_are_tables_all_over(self, old: Path, tmp_path: Path) -> None:
        refused(old, tmp_path, tabulate(raw_facts_of(old)), "expected a list, found dict")

    @pytest.mark.parametrize("key", TABLES)
    @pytest.mark.parametrize(
        "table",
        [
            {"columns": [], "rows": []},
            {"columns": ["a", "a"], "rows": [[]]},
            {"columns": [1], "rows": 7},
            {"columns": [], "rows": [], "gpu_users": [], "device_peak_bytes": 1},
        ],
    )
    def test_so_are_tables_that_are_none(self, old: Path, tmp_path: Path, key: str, table: Any) -> None:
        refused(old, tmp_path, with_table(old, key, table), "")

    def test_so_is_the_list_that_it_did_not_have(self, old: Path, tmp_path: Path) -> None:
        for launched in ([], {"columns": [], "rows": []}):
            refused(old, tmp_path, {**raw_facts_of(old), "launched": launched}, "it says schema 1, but has launched")

    def test_facts_of_the_second_that_say_they_are_of_the_first(self, good: Path, tmp_path: Path) -> None:
        refused(
            good,
            tmp_path,
            {**raw_facts_of(good), "schema": 1},
            "it says schema 1, but has launched, which is new in schema 2",
        )
        refused(good, tmp_path, {**facts_of(good), "schema": 1}, "it says schema 1, but has launched")

    def test_facts_of_the_first_that_say_they_are_of_the_second(self, old: Path, tmp_path: Path) -> None:
        refused(old, tmp_path, {**raw_facts_of(old), "schema": 2}, "expected a table, found list")
        refused(old, tmp_path, tabulate({**raw_facts_of(old), "schema": 2}), "'launched' is missing")

    @pytest.mark.parametrize(
        "stops", [[], {"columns": 7, "rows": {}}, {"columns": ["a"], "rows": [{"a": 1}]}, {"zstd": "…"}, None]
    )
    def test_how_a_newer_one_writes_its_lists_is_its_own_affair(self, good: Path, tmp_path: Path, stops: Any) -> None:
        """The sentence is the one that helps."""
        newer = {**raw_facts_of(good), "schema": SCHEMA + 1, "stops": stops}
        refused(good, tmp_path, newer, f"written by a newer groundspeed (schema {SCHEMA + 1}")
