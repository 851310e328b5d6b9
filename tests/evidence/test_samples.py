"""The samples file as an attacker would make it: bombs, pickles, lies about lengths. All with hashes that agree."""

from __future__ import annotations

import bz2
import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from bundles import columns_of, files_of, forged, members_of, npy, npz, put, samples_file
from hypothesis import given
from hypothesis import strategies as st

from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import bundle
from groundspeed.evidence.integrity import FACTS, FORMS, MAX_ROWS, SAMPLES, make_manifest, pack_samples, unpack_samples
from groundspeed.evidence.journal import Journal
from groundspeed.evidence.protocol import NAME
from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import COLUMNS, FILE_COLUMNS, UNKNOWN, Samples, from_file, to_file
from groundspeed.lab.check import verify
from groundspeed.measure.ledger import Ledger

FIRST_FORM = FORMS[1]
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

pytestmark = pytest.mark.usefixtures("within_seconds")


def refused(good: Path, parent: Path, samples: bytes, *said: str) -> None:
    with pytest.raises(BadInput) as failure:
        verify(forged(good, parent, samples=samples))
    for words in (SAMPLES, *said):
        assert words in str(failure.value)
    assert len(str(failure.value)) < 1000


def test_packed_by_another_tool_it_is_as_good(good: Path, tmp_path: Path) -> None:
    """What is refused below is refused for its content."""
    verify(forged(good, tmp_path, samples=npz(members_of(good))))
    verify(forged(good, tmp_path, samples=npz(members_of(good), zipfile.ZIP_STORED)))


class TestBombs:
    def test_a_column_larger_than_a_bundle_may_hold(self, good: Path, tmp_path: Path) -> None:
        bomb = npy(np.zeros(MAX_ROWS + 10_000, np.uint8))
        packed = npz({**members_of(good), "checked": bomb})
        assert len(packed) < len(bomb) // 100
        refused(good, tmp_path, packed, "column 'checked' is larger than a bundle may hold")

    def test_a_column_that_lies_about_its_size(self, good: Path, tmp_path: Path) -> None:
        """The archive's index says a few hundred bytes; unpacked they are 64 MiB, which nobody makes room for."""
        column, bomb = members_of(good)["interval_ns"], b"\0" * (64 << 20)
        packed = npz({**members_of(good), "interval_ns": bomb})
        lying = packed.replace(struct.pack("<L", len(bomb)), struct.pack("<L", len(column)))
        assert lying != packed
        del bomb
        tracemalloc.start()
        refused(good, tmp_path, lying)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()

    @pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_other_compressions_cannot_be_bounded(self, good: Path, tmp_path: Path, compression: int) -> None:
        refused(good, tmp_path, npz(members_of(good), compression), "packed in a way that no bundle is")

    @pytest.mark.parametrize("rows", [999_999_999, 10**12, 10**30, -1])
    def test_a_header_that_claims_more_rows_than_there_are(self, good: Path, tmp_path: Path, rows: int) -> None:
        members = members_of(good)
        count = len(unpack_samples((good / SAMPLES).read_bytes(), "x")["seconds"])
        members["interval_ns"] = _with_header(members["interval_ns"], f"({count},)", f"({rows},)")
        refused(good, tmp_path, npz(members), "column")

    def test_thousands_of_members(self, good: Path, tmp_path: Path) -> None:
        refused(good, tmp_path, npz({**members_of(good), **{f"x{i}": b"" for i in range(3000)}}), "columns")


