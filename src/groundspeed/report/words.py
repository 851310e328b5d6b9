"""The sentences about a run, on the screen and in every report: title, notes and claims."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from groundspeed.case import FUNCTIONS
from groundspeed.judge.claims import case_claim, clock_words, conditions, headline, why
from groundspeed.judge.cost import Cost
from groundspeed.judge.figures import wrong_on
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.judge.reach import TILE, harder_baseline, whole_lengths
from groundspeed.report import text
from groundspeed.report.alike import together, without_numbers


class Note(NamedTuple):
    word: str
    """A status, a verdict, `warning` or another short label."""
    sentence: str


def title(judgement: Judgement) -> str:
    record = judgement.record
    declared = record.declared_processes
    took = f"{len(record.finished_attempts)} of {text.plural(declared, 'process', 'es')}"
    return text.safe(
        f"{record.run.suite}, {record.protocol.preset}: {text.plural(len(record.cases), 'case')}, {took}, "
        f"{judgement.device_name}, baseline {record.run.baseline} ({record.run.baseline_origin})"
    )


def notes(judgement: Judgement, *, brief: bool = False) -> Iterator[Note]:
    """Yield what a reader of the table must know: failures, doubts, warnings with remedies, and what was not measured.
    With `brief`, the reason why something was not measured is cut to its first clause, so that contenders that share it
    are listed together."""
    alike: dict[tuple[str, str, tuple[str, ...]], list[tuple[str, str]]] = {}
    for case in judgement.cases:
        for result in case.results:
            if result.status != "PASSED":
                word, reason = result.status, str(result.reason)
                like = without_numbers(reason) if word == "INCORRECT" else (reason,)
            elif result.comparison and result.comparison.verdict == "UNCLEAR":
                word, reason = "UNCLEAR", why(result.comparison)
                like = without_numbers(reason)
            else:
                continue
            alike.setdefault((word, result.contender, like), []).append((case.facts.name, reason))
    for (word, contender, _), found in alike.items():
        names, reasons = zip(*found, strict=True)
        more = f" and {text.plural(len(names) - 1, 'more case')}" if len(names) > 1 else ""
        said = together(reasons) if word == "UNCLEAR" else reasons[0]
        yield _note(word, f"{names[0]}{more}, {contender}: {said}")
        if line := next(filter(None, (_see_it(judgement, name, contender) for name in names)), None):
            yield _note(SEE_IT, line)
    resident = [case.facts.name for case in judgement.cases if case.l2_resident]
    if resident:
        more = f" and {text.plural(len(resident) - 1, 'more case')}" if len(resident) > 1 else ""
        yield _note("L2", f"the inputs of {resident[0]}{more} stay in the cache; their GB/s do not describe the memory")
    if kernels := _kernels(judgement):
        yield _note("kernels", kernels)
    run = judgement.record.run
    timed = {result.contender for case in judgement.cases for result in case.results if result.latency}
    if timed - {run.baseline, *run.judged} and run.judged:
        yield _note("judged", f"only {', '.join(run.judged)}; use --judge to name other contenders")
    if harder := harder_baseline(judgement):
        name, count = harder
        of = f"on {count} of {text.plural(len(judgement.cases), 'case')}"
        yield _note("baseline", f"{name} is faster than {run.baseline} {of}; use --baseline {name} to compare with it")
    if lengths := whole_lengths(judgement):
        all_of = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}, all multiples of {TILE}"
        yield _note(
            "lengths", f"only {all_of}; a kernel wrong at others passes: also run --shape S=777,D=96 --shape S=1"
        )
    if repeats := run.reproduces:
        yield _note("repeats", f"the run of bundle {repeats[:12]}")
    for warning in judgement.warnings:
        yield _note("warning", f"{warning.message}; {warning.remedy}")
    for status in ("ABSENT", "SKIPPED"):
        unmeasured = {c.name: str(c.reason) for c in judgement.record.contenders if c.status == status}
        sharing: dict[str, list[str]] = {}
        for name, reason in unmeasured.items():
            sharing.setdefault(reason.partition("; ")[0] if brief else reason, []).append(name)
        said = [f"{', '.join(names)} ({why})" for why, names in sharing.items()]
        if not sharing.keys() >= set(unmeasured.values()):
            said.append("the report has the reasons in full")
        if said:
            yield _note(status, "; ".join(said))


SEE_IT = "see it"


def _see_it(judgement: Judgement, case: str, contender: str) -> str:
    """Return the Python code that reproduces an error outside the laboratory; empty if it is not known."""
    record = judgement.record
    seed, params = wrong_on(record, case, contender), record.cases[record.case_index[case]].params
    if record.run.suite == FUNCTIONS:  # its functions exist only where gs.compare was called
        return ""
    if seed is None or not all(map(str.isidentifier, params)):  # a bundle may name them anything, even code
        return ""
    told = ", ".join([repr(record.run.suite), *(f"{name}={value!r}" for name, value in params.items())])
    return (
        f"case = gs.case_of({told}); inputs = case.inputs({seed}, {record.run.device!r}); "
        f"f(*inputs, **case.arguments).flatten(0, -2) - case.oracle(*inputs)  # f: {contender} on {case}"
    )


CIRCUMSTANCES = ("ABSENT", "SKIPPED", "L2", "warning")


def circumstances(judgement: Judgement) -> Iterator[str]:
    """Yield the circumstances of a run's figures: machine, versions, what is missing, and what may have disturbed
    them."""
    record = judgement.record
    versions: dict[str, list[str]] = {}
    for contender in record.measured:
        versions.setdefault(contender.version or "of unknown version", []).append(contender.name)
    yield text.safe(f"measured until {record.run.finished}, {_machine(record.environment)}")
    yield text.safe("; ".join(f"{', '.join(names)}: {version}" for version, names in versions.items()))
    for note in notes(judgement):
        if note.word in CIRCUMSTANCES:
            yield f"{note.word}: {note.sentence}"


def _machine(environment: Mapping[str, Any]) -> str:
    """Return the machine as far as it is known: `on one NVIDIA H200, driver 580, cuDNN 9.19, in Xeon with 16 cores`."""
    parts = (environment.get(key) for key in ("gpu", "cpu", "packages"))
    gpu, cpu, packages = (part if isinstance(part, Mapping) else {} for part in parts)
    host = f"{cpu.get('name', 'an unknown CPU')} with {cpu.get('cores', 'some')} cores"
    if not gpu:
        return f"on {host}"
    found = [f"cuDNN {version}" for name, version in packages.items() if "cudnn" in name]
    return ", ".join([f"on one {gpu.get('name')}", f"driver {gpu.get('driver')}", *found, f"in {host}"])


def _kernels(judgement: Judgement) -> str:
    """Return the short names of the kernels that each contender was seen to launch, or their number if there are many:
    `sdpa-math` launches a dozen."""
    seen: dict[str, dict[str, None]] = {}
    for launched in judgement.record.launched:
        seen.setdefault(launched.contender, {}).update(dict.fromkeys(map(short_kernel, launched.kernels)))
    said = [
        f"{name}: {', '.join(kernels) if len(kernels) <= FEW_KERNELS else f'{len(kernels)} kernels'}"
        for name, kernels in seen.items()
        if kernels
    ]
    return "; ".join(said)


FEW_KERNELS = 3
_TEMPLATE = re.compile(r"[<(].*$", re.DOTALL)


def short_kernel(name: str) -> str:
    """Return a kernel's name without return type, template and arguments, cut to 48 characters."""
    bare = _TEMPLATE.sub("", name.removeprefix("void ").replace("(anonymous namespace)::", "")) or name
    return bare if len(bare) <= 48 else f"{bare[:47]}…"


