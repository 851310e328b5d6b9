"""`kill -9` at any moment: no finished block is lost, and the run can be finished into a bundle that verifies."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from groundspeed.errors import BadInput
from groundspeed.evidence import bundle, journal, store
from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import TIMED
from groundspeed.lab.check import verify

SCRIPT = Path(__file__).with_name("killed_run.py")
KILLS = 10
LINES = 3 * 2 * 10
"""Blocks of a whole run: processes × cases × blocks to the first look."""

pytestmark = pytest.mark.slow

Sample = tuple[Any, ...]


def samples_of(record: Record) -> set[Sample]:
    """(process, attempt, case, block, contender, start, seconds) of every timed sample."""
    columns, timed = record.samples, record.samples["phase"] == TIMED
    names = ("process", "attempt", "case", "block", "contender", "start", "seconds")
    return {
        (process, attempt, record.cases[case].name, block, record.contenders[contender].name, start, seconds)
        for process, attempt, case, block, contender, start, seconds in zip(
            *(columns[name][timed].tolist() for name in names), strict=True
        )
    }


@dataclass
class Victim:
    """A run in a folder of its own that is killed and goes on, and all that it has said was on disk."""

    runs: Path
    said: set[Sample] = field(default_factory=set)

    def launch(self, *arguments: str) -> subprocess.Popen[bytes]:
        target = ["--resume", str(self.unfinished)] if self.unfinished else []
        command = [sys.executable, str(SCRIPT), str(self.runs), *target, *arguments]
        # Without a buffer: what is read ahead into one is not among what `communicate` returns.
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)

    def finish(self, process: subprocess.Popen[bytes], heard: list[bytes]) -> int:
        """Take in what it said until it ended, and how it ended."""
        rest, errors = process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGKILL), errors.decode()
        for line in [*heard, *rest.splitlines(keepends=True)]:
            if not line.endswith(b"\n"):
                continue
            event = json.loads(line)
            for name, _, start, seconds, *_ in event.get("samples", ()):
                key = (event["process"], event["attempt"], event["case"], event["block"])
                self.said.add((*key, name, start, seconds))
        return process.returncode

    @property
    def unfinished(self) -> Path | None:
        """The journal that the run goes on from, if it has come so far as to declare itself."""
        journals = self.runs.glob(f"*{store.PARTIAL}/{journal.FILE}")
        return next((path.parent for path in journals if b"\n" in path.read_bytes()), None)

    def kept(self) -> set[Sample]:
        """What is on disk. A bundle that is there is whole."""
        found = [verify(path)[0].record for path in store.finished(self.runs)]
        if self.unfinished:
            found.append(journal.to_record(journal.read_events(self.unfinished), "journal"))
        return {sample for record in found for sample in samples_of(record)}

    def complete(self) -> bundle.Bundle:
        """Go on until the run is complete, and verify it."""
        if self.unfinished or not store.finished(self.runs):
            assert self.finish(self.launch(), []) == 0
        (path,) = store.finished(self.runs)
        made, replayed = verify(path)
        assert made.record.complete
        assert replayed.stops >= 3 * 2
        assert not self.unfinished
        return made


def moments(generator: random.Random) -> Iterator[tuple[int | None, float]]:
    """After how many lines, and how long after that, to kill; None: at the line that says it finishes the bundle."""
    while True:
        kind = generator.randrange(6)
        if kind == 0:  # starting, declaring
            yield 0, generator.uniform(0.0, 0.6)
        elif kind <= 3:  # measuring
            yield generator.randrange(1, LINES), generator.uniform(0.0, 0.004)
        else:  # finishing
            yield None, generator.uniform(0.0, 0.012)


def listen(process: subprocess.Popen[bytes], lines: int | None) -> list[bytes]:
    """What it says, up to the moment to kill it."""
    assert process.stdout is not None
    heard: list[bytes] = []
    while (lines is None or len(heard) < lines) and (line := process.stdout.readline()):
        heard.append(line)
        if b'"finishing"' in line:
            break
    return heard


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.release) for seed in range(2, 5))])
def test_ten_kills_at_random_moments_lose_no_finished_block(tmp_path: Path, seed: int) -> None:
    """The seed chooses the moments."""
    when = moments(random.Random(seed))
    kills = 0
    while kills < KILLS:
        victim = Victim(tmp_path / str(kills))
        while kills < KILLS and not store.finished(victim.runs):
            lines, delay = next(when)
            process = victim.launch()
            heard = listen(process, lines)
            time.sleep(delay)
            process.kill()
            kills += victim.finish(process, heard) == -signal.SIGKILL
            lost = victim.said - victim.kept()
            assert not lost, f"seed {seed}, kill {kills} (line {lines}, {delay} s later): {sorted(lost)[:3]}"
        assert victim.said <= samples_of(victim.complete().record)


@pytest.mark.parametrize("block", [1, 7, 45])
def test_a_kill_in_the_middle_of_a_write_loses_that_block_only(tmp_path: Path, block: int) -> None:
    victim = Victim(tmp_path)
    assert victim.finish(victim.launch("--torn", str(block)), []) == -signal.SIGKILL
    assert len(victim.said) == 3 * (block - 1)
    assert victim.unfinished
    assert not (victim.unfinished / journal.FILE).read_bytes().endswith(b"\n")
    assert victim.said == victim.kept()
    before = set(victim.said)
    after = samples_of(victim.complete().record)
    assert before < after == victim.said


def test_a_run_killed_before_it_declared_itself_says_to_start_again(tmp_path: Path) -> None:
    folder = store.begin(tmp_path, "attention-quick-x")
    (folder / journal.FILE).write_bytes(b'{"kind":"run","facts":{"ru')
    with pytest.raises(BadInput, match="nothing was measured yet; start the run again without --resume"):
        journal.read_events(store.reopen(folder))