class _Evil:
    """What unpickling it would do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


class TestCode:
    def test_a_pickle_in_a_column_does_not_run(self, good: Path, tmp_path: Path) -> None:
        trap = tmp_path / "sprung"
        evil = np.array([_Evil(trap)] + [None] * 15, dtype=object)
        packed = npz({**members_of(good), "interval_ns": npy(evil, allow_pickle=True)})
        refused(good, tmp_path, packed, "column")
        assert not trap.exists()
        with np.load(io.BytesIO(packed), allow_pickle=True) as archive:
            assert len(archive["interval_ns"]) == 16
        assert trap.exists()  # the trap is a real one

    def test_a_pickle_in_place_of_a_column_does_not_run(self, good: Path, tmp_path: Path) -> None:
        trap = tmp_path / "sprung"
        refused(good, tmp_path, npz({**members_of(good), "interval_ns": pickle.dumps(_Evil(trap))}))
        refused(good, tmp_path, pickle.dumps(_Evil(trap)))
        assert not trap.exists()

    @pytest.mark.parametrize(
        "shape", ["__import__('os').abort()", "(16,) if 1 else 2", "(1, 16)", "16", "()", "(True,)", "(16.0,)", "(16,"]
    )
    def test_a_header_is_not_evaluated(self, good: Path, tmp_path: Path, shape: str) -> None:
        members = members_of(good)
        members["interval_ns"] = _with_header(members["interval_ns"], "(16,)", shape)
        refused(good, tmp_path, npz(members), "column")

    def test_a_header_without_end(self, good: Path, tmp_path: Path) -> None:
        members = members_of(good)
        members["interval_ns"] = _with_header(members["interval_ns"], "(16,)", "(" * 20_000)
        refused(good, tmp_path, npz(members), "column")


class TestColumns:
    @pytest.mark.parametrize(
        ("name", "array"),
        [
            ("interval_ns", np.ones(16, np.float32)),
            ("interval_ns", np.ones(16, np.float64)),
            ("interval_ns", np.ones(16, np.int32)),
            ("interval_ns", np.ones(16, np.uint64)),
            ("interval_ns", np.ones(16, ">i8")),
            ("interval_ns", np.ones(16, np.complex128)),
            ("interval_ns", np.array(["1"] * 16)),
            ("interval_ns", np.array([b"12345678"] * 16)),
            ("interval_ns", np.zeros(16, "<M8[s]")),
            ("interval_ns", np.zeros(16, [("a", "<i8")])),
            ("interval_ns", np.int64(1)),
            ("interval_ns", np.ones((4, 4), np.int64)),
            ("interval_ns", np.asfortranarray(np.ones((4, 4), np.int64))),
            ("start_us", np.ones(16, np.float64)),
            ("throttle", np.ones(16, np.uint64)),
            ("power_w", np.ones(16, np.float64)),
            ("process", np.zeros(16, np.int64)),
            ("process", np.zeros(16, np.uint16)),
            ("phase", np.zeros(16, np.int8)),
            ("phase", np.zeros(16, np.bool_)),
        ],
    )
    def test_of_another_type(self, good: Path, tmp_path: Path, name: str, array: Any) -> None:
        refused(good, tmp_path, npz({**members_of(good), name: npy(np.asarray(array))}), "column")

    @pytest.mark.parametrize("name", FILE_COLUMNS)
    @pytest.mark.parametrize("rows", [0, 15, 17])
    def test_of_another_length(self, good: Path, tmp_path: Path, name: str, rows: int) -> None:
        members = {**members_of(good), name: npy(np.ones(rows, FILE_COLUMNS[name]))}
        refused(good, tmp_path, npz(members), "columns differ in length")

    @pytest.mark.parametrize("name", FILE_COLUMNS)
    def test_missing(self, good: Path, tmp_path: Path, name: str) -> None:
        members = {key: value for key, value in members_of(good).items() if key != name}
        refused(good, tmp_path, npz(members), "not those of a bundle")

    @pytest.mark.parametrize("name", ["more", "../interval_ns", "interval_ns\x1b[2J", "Interval_ns", "seconds"])
    def test_one_too_many(self, good: Path, tmp_path: Path, name: str) -> None:
        members = members_of(good)
        refused(good, tmp_path, npz({**members, name: members["interval_ns"]}), "not those of a bundle")

    def test_one_twice(self, good: Path, tmp_path: Path) -> None:
        """Two readers might take different ones."""
        buffer = io.BytesIO((good / SAMPLES).read_bytes())
        with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("interval_ns.npy", npy(np.ones(16, np.int64)))
        refused(good, tmp_path, buffer.getvalue(), "not those of a bundle")

    @pytest.mark.parametrize("version", [(2, 0), (3, 0)])
    def test_of_another_version_of_the_format(self, good: Path, tmp_path: Path, version: tuple[int, int]) -> None:
        column = npy(np.ones(16, np.int64), version=version)
        refused(good, tmp_path, npz({**members_of(good), "interval_ns": column}), "column")

    @pytest.mark.parametrize("cut", [0, 1, 6, 8, 9, 10, 64, 127, 128, 129, 255])
    def test_cut_short_or_long(self, good: Path, tmp_path: Path, cut: int) -> None:
        whole = members_of(good)["interval_ns"]
        refused(good, tmp_path, npz({**members_of(good), "interval_ns": whole[:cut]}))
        refused(good, tmp_path, npz({**members_of(good), "interval_ns": whole + b"\0" * (cut + 1)}))


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
        refused(old, tmp_path, npz(members), "not those of a bundle")

    @pytest.mark.parametrize("name", FIRST_FORM)
    @pytest.mark.parametrize("rows", [0, 15, 17])
    def test_a_column_of_the_first_has_another_length(self, old: Path, tmp_path: Path, name: str, rows: int) -> None:
        members = {**members_of(old), name: npy(np.ones(rows, FIRST_FORM[name]))}
        refused(old, tmp_path, npz(members), "columns differ in length")

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
        refused(old, tmp_path, npz({**members_of(old), name: npy(np.asarray(array))}), "column")

    @pytest.mark.parametrize("value", [0.0, -1e-3, 5e-324, 1e300, float("nan"), float("inf"), -float("inf")])
    def test_a_time_of_the_first_that_no_call_takes(self, old: Path, tmp_path: Path, value: float) -> None:
        with pytest.raises(BadInput, match="not a time"):
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
        refused(good, tmp_path, npz(mixed), "not those of a bundle")
        refused(old, tmp_path, npz(mixed), "not those of a bundle")

    def test_the_types_of_one_under_the_names_of_the_other(self, good: Path, old: Path, tmp_path: Path) -> None:
        present, first = members_of(good), members_of(old)
        renamed = {**present, "start_us": first["start"], "interval_ns": first["seconds"]}
        refused(good, tmp_path, npz(renamed), "column is not a list of int64")
        renamed = {**first, "start": present["start_us"], "seconds": present["interval_ns"]}
        refused(old, tmp_path, npz(renamed), "column is not a list of float64")

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
        with pytest.raises(BadInput, match="not a time that a call can take"):
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
        with pytest.raises(BadInput, match="longer than the file of a bundle can say"):
            pack_samples({**record.samples, name: column})


class TestArchive:
    @pytest.mark.parametrize(
        "content", [b"", b"PK", b"PK\x05\x06" + b"\0" * 18, b"\x93NUMPY", bz2.compress(b"x"), b"{}"]
    )
    def test_not_an_archive_of_columns(self, good: Path, tmp_path: Path, content: bytes) -> None:
        refused(good, tmp_path, content)

    def test_encrypted(self, good: Path, tmp_path: Path) -> None:
        content = bytearray((good / SAMPLES).read_bytes())
        for mark, place in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
            at = content.find(mark)
            while at >= 0:
                content[at + place] |= 1
                at = content.find(mark, at + 4)
        refused(good, tmp_path, bytes(content), "not readable as samples")

    def test_one_byte_changed_anywhere(self, good: Path) -> None:
        """Whatever the archive says about itself: the columns, or BadInput."""
        whole = (good / SAMPLES).read_bytes()
        for place in range(len(whole)):
            self.columns_or_refusal(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])

    def columns_or_refusal(self, content: bytes) -> None:
        """Some bytes, such as dates, do not matter."""
        try:
            columns = unpack_samples(content, "x")
        except GroundspeedError as refusal:
            assert refusal.exit_code == 2  # noqa: PT017
        else:
            assert {len(column) for column in columns.values()} == {16}

    @pytest.mark.parametrize("end", range(0, 2000, 97))
    def test_cut_short(self, good: Path, end: int) -> None:
        with pytest.raises(BadInput):
            unpack_samples((good / SAMPLES).read_bytes()[:end], "x")

    @pytest.mark.parametrize("field", [16, 20, 24, 28, 30, 32, 42])
    def test_numbers_out_of_range_in_the_index(self, good: Path, field: int) -> None:
        content = bytearray((good / SAMPLES).read_bytes())
        at = content.find(b"PK\x01\x02")
        for number in (b"\xff\xff\xff\xff", b"\xfe\xff\xff\x7f", b"\x00\x00\x00\x80"):
            content[at + field : at + field + 4] = number
            self.columns_or_refusal(bytes(content))


def _with_header(column: bytes, old: str, new: str) -> bytes:
    """An .npy file with other words in its header, whose length is right again."""
    length = int.from_bytes(column[8:10], "little")
    header = column[10 : 10 + length].replace(old.encode(), new.encode())
    assert header != column[10 : 10 + length]
    return column[:8] + len(header).to_bytes(2, "little") + header + column[10 + length :]


def _changed(folder: Path, name: str, value: float, row: int = 0) -> Samples:
    columns = columns_of(folder)
    columns[name][row] = value
    return columns
