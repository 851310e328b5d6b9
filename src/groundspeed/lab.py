"""The laboratory: wires the rooms for one run (suite → measure → evidence → judge)."""

from __future__ import annotations

import fnmatch
import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import groundspeed
from groundspeed.case import Case, Contender, Scalar
from groundspeed.errors import BadInput, GroundspeedError, unknown
from groundspeed.evidence import bundle, journal, store
from groundspeed.evidence.protocol import NAME, Protocol
from groundspeed.evidence.record import CaseFacts, ContenderFacts, Record
from groundspeed.judge import replay as judge_replay
from groundspeed.judge.stopping import should_stop
from groundspeed.measure.channel import ProcessWorker, worker_command
from groundspeed.measure.environment import gpu_environment, host_environment, source_commit, usable_cores
from groundspeed.measure.runner import Past, Plan, Progress, Runner, StopRule, Times
from groundspeed.suites import registry

DEVICES = ("cpu", "cuda")
OURS = "ours-"
MEMORY_SHARE = 0.9


@dataclass(frozen=True)
class Preset:
    """How much evidence a run gathers (docs/protocol.md)."""

    processes: int
    looks: tuple[int, ...]
    half_width: float
    budget_s: float | None
    warmup_s: float


PRESETS = {
    "quick": Preset(processes=4, looks=(10, 20, 40), half_width=0.025, budget_s=60.0, warmup_s=0.05),
    "standard": Preset(processes=8, looks=(10, 20, 40), half_width=0.015, budget_s=None, warmup_s=0.2),
    "paper": Preset(processes=12, looks=(20, 40, 80), half_width=0.010, budget_s=None, warmup_s=0.5),
}


@dataclass(frozen=True)
class Request:
    """What a user asks `run` for; the fields are the flags."""

    suite: str
    preset: str = "standard"
    case: tuple[str, ...] = ()
    shape: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    with_files: tuple[str, ...] = ()
    baseline: str | None = None
    judge: tuple[str, ...] = ()
    device: str | None = None
    timeout_s: float = 30.0
    processes: int | None = None
    warmup_s: float | None = None
    seed: int | None = None
    out: Path = field(default=store.RUNS)


Tell = Callable[[Progress], None]


def run(request: Request, tell: Tell = lambda progress: None) -> bundle.Bundle:
    """Measure what is asked for. Interrupted by Ctrl-C it returns the bundle of what was measured until then."""
    facts = _declare(request)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    folder = store.begin(request.out, f"{request.suite}-{request.preset}-{stamp}-{secrets.token_hex(2)}")
    log = journal.Journal(folder)
    log.write("run", facts=facts)
    return _measure(folder, log, tell)


def resume(path: Path, tell: Tell = lambda progress: None) -> bundle.Bundle:
    """Go on with an interrupted run: its journal folder, or the bundle it left."""
    folder = store.reopen(path)
    return _measure(folder, journal.Journal(folder), tell)


def verify(path: Path) -> tuple[bundle.Bundle, judge_replay.Replay]:
    """The bundle, if every byte is what its manifest says and every figure follows from its protocol and samples."""
    found = bundle.read(path)
    return found, judge_replay.replay(found.record, declared_work)


def declared_work(suite: str, params: dict[str, Scalar]) -> judge_replay.Declared | None:
    """What this version of a suite says about a case: its work and its tolerance."""
    if suite not in registry.suite_names():
        return None
    case = registry.suite_module(suite).case_of_params(params)
    return judge_replay.Declared(case.work.flops, case.work.bytes, dict(case.counts), dict(case.tolerance))


def _measure(folder: Path, log: journal.Journal, tell: Tell) -> bundle.Bundle:
    record = journal.to_record(journal.read_events(folder), str(folder / journal.FILE))
    suite = _load_unchanged(record)
    cases = [suite.module.case_of_params(dict(facts.params)) for facts in record.cases]
    plan = Plan(
        protocol=record.protocol,
        cases=[_renamed(case, facts) for case, facts in zip(cases, record.cases, strict=True)],
        contenders=[contender.name for contender in record.measured],
        start={
            "suite": record.run.suite,
            "loader": "groundspeed.suites:load",
            "with_files": list(record.run.with_files),
            "device": record.run.device,
            "warmup_s": record.protocol.warmup_s,
            "first_look": record.protocol.looks[0],
            "memory_limit_bytes": _memory_limit(),
        },
    )
    runner = Runner(
        plan,
        log,
        stop_rule(record),
        lambda: ProcessWorker(worker_command(), record.protocol.threads),
        time.time,
        tell,
        past_of(record),
    )
    try:
        runner.run()
    except KeyboardInterrupt:
        log.write("interrupted", date=datetime.now(UTC).isoformat(timespec="seconds"))
    finally:
        log.close()
    return store.finish(folder)


def stop_rule(record: Record) -> StopRule:
    protocol, baseline = record.protocol, record.run.baseline

    def rule(blocks: int, times: Times, alive: frozenset[str], elapsed_s: float) -> str | None:
        pairs = [(c, baseline) for c in record.run.judged if c in alive and c != baseline and baseline in alive]
        return should_stop(protocol, blocks, times, pairs, elapsed_s)

    return rule


