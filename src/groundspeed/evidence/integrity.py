"""Hashes, identity, and the safe reading of files that a stranger may have made.

Facts and samples are parsed only after their hashes have been checked; only plain files of a sane size are read;
nothing that is read can run code.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from groundspeed.errors import BadInput, GroundspeedError, VerificationFailed
from groundspeed.evidence.decode import parse_json
from groundspeed.evidence.samples import COLUMNS, FILE_COLUMNS, UNKNOWN, from_file, to_file

MANIFEST, FACTS, SAMPLES = "manifest.json", "facts.json", "samples.npz"

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


@dataclass(frozen=True)
class Kind:
    """What a bundle is about, and the files that it has besides its manifest."""

    word: str
    predicate_type: str
    files: tuple[str, ...]


RUN = Kind("run", "urn:groundspeed:evidence:1", (FACTS, SAMPLES))
PROFILE = Kind("profile", "urn:groundspeed:profile:1", (FACTS,))
KINDS = {kind.predicate_type: kind for kind in (RUN, PROFILE)}
FORMAT = 1

# A paper run of the largest suite stays under a tenth of these.
MAX_BYTES = {MANIFEST: 64 << 10, FACTS: 64 << 20, SAMPLES: 256 << 20}
MAX_ROWS = 4_000_000


def canonical(value: Any) -> bytes:
    """Return a JSON value in the one form that is used here: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_manifest(files: dict[str, bytes], protocol: str, kind: Kind = RUN) -> bytes:
    """Return an in-toto Statement over `files` in canonical form; its sha256 is the identity of the bundle."""
    return _statement({name: sha256(content) for name, content in files.items()}, protocol, kind)


def _statement(digests: dict[str, str], protocol: str, kind: Kind) -> bytes:
    return canonical(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": digests[name]}} for name in sorted(digests)],
            "predicateType": kind.predicate_type,
            "predicate": {"format": FORMAT, "protocol": protocol},
        }
    )


def read_plain_file(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes. Links, pipes and devices are refused unread."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if path.is_symlink():
            raise VerificationFailed(f"{path} is a symbolic link, and a bundle has only plain files") from None
        raise BadInput(f"{path}: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise VerificationFailed(f"{path} is not a plain file")
        if status.st_size > limit:
            raise VerificationFailed(f"{path} has {status.st_size:,} bytes, more than the {limit:,} a bundle may hold")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)  # not `limit`: read allocates as much as it is asked for
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Files:
    """The files of a bundle, after their hashes and the identity have been checked."""

    identity: str
    protocol: str
    """The name of the protocol, from the manifest."""
    facts: bytes
    samples: bytes
    """Empty unless the bundle is of a run."""


def kind_of(folder: Path) -> Kind | None:
    """Return the kind that the manifest of a bundle names, or None if it names no known one. Nothing is verified."""
    try:
        manifest = parse_json(read_plain_file(folder / MANIFEST, MAX_BYTES[MANIFEST]), "")
    except GroundspeedError:
        return None
    said = manifest.get("predicateType") if isinstance(manifest, dict) else None
    return KINDS.get(said) if isinstance(said, str) else None


def read_files(folder: Path, kind: Kind = RUN) -> Files:
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except FileNotFoundError:
        raise BadInput(f"{folder} is not a bundle: there is no such folder") from None
    except NotADirectoryError:
        raise BadInput(f"{folder} is not a bundle: it is not a folder") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{folder} is not a bundle: {getattr(error, 'strerror', error)}") from None
    if MANIFEST not in names:
        raise BadInput(f"{folder} is not a bundle: it has no {MANIFEST}")
    raw = read_plain_file(folder / MANIFEST, MAX_BYTES[MANIFEST])
    identity = sha256(raw)
    if not folder.resolve().name.endswith(identity):
        raise VerificationFailed(
            f"{folder}: the folder's name does not end in the identity of its manifest ({identity[:12]}…): "
            "the manifest was changed, or the folder was renamed"
        )
    digests, protocol = _read_manifest(raw, folder, kind)
    if strangers := [name for name in names if name != MANIFEST and name not in digests]:
        raise VerificationFailed(f"{folder}: {strangers[0]!r:.80} is not in the manifest")
    contents: dict[str, bytes] = {}
    for name, digest in digests.items():
        if name not in names:
            raise VerificationFailed(f"{folder}: {name} is missing")
        contents[name] = read_plain_file(folder / name, MAX_BYTES[name])
        if sha256(contents[name]) != digest:
            raise VerificationFailed(f"{folder / name} was changed: its sha256 is not the one in the manifest")
    return Files(identity, protocol, contents[FACTS], contents.get(SAMPLES, b""))


def _read_manifest(raw: bytes, folder: Path, kind: Kind) -> tuple[dict[str, str], str]:
    """Return the sha256 of every file, and the name of the protocol."""
    where = str(folder / MANIFEST)
    manifest = parse_json(raw, where)
    try:
        said = manifest["predicateType"]
        if isinstance(said, str) and (other := KINDS.get(said)) not in (None, kind):
            assert other is not None
            raise BadInput(f"{folder} is the bundle of a {other.word}, not of a {kind.word}; name another")
        if manifest["_type"] != STATEMENT_TYPE or said != kind.predicate_type:
            raise BadInput(f"{where} is an in-toto statement about something else, not a groundspeed bundle")
        if manifest["predicate"]["format"] != FORMAT:
            raise BadInput(
                f"{where}: written by a newer groundspeed (format {manifest['predicate']['format']!r:.20}, this one "
                f"reads {FORMAT}); upgrade groundspeed to read it"
            )
        digests = {entry["name"]: entry["digest"]["sha256"] for entry in manifest["subject"]}
        protocol = manifest["predicate"]["protocol"]
        names = ", ".join(sorted(digests))
        if not isinstance(protocol, str):
            raise TypeError("the protocol has no name")
    except (KeyError, TypeError) as error:
        raise BadInput(f"{where} is not the manifest of a bundle ({error!r:.80})") from None
    if set(digests) != set(kind.files):
        raise VerificationFailed(f"{where} must name {' and '.join(kind.files)}, but names {names!r:.80}")
    if _statement(digests, protocol, kind) != raw:
        raise VerificationFailed(f"{where} is not in canonical form")
    return digests, protocol


FORMS = (FILE_COLUMNS, {name: dtype for name, dtype in COLUMNS.items() if name not in UNKNOWN})
"""The columns of the samples file in the present schema, and in the first one."""


SMALL_BYTES = 1 << 14


def pack_samples(samples: dict[str, npt.NDArray[Any]]) -> bytes:
    """Return columns as .npz bytes; the same columns always give the same bytes. LZMA needs a quarter less space than
    deflate but takes longer to start, so small columns are deflated."""
    buffer = io.BytesIO()
    columns = to_file(samples)
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in FILE_COLUMNS:
            column = io.BytesIO()
            np.lib.format.write_array(column, np.ascontiguousarray(columns[name]), allow_pickle=False)
            way = zipfile.ZIP_LZMA if column.tell() > SMALL_BYTES else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), column.getvalue(), way)
    return buffer.getvalue()


