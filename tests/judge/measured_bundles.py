"""Bundles that were measured, by a piece of their name: those of the repository, and the small ones of the tests. The
profile beside these is one of an H200 with most of its counters, its environment and who was not looked at left out."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from groundspeed.evidence import bundle
from groundspeed.judge.grading.traits import Evidence
from groundspeed.judge.judgement import judge

ROOT = Path(__file__).parents[2]
SWEEP, LATENCY, PLANTED, CPU, PADDED, NAIVE = "-09b7-", "-3744-", "-3dab-", "-39dd-", "-140a-", "-73bc-"
ODD_LENGTHS, DECODE = "-99cf-", "-0daf-"
HALVES = "-833b-"
"""The sweep in FP16."""
FOLDERS = ("evidence/*/*", "tests/measured/bundles/*")


@cache
def measured(piece: str) -> Evidence:
    (path,) = (path for folder in FOLDERS for path in ROOT.glob(folder) if piece in path.name)
    found = bundle.read(path)
    return Evidence(found.identity, judge(found.record))