def past_of(record: Record) -> Past:
    """What an interrupted record has done already."""
    attempts: dict[int, int] = {}
    for process in record.processes:
        attempts[process.process] = max(attempts.get(process.process, 0), process.attempt + 1)
    lost = {(o.case, o.contender): f"{o.reason} in process {o.process}" for o in record.outcomes if o.lost_worker}
    return Past(set(record.finished_attempts), attempts, lost)


def _load_unchanged(record: Record) -> registry.Suite:
    """The suite with the contenders of the record, which must be the very ones it began with."""
    suite = registry.load(record.run.suite, record.run.with_files)
    for facts in record.measured:
        contender = suite.contenders.get(facts.name)
        if contender is None:
            raise unknown("contender", facts.name, suite.contenders)
        if _source_hash(contender) != facts.source_sha256:
            raise BadInput(f"{facts.name} has changed since this run began; its samples cannot be mixed: start a new run")
    return suite


def _renamed(case: Case, facts: CaseFacts) -> Case:
    return Case(**{**case.__dict__, "name": facts.name, "aliases": facts.aliases})


def _memory_limit() -> int:
    import psutil

    return int(MEMORY_SHARE * psutil.virtual_memory().available)


def _declare(request: Request) -> dict[str, Any]:
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
    protocol = Protocol(
        name=NAME,
        preset=request.preset,
        processes=request.processes or preset.processes,
        looks=preset.looks,
        half_width=preset.half_width,
        seed=secrets.randbits(62) if request.seed is None else request.seed,
        threads=max(1, usable_cores() - 1),
        timeout_s=request.timeout_s,
        budget_s=preset.budget_s,
        warmup_s=request.warmup_s or preset.warmup_s,
        input_sets=3,
    )
    return {
        "run": {
            "suite": request.suite,
            "version": groundspeed.__version__,
            "commit": source_commit(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": device,
            "baseline": baseline,
            "baseline_origin": "asked" if request.baseline else "declared",
            "judged": _choose_judged(suite, request, measured, baseline),
            "with_files": list(request.with_files),
        },
        "protocol": asdict(protocol),
        "environment": host_environment(),
        "cases": [_case_facts(case) for case in cases],
        "contenders": [asdict(c) for c in contenders],
    }


def _preset(name: str) -> Preset:
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


def choose_device(asked: str | None) -> str:
    if asked is None:
        return "cpu"
    if asked not in DEVICES:
        raise unknown("device", asked, DEVICES)
    if asked == "cuda":
        gpu = gpu_environment()
        if gpu is None:
            raise GroundspeedError(
                "there is no GPU to use: NVML, asked through nvidia-ml-py, shows no NVIDIA driver or no device; "
                "`groundspeed doctor` tells more, and --device cpu measures here"
            )
        raise GroundspeedError(f"{gpu['name']} is here, but this version measures on CPUs only: use --device cpu")
    return asked


def choose_cases(suite: registry.Suite, request: Request, device: str) -> list[Case]:
    module = suite.module
    if bad := [dtype for dtype in request.dtype if dtype not in module.DTYPES]:
        raise unknown("dtype", bad[0], module.DTYPES)
    dtypes = request.dtype or module.default_dtypes(device)
    chosen: list[Case] = []
    for text in request.shape:
        chosen += module.shape_cases(text, dtypes)
    for pattern in request.case:
        matching = [case for case in module.all_cases() if _matches(case, pattern)]
        if not matching:
            names = {name for case in module.all_cases() for name in (*case.names, *map(_stem, case.names))}
            raise unknown("case", pattern, names, see=f"`groundspeed list {suite.name}` shows all.")
        chosen += [case for case in matching if case.params["dtype"] in dtypes] or matching
    if not request.shape and not request.case:
        preset = module.preset_cases(request.preset, device)
        wanted = [module.case_of_params({**case.params, "dtype": dtype}) for dtype in dtypes for case in preset]
        known = {tuple(case.params.items()): case for case in module.all_cases()}
        chosen = [known[tuple(case.params.items())] for case in wanted] if request.dtype else list(preset)
    unique = {tuple(case.params.items()): case for case in reversed(chosen)}
    return list(reversed(unique.values()))


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
                raise unknown(f"contender in {flag}:", name, suite.contenders, see=f"`groundspeed list {suite.name}` shows all.")
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
                source_sha256=_source_hash(contender),
                status=status,
                reason=absent or (None if status is None else f"not in {where}"),
            )
        )
    return facts


def _choose_judged(suite: registry.Suite, request: Request, measured: Sequence[str], baseline: str) -> list[str]:
    """Holm's family: those of --judge; else ours and the user's own; where none of these can run, all but the baseline."""
    if request.judge:
        judged = list(dict.fromkeys(request.judge))
    else:
        judged = [name for name in measured if name.startswith(OURS) or name in suite.own] or list(measured)
    return [name for name in judged if name != baseline]


def _source_hash(contender: Contender) -> str | None:
    if contender.source is None:
        return None
    return hashlib.sha256(Path(contender.source).read_bytes()).hexdigest()


def _case_facts(case: Case) -> dict[str, Any]:
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
