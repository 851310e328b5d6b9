"""The conditions that a sentence names for its numbers, and whether the tied work has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from groundspeed.evidence.record import Scalar
from groundspeed.judge.judgement import CaseJudgement, Judgement

_SHAPE = re.compile(r"\b(?P<key>[A-Z][A-Za-z_]{0,15}) ?= ?(?P<value>\d[\d,]{0,15})(?P<thousand>[kK]\b)?")
_DTYPE = re.compile(r"\b(?:(?P<brain>bf|bfloat)|fp|float)(?P<bits>\d{1,2})(?P<form>[_-]?e\dm\d)?\b", re.IGNORECASE)
_MASK = re.compile(r"\b(?P<full>non-?causal|(?<!in )full)\b|\bcausal\b", re.IGNORECASE)
_CLOCK = re.compile(
    r"\b(?:(?P<graph>CUDA graphs?)|(?P<eager>eager)|(?P<default>cold (?:L2|cache))|(?P<warm>warm (?:L2|cache)))\b",
    re.IGNORECASE,
)
_DEVICE = re.compile(
    r"\b(?:G?[HB][123]00|A100|A10G?|L40?S?|[VT]100|T4|RTX ?\d{4}|MI\d{3}X?|EPYC|Xeon|Ryzen|Threadripper)\b"
)


@lru_cache(maxsize=4)
def said_in(sentence: str) -> dict[str, set[Scalar]]:
    """Return a sentence's conditions by parameter: `{"S": {4096}, "dtype": {"bf16"}, "causal": {True}}`."""
    said: dict[str, set[Scalar]] = {}
    for found in _SHAPE.finditer(sentence):
        value = int(found["value"].replace(",", "")) * (1024 if found["thousand"] else 1)
        said.setdefault(found["key"], set()).add(value)
    for found in _DTYPE.finditer(sentence):
        said.setdefault("dtype", set()).add(f"{'bf' if found['brain'] else 'fp'}{found['bits']}")
    for found in _MASK.finditer(sentence):
        said.setdefault("causal", set()).add(found["full"] is None)
    for found in _CLOCK.finditer(sentence):
        said.setdefault("clock", set()).add(next(name for name, word in found.groupdict().items() if word))
    return said


def contradictions(
    sentence: str, cases: Sequence[CaseJudgement], beside: Sequence[CaseJudgement], judgement: Judgement
) -> Iterator[tuple[str, str]]:
    """Yield (kind, why) for each condition that the sentence names and the tied work does not have. If it names
    several, that of the work must be among them. `beside` are the single cases for which the sentence has numbers."""
    on_gpu, device = judgement.record.run.device == "cuda", judgement.device_name
    for key, named in said_in(sentence).items():
        has = {_value(case, key) for case in cases} - {None}
        if key == "clock" and not on_gpu:
            if named & {"graph", "default", "warm"}:  # a CPU has caches and eager calls too, but no such clocks
                yield "wrong clock", f"the sentence says {_words(key, named)}, but the bundle is of {device}"
            continue
        if not has:
            continue
        one_of_many = len(named) == 1 and len(has) > 1 and not any(_value(case, key) in named for case in beside)
        if named.isdisjoint(has) or one_of_many:
            yield _kind(key), f"the sentence says {_words(key, named)}, but the tied work is {_words(key, has)}"
    devices = _devices_in(sentence)
    if devices and not any(name.replace(" ", "") in device.replace(" ", "") for name in devices):
        yield "wrong device", f"the sentence says {', '.join(sorted(devices))}, but the bundle is of {device}"


@lru_cache(maxsize=4)
def _devices_in(sentence: str) -> frozenset[str]:
    return frozenset(found[0] for found in _DEVICE.finditer(sentence))


def _value(case: CaseJudgement, key: str) -> Scalar | None:
    return case.clock if key == "clock" else case.facts.params.get(key)


def _kind(key: str) -> str:
    return {"dtype": "wrong dtype", "causal": "wrong mask", "clock": "wrong clock"}.get(key, "wrong shape")


def _words(key: str, values: set[Scalar] | set[Scalar | None]) -> str:
    shown = sorted(
        values, key=lambda value: (isinstance(value, str), value if isinstance(value, (int, float)) else str(value))
    )
    if key == "causal":
        return " and ".join("causal" if value else "full" for value in shown)
    few = [f"{value}" for value in (shown if len(shown) <= 4 else [shown[0], "…", shown[-1]])]
    return ", ".join(few) if key in ("dtype", "clock") else f"{key} = {', '.join(few)}"
