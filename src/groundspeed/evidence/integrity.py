"""Hashes, identity and the safe reading of files that somebody else may have made.

Nothing is parsed before its hash agrees; nothing is opened that is no plain file of a sane size; nothing
read can run code.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from groundspeed.errors import BadInput, VerificationFailed
from groundspeed.evidence.decode import parse_json
from groundspeed.evidence.record import COLUMNS

MANIFEST, FACTS, SAMPLES = "manifest.json", "facts.json", "samples.npz"

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:groundspeed:evidence:1"
FORMAT = 1

# A paper run of the largest suite stays under a tenth of these.
MAX_BYTES = {MANIFEST: 64 << 10, FACTS: 64 << 20, SAMPLES: 256 << 20}
MAX_ROWS = 20_000_000

FILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


def canonical(value: Any) -> bytes:
    """The one way to write a JSON value here: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_manifest(files: dict[str, bytes], protocol: str) -> bytes:
    """An in-toto Statement over `files`, in canonical form; its sha256 is the bundle's identity."""
    return canonical(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": sha256(files[name])}} for name in sorted(files)],
            "predicateType": PREDICATE_TYPE,
            "predicate": {"format": FORMAT, "protocol": protocol},
        }
    )


def read_plain_file(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes; links, pipes and devices are refused unopened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if path.is_symlink():
            raise VerificationFailed(f"{path} is a link, and a bundle holds plain files only") from None
        raise BadInput(f"{path}: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise VerificationFailed(f"{path} is not a plain file")
        if status.st_size > limit:
            raise VerificationFailed(f"{path} has {status.st_size:,} bytes, more than the {limit:,} a bundle may hold")
        return file.read(limit)


def read_files(folder: Path) -> tuple[dict[str, bytes], str]:
    """The files of a bundle whose hashes and identity agree, and that identity."""
    if not folder.is_dir():
        reason = "there is no such folder" if not folder.exists() else "not a folder"
        raise BadInput(f"{folder} is no bundle: {reason}")
    if not (folder / MANIFEST).is_symlink() and not (folder / MANIFEST).exists():
        raise BadInput(f"{folder} is no bundle: it has no {MANIFEST}")
    names = sorted(entry.name for entry in os.scandir(folder))
    raw = read_plain_file(folder / MANIFEST, MAX_BYTES[MANIFEST])
    identity = sha256(raw)
    if not folder.resolve().name.endswith(identity):
        raise VerificationFailed(
            f"{folder}: the folder's name does not end in the identity of its manifest ({identity[:12]}…): "
            "the manifest was changed, or the folder renamed"
        )
    digests = _read_manifest(raw, folder)
    if strangers := [name for name in names if name != MANIFEST and name not in digests]:
        raise VerificationFailed(f"{folder}: the manifest does not know {strangers[0]!r:.80}")
    contents: dict[str, bytes] = {}
    for name, digest in digests.items():
        if name not in names:
            raise VerificationFailed(f"{folder}: {name} is missing")
        contents[name] = read_plain_file(folder / name, MAX_BYTES[name])
        if sha256(contents[name]) != digest:
            raise VerificationFailed(f"{folder / name} was changed: its sha256 is not the one in the manifest")
    return contents, identity


def _read_manifest(raw: bytes, folder: Path) -> dict[str, str]:
    where = str(folder / MANIFEST)
    manifest = parse_json(raw, where)
    try:
        if canonical(manifest) != raw:
            raise VerificationFailed(f"{where} is not in canonical form")
        if manifest["_type"] != STATEMENT_TYPE or manifest["predicateType"] != PREDICATE_TYPE:
            raise BadInput(f"{where} is an in-toto statement about something else, not a groundspeed bundle")
        if manifest["predicate"]["format"] != FORMAT:
            raise BadInput(
                f"{where}: written by a newer groundspeed (format {manifest['predicate']['format']!r:.20}, this one "
                f"reads {FORMAT}); upgrade groundspeed to read it"
            )
        digests = {entry["name"]: entry["digest"]["sha256"] for entry in manifest["subject"]}
        if len(digests) != len(manifest["subject"]) or not all(FILE_NAME.fullmatch(name) for name in digests):
            raise VerificationFailed(f"{where} names a file that a bundle cannot hold")
    except (KeyError, TypeError, IndexError, UnicodeError) as error:
        raise BadInput(f"{where} is no manifest of a bundle ({error!r:.80})") from None
    if set(digests) != {FACTS, SAMPLES}:
        raise VerificationFailed(
            f"{where} must name {FACTS} and {SAMPLES}, and names {', '.join(sorted(digests))!r:.80}"
        )
    return digests


def pack_samples(samples: dict[str, npt.NDArray[Any]]) -> bytes:
    """Columns as .npz bytes; the same bytes for the same columns."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in COLUMNS:
            column = io.BytesIO()
            np.lib.format.write_array(column, np.ascontiguousarray(samples[name]), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), column.getvalue(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def unpack_samples(content: bytes, where: str) -> dict[str, npt.NDArray[Any]]:
    """Columns out of .npz bytes: just those of `COLUMNS`, of their types, of one length, without pickle."""
    columns: dict[str, npt.NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if sorted(member.filename for member in members) != sorted(f"{name}.npy" for name in COLUMNS):
                raise BadInput(f"{where}: the columns are not those of schema 1")
            for member in members:
                name = member.filename.removesuffix(".npy")
                dtype = np.dtype(COLUMNS[name])
                if member.file_size > MAX_ROWS * dtype.itemsize + 4096:
                    raise BadInput(f"{where}: column {name!r} is larger than a bundle may hold")
                with archive.open(member) as file:
                    column = np.lib.format.read_array(io.BytesIO(file.read()), allow_pickle=False)
                if column.ndim != 1 or column.dtype != dtype:
                    raise BadInput(f"{where}: column {name!r} is not a list of {dtype}")
                columns[name] = column
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, KeyError, NotImplementedError, RuntimeError) as error:
        raise BadInput(f"{where}: not readable as samples ({error!r:.80})") from None
    except zipfile.zlib.error as error:  # type: ignore[attr-defined]
        raise BadInput(f"{where}: not readable as samples ({error})") from None
    if len({len(column) for column in columns.values()}) != 1:
        raise BadInput(f"{where}: the columns differ in length")
    return columns