def _note(word: str, sentence: str) -> Note:
    return Note(word, text.safe(sentence))


def claim_lines(judgement: Judgement, names: Sequence[str] | None = None) -> Iterator[tuple[bool, str]]:
    """Yield the run's headline for each judged contender, or for those in `names`: whether it is a claim, and the claim
    or why there is none."""
    wanted = judgement.record.run.judged if names is None else names
    for grid in judgement.grids:
        if grid.contender in wanted:
            supported, sentence = headline(judgement, grid)
            yield supported, text.safe(sentence)
    facts = {contender.name: contender for contender in judgement.record.contenders}
    for name in wanted:
        if status := facts[name].status:
            yield False, text.safe(f"No claim about {name}: it was {status} ({facts[name].reason}).")
    if not judgement.record.run.judged:
        alone = len(judgement.record.measured) == 1
        baseline_only = "only the baseline was measured, so there is nothing to compare it with"
        yield False, f"No claim: {baseline_only if alone else 'no contender was judged; name one with --judge'}."


def case_claims(judgement: Judgement) -> Iterator[str]:
    """Yield every claim about a single case."""
    for case in judgement.cases:
        for result in case.results:
            if claim := case_claim(judgement, case, result):
                yield text.safe(claim)


def conditions_of(judgement: Judgement, case: CaseJudgement) -> str:
    return text.safe(conditions(case.facts) + clock_words(judgement, case.clock))


def gate(share: float) -> str:
    return f"The gate took {text.share(share)} of the process time"


def cost(cost: Cost) -> str:
    """Return a cost as text: `355 s of device time, without line-up and calibration, 0.394 at 3.99 per hour, 0.197
    for each of 2 headlines`."""
    said = [f"{text.significant(cost.device_s)} s of device time, without line-up and calibration"]
    if cost.money is not None:
        said.append(f"{text.significant(cost.money)} at {cost.price_per_hour:g} per hour")
        claims = text.plural(cost.claims, "headline")
        said.append(
            f"{text.significant(cost.money_per_claim)} for each of {claims}"
            if cost.money_per_claim is not None
            else "and no headline claim"
        )
    return ", ".join(said)
