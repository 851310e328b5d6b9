"""Merges sentences that differ only in their numbers into one that gives the range of each number."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"(?<![\w.,-])[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
"""A number that stands by itself; the 4 of `flash-attn-4` or of `s4096` is part of a name."""


def without_numbers(sentence: str) -> tuple[str, ...]:
    """Return the text between the numbers. Sentences are alike if it is the same."""
    return tuple(_NUMBER.split(sentence))


def together(sentences: Sequence[str]) -> str:
    """Merge sentences that are alike: `--processes 18 to 395 would settle it`."""
    numbers = zip(*map(_NUMBER.findall, sentences), strict=True)
    ranges = (_range(sorted(dict.fromkeys(found), key=_value)) for found in numbers)
    return _NUMBER.sub(lambda _: next(ranges), sentences[0])


def _range(ordered: Sequence[str]) -> str:
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def _value(number: str) -> float:
    return float(number.replace(",", ""))
