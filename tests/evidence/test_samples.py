"""The samples file as an attacker would make it: bombs, pickles, lies about lengths. All with hashes that agree."""

from __future__ import annotations

import bz2
import io
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import forged, members_of, npy, npz, refused_samples

from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence.integrity import FORMS, MAX_ROWS, SAMPLES, pack_samples, unpack_samples
from groundspeed.evidence.samples import FILE_COLUMNS
from groundspeed.lab.check import verify

FIRST_FORM = FORMS[1]
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

pytestmark = pytest.mark.usefixtures("within_seconds")


def test_packed_by_another_tool_it_is_as_good(good: Path, tmp_path: Path) -> None:
    """What is refused below is refused for its content."""
    verify(forged(good, tmp_path, samples=npz(members_of(good))))
    verify(forged(good, tmp_path, samples=npz(members_of(good), zipfile.ZIP_STORED)))


class TestBombs:
    def test_a_column_larger_than_a_bundle_may_hold(self, good: Path, tmp_path: Path) -> None:
        bomb = npy(np.zeros(MAX_ROWS + 10_000, np.uint8))
        packed = npz({**members_of(good), "checked": bomb})
        assert len(packed) < len(bomb) // 100
        refused_samples(good, tmp_path, packed, "column 'checked' is larger than a bundle may hold")

    def test_a_column_that_lies_about_its_size(self, good: Path, tmp_path: Path) -> None:
        """The archive's index says a few hundred bytes; unpacked they are 64 MiB, which nobody makes room for."""
        column, bomb = members_of(good)["interval_ns"], b"\0" * (64 << 20)
        packed = npz({**members_of(good), "interval_ns": bomb})
        lying = packed.replace(struct.pack("<L", len(bomb)), struct.pack("<L", len(column)))
        assert lying != packed
        del bomb
        tracemalloc.start()
        refused_samples(good, tmp_path, lying)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()

    def test_other_compressions_cannot_be_bounded(self, good: Path, tmp_path: Path) -> None:
        packed = npz(members_of(good), zipfile.ZIP_BZIP2)
        refused_samples(good, tmp_path, packed, "compressed in a way that bundles do not use")

    def test_a_dictionary_of_gigabytes(self, good: Path, tmp_path: Path) -> None:
        packed = npz(members_of(good), zipfile.ZIP_LZMA)
        greedy = packed.replace(struct.pack("<BI", 0x5D, 8 << 20), struct.pack("<BI", 0x5D, 0xFFFFFFFF))
        assert greedy != packed
        refused_samples(good, tmp_path, greedy, "compressed in a way that bundles do not use")

    def test_lzma_that_lies_about_its_size(self, good: Path, tmp_path: Path) -> None:
        column, bomb = members_of(good)["interval_ns"], b"\0" * (64 << 20)
        packed = npz({**members_of(good), "interval_ns": bomb}, zipfile.ZIP_LZMA)
        lying = packed.replace(struct.pack("<L", len(bomb)), struct.pack("<L", len(column)))
        assert lying != packed
        del bomb
        tracemalloc.start()
        refused_samples(good, tmp_path, lying)
        assert tracemalloc.get_traced_memory()[1] < 24 << 20, "of which 8 are its dictionary"
        tracemalloc.stop()

    @pytest.mark.parametrize("damage", [0, 3, 40])
    def test_damaged_lzma(self, good: Path, tmp_path: Path, damage: int) -> None:
        packed = bytearray(npz(members_of(good), zipfile.ZIP_LZMA))
        begin = packed.index(struct.pack("<BBHBI", 9, 4, 5, 0x5D, 8 << 20)) + damage
        packed[begin : begin + 8] = b"\xff" * 8
        refused_samples(good, tmp_path, bytes(packed))

    @pytest.mark.parametrize("way", [zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
    def test_however_they_are_packed_they_are_the_same(self, good: Path, way: int) -> None:
        columns = unpack_samples((good / SAMPLES).read_bytes(), "x")
        again = unpack_samples(npz(members_of(good), way), "x")
        assert {name: column.tobytes() for name, column in again.items()} == {
            name: column.tobytes() for name, column in columns.items()
        }

    def test_long_columns_are_packed_more_tightly(self, good: Path) -> None:
        columns = unpack_samples((good / SAMPLES).read_bytes(), "x")
        many = {name: np.tile(column, 4000) for name, column in columns.items()}
        packed = pack_samples(many)
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_LZMA}
        again = unpack_samples(packed, "x")
        assert all(np.array_equal(again[name], column, equal_nan=True) for name, column in many.items())

    @pytest.mark.parametrize("rows", [999_999_999, 10**12, 10**30, -1])
    def test_a_header_that_claims_more_rows_than_there_are(self, good: Path, tmp_path: Path, rows: int) -> None:
        members = members_of(good)
        count = len(unpack_samples((good / SAMPLES).read_bytes(), "x")["seconds"])
        members["interval_ns"] = _with_header(members["interval_ns"], f"({count},)", f"({rows},)")
        refused_samples(good, tmp_path, npz(members), "column")

    def test_thousands_of_members(self, good: Path, tmp_path: Path) -> None:
        refused_samples(good, tmp_path, npz({**members_of(good), **{f"x{i}": b"" for i in range(3000)}}), "columns")


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
        refused_samples(good, tmp_path, packed, "column")
        assert not trap.exists()
        with np.load(io.BytesIO(packed), allow_pickle=True) as archive:
            assert len(archive["interval_ns"]) == 16
        assert trap.exists()  # the trap is a real one

    def test_a_pickle_in_place_of_a_column_does_not_run(self, good: Path, tmp_path: Path) -> None:
        trap = tmp_path / "sprung"
        refused_samples(good, tmp_path, npz({**members_of(good), "interval_ns": pickle.dumps(_Evil(trap))}))
        refused_samples(good, tmp_path, pickle.dumps(_Evil(trap)))
        assert not trap.exists()

    @pytest.mark.parametrize(
        "shape", ["__import__('os').abort()", "(16,) if 1 else 2", "(1, 16)", "16", "()", "(True,)", "(16.0,)", "(16,"]
    )
    def test_a_header_is_not_evaluated(self, good: Path, tmp_path: Path, shape: str) -> None:
        members = members_of(good)
        members["interval_ns"] = _with_header(members["interval_ns"], "(16,)", shape)
        refused_samples(good, tmp_path, npz(members), "column")

    def test_a_header_without_end(self, good: Path, tmp_path: Path) -> None:
        members = members_of(good)
        members["interval_ns"] = _with_header(members["interval_ns"], "(16,)", "(" * 20_000)
        refused_samples(good, tmp_path, npz(members), "column")


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
        refused_samples(good, tmp_path, npz({**members_of(good), name: npy(np.asarray(array))}), "column")

    @pytest.mark.parametrize("name", FILE_COLUMNS)
    @pytest.mark.parametrize("rows", [0, 15, 17])
    def test_of_another_length(self, good: Path, tmp_path: Path, name: str, rows: int) -> None:
        members = {**members_of(good), name: npy(np.ones(rows, FILE_COLUMNS[name]))}
        refused_samples(good, tmp_path, npz(members), "columns differ in length")

    @pytest.mark.parametrize("name", FILE_COLUMNS)
    def test_missing(self, good: Path, tmp_path: Path, name: str) -> None:
        members = {key: value for key, value in members_of(good).items() if key != name}
        refused_samples(good, tmp_path, npz(members), "not those of a bundle")

    @pytest.mark.parametrize("name", ["more", "../interval_ns", "interval_ns\x1b[2J", "Interval_ns", "seconds"])
    def test_one_too_many(self, good: Path, tmp_path: Path, name: str) -> None:
        members = members_of(good)
        refused_samples(good, tmp_path, npz({**members, name: members["interval_ns"]}), "not those of a bundle")

    def test_one_twice(self, good: Path, tmp_path: Path) -> None:
        """Two readers might take different ones."""
        buffer = io.BytesIO((good / SAMPLES).read_bytes())
        with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("interval_ns.npy", npy(np.ones(16, np.int64)))
        refused_samples(good, tmp_path, buffer.getvalue(), "not those of a bundle")

    @pytest.mark.parametrize("version", [(2, 0), (3, 0)])
    def test_of_another_version_of_the_format(self, good: Path, tmp_path: Path, version: tuple[int, int]) -> None:
        column = npy(np.ones(16, np.int64), version=version)
        refused_samples(good, tmp_path, npz({**members_of(good), "interval_ns": column}), "column")

    @pytest.mark.parametrize("cut", [0, 1, 6, 8, 9, 10, 64, 127, 128, 129, 255])
    def test_cut_short_or_long(self, good: Path, tmp_path: Path, cut: int) -> None:
        whole = members_of(good)["interval_ns"]
        refused_samples(good, tmp_path, npz({**members_of(good), "interval_ns": whole[:cut]}))
        refused_samples(good, tmp_path, npz({**members_of(good), "interval_ns": whole + b"\0" * (cut + 1)}))


class TestArchive:
    @pytest.mark.parametrize(
        "content", [b"", b"PK", b"PK\x05\x06" + b"\0" * 18, b"\x93NUMPY", bz2.compress(b"x"), b"{}"]
    )
    def test_not_an_archive_of_columns(self, good: Path, tmp_path: Path, content: bytes) -> None:
        refused_samples(good, tmp_path, content)

    def test_encrypted(self, good: Path, tmp_path: Path) -> None:
        content = bytearray((good / SAMPLES).read_bytes())
        for mark, place in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
            at = content.find(mark)
            while at >= 0:
                content[at + place] |= 1
                at = content.find(mark, at + 4)
        refused_samples(good, tmp_path, bytes(content), "not readable as samples")

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