_DICTIONARY = 8 << 20
_LZMA_HEADER = struct.pack("<BBHBI", 9, 4, 5, 0x5D, _DICTIONARY)
"""The header that `zipfile` writes before LZMA data: the version, and the properties that it always uses."""
_NPY_MAGIC = b"\x93NUMPY\x01\x00"
_NPY_HEADER = re.compile(
    rb"\{'descr': '(?P<dtype>[<|][a-z][0-9])', 'fortran_order': False, 'shape': \((?P<rows>[0-9]{1,9}),\), \} *\n"
)


def unpack_samples(content: bytes, where: str) -> dict[str, npt.NDArray[Any]]:
    """Return the columns in .npz bytes. BadInput unless they are exactly those of the present schema or of the first
    one, with their types, and of one length."""
    columns: dict[str, npt.NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {member.filename: member for member in archive.infolist()}
            form = next((f for f in FORMS if {f"{name}.npy" for name in f} == set(members)), None)
            if form is None or len(archive.infolist()) != len(members):
                raise BadInput(f"{where}: the columns are not those of a bundle")
            for name, dtype in form.items():
                member = members[f"{name}.npy"]
                if member.file_size > MAX_ROWS * np.dtype(dtype).itemsize + 4096:
                    raise BadInput(f"{where}: column {name!r} is larger than a bundle may hold")
                if (column := _unpacked(content, archive, member)) is None:
                    raise BadInput(f"{where}: column {name!r} is compressed in a way that bundles do not use")
                columns[name] = _column(column, dtype)
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        struct.error,
        ValueError,
        EOFError,
        OSError,
        LookupError,
    ) as error:
        raise BadInput(f"{where}: not readable as samples ({error!r:.80})") from None
    except (NotImplementedError, RuntimeError, ArithmeticError) as error:  # encrypted, or offsets beyond the file
        raise BadInput(f"{where}: not readable as samples ({error!r:.80})") from None
    if len({len(column) for column in columns.values()}) != 1:
        raise BadInput(f"{where}: the columns differ in length")
    return from_file(columns)


def _unpacked(content: bytes, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes | None:
    """Return the bytes of one column, never more than the archive's index declares, or None if it is packed in a way
    that cannot be bounded. `zipfile` itself bounds only deflated data, and allocates a dictionary of any size."""
    with archive.open(member) as file:  # also refuses a member that is encrypted or has two names
        if member.compress_type in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
            return file.read(member.file_size)
    name, extra = struct.unpack_from("<HH", content, member.header_offset + 26)
    begin = member.header_offset + 30 + name + extra
    data = content[begin : begin + member.compress_size]
    if member.compress_type != zipfile.ZIP_LZMA or not data.startswith(_LZMA_HEADER):
        return None
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA1, "dict_size": _DICTIONARY}])
    column = unpacker.decompress(data[len(_LZMA_HEADER) :], member.file_size)
    if zlib.crc32(column) != member.CRC:
        raise zipfile.BadZipFile("a column is damaged")
    return column


def _column(content: bytes, dtype: str) -> npt.NDArray[Any]:
    """Return the array in a one-dimensional .npy file of exactly this type, as `pack_samples` writes it.

    numpy's own reader allocates whatever shape a header claims, evaluates the header, and can be told to unpickle."""
    begin = len(_NPY_MAGIC) + 2
    end = begin + int.from_bytes(content[begin - 2 : begin], "little")
    header = _NPY_HEADER.fullmatch(content[begin:end])
    if not content.startswith(_NPY_MAGIC) or header is None or header["dtype"].decode() != dtype:
        raise ValueError(f"a column is not an array of {np.dtype(dtype)}")
    column = np.frombuffer(content, dtype, offset=end)
    if len(column) != int(header["rows"]):
        raise ValueError("a column does not have the length that its header says")
    return column
