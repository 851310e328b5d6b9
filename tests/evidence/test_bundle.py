"""Bundles: an in-toto statement over facts and samples, written whole or not at all (issue 2, point 5; D3)."""

from __future__ import annotations

import errno
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import empty_samples, files_of, raw_facts_of, same, small_record, write

from fakes import Died
from groundspeed.errors import GroundspeedError
from groundspeed.evidence import bundle
from groundspeed.evidence.coherence import from_facts
from groundspeed.evidence.integrity import FACTS, MANIFEST, SAMPLES, canonical, pack_samples, unpack_samples
from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import COLUMNS
from groundspeed.evidence.tables import TABLES, to_facts
from groundspeed.lab.check import verify


class TestRoundTrip:
    def test_what_was_written_is_read(self, record: Record, good: Path) -> None:
        found = bundle.read(good)
        assert same(found.record, record)
        assert found.path == good

    def test_it_verifies(self, good: Path) -> None:
        found, replay = verify(good)
        assert found.short == found.identity[:12]
        assert (replay.blocks, replay.stops) == (4, 2)

    def test_of_a_run_in_which_a_contender_died(self, tmp_path: Path) -> None:
        def fault(contender: str, case: str, block: int | None) -> Exception | None:
            return Died("killed by SIGSEGV") if (contender, block) == ("ours", 1) else None

        eventful = small_record(fault)
        path = write(eventful, tmp_path)
        assert same(verify(path)[0].record, eventful)

    def test_of_a_run_that_was_interrupted_before_its_first_sample(self, record: Record, tmp_path: Path) -> None:
        facts = to_facts(record) | {"processes": [], "outcomes": [], "stops": []}
        path = write(from_facts(facts, empty_samples(), "x"), tmp_path)
        assert len(verify(path)[0].record.samples["process"]) == 0

    def test_through_a_link_to_the_folder(self, good: Path, tmp_path: Path) -> None:
        """A person may link to a bundle; inside of it there are plain files only."""
        (tmp_path / "favourite").symlink_to(good)
        assert bundle.read(tmp_path / "favourite").identity == bundle.read(good).identity


class TestIdentity:
    def test_is_the_sha256_of_the_manifest_and_ends_the_folders_name(self, good: Path) -> None:
        identity = hashlib.sha256((good / MANIFEST).read_bytes()).hexdigest()
        assert bundle.read(good).identity == identity
        assert good.name == f"run-{identity}"

    def test_the_same_record_has_the_same_identity_wherever_it_is_written(self, record: Record, tmp_path: Path) -> None:
        first, second = write(record, tmp_path / "a", "one"), write(record, tmp_path / "b", "two")
        assert first.name.removeprefix("one") == second.name.removeprefix("two")
        assert files_of(first) == files_of(second)

    def test_written_twice_it_is_there_once(self, record: Record, tmp_path: Path) -> None:
        assert write(record, tmp_path) == write(record, tmp_path)
        assert len(list(tmp_path.iterdir())) == 1

    def test_another_record_has_another_identity(self, good: Path, tmp_path: Path) -> None:
        assert write(small_record(seed=8), tmp_path).name != good.name


class TestManifest:
    def test_is_an_in_toto_statement(self, good: Path) -> None:
        """Others' tools can sign and check it: every other file with its sha256 as subject, and the least predicate."""
        statement = json.loads((good / MANIFEST).read_bytes())
        assert statement == {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [
                {"name": name, "digest": {"sha256": hashlib.sha256((good / name).read_bytes()).hexdigest()}}
                for name in (FACTS, SAMPLES)
            ],
            "predicateType": "urn:groundspeed:evidence:1",
            "predicate": {"format": 1, "protocol": "paired-blocks/5"},
        }

    def test_is_canonical(self, good: Path) -> None:
        raw = (good / MANIFEST).read_bytes()
        assert canonical(json.loads(raw)) == raw

    def test_canonical_form(self) -> None:
        assert canonical({"b": [1, "µ"], "a": None}) == '{"a":null,"b":[1,"µ"]}'.encode()
        with pytest.raises(ValueError, match="JSON"):
            canonical(float("nan"))

    def test_a_bundle_is_flat_with_three_files(self, good: Path) -> None:
        assert sorted(path.name for path in good.iterdir()) == [FACTS, MANIFEST, SAMPLES]


