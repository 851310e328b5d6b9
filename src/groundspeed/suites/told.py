"""Cases as records describe them: by their parameters."""

from __future__ import annotations

from collections.abc import Callable

from groundspeed.case import Case, Scalar, by_its_clock
from groundspeed.errors import BadInput


def case_told(suite: str, params: dict[str, Scalar], make: Callable[[dict[str, Scalar]], Case]) -> Case:
    """What `make` makes of them, by the clock that they name; BadInput where that fails as it does on what it does not
    expect."""
    try:
        return by_its_clock(make(params), params)
    except (KeyError, ValueError, TypeError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        a = "an" if suite[0] in "aeiou" else "a"
        raise BadInput(f"not the parameters of {a} {suite} case: {params!r:.200} ({why})") from None
