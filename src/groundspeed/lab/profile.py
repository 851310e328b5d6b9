"""One profile, from the request to its bundle; and the verification of a profile."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import groundspeed
from groundspeed.case import Case, Contender
from groundspeed.errors import BadInput, GroundspeedError, VerificationFailed
from groundspeed.evidence import profile_bundle
from groundspeed.evidence.decode import decode
from groundspeed.evidence.names import CODE
from groundspeed.evidence.profile import MAX_EVENTS, SCHEMA, Profile
from groundspeed.evidence.profile_bundle import ProfileBundle
from groundspeed.evidence.record import ContenderFacts
from groundspeed.judge.declared import check_declared
from groundspeed.judge.profile import Picture, picture
from groundspeed.lab import check
from groundspeed.lab.cases import choose_cases
from groundspeed.lab.declare import case_facts, choose_contenders, choose_device, need_torch
from groundspeed.lab.presets import PRESETS
from groundspeed.lab.request import Request
from groundspeed.lab.session import alone_on, memory_limit, worker_start
from groundspeed.lab.sources import code_hashes
from groundspeed.measure import ncu, profiler
from groundspeed.measure.channel import Message, ProcessWorker, Worker, worker_command
from groundspeed.measure.environment import host_environment, source_commit, usable_cores
from groundspeed.measure.gpu import visible_uuid
from groundspeed.measure.team import start_of
from groundspeed.suites import listing, registry
from groundspeed.suites.signature import refuse_misfits

PRESET = "quick"
"""The preset whose contenders are profiled if none are named, and whose warm-up is used."""
NCU_FACTOR = 10
"""The time limit under Nsight Compute, in multiples of `timeout_s`: after the first call, every kernel is replayed some
twenty times."""
ON_A_CPU = "Nsight Compute needs an NVIDIA GPU, and this is a CPU"
NOT_PASSED = "it did not pass, so nothing was counted"

Tell = Callable[[str], None]


def run(
    request: Request,
    named: Path | None = None,
    no_ncu: bool = False,
    keep_reports: bool = False,
    tell: Tell = lambda text: None,
) -> ProfileBundle:
    """Profile every contender asked for on one case. `named` is the program of Nsight Compute, instead of a search for
    it. With `keep_reports`, the reports of Nsight Compute are copied beside the bundle."""
    need_torch()
    suite = listing.load(request.suite, request.with_files)
    device = choose_device(request.device)
    case = _case(suite, request, device)
    contenders = choose_contenders(suite, request, device, None)
    names = [contender.name for contender in contenders if contender.status is None]
    refuse_misfits(suite, names, [case])
    if not names or (request.only and not {*request.only} & {*names}):
        reason = next((f" ({c.reason})" for c in contenders if c.name in request.only), "")
        raise GroundspeedError(f"no requested contender can run here{reason}; choose others with --only")
    program = None if no_ncu or device == "cpu" else ncu.find(named)
    without = ON_A_CPU if device == "cpu" else ncu.NOT_ASKED if no_ncu else ncu.NOT_HERE
    facts: dict[str, Any] = {
        "schema": SCHEMA,
        "suite": request.suite,
        "version": groundspeed.__version__,
        "commit": source_commit(),
        "started": _now(),
        "device": device,
        "with_files": list(request.with_files),
        "environment": {**host_environment(), CODE: code_hashes(suite.contenders, names)},
        "case": case_facts(case),
        "contenders": [asdict(contender) for contender in contenders],
        "counters_by": ncu.version_of(program) if program else None,
        **{key: [] for key in ("seen", "calls", "events", "counted")},
    }
    stem = f"profile-{request.suite}-{datetime.now(UTC).strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}"
    with alone_on(device), tempfile.TemporaryDirectory(prefix="groundspeed-") as scratch:
        reports: dict[str, Path] = {}
        for number, name in enumerate(names, 1):
            tell(f"{name} ({number} of {len(names)})")
            folder = Path(scratch) / str(number)
            folder.mkdir()
            one = One(suite, request, device, case, name, contenders, len(names))
            traced = one.trace(facts, suite.contenders[name])
            report: Path | None = None
            why: str | None = NOT_PASSED if traced.status != "PASSED" else without
            if program and traced.status == "PASSED":
                tell(f"{name} ({number} of {len(names)}), counters")
                report, why = one.count(facts, program, folder)
            facts["seen"].append(_seen(traced, name, why, report))
            if report:
                reports[name] = report
        facts["finished"] = _now()
        made = profile_bundle.write(decode(Profile, _plain(facts), "the profile"), request.out, stem)
        if keep_reports:
            for name, report in reports.items():
                shutil.copyfile(report, made.report_of(name))
    return made


def _plain(facts: dict[str, Any]) -> Any:
    """Return the facts as they will be read back, so that nothing is written that could not be read."""
    return json.loads(json.dumps(facts))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _case(suite: registry.Suite, request: Request, device: str) -> Case:
    if any("@" in name for name in request.case):
        raise BadInput(f"{request.case[0]}: a profile uses the profiler's clock; leave out the @ and what follows it")
    cases = choose_cases(suite, replace(request, clock=("default",) if device == "cuda" else ()), device)
    if len(cases) != 1:
        named = ", ".join(case.name for case in cases[:4]) + (", …" if len(cases) > 4 else "")
        raise BadInput(f"a profile covers one case, and this means {len(cases)} ({named}); give the full name of one")
    return cases[0]


class One:
    """One contender, profiled in a fresh process each time."""

    def __init__(
        self,
        suite: registry.Suite,
        request: Request,
        device: str,
        case: Case,
        name: str,
        contenders: Sequence[ContenderFacts],
        together: int,
    ) -> None:
        self.case, self.name, self.request, self.together = case, name, request, together
        self.threads = max(1, usable_cores() - 1)
        self.uuid = visible_uuid() if device == "cuda" else None
        start = {
            **worker_start(suite, device, [c for c in contenders if c.status is None], self.threads),
            "warmup_s": PRESETS[PRESET].warmup_s[device],
            "first_look": PRESETS[PRESET].looks[0],
            "thorough": bool(suite.brought),
            "check_one_in": [(1, 1)],
            "memory_limit_bytes": memory_limit() if device == "cpu" else 0,
        }
        self.start: Message = start_of(start, name, suite.files)
        seeds = [secrets.randbits(62) for _ in range(3)]
        params = {key: value for key, value in case.params.items() if key != "clock"}
        self.prepare = profiler.preparation(params, name, seeds)

    def trace(self, facts: dict[str, Any], contender: Contender) -> profiler.Traced:
        def spawn() -> Worker:
            return ProcessWorker(worker_command(), self.threads, self.uuid)

        most = MAX_EVENTS // self.together
        traced = profiler.look(spawn, self.start, self.prepare, self.name, self.request.timeout_s, most)
        facts["environment"].setdefault("worker", dict(traced.environment))
        if traced.status == "PASSED" and self.uuid:
            kernels = [event["name"] for event in traced.events if event["kind"] == "kernel"]
            if why := contender.launches(kernels) if kernels else "the profiler saw no kernel in its calls":
                return profiler.Traced("ERROR", why, traced.errors)
        facts["calls"] += [{"contender": self.name, **call} for call in traced.calls]
        facts["events"] += [{"contender": self.name, **event} for event in traced.events]
        return traced

    def count(self, facts: dict[str, Any], program: Path, folder: Path) -> tuple[Path | None, str | None]:
        """Return Nsight Compute's own report, or why there are no counters."""
        requests = [self.start, self.prepare, {"count": {"contender": self.name}}]
        limit_s = NCU_FACTOR * self.request.timeout_s
        try:
            launches, report = ncu.count(program, requests, folder, self.threads, self.uuid, limit_s)
        except ncu.NoCounters as error:
            return None, str(error)
        facts["counted"] += [
            {"contender": self.name, "kernel": launch.kernel, "metrics": launch.metrics} for launch in launches
        ]
        return report, None


