"""One run, from its declaration to its bundle; and the continuation of an interrupted run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import groundspeed
from groundspeed.case import FUNCTIONS, Case
from groundspeed.errors import BadInput, GroundspeedError, unknown
from groundspeed.evidence import bundle, journal, store
from groundspeed.evidence.record import CaseFacts, ContenderFacts, Record
from groundspeed.evidence.revision import revisions_of
from groundspeed.judge.extension import wants_extension
from groundspeed.judge.statistics import TRIM
from groundspeed.judge.stopping import should_stop
from groundspeed.lab.declare import declare
from groundspeed.lab.request import Request, need_files, refuse_gone
from groundspeed.measure.ahead import at_once, compile_ahead, kinds_of
from groundspeed.measure.channel import ProcessWorker, Worker, worker_command
from groundspeed.measure.environment import host_environment, source_commit
from groundspeed.measure.gpu import Gpu, only_run_on, visible_uuid
from groundspeed.measure.host import StopRule, Times
from groundspeed.measure.lineup import LINE_UP, LineUp, by_shape
from groundspeed.measure.runner import Past, Plan, Progress, Runner
from groundspeed.measure.spares import Spares, as_many, early
from groundspeed.measure.team import Team
from groundspeed.suites import listing, registry

MEMORY_SHARE = 0.9
"""The share of the free host memory that a worker may use; the rest keeps the machine and the runner alive."""
KNOWN_ONE_IN = 20
"""One in this many samples of a contender is checked if all contenders ship with groundspeed."""
SELDOM, UNSEEN = 10, 1 / 300
"""If some do not, at least one in SELDOM samples is checked, and as many more as it takes for a contender that gains by
wrong results to go unseen with a probability of at most UNSEEN."""

Tell = Callable[[Progress], None]


def run(request: Request, tell: Tell = lambda progress: None, suite: registry.Suite | None = None) -> bundle.Bundle:
    """Measure what is requested, of the given suite or the one that the request names. If interrupted by Ctrl-C, return
    the bundle of what was measured until then."""
    facts = declare(request, suite)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    with alone_on(facts["run"]["device"]):
        folder = store.begin(request.out, f"{request.suite}-{request.preset}-{stamp}-{secrets.token_hex(2)}")
        with closing(journal.Journal(folder)) as log:
            log.write("run", facts=facts)
        return _measure(folder, tell, suite)


def alone_on(device: str) -> AbstractContextManager[None]:
    """Return a context that reserves a GPU for one run. On a CPU, workers use as many cores as the protocol says."""
    uuid = visible_uuid() if device == "cuda" else None
    return only_run_on(uuid) if uuid else nullcontext()


def resume(path: Path, tell: Tell = lambda progress: None) -> bundle.Bundle:
    """Continue an interrupted run, given its journal folder or the bundle that it left."""
    record = store.left(path)
    refuse_gone(record)
    need_files(record)
    _refuse_another_machine(record)
    with alone_on(record.run.device):
        return _measure(store.reopen(path), tell)


def _refuse_another_machine(record: Record) -> None:
    """Raise BadInput unless the machine and the software are those with which the run began."""
    now = host_environment()
    facts = {
        "the CPU": (_at(record.environment, "cpu", "name"), now["cpu"]["name"]),
        "the number of cores": (_at(record.environment, "cpu", "cores"), now["cpu"]["cores"]),
        "the GPU": (_at(record.environment, "gpu", "name"), _at(now, "gpu", "name")),
        "Python": (_at(record.environment, "python", "version"), now["python"]["version"]),
        "the installed packages": (record.environment.get("packages"), now["packages"]),
        "groundspeed": (record.run.version, groundspeed.__version__),
        "the commit of groundspeed": (record.run.commit, source_commit()),
        "the source of groundspeed": (record.environment.get("source_sha256"), now["source_sha256"]),
    }
    for what, (then, here) in facts.items():
        if then != here:
            raise BadInput(f"{what} changed since this run began ({then!s:.200}, now {here!s:.200}); start a new run")


def _at(environment: Mapping[str, Any], *path: str) -> Any:
    for key in path:
        environment = environment.get(key) if isinstance(environment, Mapping) else None  # type: ignore[assignment]
    return environment


def _measure(folder: Path, tell: Tell, suite: registry.Suite | None = None) -> bundle.Bundle:
    record = _record(folder)
    suite = _unchanged(record, suite or listing.load(record.run.suite, record.run.with_files))
    plan = _plan(record, suite)
    uuid = visible_uuid() if record.run.device == "cuda" else None

    def one(contender: str = "") -> Worker:
        return ProcessWorker(worker_command(suite.pythons.get(contender)), record.protocol.threads, uuid)

    def team() -> Worker:
        return Team(one, plan.contenders, plan.files)

    with ExitStack() as stack:
        log = stack.enter_context(closing(journal.Journal(folder)))
        device = stack.enter_context(Gpu(uuid)) if uuid else None
        past = past_of(record)
        try:
            spares = stack.enter_context(closing(_spares(plan, one, suite, past, record)))
            if device:
                plan = replace(plan, refused=_line_up(plan, folder, log, one, suite, tell, spares))
            spawn = team if record.protocol.isolated else spares
            runner = Runner(plan, log, stop_rule(record), spawn, time.monotonic, tell, past, device)
            runner.run()
            extend(folder, log, runner)
        except GroundspeedError as error:
            if str(folder) in str(error):
                raise
            gone = revisions_of(record.environment) or record.run.suite == FUNCTIONS
            kept = f" in {folder}" if gone else f": continue with --resume {folder}"
            raise GroundspeedError(f"{error}; what was measured is kept{kept}") from None
        except KeyboardInterrupt:
            log.write("interrupted", date=datetime.now(UTC).isoformat(timespec="seconds"))
    return store.finish(folder)


def _record(folder: Path) -> Record:
    return journal.to_record(journal.read_events(folder), str(folder / journal.FILE))


def _plan(record: Record, suite: registry.Suite) -> Plan:
    cases = [_renamed(suite.module.case_of_params(dict(facts.params)), facts) for facts in record.cases]
    by_name = {case.name: case for case in cases}
    skips = suite.module.preset_skips(record.protocol.preset, by_name, record.run.baseline)
    on_cpu, isolated = record.run.device == "cpu", record.protocol.isolated
    brought = bool({*suite.brought} & {contender.name for contender in record.measured})
    return Plan(
        protocol=record.protocol,
        cases=cases,
        contenders=[contender.name for contender in record.measured],
        seed=record.draw_seed,
        start={
            **worker_start(suite, record.run.device, record.measured, record.protocol.threads),
            "warmup_s": record.protocol.warmup_s,
            "first_look": record.protocol.looks[0],
            "thorough": brought,
            "check_one_in": _check_one_in(record, brought),
            # For each worker. Not on a GPU, whose driver reserves far more memory than it uses.
            "memory_limit_bytes": memory_limit() // (len(record.measured) if isolated else 1) if on_cpu else 0,
        },
        refused={pair: ("SKIPPED", why) for pair, why in skips.items()},
        files=suite.files,
    )


def worker_start(
    suite: registry.Suite, device: str, measured: Sequence[ContenderFacts], threads: int
) -> dict[str, Any]:
    """Return what every worker is told first, whatever its task."""
    return {
        "suite": suite.name,
        "loader": suite.loader,
        "loaded": suite.told,
        "with_files": list(dict.fromkeys(suite.files.values())),
        "device": device,
        "sources": {c.name: c.source_sha256 for c in measured if c.source_sha256},
        "threads": threads,
    }


def _check_one_in(record: Record, brought: bool) -> list[tuple[int, int]]:
    """Return pairs (look, n), for each contender on each case: before block `look`, one in n samples is checked.

    A contender gains by wrong results only if they are in more than a fifth of the blocks of a process, since the
    fastest fifth is trimmed away. If all P processes end at look L, that is P·L/5 blocks; if each is checked with
    probability p, all go unseen with probability (1 − p)^(P·L/5). p makes this UNSEEN, even for results that are wrong
    only in the last blocks, which are checked least; a process that ends at another look still has its factor of
    UNSEEN^(1/P). The clocks of a shape do not share checks: a contender can tell them apart (decision 0020)."""
    processes, looks = record.protocol.processes, record.protocol.looks
    if not brought:
        return [(looks[-1], KNOWN_ONE_IN)]
    chance = [1 - UNSEEN ** (1 / (TRIM * processes * look)) for look in looks]
    return [(look, min(SELDOM, max(1, int(1 / p)))) for look, p in zip(looks, chance, strict=True)]


def _spares(plan: Plan, spawn: Callable[[], Worker], suite: registry.Suite, past: Past, record: Record) -> Spares:
    """Return workers that import ahead, one for each missing process, if importing takes as long as measuring: on a
    GPU, with all contenders in one process."""
    together = plan.start["device"] == "cuda" and not plan.protocol.isolated
    names = [name for name in plan.contenders if name not in suite.own]
    message = early(plan.start, dict(plan.cases[0].params), names, _at(record.environment, "gpu", "compute_capability"))
    return Spares(spawn, message, as_many(plan.protocol.processes - len(past.finished)) if together else 0)


def _line_up(
    plan: Plan,
    folder: Path,
    log: journal.Journal,
    spawn: Callable[..., Worker],
    suite: registry.Suite,
    tell: Tell,
    spares: Spares,
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return which contenders not to measure on which cases, with status and reason: those that the preset leaves out,
    that hung, died or were refused in the line-up, or that do not launch the kernels that their names stand for."""
    total = plan.protocol.processes * len(plan.cases)
    known = {(seen.case, seen.contender) for seen in _record(folder).launched}

    def say(text: str) -> None:
        tell(Progress(0, plan.protocol.processes, 0, total, text, LINE_UP))

    if not known and not plan.protocol.isolated:
        _compile_ahead(plan, spawn, suite, say)
    say("starting the processes")
    if let_go := spares.settle():  # before the line-up compares two timers
        say(f"{let_go} processes that imported ahead died or used the GPU, and are started again when needed")
    line_up = LineUp(plan, log, spawn, known, say)
    line_up.run()
    same_work = {cases[0].name: cases for cases in by_shape(plan.cases)}
    strangers = {
        (case.name, seen.contender): ("ERROR", why)
        for seen in _record(folder).launched
        if (why := suite.contenders[seen.contender].launches(seen.kernels))
        for case in same_work.get(seen.case, ())
    }
    return {**plan.refused, **line_up.refused, **strangers}


