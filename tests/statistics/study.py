"""The figures: how often the procedure errs, and how often it finds what is there, with the trials behind each."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from procedure import (
    LONG_S,
    NO_FLOOR,
    SHORT_S,
    Array,
    Centres,
    Outcome,
    Plan,
    Run,
    aa_alone,
    calibrations,
    without_description,
    without_outliers,
)
from real import AA, series
from scipy.special import betaincinv
from scipy.stats import binom

from groundspeed.judge.floors import LEAST, default_floor
from groundspeed.judge.statistics import Interval, t_quantile
from groundspeed.judge.verdict import centre, compare, judge_family

FALSE_AT_MOST = 0.05
COVERAGE_AT_LEAST = 0.93
FAMILY_AT_MOST = 0.01
POWER_AT_LEAST = 0.9
FALSE_SAME_AT_MOST = 0.01
AA_AT_MOST = 0.001
"""False verdicts of A/A comparisons in runs of a whole family."""

CHANCE = 0.001
"""With which a procedure just at a bound is taken to miss it, in one study."""

FAMILY, SMALL_FAMILY = 60, 36
SLOWDOWN = 0.03
NOT_SAME = 0.02
OTHER_FLOORS = ("strict", "without_outliers", "aa_alone")
STRICT = 0.01
"""The level of Holm's test that is studied beside the 5% of the product."""


class Noise(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def words(self) -> str: ...

    @property
    def aa(self) -> Noise: ...

    def centres(self, g: np.random.Generator, n: int, plan: Plan, effect: float | Array = 0.0) -> Centres: ...


Figures = dict[str, Any]


def generator(seed: int, *labels: object) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(":".join(map(str, labels)).encode())])


