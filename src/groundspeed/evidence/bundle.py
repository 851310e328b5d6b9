"""A bundle, the folder of evidence that a run leaves: written whole or not at all, and read only if it verifies."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groundspeed.errors import GroundspeedError, VerificationFailed
from groundspeed.evidence.coherence import from_facts
from groundspeed.evidence.decode import parse_json
from groundspeed.evidence.integrity import (
    FACTS,
    MANIFEST,
    SAMPLES,
    make_manifest,
    pack_samples,
    read_files,
    sha256,
    unpack_samples,
)
from groundspeed.evidence.record import Record
from groundspeed.evidence.tables import TABLES, expand, tabulate, to_facts


@dataclass(frozen=True)
class Bundle:
    path: Path
    identity: str
    record: Record

    @property
    def short(self) -> str:
        """Enough of the identity for a person, and for `groundspeed show`."""
        return self.identity[:12]


def read(folder: Path) -> Bundle:
    """Return a bundle whose every byte is what its manifest says. VerificationFailed or BadInput otherwise."""
    files, where = read_files(folder), str(folder / FACTS)
    samples = unpack_samples(files.samples, str(folder / SAMPLES))
    record = from_facts(expand(parse_json(files.facts, where), where), samples, where)
    if record.protocol.name != files.protocol:
        raise VerificationFailed(
            f"{folder}: measured by protocol {record.protocol.name!r:.40}, but its manifest says {files.protocol!r:.40}"
        )
    return Bundle(folder, files.identity, record)


def write(record: Record, parent: Path, stem: str) -> Bundle:
    """Write `record` as the bundle `parent/STEM-IDENTITY`, which appears there finished or not at all."""
    files = {FACTS: dump_facts(tabulate(to_facts(record))), SAMPLES: pack_samples(record.samples)}
    target, identity = put(files, make_manifest(files, record.protocol.name), parent, stem)
    return Bundle(target, identity, record)


def put(files: dict[str, bytes], manifest: bytes, parent: Path, stem: str) -> tuple[Path, str]:
    """Write these files and their manifest to the folder `parent/STEM-IDENTITY`, whole or not at all. Return the folder
    and the identity."""
    identity = sha256(manifest)
    target = parent / f"{stem}-{identity}"
    scratch = parent / f".{stem}-{os.getpid()}.unfinished"
    try:
        if not target.exists():
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            for name, content in {**files, MANIFEST: manifest}.items():
                _write_through(scratch / name, content)
            os.replace(scratch, target)
            _sync_folder(parent)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise GroundspeedError(
            f"cannot write the bundle to {parent}: {error.strerror}; choose another folder with --out"
        ) from None
    return target, identity


def dump_facts(facts: dict[str, Any], tables: Collection[str] = TABLES) -> bytes:
    """Return JSON that a person can read and a diff can follow: one line per entry of each list."""

    def compact(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    parts = []
    for key, value in facts.items():
        if isinstance(value, list) and value:
            body = _lines(map(compact, value), " ")
        elif isinstance(value, dict) and value.keys() == {"columns", "rows"} and key in tables and value["rows"]:
            rows = _lines(map(compact, value["rows"]), "  ")
            body = f'{{\n  "columns": {compact(value["columns"])},\n  "rows": {rows}\n }}'
        elif isinstance(value, dict) and value:
            body = "{\n  " + ",\n  ".join(f"{compact(k)}: {compact(v)}" for k, v in value.items()) + "\n }"
        else:
            body = compact(value)
        parts.append(f" {compact(key)}: {body}")
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _lines(items: Iterable[str], indent: str) -> str:
    return f"[\n{indent} " + f",\n{indent} ".join(items) + f"\n{indent}]"


def _write_through(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
