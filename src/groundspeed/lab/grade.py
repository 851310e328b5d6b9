"""A grade of bundles given by name. Each is verified before anything rests on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from groundspeed.errors import BadInput, unknown
from groundspeed.evidence import store
from groundspeed.evidence.integrity import PROFILE, kind_of
from groundspeed.judge.grading import grade as judge_grade
from groundspeed.judge.grading import specification
from groundspeed.judge.grading.profiled import Profiled
from groundspeed.judge.grading.specification import BASELINE, SPEC
from groundspeed.judge.grading.traits import Evidence
from groundspeed.lab import check
from groundspeed.lab import profile as lab_profile
from groundspeed.suites.registry import suite_names


def grade(
    bundles: Sequence[str],
    targets: Path | None = None,
    contenders: Sequence[str] = (),
    suites: Sequence[str] = (),
    reference: str | None = None,
) -> tuple[judge_grade.Grade, dict[str, Path]]:
    """Return the grade, and the folder of each bundle by its identity. BadInput for what cannot be graded,
    VerificationFailed for a bundle that does not verify."""
    wanted = specification.packaged() if targets is None else specification.read(targets)
    about = wanted.suites
    for suite in suites:
        if suite not in about:
            raise unknown(f"suite of {wanted.source}", suite, about)
    evidence: dict[str, Evidence] = {}
    profiles: dict[str, Profiled] = {}
    folders: dict[str, Path] = {}
    for name in bundles:
        where = store.find(name)
        if kind_of(where) is PROFILE:
            profile, picture, _ = lab_profile.verify(where)
            suite = profile.profile.suite
            identity = profile.identity
            profiles[identity] = Profiled(identity, picture)
        else:
            found, replay = check.verify(where)
            suite = found.record.run.suite
            identity = found.identity
            evidence[identity] = Evidence(identity, replay.judgement)
        folders[identity] = where
        if suite not in about:
            raise BadInput(f"{where} is of suite {suite}, for which {wanted.source} has no targets; leave it out")
    if not evidence:
        raise BadInput(f"{bundles[0]:.80} is a profile, which measures no speed; name the bundle of a run too")
    measured = {c.name for one in evidence.values() for c in one.judgement.record.measured}
    for name in (*contenders, *([reference] if reference not in (None, BASELINE, SPEC) else [])):
        if name not in measured:
            raise unknown("contender of these bundles", str(name), measured)
    runs, looks = tuple(evidence.values()), tuple(profiles.values())
    return judge_grade.grade(runs, wanted, contenders, suites, reference, looks, suite_names()), folders
