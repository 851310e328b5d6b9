"""Commands that a reader can copy from a report. A name from a bundle is put into a command only if it is plain."""

from __future__ import annotations

import re
from collections.abc import Sequence

from groundspeed.case import DEFAULT_CLOCK, FUNCTIONS
from groundspeed.evidence.record import CaseFacts, Record
from groundspeed.evidence.revision import CHANGES, SIDES, Revision, revisions_of
from groundspeed.judge.beside import CLOCK, Beside

PLAIN = re.compile(r"[\w./+=,-]+", re.ASCII)
"""Text that needs no quotes in a command. A name from a bundle with any other character never becomes part of one."""


def commands(record: Record, identity: str, form: str, profiles: Sequence[Beside] = ()) -> list[str]:
    """Return the commands that verify every figure, repeat the measurement if a command can, and write this report
    again. `form` is html or md."""
    short = identity[:12]
    all_of_it = " ".join([short, *(one.identity[:12] for one in profiles)])
    again = compared_again(record) or f"groundspeed run --reproduce {short}"
    return [
        f"groundspeed verify {all_of_it}",
        *([again] if record.run.suite != FUNCTIONS else []),
        f"groundspeed report {all_of_it} --{form} report.{form}",
    ]


def compared_again(record: Record) -> str | None:
    """Return the command that repeats a comparison of revisions, to be run in their repository; None for any other
    run, which `--reproduce` repeats. A side that was a working tree with changes becomes `.`, the tree as it is now."""
    of = revisions_of(record.environment)
    if not of:
        return None
    run, protocol = record.run, record.protocol
    some: dict[str, Revision] = {one.side: one for one in of.values()}
    arguments = ["." if some[side].commit.endswith(CHANGES) else some[side].short for side in SIDES if side in some]
    arguments += ["--suite", plain(run.suite, "SUITE")]
    for file in run.with_files:
        arguments += ["--with", plain(file, "FILE")]
    arguments += ["--only", ",".join(dict.fromkeys(plain(one.contender, "CONTENDER") for one in of.values()))]
    arguments += _works(record.cases, clocked=run.device == "cuda")
    arguments += ["--preset", plain(protocol.preset, "PRESET"), "--processes", str(protocol.processes)]
    arguments += ["--device", run.device]
    return f"groundspeed compare {' '.join(arguments)}"


def plain(value: str, otherwise: str) -> str:
    return value if PLAIN.fullmatch(value) and not value.startswith("-") else otherwise


def work(case: CaseFacts) -> list[str]:
    """Return the name of a case, or `--shape` and `--dtype` arguments if the name lists all of its sizes, as that of a
    user's own shape does."""
    name = case.name.partition("@")[0]
    parts = name.split("-")
    sizes = {key: value for key, value in case.params.items() if key not in (CLOCK, "dtype")}
    told = {key: value for key, value in sizes.items() if not isinstance(value, bool)}
    if not all(key in parts or f"{key.lower()}{value}" in parts or str(value) in parts for key, value in told.items()):
        return [plain(name, "CASE")]
    shape = ",".join(f"{key}={int(value) if isinstance(value, bool) else value}" for key, value in sizes.items())
    return ["--shape", plain(shape, "SHAPE"), "--dtype", plain(str(case.params.get("dtype")), "DTYPE")]


def _works(cases: Sequence[CaseFacts], clocked: bool) -> list[str]:
    """Return the arguments that select the cases. Each case is named, however many there are, because a preset selects
    different cases than a pattern does. If all cases have the same clocks, `--clock` gives them once; otherwise each
    name ends in its clock."""
    clocks: dict[tuple[str, ...], list[str]] = {}
    for case in cases:
        clocks.setdefault(tuple(work(case)), []).append(plain(str(case.params.get(CLOCK, DEFAULT_CLOCK)), "CLOCK"))
    alike = len({*map(tuple, clocks.values())}) == 1
    names = [
        name
        for (name, *shape), of in clocks.items()
        if not shape
        for name in ([f"{name}@{clock}" for clock in of] if clocked and not alike else [name])
    ]
    shapes = [one for one in clocks if len(one) > 1]
    dtypes = dict.fromkeys(one[-1] for one in shapes)
    arguments = ["--case", ",".join(names)] if names else []
    for shape in dict.fromkeys(one[1] for one in shapes):
        arguments += ["--shape", shape]
    arguments += ["--dtype", ",".join(dtypes)] if dtypes else []
    return arguments + (["--clock", ",".join(next(iter(clocks.values())))] if clocked and alike else [])
