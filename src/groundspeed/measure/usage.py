"""What workers say about how a case is spread over its experts: kept once, and compared with what they say later."""

from __future__ import annotations

from collections.abc import Mapping

from groundspeed.case import Case
from groundspeed.evidence.journal import Journal
from groundspeed.evidence.usage import Usage

DIGITS = 9
"""Decimal places of a balance loss."""


class UsageLedger:
    """The expert usage of a run. How many tokens each expert has is a fact of the case, so a report that differs is
    wrong."""

    def __init__(self, journal: Journal, known: Mapping[str, tuple[int, ...]]) -> None:
        self._journal, self._known = journal, dict(known)

    def take(self, case: Case, told: object) -> bool:
        """Accept a report. Return False if it is not a usage of this case: a contender may forge the worker's
        messages."""
        usage = _usage(case, told)
        if usage is None or self._known.get(case.name, usage.tokens) != usage.tokens:
            return False
        if case.name not in self._known:
            self._known[case.name] = usage.tokens
            self._journal.write("usage", case=case.name, tokens=usage.tokens, balance_loss=usage.balance_loss)
        return True


def _usage(case: Case, told: object) -> Usage | None:
    if case.experts is None or not isinstance(told, list) or len(told) != 2:
        return None
    tokens, loss = told
    if not isinstance(tokens, list) or type(loss) is not float or any(type(number) is not int for number in tokens):
        return None
    if (len(tokens), sum(tokens)) != (case.experts.number, case.experts.choices):
        return None
    try:
        return Usage(case.name, tuple(tokens), round(loss, DIGITS))
    except ValueError:
        return None
