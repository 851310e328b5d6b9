"""What goes wrong, by the exit code it ends in. The message is one sentence with the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

FEW = 8
"""Up to so many names, all are offered where none is near."""


class GroundspeedError(Exception):
    """The tool or its environment failed."""

    exit_code = 4


class BadInput(GroundspeedError):
    """What was asked for, or the file that was given, is wrong."""

    exit_code = 2


class VerificationFailed(GroundspeedError):
    """A bundle that is not what its manifest says, or not what its protocol would have produced. The code is that of
    `verify`; in every other command it is bad input."""

    exit_code = 1


def unknown(kind: str, given: str, known: Iterable[str], *, see: str = "") -> BadInput:
    """The error for a name that does not exist: what was probably meant, or what there is."""
    by_folded = {name.casefold(): name for name in sorted(set(known))}

    folded = given[:80].casefold()

    def nearest(cutoff: float) -> list[str]:
        return [by_folded[name] for name in difflib.get_close_matches(folded, by_folded, 3, cutoff)]

    if near := [by_folded[folded]] if folded in by_folded else nearest(0.5):
        offer = f"did you mean {_either(near)}?"
    elif len(by_folded) <= FEW:
        offer = f"the choice is {_either(list(by_folded.values()))}."
    else:
        offer = f"the nearest are {_either(nearest(0.0), 'and')}."
    return BadInput(f"unknown {kind} {given!r:.80}; {offer}{' ' + see if see else ''}")


def _either(names: list[str], last: str = "or") -> str:
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), names[-1])))
