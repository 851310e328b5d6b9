"""Chooses the cases that a request means, and the clocks that time them."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import replace

from groundspeed.case import CLOCKS, DEFAULT_CLOCK, Case, with_clock
from groundspeed.errors import BadInput, unknown
from groundspeed.evidence.record import Record
from groundspeed.lab.request import Request
from groundspeed.suites import registry

SHORT_WORK_FLOPS, SHORT_WORK_BYTES = 20e9, 100e6
"""Work that takes about 50 µs on a large GPU."""
SHORT_WORK_CLOCKS = (DEFAULT_CLOCK, "graph", "eager")


def choose_cases(suite: registry.Suite, request: Request, device: str) -> list[Case]:
    module = suite.module
    if bad := [dtype for dtype in request.dtype if dtype not in module.DTYPES]:
        raise unknown("dtype", bad[0], module.DTYPES)
    dtypes = request.dtype or module.default_dtypes(device)
    chosen: list[Case] = []
    for text in request.shape:
        chosen += module.shape_cases(text, dtypes)
    asked_clocks: dict[str, list[str]] = {}
    for pattern, clock in (_clock_of(pattern) for pattern in request.case):
        matching = [case for case in module.all_cases() if _matches(case, pattern)]
        if not matching:
            names = {name for case in module.all_cases() for name in (*case.names, *map(_stem, case.names))}
            raise unknown("case", pattern, names, see=f"`groundspeed list {suite.name}` shows all.")
        if device == "cpu" and any(c in pattern for c in "*?["):
            matching = _small(module, matching)
            if not matching:
                raise BadInput(
                    f"--case {pattern} matches only shapes for a GPU, and this is a CPU; give a full name to insist"
                )
        in_dtype = [case for case in matching if case.params["dtype"] in dtypes]
        if request.dtype and not in_dtype:
            raise BadInput(f"no case matches --case {pattern} and --dtype {','.join(request.dtype)}; drop one of them")
        chosen += in_dtype or matching
        for case in in_dtype or matching:
            asked_clocks.setdefault(case.name, []).extend([clock] if clock else _clocks(case, request, device))
    if not request.shape and not request.case:
        preset = module.preset_cases(request.preset, device)
        chosen = list(preset)
        if request.dtype:
            wanted = [module.case_of_params({**case.params, "dtype": dtype}) for dtype in dtypes for case in preset]
            known = {tuple(case.params.items()): case for case in module.all_cases()}
            chosen = [known[tuple(case.params.items())] for case in wanted]
    unique = {tuple(case.params.items()): case for case in reversed(chosen)}
    clocks = {
        case.name: tuple(dict.fromkeys(asked_clocks.get(case.name) or _clocks(case, request, device)))
        for case in chosen
    }
    return [timed for case in reversed(unique.values()) for timed in _by_clocks(case, clocks[case.name], device)]


def _small(module: registry.SuiteModule, cases: Sequence[Case]) -> list[Case]:
    """Return the cases with no more work than the largest case of the preset. On a CPU, a pattern means only these; a
    full name can mean any case."""
    preset = module.preset_cases("standard", "cpu")
    flops, moved = max(case.work.flops for case in preset), max(case.work.bytes for case in preset)
    return [case for case in cases if case.work.flops <= flops and case.work.bytes <= moved]


def _clocks(case: Case, request: Request, device: str) -> tuple[str, ...]:
    """Return the clocks that were asked for. By default, a GPU uses the default clock, and two more for work of
    microseconds."""
    if request.clock or device == "cpu":
        return request.clock
    short = case.work.flops <= SHORT_WORK_FLOPS and case.work.bytes <= SHORT_WORK_BYTES
    return SHORT_WORK_CLOCKS if short else (DEFAULT_CLOCK,)


def _clock_of(pattern: str) -> tuple[str, str]:
    """Split a name as tables show it, such as `tiny-full-bf16@graph`, into the case and the clock."""
    name, _, clock = pattern.partition("@")
    return name, clock


def _by_clocks(case: Case, clocks: Sequence[str], device: str) -> list[Case]:
    if bad := [name for name in clocks if name not in CLOCKS]:
        raise unknown("clock", bad[0], CLOCKS)
    if device == "cpu" and clocks:
        raise BadInput(f"clock {clocks[0]} is only for a GPU, and a CPU has one clock; leave it out")
    return [case if name == DEFAULT_CLOCK else with_clock(case, name) for name in clocks or (DEFAULT_CLOCK,)]


def _stem(name: str) -> str:
    """Return a case's name without its dtype: `xlarge-causal`."""
    return name.rsplit("-", 1)[0]


def _matches(case: Case, pattern: str) -> bool:
    """Whether a pattern names a case: with its dtype, without it, or by its shape alone. `*` and `?` work as in a
    shell."""
    forms = [form for name in case.names for form in (name, _stem(name), _stem(_stem(name)))]
    return any(fnmatch.fnmatchcase(form, pattern) for form in forms)


def cases_of(suite: registry.Suite, record: Record) -> list[Case]:
    return [
        replace(suite.module.case_of_params(dict(facts.params)), name=facts.name, aliases=facts.aliases)
        for facts in record.cases
    ]
