"""D3: the hash of a compiled kernel is of what a GPU runs, not of where its source lies."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundspeed.measure.binaries import FORM, INDUCTOR, hash_of, launched

Sections = dict[str, tuple[int, bytes]]
PROGBITS, NOBITS = 1, 8
KERNEL: Sections = {
    ".debug_line": (PROGBITS, b"/home/me/kernel.py 41 42"),
    ".nv.info": (PROGBITS, b"symbol 13"),
    ".text.kernel": (PROGBITS, b"FFMA FADD EXIT"),
    ".nv.constant0.kernel": (PROGBITS, bytes(64)),
    ".nv.shared.kernel": (NOBITS, bytes(1024)),
}


def cubin(sections: Sections, flags: int = 90) -> bytes:
    """An ELF file of 64 bits with these sections, of which NOBITS have a size only."""
    names, content, headers = b"\0", b"", [bytes(64)]
    for name, (kind, data) in sections.items():
        stored = b"" if kind == NOBITS else data
        headers.append(struct.pack("<IIQQQQIIQQ", len(names), kind, 6, 0, 64 + len(content), len(data), 0, 0, 1, 0))
        names, content = names + name.encode() + b"\0", content + stored
    names_at = 64 + len(content)
    headers.append(struct.pack("<IIQQQQIIQQ", len(names), 3, 0, 0, names_at, len(names) + 10, 0, 0, 1, 0))
    names += b".shstrtab\0"
    table = names_at + len(names)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, table, flags, 64, 0, 0, 64, len(headers), len(headers) - 1
    )
    return head + content + names + b"".join(headers)


def test_it_says_how_it_was_made() -> None:
    assert hash_of(cubin(KERNEL)).startswith(FORM)
    assert len(hash_of(cubin(KERNEL))) == len(FORM) + 64


@pytest.mark.parametrize(
    "other",
    [
        {**KERNEL, ".debug_line": (PROGBITS, b"/elsewhere/kernel.py 1041 1042")},
        {name: of for name, of in KERNEL.items() if not name.startswith(".debug")},
        {**KERNEL, ".nv.info": (PROGBITS, b"symbol 10")},
        {**KERNEL, ".nv_debug_ptx_txt": (PROGBITS, b".loc 1 2 3")},
        dict(reversed(KERNEL.items())),
    ],
)
def test_what_changes_nothing(other: Sections) -> None:
    assert hash_of(cubin(other)) == hash_of(cubin(KERNEL))


@pytest.mark.parametrize(
    "other",
    [
        {**KERNEL, ".text.kernel": (PROGBITS, b"FFMA FMUL EXIT")},
        {**KERNEL, ".text.more": (PROGBITS, b"EXIT")},
        {**KERNEL, ".nv.constant0.kernel": (PROGBITS, bytes(63) + b"1")},
        {**KERNEL, ".nv.shared.kernel": (NOBITS, bytes(2048))},
    ],
)
def test_what_changes_it(other: Sections) -> None:
    assert hash_of(cubin(other)) != hash_of(cubin(KERNEL))


def test_another_gpu_is_another_machine_code() -> None:
    assert hash_of(cubin(KERNEL, flags=80)) != hash_of(cubin(KERNEL, flags=90))


@given(st.binary(max_size=200), st.booleans())
def test_what_is_no_kernel_is_refused(content: bytes, looks_like_one: bool) -> None:
    whole = cubin(KERNEL)[: len(content)] + content if looks_like_one else content
    try:
        assert hash_of(whole).startswith(FORM)
    except ValueError:
        pass  # the one error that it has


def test_what_torch_compiled_earlier_is_found_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch launches it past Triton's hooks."""

    class Tuner:
        device_props = SimpleNamespace(index=0)
        launchers = (SimpleNamespace(cache_hash="KEY"),)

        def run(self, *arguments: Any, stream: int) -> int:
            return stream

    (tmp_path / "KEY").mkdir()
    (tmp_path / "KEY" / "flex_attention.cubin").write_bytes(cubin(KERNEL))
    (tmp_path / "KEY" / "flex_attention.ptx").write_text("// PTX")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, INDUCTOR, SimpleNamespace(CachingAutotuner=Tuner))
    plain = Tuner.run
    with launched() as found:
        assert Tuner().run(1, 2, stream=7) == 7
    assert found == [hash_of(cubin(KERNEL))]
    assert Tuner.run is plain
    with launched() as found:
        pass
    assert found == []
