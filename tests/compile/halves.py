"""A defect of LLVM in Triton 3.6.0: two 32-bit numbers share a 64-bit register, and the lower one, which nobody needs
and which is shifted by up to 31, overflows into the upper one. Columns were computed wrong by it on an H200."""

from __future__ import annotations

import re

SHIFTED = re.compile(r"mul\.wide\.u32\s+(%rd\d+), %r\d+, (\d+);|shl\.b64\s+(%rd\d+), %rd\d+, (\d+);")
JOINED = re.compile(r"or\.b64\s+(%rd\d+), (%rd\d+), (%rd\d+);")
UPPER = re.compile(r"mov\.b64\s+\{_, %r\d+\}, (%rd\d+);")
LEAST = 1 << 20
"""A thread's number, of up to 10 bits, times less than this stays below 2³²."""


def overflowing(ptx: str) -> list[str]:
    """Return the registers of which only the upper half is used, and into which the lower one may overflow."""
    large = set()
    for product, factor, moved, by in SHIFTED.findall(ptx):
        if product and int(factor) >= LEAST:
            large.add(product)
        elif moved and 20 <= int(by) < 32:
            large.add(moved)
    read = set(UPPER.findall(ptx))
    return [joined for joined, *parts in JOINED.findall(ptx) if joined in read and large.intersection(parts)]


def check(ptx: str) -> None:
    assert not (found := overflowing(ptx)), f"{found} may hold wrong numbers: compute them in another way"
