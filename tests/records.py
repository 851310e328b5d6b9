"""Records for the judge's tests: scripted runs through the real runner and journal, and hand-made process centres."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from fakes import Fault, Seconds, begin, continue_run, header, no_fault, noisy
from groundspeed.case import Case
from groundspeed.evidence.calibration import Calibration, Noise
from groundspeed.evidence.record import Record
from groundspeed.judge.floors import default_floor
from groundspeed.judge.verdict import Centre, Comparison, centre, compare
from groundspeed.lab.declare import case_facts
from groundspeed.suites.registry import suite_module

MEANS = {"base": 1e-3, "ours": 0.8e-3}


def run(
    seconds: Seconds | Mapping[str, float] = MEANS,
    contenders: Sequence[str] | None = None,
    *,
    fault: Fault = no_fault,
    cases: Sequence[Case] | None = None,
    finished: int | None = None,
    **changes: Any,
) -> Record:
    """A run of scripted workers; the first contender is the baseline. `seconds`: a function, or means with 1% of noise.
    With `finished` it is interrupted after so many processes."""
    if isinstance(seconds, Mapping):
        contenders, seconds = contenders or list(seconds), noisy(seconds, 0.005)
    assert contenders is not None
    facts = header(contenders, **changes)
    if cases is not None:
        facts["cases"] = [_by_shape(case) for case in cases]
    # A record is the same whether its journal reached the disk or not, and the tests are quicker where it does not.
    with tempfile.TemporaryDirectory() as name, mock.patch("os.fsync"):
        folder = Path(name)
        begin(folder, facts).close()
        record = continue_run(folder, seconds, fault)
    return record if finished is None else interrupted(record, finished)


def _by_shape(case: Case) -> dict[str, Any]:
    """A named case as the scripted run calls it, by its shape; its name is an alias."""
    plain = suite_module(case.suite).case_of_params(dict(case.params))
    return case_facts(replace(plain, aliases=case.names))


def interrupted(record: Record, finished: int) -> Record:
    """What is left of a run that ends after its first `finished` processes."""
    return replace(
        record,
        processes=tuple(p for p in record.processes if p.process < finished),
        outcomes=tuple(o for o in record.outcomes if o.process < finished),
        stops=tuple(s for s in record.stops if s.process < finished),
        samples={name: column[record.samples["process"] < finished] for name, column in record.samples.items()},
    )


def on_gpu(record: Record, name: str) -> Record:
    """The same facts as if a GPU of this name had been measured."""
    environment = {**record.environment, "gpu": {"name": name}}
    return replace(record, run=replace(record.run, device="cuda"), environment=environment)


def constant(means: Mapping[str, float]) -> Seconds:
    """A clock that shows the same time whenever it is asked."""
    return lambda contender, case, block: means[contender]


def centres(*thetas: float) -> list[Centre]:
    """A process for each θ, without noise inside of it."""
    return [centre(process, [theta] * 10) for process, theta in enumerate(thetas)]


def comparison(*thetas: float, shorter_s: float = 1e-3) -> Comparison:
    return compare("ours", "base", centres(*thetas), default_floor(shorter_s))


def biased(record: Record) -> Record:
    """On a machine whose calibration told a contender from itself."""
    noise = tuple(Noise("default", length, (0.01,) * 20, (9.0,) * 20) for length in ("short", "long"))
    calibration = Calibration("0" * 64, "2026-01-01T00:00:00+00:00", 4, noise, ())
    return replace(record, calibration=calibration, uncalibrated=None)
