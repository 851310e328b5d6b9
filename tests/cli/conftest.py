"""The command line in this process, in an empty folder; and runs whose workers are scripted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from invocation import BundleOf, Cli, Done, Script

from fakes import FakeClock, FakeWorker, Fault, Seconds, fake_run, no_fault, noisy
from groundspeed.cli import main
from groundspeed.evidence import bundle, store
from groundspeed.lab import session


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`cli("verify", "latest")`: the real entry point with these arguments, its output and its exit code."""
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "GROUNDSPEED_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["groundspeed", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, said.out, said.err)

    return call


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """`script(means)`: from here on `run` measures with scripted workers: real everything but torch and time."""

    def install(times: Mapping[str, float] | Seconds, fault: Fault = no_fault, noise: float = 0.005) -> None:
        seconds = times if callable(times) else noisy(times, noise)
        monkeypatch.setattr(
            session, "ProcessWorker", lambda command, threads, gpu: FakeWorker(FakeClock(), seconds, fault)
        )

    return install


@pytest.fixture
def bundle_of(tmp_path: Path) -> BundleOf:
    """`bundle_of(means)`: a bundle of a scripted run, among the runs of this folder."""

    def make(
        means: Mapping[str, float] | None = None, fault: Fault = no_fault, seed: int = 1, **changes: Any
    ) -> bundle.Bundle:
        means = means or {"sdpa-math": 3e-4, "sdpa-flash": 1.5e-4}
        record = fake_run(tmp_path / f"journal-{seed}", noisy(means, seed=seed), list(means), fault, **changes)
        return bundle.write(record, tmp_path / store.RUNS, f"attention-quick-{seed}")

    return make
