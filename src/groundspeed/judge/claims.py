"""Claims: sentences that the evidence supports. They are generated from it and never written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log

from groundspeed.case import CLOCKS, FUNCTIONS
from groundspeed.evidence.record import CaseFacts, Record, Scalar
from groundspeed.judge.grid import BROKEN, Grid, category
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.reproduction import all_cases, trust
from groundspeed.judge.statistics import Interval
from groundspeed.judge.verdict import Comparison

INCOMPLETE = "the run was interrupted: {done} of {declared} declared processes were measured; {way_out}"
INTERPRETED = "Triton kernels ran in the interpreter (TRITON_INTERPRET is set), whose times mean nothing"


def ratio_text(value: float, more: int = 0) -> str:
    """Format a speed-up with two or three significant figures, plus `more`: 0.0041, 0.98, 1.72, 12.3, 140."""
    if 0 < value < 0.095:
        return f"{value:#.{2 + more}g}" if value >= 1e-4 else f"{value:.{1 + more}e}"
    return f"{value:.{more + (2 if value < 9.995 else 1 if value < 99.95 else 0)}f}"


def ratio_texts(theta: Interval) -> tuple[str, str, str]:
    """Format the speed-up and the ends of its interval with enough figures to tell the ends apart, at most two more
    than usual."""
    return ratios_text(exp(theta.mean), exp(theta.low), exp(theta.high))


def ratios_text(ratio: float, low: float, high: float) -> tuple[str, str, str]:
    """Do the same as `ratio_texts`, given the ratios themselves."""
    more = next((n for n in (0, 1) if ratio_text(low, n) != ratio_text(high, n)), 2)
    return ratio_text(ratio, more), ratio_text(low, more), ratio_text(high, more)


def with_interval(theta: Interval, name: str = "") -> str:
    """Format as `1.72× (1.60–1.84)`, or without the interval for a single process."""
    if theta.n == 1:
        return f"{ratio_text(exp(theta.mean))}×"
    ratio, low, high = ratio_texts(theta)
    return f"{ratio}× ({name}{low}–{high})"


def conditions(case: CaseFacts) -> str:
    """Format the parameters of a case as `B=16 H=16 S=1024 D=128 fp16 causal`, without its clock and counts of work."""

    def word(key: str, value: Scalar) -> str:
        if key == "causal":
            return "causal" if value else "full"
        return str(value) if key in ("name", "dtype", "direction") else f"{key}={value}"

    unsaid = ("clock", "flops", "bytes_moved")
    return " ".join(word(key, value) for key, value in case.params.items() if key not in unsaid)


MOST_SHOWN = 10
"""If only differences beyond this factor would have been noticed, the exact factor is not worth giving."""


def noticed(detectable: float | None, *, doubted: bool = False) -> str:
    """Return the power statement of a result that is SAME or UNCLEAR: the least difference that its evidence would have
    shown. If the result is `doubted`, noise is not its reason, so the statement is about the evidence without the
    doubt."""
    if detectable is None:
        return "without a spread over processes, nothing tells which difference would have been noticed"
    if detectable > log(MOST_SHOWN):
        return f"no difference under {MOST_SHOWN}× would have been noticed"
    least = _least_text(detectable)
    if doubted:
        return f"a difference of {least}× or more would otherwise have been noticed"
    return f"only a difference of {least}× or more would have been noticed"


def _least_text(detectable: float) -> str:
    """Format with enough figures to differ from 1.00: 1.23, 1.004."""
    texts = (ratio_text(exp(detectable), more) for more in range(4))
    return next((said for said in texts if float(said) > 1), "1.0001")


def why(comparison: Comparison) -> str:
    """Return the reason for a verdict; if nothing was found, with the difference that would have been noticed."""
    if comparison.verdict not in ("SAME", "UNCLEAR"):
        return comparison.reason
    return f"{comparison.reason}; {noticed(comparison.detectable, doubted=comparison.doubted)}"


def clock_words(judgement: Judgement, clock: str) -> str:
    """Format a clock as `, device time, cold L2`, or as nothing on a CPU, which has only one clock."""
    return f", {CLOCKS.get(clock, clock)}" if judgement.record.run.device == "cuda" else ""


def case_claim(judgement: Judgement, case: CaseJudgement, result: Result) -> str | None:
    """Return the claim about a contender that this case supports, or None."""
    c = result.comparison
    if c is None or c.verdict in (None, "UNCLEAR") or interpreted(judgement.record):
        return None
    word = {"FASTER": "faster", "SLOWER": "slower"}.get(str(c.verdict)) or _same(c.detectable)
    return (
        f"{c.contender} is {word}: {with_interval(c.interval, '95% CI ')} vs {_rival(judgement)}, "
        f"{conditions(case.facts)}{clock_words(judgement, case.clock)}, {judgement.device_name}; "
        f"trust: {trust(judgement, case.facts.name, c.contender)}"
    )


def _same(detectable: float | None) -> str:
    return f"the same within 1% ({noticed(detectable).removeprefix('only ')})"


def interpreted(record: Record) -> bool:
    """Return whether Triton's interpreter ran its kernels instead of compiled code."""
    variables = record.environment.get("variables")
    said = variables.get("TRITON_INTERPRET") if isinstance(variables, Mapping) else None
    return str(said or "0").lower() not in ("0", "false", "off", "n", "no", "")


