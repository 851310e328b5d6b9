"""Bundles of scripted runs, one a day, for what looks at many of them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from fakes import Fault, begin, continue_run, header, no_fault, noisy
from groundspeed.evidence import bundle
from groundspeed.evidence.record import Record
from groundspeed.judge.history import Run, run_of
from groundspeed.judge.judgement import judge

MEANS = {"sdpa-math": 3e-3, "sdpa-flash": 1.5e-3}
SHAPE = "B=1,S=64,causal=0"


def record_of(
    day: int,
    means: Mapping[str, float] = MEANS,
    fault: Fault = no_fault,
    *,
    run: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    **changes: Any,
) -> Record:
    """A run that began on this day; `names` are other names for its contenders."""
    called = {(names or {}).get(name, name): mean for name, mean in means.items()}
    settings = {"shapes": (SHAPE,), "processes": 2, "looks": (4,), "seed": day, **changes}
    facts = header(list(called), **settings)
    facts["run"] |= {"started": (datetime(2026, 1, 1, 9, tzinfo=UTC) + timedelta(days=day)).isoformat(), **(run or {})}
    facts["environment"] |= environment or {}
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        begin(Path(folder), facts).close()
        return continue_run(Path(folder), noisy(called, seed=day), fault)


def bundle_of(parent: Path, day: int, *arguments: Any, **options: Any) -> bundle.Bundle:
    with mock.patch("os.fsync"):
        return bundle.write(record_of(day, *arguments, **options), parent, f"attention-{day:03}")


def history_run(day: int, *arguments: Any, **options: Any) -> Run:
    return run_of(judge(record_of(day, *arguments, **options)), f"{day:064x}")
