"""What the `compare` command calls: compares two bundles as they are, or measures two revisions in one run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from groundspeed.errors import BadInput, GroundspeedError, unknown
from groundspeed.evidence import store
from groundspeed.evidence.bundle import Bundle
from groundspeed.evidence.integrity import MANIFEST
from groundspeed.evidence.revision import SIDES, Side
from groundspeed.judge import apart, regression
from groundspeed.judge.judgement import Judgement
from groundspeed.lab import check, revisions, session, venvs
from groundspeed.lab.declare import choose_device
from groundspeed.lab.request import Request
from groundspeed.lab.revisions import Pair
from groundspeed.measure.runner import Progress
from groundspeed.suites import registry, revision


@dataclass(frozen=True)
class Compared:
    bundles: tuple[Bundle, ...]
    """The bundles behind the result: base and head, or the runs in which both revisions were measured."""
    device_name: str
    result: regression.Regression


def are_bundles(base: str, head: str) -> bool:
    """Whether two names mean bundles; otherwise they mean revisions. BadInput for one of each, and for a name that may
    be either. A folder with a bundle in it is that bundle."""
    kinds = [_is_bundle(name) for name in (base, head)]
    if kinds[0] != kinds[1]:
        one, other = (base, head) if kinds[0] else (head, base)
        raise BadInput(f"{one:.80} is a bundle and {other:.80} is not; name two bundles or two revisions")
    return kinds[0]


def _is_bundle(name: str) -> bool:
    try:
        found = store.find(name)
    except GroundspeedError:
        return False
    if not (found / MANIFEST).is_file():
        return False
    if found != Path(name) and shutil.which("git") and revisions.resolve(name):
        raise BadInput(
            f"{name:.80} is both a bundle and a revision; give the bundle's folder, or more digits of the commit"
        )
    return True


def bundles(base: str, head: str, only: Sequence[str], cases: Sequence[str], force: bool) -> Compared:
    (before, then), (after, now) = (check.verify(store.find(name)) for name in (base, head))
    if before.identity == after.identity:
        raise BadInput(f"{base:.80} and {head:.80} are the same bundle; name another to compare it with")
    result = apart.of_bundles(then.judgement, now.judgement, only, cases, force)
    return Compared((before, after), now.judgement.device_name, result)


def measured(
    pair: Pair,
    request: Request,
    only: Sequence[str],
    tell: session.Tell = lambda progress: None,
    build: bool = True,
) -> Compared:
    """Compare every contender that both revisions have, head against base, in one run for each contender. Every block
    of the run times both, each in a process of its own. With `build`, a revision that asks for packages that the other
    does not ask for gets a virtual environment with them, if they can be installed."""
    places = venvs.places(pair, build, lambda stage, text: tell(Progress(0, 1, 0, 1, text, stage)))
    pythons = {side: place.python for side, place in places.items()}
    try:
        suites = revisions.load(pair, request.suite, request.with_files, pythons)
    except BadInput as error:  # the cause may be a package that could not be installed
        raise BadInput("; ".join([str(error), *venvs.lacking(places)])) from None
    names, notes = _in_both(pair, request, suites, only)
    runs: list[tuple[Bundle, Judgement]] = []
    for name in names:
        base, head = (f"{name}@{side}" for side in SIDES)
        made = session.run(
            replace(
                request,
                baseline=base,
                judge=(head,),
                with_files=tuple(revisions.recorded(pair, file) for file in request.with_files),
                isolated=True,
                revisions=pair.revisions(name),
                installed=venvs.installed(places, name),
            ),
            tell,
            _only(suites, pair, name, pythons),
        )
        runs.append((made, check.made(made)))
        if not any(pythons.values()):
            notes += _same_code(pair, request, name, suites["head"].files.get(head))
        if not made.record.complete:
            break
    result = regression.of_runs([judgement for _, judgement in runs])
    left = [f"{name}: not measured, {regression.INTERRUPTED}" for name in names[len(runs) :]]
    unmeasured = [name for name in only if name not in names]
    if unmeasured and not result.incomplete:
        result = replace(result, incomplete=f"{', '.join(unmeasured)} cannot run here")
    told = replace(result, notes=(*pair.notes(), *venvs.notes(places), *notes, *left, *result.notes))
    return Compared(tuple(made for made, _ in runs), runs[0][1].device_name, told)


def _in_both(
    pair: Pair, request: Request, suites: dict[Side, registry.Suite], only: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the contenders to compare, and notes about the others. If the request names files, only the contenders in
    these are meant, unless contenders are named too."""
    named = {side: suites[side].files if request.with_files and not only else suites[side].contenders for side in SIDES}
    here = {side: [name.removesuffix(f"@{side}") for name in named[side]] for side in SIDES}
    both = [name for name in here["base"] if name in here["head"]]
    for name in only:
        if name not in both:
            raise unknown("contender of both revisions", name, both)
    if not both:
        raise BadInput(
            f"base ({pair.base.asked}) and head ({pair.head.asked}) have no contender of {request.suite} in common; "
            "name the file that defines yours with --with FILE"
        )
    notes = [f"{name} is only in {side}" for side in SIDES for name in here[side] if name not in both and not only]
    wanted, device = [name for name in both if not only or name in only], choose_device(request.device)
    gone = {name: why for name in both if (why := suites["base"].contenders[f"{name}@base"].absent(device))}
    absent = {name: gone[name] for name in wanted if name in gone}
    notes += [f"{name} was not measured: {why}" for name, why in absent.items()]
    if len(absent) == len(wanted):
        others = [name for name in both if name not in gone]
        way = f"others with --only, as {others[0]}" if others else "the file of one that can, with --with FILE"
        raise GroundspeedError(f"{' and '.join(wanted)} cannot run here ({absent[wanted[0]]}); name {way}")
    return [name for name in wanted if name not in absent], notes


def _only(
    suites: dict[Side, registry.Suite], pair: Pair, contender: str, pythons: Mapping[Side, str]
) -> registry.Suite:
    """Return a suite of one contender, as each of the two revisions has it."""
    module = suites["base"].module
    suite = registry.Suite(suites["base"].name, module, {}, loader=revision.LOADER)
    for one in pair.sides:
        name, of = f"{contender}@{one.side}", suites[one.side]
        suite.contenders[name] = of.contenders[name]
        suite.told[name] = revisions.told(pair, one)
        suite.pythons[name] = pythons.get(one.side, "")
        if name in of.files:
            suite.files[name] = of.files[name]
            suite.told[name]["imported"] = str(revisions.imported(pair, one, contender))
    return suite


def _same_code(pair: Pair, request: Request, contender: str, file: str | None) -> list[str]:
    """Return a note if a comparison compares nothing, for example because the file imports an installed package and not
    the tree."""
    given = next((given for given in request.with_files if file == str(revisions.located(pair, pair.head, given))), "")
    if not given or not revisions.same_python(pair, given, contender):
        return []
    return [
        f"{contender}: {given} is the same in both revisions, and nothing else was imported from the repository: both "
        "sides ran the same Python code"
    ]
