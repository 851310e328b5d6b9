"""Two bundles of the same code, drawn from the noise of one that was measured: how often they are said to differ.

Whole processes are drawn again, for each case by itself. Nothing has to be subtracted: both have the same mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from real import decoding
from study import FAMILY_AT_MOST, Share

from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import TIMED
from groundspeed.judge.apart import of_bundles
from groundspeed.judge.judgement import Judgement, judge


def redrawn(g: np.random.Generator, record: Record, slower: float = 1.0) -> Judgement:
    columns, parts, numbers = record.samples, [], []
    timed, contender = columns["phase"] == TIMED, record.contender_index[record.run.judged[0]]
    for case in range(len(record.cases)):
        of_case = timed & (columns["case"] == case)
        for process, drawn in enumerate(g.integers(0, record.declared_processes, record.declared_processes)):
            parts.append(np.flatnonzero(of_case & (columns["process"] == drawn)))
            numbers.append(np.full(len(parts[-1]), process, columns["process"].dtype))
    rows = np.concatenate(parts)
    samples = {name: column[rows] for name, column in columns.items()} | {"process": np.concatenate(numbers)}
    samples["seconds"] = samples["seconds"] * np.where(samples["contender"] == contender, slower, 1.0)
    return judge(replace(record, samples=samples))


@pytest.fixture(scope="module")
def record() -> Record:
    """Decoding, in which one process of eight is a fifth slower on some cases."""
    (found,) = decoding()
    assert set(found.record.finished_attempts.values()) == {0}
    return found.record


def false_verdicts(record: Record, pairs: int) -> Share:
    g, count = np.random.default_rng(1), 0
    base = redrawn(g, record)
    for _ in range(pairs):
        head = redrawn(g, record)
        tally = of_bundles(base, head).tally
        count += bool(tally["REGRESSED"] or tally["IMPROVED"])
        base = head
    return Share(count, pairs)


def test_a_slow_down_of_a_half_is_found_on_this_noise(record: Record) -> None:
    """So that it means something where nothing is found."""
    g = np.random.default_rng(2)
    assert of_bundles(redrawn(g, record), redrawn(g, record, slower=1.5)).tally["REGRESSED"] > 21


def test_two_bundles_of_the_same_code_are_not_said_to_differ(record: Record) -> None:
    assert false_verdicts(record, 15).count == 0


@pytest.mark.release
def test_nor_are_many(record: Record) -> None:
    """Of 400 pairs without one, the 95% interval ends under 1%."""
    assert false_verdicts(record, 400).high <= FAMILY_AT_MOST
