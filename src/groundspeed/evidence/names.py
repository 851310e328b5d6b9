"""The names that things in a record may have."""

from __future__ import annotations

MAX_TEXT = 200
"""The most characters of a name or a parameter."""
CODE = "code_sha256"
"""Key in the environment of a record or a profile: contender → hash of its code."""


def check_names(kind: str, *names: str) -> None:
    """Raise ValueError for a name that is empty, too long or not printable. Names are printed, drawn from and compared
    by people."""
    for name in names:
        if not name or len(name) > MAX_TEXT or not name.isprintable():
            raise ValueError(f"{name!r:.80} cannot be the name of a {kind}")
