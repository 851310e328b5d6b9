"""Rebuilds the machine code that a bundle recorded, without its GPU: is a kernel still the one that was measured?"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import groundspeed
from groundspeed.case import Contender
from groundspeed.evidence.record import Record, Scalar
from groundspeed.measure.binaries import FORM

SOON_S = 600
"""A kernel takes seconds to compile, and a bundle has some dozens at most."""

PLACES = ("TRITON_HOME", "TRITON_CACHE_DIR")
"""The variables of Triton that do not change what it compiles."""


class CannotTell(Exception):
    """The recorded machine code cannot be compared with the current one; the message says why."""


def changed_cases(record: Record, contender: Contender, cases: Collection[str]) -> list[str]:
    """Return those of `cases` on which this contender would launch other machine code than the record says, each by the
    first of its clocks. CannotTell if the record does not say it, or if it cannot be rebuilt here."""
    params = {case.name: dict(case.params) for case in record.cases}
    work = {name: {key: value for key, value in of.items() if key != "clock"} for name, of in params.items()}
    passed = {o.case for o in record.outcomes if o.contender == contender.name and o.status == "PASSED"}
    wanted = [work[name] for name in cases if name in passed]
    recorded = {
        seen.case: seen.binaries
        for seen in record.launched  # once for all clocks
        if seen.contender == contender.name and seen.binaries and work[seen.case] in wanted
    }
    found = [work[case] for case in recorded]
    if contender.compiles is None or not found or any(asked not in found for asked in wanted):
        raise CannotTell("its machine code was not recorded")
    if not all(found.startswith(FORM) for hashes in recorded.values() for found in hashes):
        raise CannotTell("its machine code was recorded with source line numbers in it")
    gpu, packages, variables = (_part(record.environment, name) for name in ("gpu", "packages", "variables"))
    if other := [name for name in variables if "TRITON" in name]:
        raise CannotTell(f"{other[0]:.40} was set when it was compiled")
    capability = re.fullmatch(r"([0-9]{1,2})\.([0-9])", str(gpu.get("compute_capability")))
    if capability is None:
        raise CannotTell("the GPU that it was compiled for was not recorded")
    assembler = _part(record.environment, "worker").get("ptxas")
    if assembler is None:
        raise CannotTell("the ptxas that assembled it was not recorded")
    made = compiled(
        record.run.suite,
        contender.name,
        (int(capability[1]), int(capability[2])),
        [params[case] for case in recorded],
        str(packages.get("triton", "")),
        assembler,
    )
    return [case for (case, hashes), now in zip(recorded.items(), made, strict=True) if sorted(hashes) != now]


def _part(environment: dict[str, Any], name: str) -> dict[str, Any]:
    part = environment.get(name)
    return part if isinstance(part, dict) else {}


def compiled(
    suite: str,
    contender: str,
    capability: tuple[int, int],
    cases: list[dict[str, Scalar]],
    triton: str,
    ptxas: object,
) -> list[list[str]]:
    """Return the hashes of the machine code for each case, as these versions of Triton and of its assembler make it.
    CannotTell if other versions are installed here."""
    asked = json.dumps({"suite": suite, "contender": contender, "capability": capability, "cases": cases})
    home = Path(groundspeed.__file__).parents[1]
    folders = [*map(str, _folders_of(triton)), str(home), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {name: value for name, value in os.environ.items() if name in PLACES or "TRITON" not in name}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "groundspeed.lab.standin"],
            input=asked,
            capture_output=True,
            text=True,
            env={**environment, "PYTHONPATH": os.pathsep.join(folders)},
            timeout=SOON_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotTell(f"compiling it here did not finish ({type(error).__name__})") from None
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise CannotTell(f"it cannot be compiled here: {why[:200]}")
    said = json.loads(done.stdout.splitlines()[-1])
    if said["triton"] != triton:
        raise CannotTell(f"it was compiled by triton {triton}, and triton {said['triton']} is used here")
    if said["ptxas"] != ptxas:
        raise CannotTell(f"it was assembled by ptxas {ptxas!s:.20}, and ptxas {said['ptxas']} is used here")
    made: list[list[str]] = said["binaries"]
    return made


def _folders_of(triton: str) -> list[Path]:
    """Return what to put on the path for `import triton` to give this version: nothing, or the folder that has it."""
    try:
        if importlib.metadata.version("triton") == triton:
            return []
    except importlib.metadata.PackageNotFoundError:
        pass  # a separate folder may have it
    folder = Path(sys.prefix) / f"triton-{triton}"
    known = re.fullmatch(r"\d+(\.\d+){1,3}", triton)  # a record must not choose a folder to run code from
    if not known or not (folder / "triton").is_dir():
        get = f"; to install it: pip install --no-deps --target {folder} triton=={triton}" if known else ""
        raise CannotTell(f"it was compiled by triton {triton!r:.20}, which is not installed here{get}")
    return [folder]
