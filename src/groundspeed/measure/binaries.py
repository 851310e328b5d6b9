"""Hashes of the machine code of launched Triton kernels, which do not depend on line numbers and paths."""

from __future__ import annotations

import functools
import hashlib
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FORM = "machine-code/1:"
"""The prefix of a hash, which says how it was made. Older records have the sha256 of the whole file without a prefix;
the file includes the path and the line numbers of the source."""

KEPT = (".text", ".nv.constant", ".nv.global", ".nv.shared", ".nv.local")
"""The sections that a GPU executes or reads. Left out are those of a debugger, and the tables that number those
(`.symtab`, `.nv.info`)."""
INDUCTOR = "torch._inductor.runtime.triton_heuristics"
NO_BITS = 8
"""ELF type of a section that has a size but no content."""


def hash_of(cubin: bytes) -> str:
    """Return the hash of a compiled kernel. Raise ValueError if it is not a 64-bit ELF file."""
    try:
        return f"{FORM}{hashlib.sha256(b''.join(_kept(cubin))).hexdigest()}"
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"not a compiled kernel: {error}") from None


def _kept(cubin: bytes) -> Iterator[bytes]:
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF file")
    yield cubin[0x30:0x34]  # flags of the file: the GPU that it is for
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, of_names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * size) for i in range(count)]
    names = cubin[headers[of_names][4] :]
    found = {}
    for name_at, kind, flags, _, at, length, *_ in headers:
        name = names[name_at : names.index(b"\0", name_at)]
        if name.startswith(tuple(part.encode() for part in KEPT)):
            content = b"" if kind == NO_BITS else cubin[at : at + length]
            found[name] = name + struct.pack("<IQQ", kind, flags, length) + content
    yield from (found[name] for name in sorted(found))


_loaded: dict[Any, str] = {}
"""Handle of a Triton kernel that this process has loaded → its hash."""


@contextmanager
def launched() -> Iterator[list[str]]:
    """Collect the hashes of all Triton kernels that are launched inside. Those of torch.compile are included if it has
    compiled something before."""
    found: list[str] = []
    if not watch_loads():
        yield found
        return
    from triton import knobs

    def launching(metadata: Any) -> None:
        found.extend(filter(None, [_loaded.get(metadata.get()["function"])]))

    knobs.runtime.launch_enter_hook.add(launching)
    try:
        with _compiled_by_torch(found):
            yield found
    finally:
        knobs.runtime.launch_enter_hook.remove(launching)


@functools.cache
def watch_loads() -> bool:
    """Record the hash of every kernel that Triton loads from now on: it is loaded once and may be launched later.
    Return False without Triton."""
    try:
        from triton import knobs
    except ImportError:
        return False

    def loaded(module: Any, function: Any, name: str, files: dict[str, Any], key: str) -> None:
        binary = next((path for file, path in files.items() if file.endswith(".cubin")), None)
        if binary is not None and (found := _hash_of_file(Path(binary))):
            _loaded[function] = found

    knobs.runtime.kernel_load_end_hook.add(loaded)
    return True


def _hash_of_file(path: Path) -> str | None:
    try:
        return hash_of(path.read_bytes())
    except (OSError, ValueError):
        return None


@contextmanager
def _compiled_by_torch(found: list[str]) -> Iterator[None]:
    """Collect kernels that bypass Triton's hooks: torch.compile launches those that it compiled in another process, or
    found in its cache, by itself. Its launcher knows where their files are."""
    if INDUCTOR not in sys.modules:  # nothing was compiled by it, and importing it takes seconds
        yield
        return
    tuner: Any = sys.modules[INDUCTOR].CachingAutotuner
    run: Callable[..., Any] = tuner.run

    @functools.wraps(run)
    def watched(self: Any, *arguments: Any, **named: Any) -> Any:
        result = run(self, *arguments, **named)
        found.extend(_launched_by(self))
        return result

    tuner.run = watched
    try:
        yield
    finally:
        tuner.run = run


def _launched_by(tuner: Any) -> list[str]:
    """Return the hashes of a tuner's kernels; nothing (unknown) if this version of PyTorch stores its launchers
    elsewhere."""
    try:
        from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

        cache = Path(triton_cache_dir(tuner.device_props.index or 0))
        files = [file for launcher in tuner.launchers for file in sorted((cache / launcher.cache_hash).glob("*.cubin"))]
    except (ImportError, AttributeError):
        return []
    return [found for file in files if (found := _hash_of_file(file))]
