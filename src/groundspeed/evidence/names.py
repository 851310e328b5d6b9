"""What a thing in a record may be called."""

from __future__ import annotations

MAX_TEXT = 200
"""Characters of a name or a parameter."""
CODE = "code_sha256"
"""In the environment of a record or a profile: by contender the hash of its code."""


def check_names(kind: str, *names: str) -> None:
    """Names are printed, drawn from and compared by people: no empty, endless or invisible ones."""
    for name in names:
        if not name or len(name) > MAX_TEXT or not name.isprintable():
            raise ValueError(f"{name!r:.80} cannot be the name of a {kind}")
