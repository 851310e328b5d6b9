"""What a run declares before its first sample: cases, contenders, baseline, family and protocol."""

from __future__ import annotations

import fnmatch
import importlib.util
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import groundspeed
from groundspeed.case import CLOCKS, DEFAULT_CLOCK, Case, with_clock
from groundspeed.errors import BadInput, GroundspeedError, unknown
from groundspeed.evidence import store
from groundspeed.evidence.calibration import Calibration
from groundspeed.evidence.protocol import EXTENSIONS, NAME, Protocol
from groundspeed.evidence.record import CaseFacts, ContenderFacts
from groundspeed.lab import calibration
from groundspeed.lab.presets import PRESETS, Preset
from groundspeed.lab.sources import CODE, OURS, code_hashes, source_hash
from groundspeed.measure.environment import host_environment, source_commit, usable_cores
from groundspeed.measure.gpu import visible_uuid
from groundspeed.suites import registry

DEVICES = ("cpu", "cuda")

SHORT_WORK_FLOPS, SHORT_WORK_BYTES = 20e9, 100e6
"""Some 50 µs on a large GPU."""
SHORT_WORK_CLOCKS = (DEFAULT_CLOCK, "graph", "eager")


@dataclass(frozen=True)
class Request:
    """What a user asks `run` for; the fields are the flags."""

    suite: str
    preset: str = "standard"
    case: tuple[str, ...] = ()
    shape: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    clock: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    with_files: tuple[str, ...] = ()
    baseline: str | None = None
    judge: tuple[str, ...] = ()
    device: str | None = None
    timeout_s: float = 30.0
    processes: int | None = None
    warmup_s: float | None = None
    seed: int | None = None
    sequential: bool = False
    extend: bool = False
    calibration: str | None = None
    out: Path = field(default=store.RUNS)


