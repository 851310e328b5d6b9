"""What the columns of the samples file are: the forms of each schema, and whole numbers that hold what was read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from bundles import columns_of, files_of, forged, members_of, npy, npz, put, refused_samples, samples_file
from hypothesis import given
from hypothesis import strategies as st

from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import bundle
from groundspeed.evidence.integrity import FACTS, FORMS, SAMPLES, make_manifest, pack_samples, unpack_samples
from groundspeed.evidence.journal import Journal
from groundspeed.evidence.protocol import NAME
from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import COLUMNS, FILE_COLUMNS, UNKNOWN, Samples, from_file, to_file
from groundspeed.lab.check import verify
from groundspeed.measure.ledger import Ledger

FIRST_FORM = FORMS[1]
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

pytestmark = pytest.mark.usefixtures("within_seconds")


class TestForms:
    """The present columns, and those of the first schema: whole, and never a bit of each."""

    def test_the_columns_of_both(self, good: Path, old: Path) -> None:
        told = {"sm_clock_mhz", "temperature_c", "power_w", "throttle"}
        assert (
            set(columns_of(good))
            == set(FILE_COLUMNS)
            == {*COLUMNS, *told, "start_us", "interval_ns"}
            - {
                "start",
                "seconds",
            }
        )
        assert set(columns_of(old)) == set(FIRST_FORM) == set(COLUMNS) - told
        for folder, form in ((good, FILE_COLUMNS), (old, FIRST_FORM)):
            assert {name: column.dtype.str for name, column in columns_of(folder).items()} == form

    def test_both_say_the_same(self, good: Path, old: Path) -> None:
        new, first = verify(good)[0].record, verify(old)[0].record
        for name, dtype in COLUMNS.items():
            assert new.samples[name].dtype == first.samples[name].dtype == np.dtype(dtype)
            assert np.array_equal(new.samples[name], first.samples[name], equal_nan=True)

    def test_what_the_reader_makes_of_the_first_has_no_telemetry_yet(self, old: Path) -> None:
        assert set(unpack_samples((old / SAMPLES).read_bytes(), "x")) == set(COLUMNS) - set(UNKNOWN)

    @pytest.mark.parametrize("name", FIRST_FORM)
    def test_a_column_of_the_first_is_missing(self, old: Path, tmp_path: Path, name: str) -> None:
        members = {key: value for key, value in members_of(old).items() if key != name}
        refused_samples(old, tmp_path, npz(members), "not those of a bundle")

    @pytest.mark.parametrize("name", FIRST_FORM)
    @pytest.mark.parametrize("rows", [0, 15, 17])
    def test_a_column_of_the_first_has_another_length(self, old: Path, tmp_path: Path, name: str, rows: int) -> None:
        members = {**members_of(old), name: npy(np.ones(rows, FIRST_FORM[name]))}
        refused_samples(old, tmp_path, npz(members), "columns differ in length")

    @pytest.mark.parametrize(
        ("name", "array"),
        [
            ("seconds", np.ones(16, np.float32)),
            ("seconds", np.ones(16, ">f8")),
            ("seconds", np.ones(16, np.int64)),
            ("seconds", np.ones(16, np.complex128)),
            ("seconds", np.array([b"12345678"] * 16)),
            ("seconds", np.zeros(16, "<M8[s]")),
            ("seconds", np.zeros(16, [("a", "<f8")])),
            ("seconds", np.float64(1.0)),
            ("seconds", np.ones((4, 4))),
            ("seconds", np.asfortranarray(np.ones((4, 4)))),
            ("start", np.ones(16, np.int64)),
        ],
    )
    def test_a_column_of_the_first_has_another_type(self, old: Path, tmp_path: Path, name: str, array: Any) -> None:
        refused_samples(old, tmp_path, npz({**members_of(old), name: npy(np.asarray(array))}), "column")

    @pytest.mark.parametrize("value", [0.0, -1e-3, 5e-324, 1e300, float("nan"), float("inf"), -float("inf")])
    def test_a_time_of_the_first_that_no_call_takes(self, old: Path, tmp_path: Path, value: float) -> None:
        with pytest.raises(BadInput, match="impossible duration"):
            verify(forged(old, tmp_path, samples=samples_file(_changed(old, "seconds", value))))

    @pytest.mark.parametrize(
        ("without", "instead"),
        [
            (("start_us",), ("start",)),
            (("interval_ns",), ("seconds",)),
            (("start_us", "interval_ns"), ("start", "seconds")),
            (tuple(UNKNOWN), ()),
            (("throttle",), ()),
            ((), ("start",)),
            ((), ("seconds",)),
            ((), ("start", "seconds")),
            (("interval_ns",), ("start",)),
            ((*UNKNOWN, "interval_ns"), ("seconds",)),
            ((*UNKNOWN, "start_us"), ("start",)),
            (("power_w", "start_us", "interval_ns"), ("start", "seconds")),
        ],
    )
    def test_a_mixture(
        self, good: Path, old: Path, tmp_path: Path, without: tuple[str, ...], instead: tuple[str, ...]
    ) -> None:
        present, first = members_of(good), members_of(old)
        mixed = {name: column for name, column in present.items() if name not in without}
        mixed |= {name: first[name] for name in instead}
        refused_samples(good, tmp_path, npz(mixed), "not those of a bundle")
        refused_samples(old, tmp_path, npz(mixed), "not those of a bundle")

    def test_the_types_of_one_under_the_names_of_the_other(self, good: Path, old: Path, tmp_path: Path) -> None:
        present, first = members_of(good), members_of(old)
        renamed = {**present, "start_us": first["start"], "interval_ns": first["seconds"]}
        refused_samples(good, tmp_path, npz(renamed), "column is not an array of int64")
        renamed = {**first, "start": present["start_us"], "seconds": present["interval_ns"]}
        refused_samples(old, tmp_path, npz(renamed), "column is not an array of float64")

    def test_facts_of_one_with_samples_of_the_other(self, good: Path, old: Path, tmp_path: Path) -> None:
        for facts, samples in ((good, old), (old, good)):
            files = {FACTS: files_of(facts)[FACTS], SAMPLES: files_of(samples)[SAMPLES]}
            with pytest.raises(BadInput, match=FACTS):
                verify(put(tmp_path, make_manifest(files, NAME), files))


class TestWholeNumbers:
    """Times are kept as whole nanoseconds and microseconds, and are the very numbers that the journal had."""

    @given(st.lists(st.floats(1e-9, 1e6).map(lambda x: round(x, 9)), min_size=1))
    def test_seconds_come_back_to_the_last_bit(self, seconds: list[float]) -> None:
        column = np.array(seconds)
        found = from_file(to_file({"seconds": column}))["seconds"]
        assert found.dtype == column.dtype
        assert found.tobytes() == column.tobytes()

    @given(st.lists(st.integers(1, 10**15), min_size=1))
    def test_so_does_every_whole_number_of_nanoseconds(self, nanoseconds: list[int]) -> None:
        """Written with nine decimals, as anybody would, and read again: all up to eleven days."""
        column = np.array([float(f"{n // 10**9}.{n % 10**9:09}") for n in nanoseconds])
        file = to_file({"seconds": column})["interval_ns"]
        assert file.dtype == np.dtype("<i8")
        assert file.tolist() == nanoseconds
        assert from_file({"interval_ns": file})["seconds"].tobytes() == column.tobytes()

    @given(st.lists(st.floats(0.0, 1e9).map(lambda x: round(x, 6)), min_size=1))
    def test_starts_come_back_to_the_last_bit(self, starts: list[float]) -> None:
        column = np.array(starts)
        assert from_file(to_file({"start": column}))["start"].tobytes() == column.tobytes()

    @given(st.lists(st.tuples(st.floats(0.0, 1e6), st.floats(1e-9, 1e6)), min_size=1))
    def test_what_is_packed_is_what_the_journal_wrote(self, times: list[tuple[float, float]]) -> None:
        """From the clock through the ledger, a line of JSON and the file: nothing changes but where it is rounded."""
        journal = mock.create_autospec(Journal, instance=True)
        samples = [["base", 0, start, seconds, 1, 1, None] for start, seconds in times]
        Ledger(journal, {}).samples("block", 0, 0, samples)
        written = json.loads(json.dumps(journal.write.call_args.kwargs["samples"]))
        for (start, seconds), (_, _, start_written, seconds_written, *_) in zip(times, written, strict=True):
            assert (start_written, seconds_written) == (round(start, 6), round(seconds, 9))
        columns = {name: np.zeros(len(written), dtype) for name, dtype in COLUMNS.items()}
        columns["start"], columns["seconds"] = (np.array([line[i] for line in written]) for i in (2, 3))
        found = unpack_samples(pack_samples(columns), "x")
        assert all(found[name].tobytes() == columns[name].tobytes() for name in COLUMNS)

    def test_other_columns_are_left_alone(self, record: Record) -> None:
        file = to_file(record.samples)
        assert list(file) == list(FILE_COLUMNS)
        assert list(from_file(file)) == list(COLUMNS)
        assert all(file[name] is record.samples[name] for name in set(COLUMNS) & set(FILE_COLUMNS))

    @pytest.mark.parametrize("value", [0, -1, -800_000, LEAST, LEAST + 1, MOST, MOST - 1, 2**62, 2**53 * 1000 + 1])
    @pytest.mark.parametrize("row", [0, -1])
    def test_an_interval_that_no_call_takes(self, good: Path, tmp_path: Path, value: int, row: int) -> None:
        with pytest.raises(BadInput, match="has an impossible duration"):
            verify(forged(good, tmp_path, samples=samples_file(_changed(good, "interval_ns", value, row))))

    @pytest.mark.parametrize("launches", [0, -1, -(2**31)])
    @pytest.mark.parametrize("value", [0, LEAST, MOST])
    def test_with_an_impossible_number_of_launches_too(
        self, good: Path, tmp_path: Path, value: int, launches: int
    ) -> None:
        columns = _changed(good, "interval_ns", value)
        columns["launches"][0] = launches
        with pytest.raises(BadInput, match="number of launches"):
            verify(forged(good, tmp_path, samples=samples_file(columns)))

    @pytest.mark.parametrize("name", ["start_us", "interval_ns"])
    @pytest.mark.parametrize("value", [LEAST, LEAST + 1, -1, 0, 1, 2**53 + 1, MOST - 1, MOST])
    def test_the_largest_numbers_are_read_and_written_without_overflow(
        self, good: Path, tmp_path: Path, name: str, value: int
    ) -> None:
        """Or refused. 2^31 calls may take a century together; a start is whatever the replay believes."""
        columns = _changed(good, name, value)
        columns["launches"][0] = 2**31 - 1
        path = forged(good, tmp_path, samples=samples_file(columns))
        try:
            read = bundle.read(path).record.samples
            assert np.isfinite(read["start"]).all()
            assert np.isfinite(read["seconds"]).all()
            again = unpack_samples(pack_samples(read), "x")
        except GroundspeedError as refusal:
            assert type(refusal) is BadInput  # noqa: PT017
        else:
            assert again["start"].tolist() == read["start"].tolist()
            assert again["seconds"].tolist() == read["seconds"].tolist()

    @pytest.mark.parametrize("name", ["start", "seconds"])
    @pytest.mark.parametrize("value", [1e13, 1e300, -1e300, float("inf"), -float("inf"), float("nan")])
    def test_a_time_that_the_file_cannot_hold_is_not_written(self, record: Record, name: str, value: float) -> None:
        """The first schema had room for it. Anything but a refusal would write another time in its place."""
        column = record.samples[name].copy()
        column[0] = value
        with pytest.raises(BadInput, match="that the file of a bundle cannot hold"):
            pack_samples({**record.samples, name: column})


def _changed(folder: Path, name: str, value: float, row: int = 0) -> Samples:
    columns = columns_of(folder)
    columns[name][row] = value
    return columns