class TestFacts:
    def test_a_person_can_read_them_line_by_line(self, good: Path) -> None:
        """A line for each entry of each list and each row of a table, so that a diff shows what changed."""
        lines = (good / FACTS).read_text().splitlines()
        assert sum(',"width",' in line or ',"last look",' in line for line in lines) == 2
        assert sum('"why"' in line for line in lines) == 1
        assert max(map(len, lines)) < 1000
        entries = [line.strip().rstrip(",") for line in lines]
        for key, value in raw_facts_of(good).items():
            for row in value["rows"] if key in TABLES else value if isinstance(value, list) else ():
                assert json.dumps(row, ensure_ascii=False, separators=(",", ":")) in entries

    def test_the_names_of_a_table_stand_once(self, good: Path) -> None:
        assert {key: set(raw_facts_of(good)[key]) for key in TABLES} == {key: {"columns", "rows"} for key in TABLES}
        assert (good / FACTS).read_text().count('"host_peak_bytes"') == 1

    @pytest.mark.parametrize(
        "facts", [{}, {"a": []}, {"a": {}, "b": 1, "c": "µ\n", "d": [1, [2]], "e": {"x": [None, True], "y": {}}}]
    )
    def test_they_are_json(self, facts: dict[str, Any]) -> None:
        assert json.loads(bundle.dump_facts(facts)) == facts

    def test_nobody_is_named_by_them(self, good: Path) -> None:
        """A bundle is made to be published."""
        assert str(Path.home()).encode() not in (good / FACTS).read_bytes()


class TestSamples:
    def test_columns_keep_types_and_values(self) -> None:
        columns = {name: np.arange(5).astype(dtype) for name, dtype in COLUMNS.items()}
        found = unpack_samples(pack_samples(columns), "x")
        assert list(found) == list(COLUMNS)
        for name, dtype in COLUMNS.items():
            assert found[name].dtype == np.dtype(dtype)
            assert found[name].tolist() == columns[name].tolist()

    def test_numpy_reads_them_too(self, good: Path, record: Record) -> None:
        """No format of our own: what is kept can be read without us."""
        with np.load(good / SAMPLES, allow_pickle=False) as archive:
            assert (archive["interval_ns"] / 1e9).tolist() == record.samples["seconds"].tolist()
            assert (archive["start_us"] / 1e6).tolist() == record.samples["start"].tolist()

    def test_no_rows(self) -> None:
        assert {len(column) for column in unpack_samples(pack_samples(empty_samples()), "x").values()} == {0}

    def test_nothing_in_them_tells_when_they_were_packed(self, good: Path) -> None:
        with zipfile.ZipFile(good / SAMPLES) as archive:
            assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


class TestWholeOrNotAtAll:
    def test_a_full_disk_leaves_nothing(self, record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Issue 2: a read-only or full output folder is exit 4, nothing half-written left as if complete."""
        calls = 0

        def full(descriptor: int) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(bundle.os, "fsync", full)
        with pytest.raises(GroundspeedError, match=r"No space left on device; choose another folder") as failure:
            bundle.write(record, tmp_path, "run")
        assert failure.value.exit_code == 4
        assert list(tmp_path.iterdir()) == []

    def test_a_kill_before_the_last_step_leaves_nothing_that_looks_complete(
        self, record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def killed(source: Path, target: Path) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(bundle.os, "replace", killed)
            with pytest.raises(KeyboardInterrupt):
                bundle.write(record, tmp_path, "run")
        (left,) = tmp_path.iterdir()
        assert left.name.endswith(".unfinished")
        assert verify(write(record, tmp_path))[0].record.complete
        assert not left.exists()

    def test_a_folder_that_cannot_be_written(self, record: Record, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(GroundspeedError, match="choose another folder with --out") as failure:
            bundle.write(record, tmp_path / "file", "run")
        assert failure.value.exit_code == 4
