"""Speeds in words, `ten times faster`, and as a percentage, `40% less time`: claims like any other, but without the
digits that a tie could compare."""

from __future__ import annotations

import re
from collections.abc import Iterator

PERCENT = r"(?:%|per\s?cent\b)"
FASTER = r"(?:faster|slower|quicker|speedier)\b"
AS_FAST = r"as\s+(?:fast|slow(?:ly)?|quick(?:ly)?)\b"
_RATE = (
    r"(?:speed|throughput|bandwidth|performance)\b"
    r"(?!\s+(?:tests?|budgets?|cores?|counters?|reviews?|goals?|engineers?)\b)"
)
_TIME = r"(?:time|run-?time|latency)\b"
_CLOSE = r"(?:\*\*|__|[*_`])?"
"""The end of bold text or of code, after a number."""
THE_SPEED = (
    r"[*_`]{0,2}(?:(?:the|its|their|our|that)|(?!(?:at|by|for|in|of|on|per|with)\b)[\w.-]{1,40}(?:['’]s?)?)"
    rf"[*_`]{{0,2}}(?:\s+[\w-]{{1,40}})??\s+{_RATE}"
)
"""`the speed`, `cuDNN's raw throughput`."""
OF_PERCENT = (
    rf"\s+(?:{FASTER}|(?:ahead|behind)\b(?!\s+(?:of\s+)?schedule)|speed-?up\b|(?:less|more|shorter|longer)\s+{_TIME}"
    rf"|(?:lower|higher|less|more|better|reduced|increased)\s+(?:{_RATE}|{_TIME})"
    rf"|(?:or\s+(?:more|less)\s+)?of\s+(?:{THE_SPEED}|(?:the|its|their)(?:\s+(?:dense|copy|peak|full|matrix))?\s+rate\b))"
)
"""What makes the percentage before it one of a speed."""

_WORDS = (
    r"(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|sixty|seventy"
    r"|eighty|ninety|dozens?\sof|hundreds?(?:\sof)?|thousands?(?:\sof)?)"
)
_NUMBER = rf"(?P<value>\d[\d.,]*){_CLOSE}\s{{0,200}}(?P<unit>{PERCENT})"
_SPOKEN = (
    re.compile(rf"\b(?P<value>{_WORDS})(?:\s+|-)(?P<unit>times\s+(?:{FASTER}|{AS_FAST}|{THE_SPEED}))", re.IGNORECASE),
    re.compile(
        rf"\b(?P<value>{_WORDS})-?(?P<unit>fold\s+(?:{FASTER}|speed-?up\b|(?:increase|gain|improvement)\s+(?:in|of)\s+(?:\w+\s+)?{_RATE}))",
        re.IGNORECASE,
    ),
    re.compile(rf"\b(?P<value>twice|thrice|half)\s+(?P<unit>{FASTER}|{AS_FAST}|{THE_SPEED})", re.IGNORECASE),
    re.compile(rf"\b(?P<value>double|triple)[sd]?\s+(?P<unit>{THE_SPEED})", re.IGNORECASE),
    re.compile(rf"\b(?P<value>orders?\s+of\s+magnitude)\s+(?P<unit>{FASTER})", re.IGNORECASE),
)
_PERCENT = (
    re.compile(rf"\b(?:faster|slower|quicker|speed|{_RATE}|{_TIME})\s+by\s+(?:\w+\s+){{0,2}}{_NUMBER}", re.IGNORECASE),
    re.compile(
        rf"\b(?:ahead|behind|beat|beats|beaten|outperforms?|outruns?)\b[^.]{{0,120}}?\bby\s+(?:\w+\s+){{0,2}}{_NUMBER}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?:sav|cut|shav|reduc|gain)\w{{0,4}}\s+(?:\w+\s+){{0,3}}{_NUMBER}"
        rf"\s+(?:of\s+)?(?:(?:the|its|their|your|our|\S{{1,40}}['’]s)\s+)?(?:\w+\s+)?(?:{_RATE}|{_TIME})",
        re.IGNORECASE,
    ),
)


def found_in(shown: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield what is said of a speed without a number to compare, each with its kind: `words` or `percent`. Every match
    has the groups `value` and `unit`."""
    for kind, patterns in (("words", _SPOKEN), ("percent", _PERCENT)):
        for pattern in patterns:
            yield from ((match, kind) for match in pattern.finditer(shown))