def _rival(judgement: Judgement) -> str:
    run = judgement.record.run
    return f"{run.baseline} ({run.baseline_origin})" if run.baseline_origin == "chosen afterwards" else run.baseline


def headline(judgement: Judgement, grid: Grid) -> tuple[bool, str]:
    """Return whether the run supports a claim about a contender, and the claim, or a sentence that says why there is
    none."""
    record = judgement.record
    done, declared = len(record.finished_attempts), record.declared_processes
    if not record.complete:
        way_out = "call gs.compare again" if record.run.suite == FUNCTIONS else "finish it with --resume"
        power = "" if grid.detectable is None else f"; {noticed(grid.detectable, doubted=True)}"
        why_not = INCOMPLETE.format(done=done, declared=declared, way_out=way_out)
        return False, _none(judgement, grid, why_not + power)
    if interpreted(record):
        return False, _none(judgement, grid, INTERPRETED)
    if grid.compared == 0:
        return False, _none(judgement, grid, _why_nothing(judgement, grid))
    if declared == 1:
        return False, _one_process(grid)
    if broken := [
        f"{status} on {count} of {grid.cases} cases" for status, count in grid.failed.items() if status in BROKEN
    ]:
        return False, _none(judgement, grid, f"it was {' and '.join(broken)}; a claim covers all cases")
    if grid.cases == 1:
        case = next(case for case in judgement.cases if case.facts.name == grid.names[0])
        claim = case_claim(judgement, case, case.result(grid.contender))
        reason = why(_comparison(case.result(grid.contender)))
        return (True, claim) if claim else (False, _none(judgement, grid, reason))
    rest = f"{noticed(grid.detectable, doubted=grid.doubt is not None or grid.differs)}; {_tally(grid)}"
    if grid.doubt:
        return False, _none(judgement, grid, f"over {grid.compared} cases, {grid.doubt}; {rest}")
    assert grid.interval is not None
    assert grid.floor is not None
    if grid.same:
        return True, (
            f"{grid.contender} is {_same(grid.detectable)}: {_grid_interval(grid)} vs {_rival(judgement)}, "
            f"{_over_cases(judgement, grid)}"
        )
    if not grid.decided:
        mean = f"the geometric mean over {grid.compared} cases is {_grid_interval(grid)}"
        return False, _none(judgement, grid, f"{mean}{_undecided(grid)}; {rest}")
    word = "faster" if grid.interval.mean > 0 else "slower"
    return True, (
        f"{grid.contender} is {word}: {_grid_interval(grid)} vs {_rival(judgement)}, {_over_cases(judgement, grid)}"
    )


def _undecided(grid: Grid) -> str:
    """Return why a mean that is unlikely to be chance is no claim."""
    if grid.differs:
        return ", but no case by itself shows it"
    return "" if grid.adjusted_p > grid.alpha else f", below the {grid.floor}"


def _over_cases(judgement: Judgement, grid: Grid) -> str:
    suite = judgement.record.run.suite
    many = f"{grid.compared}" if grid.compared == grid.cases else f"only {grid.compared} of {grid.cases}"
    dtypes = {case.facts.params.get("dtype") for case in judgement.cases if case.facts.name in grid.names}
    cases = " ".join([many, *map(str, dtypes if len(dtypes) == 1 else ()), "cases"])
    clock = clock_words(judgement, grid.clock)
    return (
        f"geometric mean over {cases} of {suite} ({_tally(grid)}){clock}, {judgement.device_name}; "
        f"trust: {trust(judgement, all_cases(grid), grid.contender)}"
    )


def _grid_interval(grid: Grid) -> str:
    assert grid.interval is not None
    return with_interval(grid.interval, "95% CI ")


def _tally(grid: Grid) -> str:
    parts = [f"{count} {verdict.lower()}" for verdict, count in grid.verdicts.items()]
    parts += [f"{count} {status}" for status, count in sorted(grid.failed.items())]
    return ", ".join(parts)


def _none(judgement: Judgement, grid: Grid, why: str) -> str:
    return f"No claim about {grid.contender}{clock_words(judgement, grid.clock)}: {why}."


def _one_process(grid: Grid) -> str:
    assert grid.ratio is not None
    return (
        f"No claim about {grid.contender}: this ratio comes from a single process ({ratio_text(grid.ratio)}× vs "
        f"{grid.baseline}), and another process may differ; no verdict."
    )


def _why_nothing(judgement: Judgement, grid: Grid) -> str:
    cases = [case for case in judgement.cases if case.facts.name in grid.names]
    results = [case.result(name) for case in cases for name in (grid.contender, grid.baseline)]
    failed = [result for result in results if result.status != "PASSED"]
    failed.sort(key=lambda result: result.status in ("ABSENT", "SKIPPED"))  # often only because of another failure
    if not failed:
        return "there is no pair to compare"
    first = failed[0]
    return f"{first.contender} was {first.status} ({str(first.reason).partition('; ')[0]})"


def _comparison(result: Result) -> Comparison:
    assert result.comparison is not None
    return result.comparison


def category_of(comparison: Comparison) -> str | None:
    """Return the category (C1) of a comparison, or None if it has no interval."""
    return category(comparison.low, comparison.high) if comparison.interval.n > 1 else None
