"""What a run declares before its first sample: cases, contenders, baseline, family and protocol."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import groundspeed
from groundspeed.case import Case, Contender
from groundspeed.errors import BadInput, GroundspeedError, unknown
from groundspeed.evidence.calibration import Calibration
from groundspeed.evidence.names import CODE
from groundspeed.evidence.protocol import EXTENSIONS, NAME, Protocol
from groundspeed.evidence.record import CaseFacts, ContenderFacts
from groundspeed.evidence.revision import INSTALLED, KEY
from groundspeed.lab import calibration
from groundspeed.lab.cases import cases_of, choose_cases
from groundspeed.lab.presets import PRESETS, Preset
from groundspeed.lab.request import Request
from groundspeed.lab.sources import OURS, code_hashes
from groundspeed.measure.environment import host_environment, source_commit, usable_cores
from groundspeed.measure.gpu import visible_uuid
from groundspeed.suites import listing, registry
from groundspeed.suites.signature import refuse_misfits

DEVICES = ("cpu", "cuda")
MOST_PACKAGES = 3
"""The most packages that a contender's version names; the environment lists them all."""


def declare(request: Request, suite: registry.Suite | None = None) -> dict[str, Any]:
    """Return everything that is fixed before the first sample, checked: the header of the journal. Without `suite`, the
    request names it."""
    need_torch()
    suite = suite or listing.load(request.suite, request.with_files)
    device = _device_of(request, suite)
    preset = _preset(request.preset)
    cases = cases_of(suite, request.again) if request.again else choose_cases(suite, request, device)
    baseline = request.baseline or suite.module.BASELINE[device]
    contenders = choose_contenders(suite, request, device, baseline)
    measured = [c.name for c in contenders if c.status is None]
    if not request.revisions:  # of a revision, a contender that can no longer be called is a regression
        refuse_misfits(suite, measured, cases)
    if request.only and not {*request.only} & {*measured}:
        reason = next(c.reason for c in contenders if c.name == request.only[0])
        raise GroundspeedError(f"{request.only[0]} of --only cannot run here ({reason}); choose others")
    if baseline not in measured:
        reason = next(c.reason for c in contenders if c.name == baseline)
        raise GroundspeedError(f"the baseline {baseline} cannot run here ({reason}); choose another with --baseline")
    if not suite.own:
        _refuse_impossible(suite, measured, cases, device)
    processes = request.processes or preset.processes
    protocol = Protocol(
        name=NAME,
        preset=request.preset,
        processes=processes,
        looks=preset.looks,
        half_width=preset.half_width,
        seed=secrets.randbits(62) if request.seed is None else request.seed,
        threads=max(1, usable_cores() - 1),
        timeout_s=request.timeout_s,
        budget_s=None if request.suite == calibration.SUITE else preset.budget_s[device],
        warmup_s=request.warmup_s or preset.warmup_s[device],
        input_sets=3,
        sequential=preset.looks[0] if request.sequential else 0,
        extension=_extension(processes) if request.extend else None,
        isolated=request.isolated,
    )
    environment = {**host_environment(), CODE: code_hashes(suite.contenders, measured)}
    if request.revisions:
        environment[KEY] = {name: asdict(revision) for name, revision in request.revisions.items()}
    if request.installed:
        environment[INSTALLED] = {name: asdict(found) for name, found in request.installed.items()}
    floors, why_none = _calibration(request, device, protocol, environment)
    return {
        "run": {
            "suite": request.suite,
            "version": groundspeed.__version__,
            "commit": source_commit(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": device,
            "baseline": baseline,
            "baseline_origin": _origin(request, suite, device),
            "judged": _choose_judged(suite, request, contenders, baseline, cases, device),
            "with_files": list(request.with_files),
            "reproduces": request.reproduces,
        },
        "protocol": asdict(protocol),
        "environment": environment,
        "cases": [case_facts(case) for case in cases],
        "contenders": [asdict(c) for c in contenders],
        "calibration": asdict(floors) if floors else None,
        "uncalibrated": why_none,
    }


def _refuse_impossible(suite: registry.Suite, measured: Sequence[str], cases: Sequence[Case], device: str) -> None:
    """Raise BadInput if no contender can do any of the cases: all would be SKIPPED, process after process."""
    reasons = [(name, suite.contenders[name].supports(case, device)) for case in cases for name in measured]
    if reasons and all(reason is not None for _, reason in reasons):
        said = "; ".join(f"{name}: {reason}" for name, reason in dict(reasons).items())
        asked = cases[0].name + (f" and {len(cases) - 1} more" if len(cases) > 1 else "")
        raise BadInput(
            f"no contender here can do {asked} ({said}); add one that can with --with, or choose other cases"
        )


def _calibration(
    request: Request, device: str, protocol: Protocol, environment: Mapping[str, Any]
) -> tuple[Calibration | None, str | None]:
    if request.suite == calibration.SUITE:
        calibration.refuse_one_process(protocol)
        return None, "this is a calibration"
    return calibration.look_up(request.calibration, device, protocol, environment)


def _device_of(request: Request, suite: registry.Suite) -> str:
    """Return the device to measure on. GroundspeedError at once if a run is to be repeated and its baseline cannot run
    here: another device or another baseline, which other sentences offer, would be another run."""
    known = suite.contenders.get(request.baseline or "") if request.again else None
    if known and request.device in DEVICES:
        why = _why_no_gpu() if request.device == "cuda" else None
        if absent := known.absent("cpu" if why else request.device):
            raise GroundspeedError(
                f"this run can be repeated only where its baseline {known.name} runs, which it does not here "
                f"({absent}{f': {why}' if why else ''})"
            )
    return choose_device(request.device)


def _origin(request: Request, suite: registry.Suite, device: str) -> str:
    """Return how the baseline was chosen. A run that is repeated chose it already; on another device, what was declared
    then may not be declared."""
    then = request.again.run.baseline_origin if request.again else "asked"
    declared = request.baseline == suite.module.BASELINE[device]
    return "declared" if not request.baseline or (then == "declared" and declared) else "asked"


def _preset(name: str) -> Preset:
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


def _extension(processes: int) -> int:
    if processes not in EXTENSIONS:
        known = " or ".join(f"{few} processes to {many}" for few, (many, _) in EXTENSIONS.items())
        raise BadInput(f"--extend goes from {known}, and this run has {processes}; change --processes")
    return EXTENSIONS[processes][0]


def need_torch() -> None:
    """Raise GroundspeedError without torch. Called before any advice to choose another contender: without torch none
    can run."""
    if importlib.util.find_spec("torch") is None:
        raise GroundspeedError("torch is not installed, so nothing can be measured: pip install 'groundspeed[torch]'")


def choose_device(asked: str | None) -> str:
    """Return the device that was asked for; by default the GPU if PyTorch can use one, else the CPU."""
    if asked is not None and asked not in DEVICES:
        raise (
            unknown("device", asked, DEVICES)
            if asked != "gpu"
            else BadInput("unknown device 'gpu'; did you mean cuda?")
        )
    if asked == "cpu":
        return "cpu"
    reason = _why_no_gpu()
    if reason and asked == "cuda":
        raise GroundspeedError(f"{reason}; `groundspeed doctor` shows more, and --device cpu measures on the CPU")
    return "cpu" if reason else "cuda"


def _why_no_gpu() -> str | None:
    if visible_uuid() is None:
        return (
            "no usable GPU: NVML (through nvidia-ml-py) found no NVIDIA driver or device, or CUDA_VISIBLE_DEVICES "
            "hides it"
        )
    torch = importlib.util.find_spec("torch")  # located without importing it, which would take a second
    folders = (torch.submodule_search_locations if torch else None) or []
    if any((Path(folder) / "lib" / "libtorch_cuda.so").exists() for folder in folders):
        return None
    return "there is a GPU, but the installed PyTorch was built without CUDA"


def choose_contenders(
    suite: registry.Suite, request: Request, device: str, baseline: str | None
) -> list[ContenderFacts]:
    """Return all contenders of the suite, each to be measured or with the reason why not. The baseline is always among
    those wanted."""
    always = () if baseline is None else (baseline,)
    for flag, names in (("--only", request.only), ("--judge", request.judge), ("--baseline", always)):
        for name in names:
            if name not in suite.contenders:
                added = f"; --with adds {', '.join(suite.own)}" if suite.own else ""
                see = f"`groundspeed list {suite.name}` shows all{added}."
                raise unknown(f"contender in {flag}:", name, suite.contenders, see=see)
    preset = suite.module.preset_contenders(request.preset, device)
    wanted = {*request.only} if request.only else {*(preset or suite.contenders)}
    wanted |= {*always, *_of_files(suite, request.only), *request.judge}
    where = "--only" if request.only else f"preset {request.preset}"
    facts = []
    for contender in suite.contenders.values():
        absent = contender.absent(device)
        status: Any = "ABSENT" if absent else None if contender.name in wanted else "SKIPPED"
        facts.append(
            ContenderFacts(
                name=contender.name,
                description=contender.description,
                version="" if absent else _version(contender, request),
                tuning=contender.tuning,
                source_sha256=contender.source_hash(),
                status=status,
                reason=absent or (None if status is None else f"not in {where}"),
            )
        )
    return facts


def _of_files(suite: registry.Suite, only: Sequence[str]) -> list[str]:
    """Return of each file the contenders that `only` names, or all of them if it names none."""
    chosen = {suite.files[name] for name in only if name in suite.files}
    return [name for name, file in suite.files.items() if name in only or file not in chosen]


def _version(contender: Contender, request: Request) -> str:
    """Return the version of a contender. For a revision it includes what is compared: the commit, and the packages that
    were installed for one of the two revisions."""
    revision, found = request.revisions.get(contender.name), request.installed.get(contender.name)
    commit = f"commit {revision.short}" if revision else ""
    packages = [f"{name} {version}" for name, version in (found.packages if found else {}).items()]
    more = [f"and {len(packages) - MOST_PACKAGES} more"] if len(packages) > MOST_PACKAGES else []
    with_ = f"with {' '.join([', '.join(packages[:MOST_PACKAGES]), *more])}" if packages else ""
    return ", ".join(filter(None, [contender.version(), " ".join(filter(None, [commit, with_]))]))


def _choose_judged(
    suite: registry.Suite,
    request: Request,
    contenders: Sequence[ContenderFacts],
    baseline: str,
    cases: Sequence[Case],
    device: str,
) -> list[str]:
    """Return Holm's family: the contenders of --judge; else ours and the user's own; if none of these can run, all
    contenders but the baseline that can do one of the cases, since no verdict on the others is possible."""
    rivals = [c.name for c in contenders if c.status is None and c.name != baseline]
    if not request.judge:
        first = [name for name in rivals if name.startswith(OURS) or name in suite.own]
        able = (n for n in rivals if any(suite.contenders[n].supports(case, device) is None for case in cases))
        return first or [*able] or rivals
    judged = [name for name in dict.fromkeys(request.judge) if name != baseline]
    if not judged:
        raise BadInput(f"--judge names only the baseline {baseline}, which is not compared with itself; name another")
    if not set(judged) & set(rivals):
        reason = next(c.reason for c in contenders if c.name == judged[0])
        named = "on which this run gives a verdict," if request.again else "of --judge"
        raise GroundspeedError(f"{judged[0]} {named} cannot run here ({reason})")
    return judged


def case_facts(case: Case) -> dict[str, Any]:
    facts = CaseFacts(
        name=case.name,
        aliases=case.aliases,
        params=dict(case.params),
        flops=case.work.flops,
        bytes=case.work.bytes,
        counts=dict(case.counts),
        tolerance=dict(case.tolerance),
    )
    return asdict(facts)
