"""A grade for people: its sentences, and the rows of its tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from groundspeed.judge.fusion import SUITE
from groundspeed.judge.grading.checklist import Ticked
from groundspeed.judge.grading.diagnosis import Finding
from groundspeed.judge.grading.gates import SPECIFIED, Letter, Ruling
from groundspeed.judge.grading.grade import SHAPELESS, Aim, Grade, Graded
from groundspeed.judge.grading.traits import Fact, Figure
from groundspeed.report import text
from groundspeed.report.escape import joined
from groundspeed.report.rows import goal_text

UNDECIDED = "not determined"
AIMS = ("suite", "case", "goal", "figure", "label", "reached by", "not reached by", "not decided")
GATES = ("gate", "asks for", "answer", "why")
ITEMS = ("list", "item", "answer", "evidence")
USED = ("contender", "what", "asks for", "answer", "evidence")
COUNT = f"(by {', '.join(name.replace('_', ' ') for name in SPECIFIED)})"
FINDINGS = ("symptom", "seen", "likely causes", "what to try")


def title(grade: Grade) -> str:
    names = ", ".join(graded.contender for graded in grade.contenders)
    bundles = text.plural(len(grade.bundles), "bundle")
    profiles = f", {text.plural(len(grade.profiles), 'profile')}" if grade.profiles else ""
    return text.safe(f"{names} on {grade.device_name}, by {bundles}{profiles} and {grade.specification.source}")


def column(grade: Grade) -> str:
    if grade.column is None:
        return text.safe(
            f"There is no column for {grade.device_name} in {grade.specification.source}, so its targets do not apply."
        )
    return text.safe(f"{grade.device_name} uses the column {grade.column} of {grade.specification.source}.")


def figure(one: Figure) -> str:
    if one.unit == "s":
        value = text.seconds(one.value)
    elif one.unit == "B":
        value = text.amount_of_bytes(one.value)
    elif one.unit == "%":
        value = text.share(one.value)
    else:
        value = f"{text.significant(one.value) if one.value % 1 else f'{one.value:.0f}'}{one.unit}"
    return f"{one.name} {value}"


NOT_HELD = (
    "the specification does not give the shape of its figures; those of standard attention fit 256 heads over all "
    f"sequences together, but the cases memory-* of {SUITE}, which measure memory, have 64. Their report has both"
)
Where = Callable[[Fact], str]
"""A function that says where a fact was seen. If it returns Markdown, the sentence around it is Markdown too."""


def named(one: Fact) -> str:
    """Return the case and the bundle of a fact: `small-full-bf16 in 96450d1c730c`."""
    return f"{one.case} in {one.bundle[:12]}"


def alone(one: Fact) -> str:
    """Return the case alone, for a grade of a single bundle."""
    return one.case


def fact(one: Fact, where: Where = named) -> str:
    """Return a fact and where it was seen: `small-full-bf16 in 96450d1c730c: kernels in a call 10`."""
    return joined(": ", [where(one), ", ".join(map(figure, one.figures))])


def facts(found: Iterable[Fact], where: Where = named) -> str:
    return joined("; ", [fact(one, where) for one in found])


def reason(ruling: Ruling, where: Where = named) -> str:
    excellent = {True: [f"excellent {COUNT}"], False: [f"not excellent {COUNT}"], None: []}[ruling.excellent]
    return joined("; ", filter(None, [ruling.why, *(fact(one, where) for one in ruling.facts), *excellent]))


def letters(graded: Graded, by: Callable[[str], str] | None = None, without: Collection[str] = ()) -> Iterator[str]:
    """Yield the letter of each suite, as in `attention alone: A (…)`, then the letter over all suites. `by` returns the
    text for the identity of the bundle that decides."""
    for suite, letter in graded.letters.items():
        if suite in without:
            continue
        said = f"{suite} alone: {_letter(letter)}"
        yield joined(", by ", [said, *([by(letter.bundle)] if by and letter.bundle else [])])
    if len(graded.letters) > 1 or (graded.rulings and not graded.letters):
        yield text.safe(f"overall: {_letter(graded.letter)}")


def _letter(letter: Letter) -> str:
    return f"{letter} ({letter.why})" if letter.letters else f"{letter}, because {letter.why}"


def measured(grade: Grade) -> list[Aim]:
    return [aim for aim in grade.aims if aim.bundle]


def in_another_dtype(aim: Aim) -> str:
    return f"measured in another dtype: {', '.join(aim.alike)}"


def unmeasured(grade: Grade) -> dict[str, str]:
    """Return, by suite, the targets that no bundle has a case for, each with its label: `ref-64 full fp16 (goal under
    4.50 ms, trivial; measured in another dtype: ref-64-full-bf16)`."""
    by: dict[str, list[str]] = {}
    for aim in grade.aims:
        if not aim.bundle:
            said = [f"goal {goal_text(aim.target, g.value)}, {g.label or 'no limit known'}" for g in aim.goals[:1]]
            said += [in_another_dtype(aim)] if aim.alike else []
            by.setdefault(aim.target.suite, []).append(f"{asked_for(aim)} ({'; '.join(said)})")
    return {suite: text.safe("; ".join(found)) for suite, found in by.items()}


def asked_for(aim: Aim) -> str:
    """Return a target's case with all parameters that it requires: `ref-64 full fp16`. The dtype is last, as in the
    names of cases."""
    params = sorted(aim.target.params.items(), key=lambda one: one[0] == "dtype")
    return " ".join([aim.target.case, *(_param(key, value) for key, value in params)])


def _param(key: str, value: object) -> str:
    if key == "causal" and isinstance(value, bool):
        return "causal" if value else "full"
    return value if isinstance(value, str) else f"{key}={value}"


def aim_rows(aims: Iterable[Aim]) -> Iterator[list[str]]:
    for aim in aims:
        for goal in aim.goals:
            who = [", ".join(names) or text.NOTHING for names in (goal.reached, goal.missed, goal.undecided)]
            if not aim.bundle:
                who[2] = "not measured"
            label = goal.label or text.NOTHING
            name = goal.name if aim.cases == 1 else f"{goal.name}, worst of {aim.cases}"
            case = aim.target.case if aim.bundle else asked_for(aim)
            yield [aim.target.suite, case, name, goal_text(aim.target, goal.value), label, *who]


def answer(grade: Grade) -> str:
    asked = any(graded.rulings for graded in grade.contenders)
    return grade.answer if asked else f"{grade.answer}, because there are none"


def failures(grade: Grade) -> str:
    """Return the contenders that failed gates, and which gates: ` by naive (inference performance)`."""
    by = {
        graded.contender: ", ".join(ruling.gate for ruling in graded.rulings if ruling.answer == "failed")
        for graded in grade.contenders
    }
    said = "; ".join(f"{contender} ({gates})" for contender, gates in by.items() if gates)
    return text.safe(f" by {said}") if said else ""


def ungated(grade: Grade) -> str:
    """Return the sentence that names the suites without gates or letters, so that a reader does not look for them."""
    return text.safe(
        f"There are no gates and no letter for {' and '.join(grade.ungated)} in {grade.specification.source}."
    )


def used_rows(grade: Grade, where: Where = named) -> Iterator[list[str]]:
    """Yield rows of the contender, the resource of the device, the share that it should use, the answer, and the
    evidence or why there is none."""
    for graded in grade.contenders:
        for one in graded.used:
            why = facts(one.facts, where) or one.why
            yield [graded.contender, one.what, f"over {one.over:.0%}", one.answer, why]


def utilisation(rows: Iterable[list[str]]) -> Iterator[tuple[str, str]]:
    """Yield each answer with its sentence. All that is not determined for the same reason is in one sentence."""
    unknown: dict[str, dict[str, None]] = {}
    for contender, what, wanted, answer, why in rows:
        if answer == "not determined":
            unknown.setdefault(why, {})[f"{what} {wanted}"] = None
        else:
            yield answer, f"{contender}: {what} {wanted}: {answer}, {why}"
    for why, said in unknown.items():
        yield "not determined", f"not determined ({why}): {', '.join(said)}"


def beyond(grade: Grade) -> str:
    there = [suite for suite in grade.specification.suites if suite not in grade.beyond]
    whose, what = ("Its", "it") if len(grade.beyond) == 1 else ("Their", "them")
    way = f"; use --suite {','.join(there)} to leave {what} out" if there else ""
    yet = ", ".join(suite for suite in grade.beyond if suite != SHAPELESS)
    said = [f"not measurable yet: {yet}", not_held(grade)]
    return (
        f"{'; '.join(filter(None, said if yet else said[1:]))}. {whose} targets, gates, letters and lists, and the "
        f"overall result, are not determined{way}"
    )


def not_held(grade: Grade) -> str:
    """Return why no target of memory is reached or missed, although a run measures memory."""
    return f"{SHAPELESS} is not compared with any target: {NOT_HELD}" if SHAPELESS in grade.beyond else ""


def unknown(ticked: Iterable[Ticked], where: Where = named) -> Iterator[str]:
    """Yield a sentence for the undecided items that share a reason, with the facts that leave them open."""
    by: dict[str, list[str]] = {}
    for item in ticked:
        if item.tick == UNDECIDED:
            told = "; ".join(filter(None, [item.why, *(fact(one, where) for one in item.facts)]))
            by.setdefault(told, []).append(f"{item.part}: {item.item}")
    for why, items in by.items():
        yield text.safe(f"{', '.join(items)}: {why}")


def unknown_of_all(contenders: Sequence[Graded], without: Collection[str] = (), where: Where = named) -> Iterator[str]:
    """Yield each sentence once, with the contenders that it is true of, or their number if it is true of all."""
    open_of: dict[Ticked, list[str]] = {}
    for one in contenders:
        for item in one.checklist:
            if item.tick == UNDECIDED and item.part not in without:
                open_of.setdefault(item, []).append(one.contender)
    for names in dict.fromkeys(map(tuple, open_of.values())):
        whom = ", ".join(names) if len(names) < len(contenders) else f"all {len(names)} contenders"
        for sentence in unknown((item for item, of in open_of.items() if tuple(of) == names), where):
            yield text.safe(f"{sentence} ({whom})")


def seen(finding: Finding, where: Where = named) -> str:
    """Return the number of cases on which a finding was seen, and the fact of the case where it is strongest."""
    return joined("; ", [text.plural(finding.seen, "case"), fact(finding.facts[0], where)])


def finding_row(finding: Finding, where: Where = named) -> list[str]:
    return [finding.rule.symptom, seen(finding, where), "; ".join(finding.causes), "; ".join(finding.tries)]