def _seen(traced: profiler.Traced, name: str, why: str | None, report: Path | None) -> dict[str, Any]:
    return {
        "contender": name,
        "status": traced.status,
        "reason": traced.reason,
        "errors": dict(traced.errors),
        "left_out": traced.left_out,
        "no_counters": why,
        "report_sha256": hashlib.sha256(report.read_bytes()).hexdigest() if report else None,
    }


def verify(path: Path) -> tuple[ProfileBundle, Picture, int]:
    """Return the profile, its picture, and how many reports of Nsight Compute beside it are its own. VerificationFailed
    unless every byte is what the manifest says, the case is what the suite declares, no error is over the tolerance,
    and every contender launched the kernels that its name stands for."""
    found = profile_bundle.read(path)
    profile = found.profile
    check_declared(profile.case, check.declared(profile.suite, profile.case.params))
    suite = registry.load(profile.suite)
    for seen in profile.seen:
        if seen.status != "PASSED":
            continue
        for name, bound in profile.case.tolerance.items():
            if not seen.errors.get(name, float("inf")) <= bound:
                raise VerificationFailed(
                    f"{path}: {seen.contender!r:.80} passed, but its {name} error is over {bound:g}"
                )
        kernels = [e.name for e in profile.events if e.contender == seen.contender and e.kind == "kernel"]
        known = suite.contenders.get(seen.contender)
        if profile.device == "cuda" and known and (why := known.launches(kernels)):
            raise VerificationFailed(f"{path}: {seen.contender!r:.80}: {why}")
    return found, picture(profile), profile_bundle.check_reports(found)
