"""Errors by the exit code that they lead to. A message is one sentence that includes the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

FEW = 8
"""If no known name is close to the given one, all are listed if there are at most this many."""


class GroundspeedError(Exception):
    """The tool or its environment failed."""

    exit_code = 4


class BadInput(GroundspeedError):
    """The request, or a file that was given, is wrong."""

    exit_code = 2


class VerificationFailed(GroundspeedError):
    """A bundle does not match its manifest, or its protocol would not have produced it. The exit code is that of
    `verify`; in every other command it is bad input."""

    exit_code = 1


def unknown(kind: str, given: str, known: Iterable[str], *, see: str = "") -> BadInput:
    """Return the error for an unknown name, which suggests the likely names or lists those that exist."""
    by_folded = {name.casefold(): name for name in sorted(set(known))}

    folded = given[:80].casefold()

    def nearest(cutoff: float) -> list[str]:
        return [by_folded[name] for name in difflib.get_close_matches(folded, by_folded, 3, cutoff)]

    if near := [by_folded[folded]] if folded in by_folded else nearest(0.5):
        offer = f"did you mean {_either(near)}?"
    elif len(by_folded) <= FEW:
        offer = f"choose {_either(list(by_folded.values()))}."
    else:
        offer = f"the closest are {_either(nearest(0.0), 'and')}."
    return BadInput(f"unknown {kind} {given!r:.80}; {offer}{' ' + see if see else ''}")


def _either(names: list[str], last: str = "or") -> str:
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), names[-1])))
