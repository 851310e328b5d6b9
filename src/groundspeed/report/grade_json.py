"""A grade as JSON."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from groundspeed.judge.grading.gates import Letter
from groundspeed.judge.grading.grade import SHAPELESS, Aim, Grade, Graded
from groundspeed.judge.grading.traits import Fact
from groundspeed.report import plain_json
from groundspeed.report.grade import NOT_HELD, in_another_dtype


def to_json(grade: Grade) -> str:
    told = {
        "gates": grade.answer,
        "device": grade.device_name,
        "specification": grade.specification.source,
        "column": grade.column,
        "bundles": list(grade.bundles),
        "profiles": list(grade.profiles),
        "targets": [_aim(aim, grade.beyond) for aim in grade.aims],
        "contenders": [_graded(graded) for graded in grade.contenders],
    }
    return plain_json.dump(told, indent=1) + "\n"


def _aim(aim: Aim, beyond: Collection[str]) -> dict[str, Any]:
    held = aim.target.suite != SHAPELESS or SHAPELESS not in beyond
    nothing = in_another_dtype(aim) if aim.alike else "no bundle has it" if held else NOT_HELD
    return {
        "suite": aim.target.suite,
        "case": aim.case or aim.target.case,
        "unit": "B" if aim.target.unit == "GB" else "s",
        "limit_s": aim.limit.seconds if aim.limit else None,
        "bundle": aim.bundle,
        "cases": aim.cases if aim.bundle else 0,
        "why": aim.why or (None if aim.bundle else nothing),
        "goals": [
            {
                "goal": goal.name,
                "value": goal.value,
                "label": goal.label,
                "reached_by": goal.reached,
                "not_reached_by": goal.missed,
                "not_decided": goal.undecided,
            }
            for goal in aim.goals
        ],
    }


def _graded(graded: Graded) -> dict[str, Any]:
    def told(letter: Letter) -> dict[str, Any]:
        return {"letters": list(letter.letters), "why": letter.why, "bundle": letter.bundle}

    return {
        "contender": graded.contender,
        "gates": [
            {
                "gate": r.gate,
                "wanted": r.wanted,
                "answer": r.answer,
                "why": r.why,
                "excellent": r.excellent,
                "evidence": list(map(_fact, r.facts)),
            }
            for r in graded.rulings
        ],
        "letters": {suite: told(letter) for suite, letter in graded.letters.items()},
        "letter": told(graded.letter),
        "checklist": [
            {"list": i.part, "item": i.item, "answer": i.tick, "why": i.why, "evidence": list(map(_fact, i.facts))}
            for i in graded.checklist
        ],
        "utilisation": [
            {"what": u.what, "over": u.over, "answer": u.answer, "why": u.why, "evidence": list(map(_fact, u.facts))}
            for u in graded.used
        ],
        "diagnosis": [
            {
                "rule": f.rule.name,
                "symptom": f.rule.symptom,
                "cases": f.seen,
                "evidence": list(map(_fact, f.facts)),
                "causes": list(f.causes),
                "try": list(f.tries),
            }
            for f in graded.findings
        ],
    }


def _fact(one: Fact) -> dict[str, Any]:
    figures = [{"name": f.name, "value": f.value, "unit": f.unit} for f in one.figures]
    return {"bundle": one.bundle, "case": one.case, "figures": figures}
