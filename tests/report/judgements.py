"""Judgements of scripted runs: real records through the real runner and judge, without torch or time."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.cells import cell_len

from fakes import FakeWorker, Fault, Seconds, begin, continue_run, header, no_fault, noisy
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.lab.declare import case_facts
from groundspeed.suites.registry import suite_module

Shown = Callable[..., str]
"""The fixture `shown`."""

IDENTITY = "0123456789ab" + "c" * 52

MEANS = {"sdpa-math": 3e-4, "sdpa-flash": 1.5e-4, "mine": 2.0e-4}


def judgement_of(
    folder: Path,
    means: Mapping[str, float] = MEANS,
    fault: Fault = no_fault,
    *,
    seconds: Seconds | None = None,
    noise: float = 0.01,
    case: str | None = None,
    gpu: str | None = None,
    judged: Sequence[str] | None = None,
    unmeasured: Sequence[tuple[str, str, str]] = (),
    **changes: Any,
) -> Judgement:
    """A judged run of `means`, or of what `seconds` says; of a named case where there is one; on a GPU where one is
    named; `unmeasured` are (contender, status, reason)."""
    facts = header(list(means), **changes)
    if case is not None:
        facts["cases"] = [_by_shape(case)]
    if judged is not None:
        facts["run"]["judged"] = list(judged)
    if gpu:
        facts["run"]["device"], facts["environment"]["gpu"] = "cuda", {"name": gpu}
    for name, status, reason in unmeasured:
        facts["contenders"].append({**facts["contenders"][0], "name": name, "status": status, "reason": reason})
    begin(folder, facts).close()
    return judge(continue_run(folder, seconds or noisy(means, noise), fault))


def _by_shape(name: str) -> dict[str, Any]:
    """A named case as the scripted run calls it, by its shape; its name is an alias."""
    module = suite_module("attention")
    named = next(case for case in module.all_cases() if case.name == name)
    return case_facts(replace(module.case_of_params(dict(named.params)), aliases=named.names))


class _SweepWorker(FakeWorker):
    """Knows a case by all its parameters."""

    def prepare(self, request: Mapping[str, Any]) -> None:
        super().prepare(request)
        self.case = request["params"]


def sweep_of(
    folder: Path,
    rates: Mapping[str, float],
    fault: Fault = no_fault,
    *,
    lengths: Sequence[int] = (512, 1024, 2048, 4096),
    dims: Sequence[int] = (64, 128),
    dtypes: Sequence[str] = ("bf16",),
    others: Sequence[str] = (),
    judged: Sequence[str] | None = None,
    rate: Callable[[str, Mapping[str, Any]], float] | None = None,
    noise: float = 0.01,
    **changes: Any,
) -> Judgement:
    """A judged sweep on an H200 at 16384 tokens, of contenders with these FLOP/s; `others` are shapes beside it."""
    module = suite_module("attention")
    shapes = [f"B={max(1, 16384 // S)},H={2048 // D},S={S},D={D}" for D in dims for S in lengths]
    facts = header(list(rates), judged=judged, **changes)
    cases = [case for shape in (*shapes, *others) for case in module.shape_cases(shape, dtypes)]
    facts["cases"] = [case_facts(case) for case in cases]
    facts["run"]["device"], facts["environment"]["gpu"] = "cuda", {"name": "NVIDIA H200"}
    flops = {str(case["params"]): case["flops"] for case in facts["cases"]}
    generator = random.Random(3)

    def seconds(contender: str, case: Any, block: int) -> float:
        speed = rates[contender] * (rate(contender, case) if rate else 1.0)
        return flops[str(case)] / speed * generator.lognormvariate(0.0, noise)

    begin(folder, facts).close()
    return judge(continue_run(folder, seconds, fault, worker_type=_SweepWorker))


def enlarged(judgement: Judgement, times: int, rounds: int) -> Judgement:
    """The same run with each case so many times, under other names, and its blocks so many times over: for a page as
    large as they come."""
    record = judgement.record
    cases = [(case, f"{case.name}-{i:03}") for i in range(times) for case in record.cases]
    columns = {name: np.tile(column, times * rounds) for name, column in record.samples.items()}
    copies = np.repeat(np.arange(times * rounds), len(record.samples["case"]))
    columns["case"] += (copies // rounds * len(record.cases)).astype(columns["case"].dtype)
    columns["block"] += (copies % rounds * (columns["block"].max() + 1)).astype(columns["block"].dtype)

    def named(entries: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(replace(entry, case=f"{entry.case}-{i:03}") for i in range(times) for entry in entries)

    return judge(
        replace(
            record,
            cases=tuple(replace(case, name=name, aliases=()) for case, name in cases),
            outcomes=named(record.outcomes),
            stops=named(record.stops),
            launched=named(record.launched),
            samples=columns,
        )
    )


def renamed(judgement: Judgement, names: Mapping[str, str]) -> Judgement:
    """The same run with other names for some of its cases."""
    record = judgement.record

    def entries(found: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(replace(entry, case=names.get(entry.case, entry.case)) for entry in found)

    return judge(
        replace(
            record,
            cases=tuple(replace(case, name=names.get(case.name, case.name)) for case in record.cases),
            outcomes=entries(record.outcomes),
            stops=entries(record.stops),
            launched=entries(record.launched),
        )
    )


ANSI = re.compile(r"\x1b\[[0-9;]*m")


def widest(output: str) -> int:
    """The widest line, besides those that are there to be copied: a terminal wraps these itself."""
    lines = ANSI.sub("", output).splitlines()
    return max(cell_len(line) for line in lines if not line.startswith(("evidence", "check it", "report")))


def markdown_tables(content: str) -> dict[str, list[dict[str, str]]]:
    """The first table under each heading."""
    tables = {}
    for part in content.split("\n## ")[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")]
        split = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
        assert len({len(row) for row in split}) <= 1, f"a row of {part.splitlines()[0]} has another number of columns"
        if split:
            tables[part.splitlines()[0]] = [dict(zip(split[0], row, strict=True)) for row in split[2:]]
    return tables