def _compile_ahead(plan: Plan, spawn: Callable[[], Worker], suite: registry.Suite, say: Callable[[str], None]) -> None:
    """Compile ahead for the contenders that are not from files, except those whose first call times variants. A
    contender from a file is called only while it is watched, and by itself."""
    keys = suite.module.COMPILED_BY
    names = [name for name in plan.contenders if name not in suite.own and not suite.contenders[name].tries]
    kinds = kinds_of([cases[0] for cases in by_shape(plan.cases)], keys) if keys else []
    if (processes := at_once(len(kinds))) > 1 and names:
        say(f"compiling ahead in {processes} processes")
        compile_ahead(plan, spawn, names, kinds, processes)


def extend(folder: Path, log: journal.Journal, runner: Runner) -> None:
    """Continue to the larger number of processes that was declared, if a verdict is still UNCLEAR."""
    record = _record(folder)
    if record.protocol.extension is None:
        return
    extended = wants_extension(record)
    if record.run.extended is None:
        log.write("extended", extended=extended)
    if extended:
        runner.run(record.protocol.extension)


def stop_rule(record: Record) -> StopRule:
    protocol, baseline = record.protocol, record.run.baseline

    def rule(blocks: int, times: Times, alive: frozenset[str], elapsed_s: float) -> str | None:
        pairs = [(c, baseline) for c in record.run.judged if c in alive and c != baseline and baseline in alive]
        return should_stop(protocol, blocks, times, pairs, elapsed_s)

    return rule


def past_of(record: Record) -> Past:
    """Return what the interrupted run of a record has done already."""
    attempts: dict[int, int] = {}
    for process in record.processes:
        attempts[process.process] = max(attempts.get(process.process, 0), process.attempt + 1)
    lost = {(o.case, o.contender): f"{o.reason} in process {o.process + 1}" for o in record.outcomes if o.lost_worker}
    usage = {usage.case: usage.tokens for usage in record.usage}
    return Past(set(record.finished_attempts), attempts, lost, usage)


def _unchanged(record: Record, suite: registry.Suite) -> registry.Suite:
    """Return the suite if it has all contenders of the record, and they are unchanged since the run began."""
    for facts in record.measured:
        contender = suite.contenders.get(facts.name)
        if contender is None:
            raise unknown("contender", facts.name, suite.contenders)
        if contender.source_hash() != facts.source_sha256:
            raise BadInput(
                f"{facts.name} has changed since this run began, and its samples cannot be mixed; start a new run"
            )
    return suite


def _renamed(case: Case, facts: CaseFacts) -> Case:
    return replace(case, name=facts.name, aliases=facts.aliases)


def memory_limit() -> int:
    import psutil

    return int(MEMORY_SHARE * psutil.virtual_memory().available)