def declare(request: Request) -> dict[str, Any]:
    """Everything that is fixed before the first sample, checked: the header of the journal."""
    suite = registry.load(request.suite, request.with_files)
    device = choose_device(request.device)
    preset = _preset(request.preset)
    cases = choose_cases(suite, request, device)
    baseline = request.baseline or suite.module.BASELINE[device]
    contenders = choose_contenders(suite, request, device, baseline)
    measured = [c.name for c in contenders if c.status is None]
    if baseline not in measured:
        reason = next(c.reason for c in contenders if c.name == baseline)
        raise GroundspeedError(f"the baseline {baseline} cannot run here ({reason}); choose another with --baseline")
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
    )
    environment = {**host_environment(), CODE: code_hashes(suite.contenders, measured)}
    floors, why_none = _calibration(request, device, protocol, environment)
    return {
        "run": {
            "suite": request.suite,
            "version": groundspeed.__version__,
            "commit": source_commit(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": device,
            "baseline": baseline,
            "baseline_origin": "asked" if request.baseline else "declared",
            "judged": _choose_judged(suite, request, contenders, baseline),
            "with_files": list(request.with_files),
        },
        "protocol": asdict(protocol),
        "environment": environment,
        "cases": [case_facts(case) for case in cases],
        "contenders": [asdict(c) for c in contenders],
        "calibration": asdict(floors) if floors else None,
        "uncalibrated": why_none,
    }


def _calibration(
    request: Request, device: str, protocol: Protocol, environment: Mapping[str, Any]
) -> tuple[Calibration | None, str | None]:
    if request.suite == calibration.SUITE:
        return None, "this is a calibration"
    return calibration.look_up(request.calibration, device, protocol, environment)


def _preset(name: str) -> Preset:
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


def _extension(processes: int) -> int:
    if processes not in EXTENSIONS:
        known = " or ".join(f"{few} processes to {many}" for few, (many, _) in EXTENSIONS.items())
        raise BadInput(f"--extend takes a run from {known}, and this one has {processes}: change --processes")
    return EXTENSIONS[processes][0]


def choose_device(asked: str | None) -> str:
    """The one asked for; without that the GPU where PyTorch can use one, else the CPU."""
    if asked is not None and asked not in DEVICES:
        raise unknown("device", asked, DEVICES)
    if asked == "cpu":
        return "cpu"
    reason = _why_no_gpu()
    if reason and asked == "cuda":
        raise GroundspeedError(f"{reason}; `groundspeed doctor` tells more, and --device cpu measures here")
    return "cpu" if reason else "cuda"


def _why_no_gpu() -> str | None:
    if visible_uuid() is None:
        return (
            "there is no GPU to use: NVML, asked through nvidia-ml-py, shows no NVIDIA driver or no device, or "
            "CUDA_VISIBLE_DEVICES hides it"
        )
    torch = importlib.util.find_spec("torch")  # found, not imported: that would take a second
    folders = (torch.submodule_search_locations if torch else None) or []
    if any((Path(folder) / "lib" / "libtorch_cuda.so").exists() for folder in folders):
        return None
    return "there is a GPU, but the PyTorch that is installed was built without CUDA"


def choose_cases(suite: registry.Suite, request: Request, device: str) -> list[Case]:
    module = suite.module
    if bad := [dtype for dtype in request.dtype if dtype not in module.DTYPES]:
        raise unknown("dtype", bad[0], module.DTYPES)
    dtypes = request.dtype or module.default_dtypes(device)
    chosen: list[Case] = []
    for text in request.shape:
        chosen += module.shape_cases(text, dtypes)
    asked_clocks: dict[str, list[str]] = {}
    for pattern, clock in (_clock_of(pattern) for pattern in request.case):
        matching = [case for case in module.all_cases() if _matches(case, pattern)]
        if not matching:
            names = {name for case in module.all_cases() for name in (*case.names, *map(_stem, case.names))}
            raise unknown("case", pattern, names, see=f"`groundspeed list {suite.name}` shows all.")
        if device == "cpu" and any(c in pattern for c in "*?["):
            matching = _small(module, matching) or matching
        in_dtype = [case for case in matching if case.params["dtype"] in dtypes]
        if request.dtype and not in_dtype:
            raise BadInput(f"--case {pattern} and --dtype {','.join(request.dtype)} leave no case; drop one of them")
        chosen += in_dtype or matching
        for case in in_dtype or matching:
            asked_clocks.setdefault(case.name, []).extend([clock] if clock else _clocks(case, request, device))
    if not request.shape and not request.case:
        preset = module.preset_cases(request.preset, device)
        wanted = [module.case_of_params({**case.params, "dtype": dtype}) for dtype in dtypes for case in preset]
        known = {tuple(case.params.items()): case for case in module.all_cases()}
        chosen = [known[tuple(case.params.items())] for case in wanted] if request.dtype else list(preset)
    unique = {tuple(case.params.items()): case for case in reversed(chosen)}
    clocks = {
        case.name: tuple(dict.fromkeys(asked_clocks.get(case.name) or _clocks(case, request, device)))
        for case in chosen
    }
    return [timed for case in reversed(unique.values()) for timed in _by_clocks(case, clocks[case.name], device)]


def _small(module: registry.SuiteModule, cases: Sequence[Case]) -> list[Case]:
    """Those that a CPU can do in its lifetime: a pattern does not mean the others, a name does."""
    shapes = [{**case.params, "dtype": ""} for case in module.preset_cases("standard", "cpu")]
    return [case for case in cases if {**case.params, "dtype": ""} in shapes]


def _clocks(case: Case, request: Request, device: str) -> tuple[str, ...]:
    """The clocks asked for; without that on a GPU the default, and for work of microseconds two more."""
    if request.clock or device == "cpu":
        return request.clock
    short = case.work.flops <= SHORT_WORK_FLOPS and case.work.bytes <= SHORT_WORK_BYTES
    return SHORT_WORK_CLOCKS if short else (DEFAULT_CLOCK,)


def _clock_of(pattern: str) -> tuple[str, str]:
    """`tiny-full-bf16@graph`, as a table calls it: the case and the clock."""
    name, _, clock = pattern.partition("@")
    return name, clock


def _by_clocks(case: Case, clocks: Sequence[str], device: str) -> list[Case]:
    if bad := [name for name in clocks if name not in CLOCKS]:
        raise unknown("clock", bad[0], CLOCKS)
    if device == "cpu" and clocks:
        raise BadInput(f"{clocks[0]} is a clock of a GPU, and a CPU has one clock; leave it out")
    return [case if name == DEFAULT_CLOCK else with_clock(case, name) for name in clocks or (DEFAULT_CLOCK,)]


def _stem(name: str) -> str:
    """A case's name without its dtype: `xlarge-causal`."""
    return name.rsplit("-", 1)[0]


def _matches(case: Case, pattern: str) -> bool:
    """A pattern may name a case with its dtype, without it, or its shape alone; `*` and `?` as in a shell."""
    forms = [form for name in case.names for form in (name, _stem(name), _stem(_stem(name)))]
    return any(fnmatch.fnmatchcase(form, pattern) for form in forms)


def choose_contenders(suite: registry.Suite, request: Request, device: str, baseline: str) -> list[ContenderFacts]:
    """All contenders of the suite: measured, or with the reason why not."""
    for flag, names in (("--only", request.only), ("--judge", request.judge), ("--baseline", (baseline,))):
        for name in names:
            if name not in suite.contenders:
                raise unknown(
                    f"contender in {flag}:", name, suite.contenders, see=f"`groundspeed list {suite.name}` shows all."
                )
    preset = suite.module.preset_contenders(request.preset, device)
    wanted = {*request.only} if request.only else {*(preset or suite.contenders)}
    wanted |= {baseline, *suite.own, *request.judge}
    where = "--only" if request.only else f"preset {request.preset}"
    facts = []
    for contender in suite.contenders.values():
        absent = contender.absent(device)
        status: Any = "ABSENT" if absent else None if contender.name in wanted else "SKIPPED"
        facts.append(
            ContenderFacts(
                name=contender.name,
                description=contender.description,
                version="" if absent else contender.version(),
                source_sha256=source_hash(contender),
                status=status,
                reason=absent or (None if status is None else f"not in {where}"),
            )
        )
    return facts


def _choose_judged(
    suite: registry.Suite, request: Request, contenders: Sequence[ContenderFacts], baseline: str
) -> list[str]:
    """Holm's family: those of --judge; else ours and the user's own; where none can run, all but the baseline."""
    rivals = [c.name for c in contenders if c.status is None and c.name != baseline]
    if not request.judge:
        return [name for name in rivals if name.startswith(OURS) or name in suite.own] or rivals
    judged = [name for name in dict.fromkeys(request.judge) if name != baseline]
    if not judged:
        raise BadInput(f"--judge names the baseline {baseline} alone, which is not compared with itself; name another")
    if not set(judged) & set(rivals):
        reason = next(c.reason for c in contenders if c.name == judged[0])
        raise GroundspeedError(f"{judged[0]} of --judge cannot run here ({reason})")
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
