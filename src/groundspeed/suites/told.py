"""Cases from the parameters by which records describe them."""

from __future__ import annotations

from collections.abc import Callable

from groundspeed.case import Case, Scalar, by_its_clock
from groundspeed.errors import BadInput


def case_told(suite: str, params: dict[str, Scalar], make: Callable[[dict[str, Scalar]], Case]) -> Case:
    """Return the case that `make` makes of the parameters, by the clock that they name. BadInput if `make` fails as it
    does on parameters that it does not expect."""
    try:
        return by_its_clock(make(params), params)
    except (KeyError, ValueError, TypeError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        a = "an" if suite[0] in "aeiou" else "a"
        raise BadInput(f"not the parameters of {a} {suite} case: {params!r:.200} ({why})") from None
