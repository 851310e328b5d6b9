"""The judgement as data: one flat row per case and contender for CSV and JSONL, and everything as JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from typing import Any

from groundspeed.evidence.record import MEMORY
from groundspeed.judge.beside import Beside
from groundspeed.judge.claims import category_of
from groundspeed.judge.cost import Cost, cost_of
from groundspeed.judge.experts import expert_use
from groundspeed.judge.grading.targets import goals
from groundspeed.judge.grid import Grid
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.verdict import Comparison
from groundspeed.report import experts, lengths, overheads, rivals, words
from groundspeed.report.plain_json import dump
from groundspeed.report.profile.written import plain as of_profile
from groundspeed.report.text import safe

Row = dict[str, Any]

FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""Characters that a spreadsheet takes for the start of a formula; some programs accept the full-width forms too."""


def rows(judgement: Judgement, identity: str) -> list[Row]:
    """Return one row per case and contender, all with the same keys, in seconds, bytes and plain ratios."""
    used = {one.case.name: one for one in expert_use(judgement.record)}
    return [
        {**_row(judgement, case, result, identity), **(experts.columns(used.get(case.facts.name)) if used else {})}
        for case in judgement.cases
        for result in case.results
    ]


def _row(judgement: Judgement, case: CaseJudgement, result: Result, identity: str) -> Row:
    latency, rates = result.latency, result.rates
    figures = {
        "contender": result.contender,
        "status": result.status,
        "reason": result.reason,
        **{
            f"{name}_s": getattr(latency, name, None)
            for name in ("median", "low", "high", "mean", "std", "min", "max", "p5", "p95", "p99")
        },
        "samples": latency.samples if latency else 0,
        "outliers_iqr": latency.outliers if latency else None,
        **{f"{name}_per_s": rates.counts[name] if rates else None for name in case.facts.counts},
        "tflop_per_s": rates.flops / 1e12 if rates and rates.flops else None,
        "share_of_peak": rates.flops_share if rates else None,
        "algorithmic_gb_per_s": rates.bytes / 1e9 if rates and rates.bytes else None,
        "algorithmic_share_of_bandwidth": rates.bytes_share if rates else None,
        **{name: getattr(result.memory, name) for name in MEMORY},
        **{f"error_{name}": getattr(result.errors, name) for name in ("max_abs", "mean_abs", "max_rel", "rms_rel")},
        "difference_to_sdpa_flash": result.difference_to_flash,
        "baseline": judgement.record.run.baseline,
        **_comparison(result.comparison),
        "l2_resident": case.l2_resident,
        "limit_s": case.limit.seconds if case.limit else None,
        "target_s": case.target.target_s if case.target else None,
        "target_label": case.target_label,
        "device": judgement.device_name,
        "bundle": identity,
    }
    taken = {"case", *figures}
    shape = {f"param_{key}" if key in taken else key: value for key, value in case.facts.params.items()}
    return {"case": case.facts.name, **shape, **figures}


def _comparison(c: Comparison | None) -> Row:
    return {
        "speed_up": c.ratio if c else None,
        "speed_up_low": c.low if c else None,
        "speed_up_high": c.high if c else None,
        "speed_up_plain_mean": math.exp(c.plain.mean) if c else None,
        "speed_up_sequential": math.exp(c.sequential.mean) if c and c.sequential else None,
        "speed_up_unthrottled": math.exp(c.unthrottled.mean) if c and c.unthrottled else None,
        "speed_up_timer_clock": math.exp(c.timers.clock) if c and c.timers else None,
        "speed_up_timer_profiler": math.exp(c.timers.profiler) if c and c.timers else None,
        "p": c.interval.p if c else None,
        "p_holm": c.adjusted_p if c else None,
        "floor": (c.decided_by or c.floor).value if c else None,
        "floor_origin": (c.decided_by or c.floor).origin if c else None,
        "verdict": c.verdict if c else None,
        "verdict_reason": c.reason if c else None,
        "detectable": math.exp(min(c.detectable, 700)) if c and c.detectable is not None else None,
        "category": category_of(c) if c else None,
    }