def single(noise: Noise, plan: Plan, runs: int, seed: int = 0) -> Figures:
    """Runs of one comparison each; a calibration serves three of them."""
    g = generator(seed, "single", noise.name, plan.name)
    machines = calibrations(noise.aa.centres(g, math.ceil(runs / 3) * LEAST, plan), plan)
    null, slower, near = (noise.centres(g, runs, plan, effect) for effect in (0.0, -SLOWDOWN, NOT_SAME))
    counts = dict.fromkeys(
        ("false_without_floor", "false_default_floor", "false", "covered", "alarms", "power", "false_same"), 0
    )
    counts["covered_difference"] = 0
    with without_description():
        for i in range(runs):
            machine = machines[i // 3]
            floor, alarmed = machine.floor(1), machine.alarm
            run = Run(null.rows(i, i + 1), plan, shorter_s(noise))
            bare = run.judged(NO_FLOOR)
            counts["alarms"] += alarmed
            counts["covered"] += covers(bare, 0.0)
            counts["false_without_floor"] += bare.differences
            counts["false_default_floor"] += run.judged(None).differences
            counts["false"] += not alarmed and run.judged(floor).differences
            found = Run(slower.rows(i, i + 1), plan).judged(floor)
            counts["covered_difference"] += covers(found, -SLOWDOWN)
            counts["power"] += not alarmed and found.comparisons[0].verdict == "SLOWER"
            counts["false_same"] += Run(near.rows(i, i + 1), plan).judged(floor).comparisons[0].verdict == "SAME"
    return {
        "noise": noise.name,
        "plan": plan.name,
        "runs": runs,
        **counts,
        "floor": float(np.median([machine.floor(1).value for machine in machines])),
        "blocks": float(null.blocks.mean()),
    }


def covers(outcome: Outcome, truth: float) -> bool:
    return _covers(outcome.comparisons[0].interval, truth)


def _covers(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def family(noise: Noise, plan: Plan, runs: int, seed: int = 0) -> Figures:
    """Runs of 60 comparisons that do not differ: in how many of them there is a verdict that one does. The first 36 are
    judged as a run of their own, too."""
    g = generator(seed, "family", noise.name, plan.name)
    machines = calibrations(noise.aa.centres(g, runs * LEAST, plan), plan)
    counts = dict.fromkeys(("family_60", "family_36", "without_floor", *OTHER_FLOORS, "verdicts"), 0)
    with without_description():
        for machine in machines:
            if machine.alarm:
                continue  # no verdict is given
            run = Run(noise.centres(g, FAMILY, plan), plan)
            floor = machine.floor(FAMILY)
            with aa_alone():
                bare = run.judged(NO_FLOOR).differences > 0
            counts["without_floor"] += bare
            counts["family_36"] += run.judged(machine.floor(SMALL_FAMILY), SMALL_FAMILY).differences > 0
            if not bare and len(plan.stages) == 1:  # a floor only takes verdicts away, but where it makes a run longer
                continue
            judged = run.judged(floor)
            counts["verdicts"] += judged.differences
            counts["family_60"] += judged.differences > 0
            with without_outliers():
                counts["without_outliers"] += run.judged(floor).differences > 0
            with aa_alone():
                counts["strict"] += run.judged(floor, alpha=STRICT).differences > 0
                counts["aa_alone"] += run.judged(floor).differences > 0
    alarms = sum(machine.alarm for machine in machines)
    return {"noise": noise.name, "plan": plan.name, "runs": runs, "alarms": alarms, **counts}


def shorter_s(noise: Noise) -> float:
    """How long the work takes, which decides about the product's default floor."""
    return SHORT_S if noise.name.startswith(("short", "graph", "eager")) else LONG_S


def family_power(noise: Noise, plan: Plan, runs: int, seed: int = 0) -> Figures:
    """Runs of 60 comparisons of which one differs by 3%: how often it is found."""
    g = generator(seed, "power", noise.name, plan.name)
    machines = calibrations(noise.aa.centres(g, runs * LEAST, plan), plan)
    effects = np.zeros(FAMILY)
    effects[0] = -SLOWDOWN
    counts = dict.fromkeys(("power", *OTHER_FLOORS), 0)
    with without_description():
        for machine in machines:
            if machine.alarm:
                continue
            run = Run(noise.centres(g, FAMILY, plan, effects), plan)
            floor = machine.floor(FAMILY)
            counts["power"] += run.judged(floor).comparisons[0].verdict == "SLOWER"
            with without_outliers():
                counts["without_outliers"] += run.judged(floor).comparisons[0].verdict == "SLOWER"
            with aa_alone():
                counts["strict"] += run.judged(floor, alpha=STRICT).comparisons[0].verdict == "SLOWER"
                counts["aa_alone"] += run.judged(floor).comparisons[0].verdict == "SLOWER"
    return {"noise": noise.name, "plan": plan.name, "runs": runs, **counts}


NUMBERS = (4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)


def needed(noise: Noise, with_processes: Mapping[int, Plan], runs: int, together: int = 1, seed: int = 0) -> Figures:
    """The fewest processes of `NUMBERS` with which a slow-down of 3% is found in 9 of 10 runs, over all cases of this
    noise; a family's others are taken not to differ, so that Holm's level is that of the smallest p."""
    power: dict[int, float] = {}
    for processes, plan in with_processes.items():
        g = generator(seed, "needed", noise.name, processes, together)
        x = noise.centres(g, runs, plan, -SLOWDOWN).mean
        mean, sd = x.mean(axis=1), x.std(axis=1, ddof=1)
        found = np.abs(mean) * math.sqrt(processes) > t_quantile(1 - 0.025 / together, processes - 1) * sd
        power[processes] = float((found & (mean < 0)).mean())
        if power[processes] >= POWER_AT_LEAST:
            break
    enough = next((p for p, share in power.items() if share >= POWER_AT_LEAST), None)
    return {"noise": noise.name, "together": together, "runs": runs, "processes": enough, "power": power}


def as_measured() -> Figures:
    """Nothing drawn again: of the pairs of the bundles that launch the same kernels, how many intervals hold 1, and how
    many verdicts of each kind of work say that they differ, with the default floor. By the host's clock they may: what
    calls the kernels is not the same."""
    counts = {"comparisons": 0, "covered": 0, "verdicts": 0}
    for kind in ("long", "short", "graph"):
        made = [[centre(i, theta) for i, theta in enumerate(case)] for case in series(AA, kind).values()]
        floor = default_floor(LONG_S if kind == "long" else SHORT_S)
        compared = [compare("ours", "base", centres, floor) for centres in made]
        judged = judge_family(compared, 8)
        counts["comparisons"] += len(judged)
        counts["covered"] += sum(_covers(c.interval, 0.0) for c in judged)
        counts["verdicts"] += sum(c.verdict in ("FASTER", "SLOWER") for c in judged)
    return counts


@dataclass(frozen=True)
class Share:
    """A count of trials with its 95% interval (Clopper and Pearson)."""

    count: int
    trials: int

    @property
    def value(self) -> float:
        return self.count / self.trials

    @property
    def low(self) -> float:
        return float(betaincinv(self.count, self.trials - self.count + 1, 0.025)) if self.count else 0.0

    @property
    def high(self) -> float:
        missed = self.trials - self.count
        return float(betaincinv(self.count + 1, missed, 0.975)) if missed else 1.0

    def over(self, bound: float, chance: float = CHANCE) -> bool:
        """More than a procedure that is just at the bound has but for this chance."""
        return self.count > int(binom.ppf(1 - chance, self.trials, bound))

    def under(self, bound: float, chance: float = CHANCE) -> bool:
        return self.count < int(binom.ppf(chance, self.trials, bound))


def misses(f: Figures, chance: float = CHANCE) -> list[tuple[str, str]]:
    """Which required figures of `single` or `family` are missed by more than chance allows: name and value."""
    found, runs = [], f["runs"]
    if "covered" in f:
        if Share(f["false"], runs).over(FALSE_AT_MOST, chance):
            found.append(("false positives", f"{f['false'] / runs:.1%}"))
        if Share(f["covered"], runs).under(COVERAGE_AT_LEAST, chance):
            found.append(("coverage", f"{f['covered'] / runs:.1%}"))
    else:
        for size in (SMALL_FAMILY, FAMILY):
            if Share(f[f"family_{size}"], runs).over(FAMILY_AT_MOST, chance):
                found.append(("family-wise error", f"{f[f'family_{size}'] / runs:.1%} over {size}"))
    return found
