"""Bundles for the tests: a small real one, and what somebody with a text editor and sha256sum can make of it."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fakes import Fault, fake_run, no_fault, noisy
from groundspeed.errors import BadInput
from groundspeed.evidence import bundle
from groundspeed.evidence.integrity import FACTS, MANIFEST, SAMPLES, make_manifest, sha256
from groundspeed.evidence.protocol import NAME
from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import COLUMNS, UNKNOWN, Samples
from groundspeed.evidence.tables import TABLES, expand, tabulate, to_facts
from groundspeed.evidence.upgrade import NEW_IN_3, NEW_IN_5, PARTS_NEW_IN_3, PARTS_NEW_IN_4, PARTS_NEW_IN_6
from groundspeed.lab.check import verify

MEANS = {"base": 1e-3, "ours": 0.8e-3}


def small_record(fault: Fault = no_fault, **changes: Any) -> Record:
    """Two processes of two blocks on one case."""
    settings = {"shapes": ("B=1,S=8,causal=0",), "processes": 2, "looks": (2,), **changes}
    with tempfile.TemporaryDirectory() as name, mock.patch("os.fsync"):
        return fake_run(Path(name), noisy(MEANS), list(MEANS), fault, **settings)


def write(record: Record, parent: Path, stem: str = "run") -> Path:
    with mock.patch("os.fsync"):
        return bundle.write(record, parent, stem).path


def empty_samples() -> Samples:
    return {name: np.empty(0, dtype) for name, dtype in COLUMNS.items()}


def same(one: Record, other: Record) -> bool:
    columns = [(one.samples[name], other.samples[name]) for name in COLUMNS]
    alike = (a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True) for a, b in columns)
    return to_facts(one) == to_facts(other) and all(alike)


def files_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (FACTS, SAMPLES)}


def raw_facts_of(folder: Path) -> Any:
    """As the file has them, with tables."""
    return json.loads((folder / FACTS).read_bytes())


def facts_of(folder: Path) -> Any:
    """As the record has them: lists of objects."""
    return expand(raw_facts_of(folder), "facts")


def facts_file(facts: Any) -> bytes:
    """Facts as a file has them: what can be a table is one, and whatever else a test made of it is left as it is."""
    if isinstance(facts, dict) and facts.get("schema") != 1:
        facts = {key: _table(key, value) for key, value in facts.items()}
    return json.dumps(facts).encode()


def _table(key: str, value: Any) -> Any:
    alike = isinstance(value, list) and all(isinstance(v, dict) and v.keys() == value[0].keys() for v in value)
    return tabulate({key: value})[key] if key in TABLES and alike else value


def put(parent: Path, manifest: bytes, files: Mapping[str, bytes]) -> Path:
    """A folder with these files, named after this manifest."""
    folder = parent / f"run-{sha256(manifest)}"
    folder.mkdir(exist_ok=True)
    for name, content in {**files, MANIFEST: manifest}.items():
        (folder / name).write_bytes(content)
    return folder


def forged(source: Path, parent: Path, **changed: bytes) -> Path:
    """A bundle with other facts or samples whose every hash agrees, and whose folder is named as it should be."""
    files = files_of(source)
    files |= {{"facts": FACTS, "samples": SAMPLES}[name]: content for name, content in changed.items()}
    return put(parent, make_manifest(files, NAME), files)


def forged_facts(source: Path, parent: Path, change: Callable[[Any], None]) -> Path:
    facts = facts_of(source)
    change(facts)
    return forged(source, parent, facts=facts_file(facts))


def forged_manifest(source: Path, parent: Path, change: Callable[[Any], Any]) -> Path:
    """A bundle with another manifest, in canonical form and with its folder named after it."""
    manifest = json.loads((source / MANIFEST).read_bytes())
    changed = change(manifest)
    manifest = manifest if changed is None else changed
    content = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return put(parent, content, files_of(source))


def npz(members: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def members_of(folder: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(folder / SAMPLES) as archive:
        return {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}


def columns_of(folder: Path) -> Samples:
    """As the file has them, to be changed."""
    with np.load(folder / SAMPLES, allow_pickle=False) as archive:
        return dict(archive)


def samples_file(columns: Samples) -> bytes:
    """These very columns as a file, whether they are those of a bundle or not."""
    return npz({name: npy(column) for name, column in columns.items()})


def npy(array: np.ndarray, **keywords: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **keywords)
    return buffer.getvalue()


def as_schema_5(record: Record) -> Any:
    """Facts as the fifth schema had them."""
    facts = json.loads(json.dumps(to_facts(record)))
    return {**_without(facts, PARTS_NEW_IN_6), "schema": 5}


def as_schema_4(record: Record) -> Any:
    """Facts as the fourth schema had them."""
    return {**{key: value for key, value in as_schema_5(record).items() if key not in NEW_IN_5}, "schema": 4}


def as_schema_3(record: Record) -> Any:
    """Facts as the third schema had them."""
    return {**_without(as_schema_4(record), PARTS_NEW_IN_4), "schema": 3}


def as_schema_2(record: Record) -> Any:
    """Facts as the second schema had them."""
    facts = {key: value for key, value in as_schema_3(record).items() if key not in NEW_IN_3}
    return {**_without(facts, PARTS_NEW_IN_3), "schema": 2}


def _without(facts: Any, parts: Mapping[str, Mapping[str, Any]]) -> Any:
    for part, new in parts.items():
        for entry in facts[part] if isinstance(facts[part], list) else [facts[part]]:
            for key in new:
                del entry[key]
    return facts


def as_schema_1(record: Record) -> tuple[Any, Samples]:
    """Facts and samples as the first schema had them."""
    facts = {**as_schema_2(record), "schema": 1}
    del facts["launched"], facts["run"]["extended"], facts["protocol"]["sequential"], facts["protocol"]["extension"]
    for process in facts["processes"]:
        del process["gpu_users"], process["gpu"]
    for outcome in facts["outcomes"]:
        del outcome["device_peak_bytes"], outcome["device_extra_bytes"]
    return facts, {name: column for name, column in record.samples.items() if name not in UNKNOWN}


def write_schema_1(record: Record, parent: Path) -> Path:
    """The bundle that the first groundspeed would have left."""
    facts, samples = as_schema_1(record)
    files = {FACTS: facts_file(facts), SAMPLES: samples_file(samples)}
    return put(parent, make_manifest(files, NAME), files)


def refused_samples(good: Path, parent: Path, samples: bytes, *said: str) -> None:
    with pytest.raises(BadInput) as failure:
        verify(forged(good, parent, samples=samples))
    for words in (SAMPLES, *said):
        assert words in str(failure.value)
    assert len(str(failure.value)) < 1000