def to_json(
    judgement: Judgement, identity: str, price_per_hour: float | None = None, profiles: Sequence[Beside] = ()
) -> str:
    """Return everything as JSON: rows, every process centre, the grid, the claims and the facts that they rest on."""
    record = judgement.record
    return dump(
        {
            "bundle": identity,
            "title": words.title(judgement),
            "device": judgement.device_name,
            "claims": [sentence for supported, sentence in words.claim_lines(judgement) if supported],
            "no_claims": [sentence for supported, sentence in words.claim_lines(judgement) if not supported],
            "case_claims": list(words.case_claims(judgement)),
            "warnings": [{"code": w.code, "message": w.message, "remedy": w.remedy} for w in judgement.warnings],
            "grid": [_grid(grid) for grid in judgement.grids],
            "best_rivals": rivals.plain(judgement),
            "rows": rows(judgement, identity),
            "targets": [row for case in judgement.cases for row in _goals(case)],
            "processes": [row for case in judgement.cases for row in _centres(case)],
            "cost": _cost(cost_of(judgement, price_per_hour)),
            "contenders": [c.__dict__ for c in record.contenders],
            "profiles": [_profile(one) for one in profiles],
            "experts": experts.plain(judgement, profiles),
            "overheads": overheads.plain(judgement),
            "memory_by_length": lengths.plain(judgement),
            "launched": [dataclasses.asdict(launched) for launched in record.launched],
            "run": record.run.__dict__,
            "protocol": record.protocol.__dict__,
            "environment": record.environment,
        },
        indent=1,
    )


def _profile(one: Beside) -> Row:
    """Return a profile as in its own JSON, with only the contenders that it shows as the run measured them."""
    left_out = [{"contender": contender, "reason": why} for contender, why in one.left_out]
    return {**of_profile(one.picture, one.identity), "left_out": left_out, "not_as_in_the_run": list(one.apart)}


def _grid(grid: Grid) -> Row:
    interval = grid.interval
    return {
        "contender": grid.contender,
        "baseline": grid.baseline,
        "clock": grid.clock,
        "cases": grid.cases,
        "compared": grid.compared,
        "verdicts": grid.verdicts,
        "failed": grid.failed,
        "geometric_mean": grid.ratio,
        "low": math.exp(interval.low) if interval else None,
        "high": math.exp(min(interval.high, 700)) if interval and interval.n > 1 else None,
        "detectable": None if grid.detectable is None or grid.decided else math.exp(min(grid.detectable, 700)),
        "mean": grid.mean,
        "median": grid.median,
        "min": grid.min,
        "max": grid.max,
    }


def _cost(cost: Cost) -> Row:
    return {
        "device_s": cost.device_s,
        "claims": cost.claims,
        "price_per_hour": cost.price_per_hour,
        "money": cost.money,
        "money_per_claim": cost.money_per_claim,
        "gate_share": cost.gate_share,
    }


def _goals(case: CaseJudgement) -> list[Row]:
    """Return the goals that a specification sets for a case; they are not measurements."""
    return [
        {
            "case": case.facts.name,
            "goal": goal.name,
            "seconds": goal.value,
            "label": goal.label,
            "reached_by": goal.reached,
            "not_reached_by": goal.missed,
            "not_decided": goal.undecided,
        }
        for goal in goals(case)
    ]


def _centres(case: CaseJudgement) -> list[Row]:
    """Return θ of each process, with the statistics that describe that process only."""
    return [
        {
            "case": case.facts.name,
            "contender": c.contender,
            "process": centre.process,
            "blocks": centre.blocks,
            "speed_up": math.exp(centre.theta.mean),
            "speed_up_plain_mean": math.exp(centre.plain_mean),
            "half_width_log": centre.theta.half_width(),
            "within_process_bootstrap": [math.exp(bound) for bound in centre.bootstrap],
            "within_process_t_p": centre.t_p,
            "within_process_wilcoxon_p": centre.wilcoxon_p,
        }
        for result in case.results
        if (c := result.comparison)
        for centre in c.centres
    ]


def to_jsonl(judgement: Judgement, identity: str) -> str:
    return "".join(dump(row) + "\n" for row in rows(judgement, identity))


def to_csv(judgement: Judgement, identity: str) -> str:
    table_rows = rows(judgement, identity)
    fields = list(dict.fromkeys(key for row in table_rows for key in row))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(_csv_cell, fields))
    writer.writerows([_csv_cell(row.get(field)) for field in fields] for row in table_rows)
    return buffer.getvalue()


def _csv_cell(value: Any) -> Any:
    """Return a cell that cannot become a formula when a spreadsheet opens it; a number that is not finite is empty."""
    if isinstance(value, str):
        text = safe(value)
        return f"'{text}" if text.lstrip()[:1] in FORMULA else text
    return "" if isinstance(value, float) and not math.isfinite(value) else value
