"""What goes wrong, by the exit code it ends in. The message is one sentence with the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GroundspeedError(Exception):
    """The tool or its environment failed."""

    exit_code = 4


class BadInput(GroundspeedError):
    """What was asked for, or the file that was given, is wrong."""

    exit_code = 2


class VerificationFailed(GroundspeedError):
    """A bundle that is not what its manifest says, or not what its protocol would have produced."""

    exit_code = 1


def unknown(kind: str, given: str, known: Iterable[str], *, see: str = "") -> BadInput:
    """The error for a name that does not exist: the nearest names, or all of them where there are few."""
    names = sorted(set(known))
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    if not near and len(names) <= 8:
        near = names
    offer = f"; did you mean {' or '.join(near)}?" if near else "."
    return BadInput(f"unknown {kind} {given!r}{offer}{' ' + see if see else ''}")
