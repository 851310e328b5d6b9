"""The machine code of the Triton kernels that are launched, as a hash that line numbers and paths do not change."""

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
"""Before a hash: how it was made. Records from before there was one have the sha256 of the whole file, in which the
path and the lines of the source stand."""

KEPT = (".text", ".nv.constant", ".nv.global", ".nv.shared", ".nv.local")
"""The sections that a GPU runs and reads. Not those of a debugger, nor tables that number these (`.symtab`,
`.nv.info`)."""
INDUCTOR = "torch._inductor.runtime.triton_heuristics"
NO_BITS = 8
"""Type of a section that has a size and no content."""


def hash_of(cubin: bytes) -> str:
    """The hash of a compiled kernel. ValueError for what is no ELF file of 64 bits."""
    try:
        return f"{FORM}{hashlib.sha256(b''.join(_kept(cubin))).hexdigest()}"
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"no compiled kernel: {error}") from None


def _kept(cubin: bytes) -> Iterator[bytes]:
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("no ELF file of 64 bits")
    yield cubin[0x30:0x34]  # flags of the file: for which GPU
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
    """The hashes of all Triton kernels that are launched inside, PyTorch's compiled ones among them if it had compiled
    some before."""
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
    """From now on the hash of every kernel that Triton loads is known: it is loaded once, and may be launched later.
    False without Triton."""
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
    """What torch.compile made in another process, or found in its cache, it launches past Triton's hooks. Its launcher
    tells where the file lies."""
    if INDUCTOR not in sys.modules:  # nobody asked it to compile, and it takes seconds to import
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
    """Nothing where this version of PyTorch keeps its launchers otherwise: then it is not known."""
    try:
        from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

        cache = Path(triton_cache_dir(tuner.device_props.index or 0))
        files = [file for launcher in tuner.launchers for file in sorted((cache / launcher.cache_hash).glob("*.cubin"))]
    except (ImportError, AttributeError):
        return []
    return [found for file in files if (found := _hash_of_file(file))]
