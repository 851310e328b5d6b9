"""A profile beside a run: whether it shows what the run measured, and which parts of it do not.

A profile of other hardware, work or code says nothing about a run. A profile of another suite, device or case is
refused. A contender that differs from the run's is left out by name, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from groundspeed.errors import BadInput
from groundspeed.evidence.names import CODE
from groundspeed.evidence.profile import Profile
from groundspeed.evidence.record import Record
from groundspeed.judge.profile import Look, Picture, device_name_of

IMPOSSIBLE = "the device cannot do this work in the time that the profiler saw"
CLOCK = "clock"
"""The parameter of a case that names the clock of a run. A profile has no clock."""


@dataclass(frozen=True)
class Beside:
    """A verified profile of a case of a run."""

    identity: str
    picture: Picture
    """Only the contenders that are the same as in the run, and the case under the name that the run gives it."""
    left_out: tuple[tuple[str, str], ...]
    """The other contenders of the profile, each with the reason why it does not apply to the run."""
    apart: tuple[str, ...]
    """What else differs from the run and may have made a difference."""


def beside(record: Record, identity: str, picture: Picture) -> Beside:
    """Match a profile with a run. Raise BadInput if it profiles anything else."""
    profile, which = picture.profile, f"the profile {identity[:12]}"
    if profile.suite != record.run.suite:
        raise BadInput(f"{which} is of {profile.suite:.80}, but the run is of {record.run.suite}; leave it out")
    device = device_name_of(record.environment, record.run.device)
    if picture.device_name != device:
        raise BadInput(f"{which} is from {picture.device_name:.80}, but the run is from {device:.80}; leave it out")
    case = _case(record, profile)
    if case is None:
        raise BadInput(f"{which} is of {profile.case.name:.80}, which the run did not measure; leave it out")
    reasons = [(look, _why_not(record, profile, look)) for look in picture.looks]
    kept = tuple(look for look, why in reasons if why is None)
    left_out = tuple((look.contender, why) for look, why in reasons if why is not None)
    if not kept:
        said = "; ".join(f"{name:.80}: {why}" for name, why in left_out)
        raise BadInput(f"{which} has no contender as the run measured it ({said}); leave it out, or make a new one")
    named = replace(profile, case=replace(profile.case, name=case))
    return Beside(identity, replace(picture, profile=named, looks=kept), left_out, tuple(_apart(record, profile)))


def _case(record: Record, profile: Profile) -> str | None:
    wanted = work_of(profile.case.params)
    found = [case.name for case in record.cases if work_of(case.params) == wanted]
    return min(found, key=lambda name: "@" in name, default=None)  # the name without a clock if there is one


def work_of(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key != CLOCK}


def _why_not(record: Record, profile: Profile, look: Look) -> str | None:
    if look.seen.status != "PASSED":
        return f"{look.seen.status}, {look.seen.reason}"
    if look.point and look.point.impossible:
        return IMPOSSIBLE
    return other_code(record, profile, look.contender)


def other_code(record: Record, profile: Profile, contender: str) -> str | None:
    """Return why the contender that a profile shows is not the one that a run measured (another version, other code or
    other kernels), or None if it is."""
    then = next((c for c in record.measured if c.name == contender), None)
    now = next((c for c in profile.contenders if c.name == contender), None)
    if then is None or now is None:
        return "the run did not measure it"
    if then.version != now.version:
        return f"its version is {now.version or 'unknown'} in the profile and {then.version or 'unknown'} in the run"
    codes = [_code(environment, contender) for environment in (record.environment, profile.environment)]
    if None not in codes:
        if codes[0] != codes[1]:
            return "its code differs from that in the run"
    elif then.source_sha256 != now.source_sha256:
        return "its file differs from that in the run"
    elif then.source_sha256 is None and not then.version:
        return "it is unknown whether its code is that of the run"
    launched = {e.name for e in profile.events if e.contender == contender and e.kind == "kernel"}
    same_work = {case.name for case in record.cases if work_of(case.params) == work_of(profile.case.params)}
    for seen in record.launched:
        if seen.contender == contender and seen.case in same_work and seen.kernels and {*seen.kernels} != launched:
            return "it launched different kernels than in the run"
    return None


def _code(environment: Mapping[str, Any], contender: str) -> str | None:
    by = environment.get(CODE)
    found = by.get(contender) if isinstance(by, dict) else None
    return found if isinstance(found, str) else None


def _apart(record: Record, profile: Profile) -> Iterator[str]:
    gpus = [_part(environment, "gpu") for environment in (record.environment, profile.environment)]
    if profile.device == "cuda" and _differ(*(gpu.get("id") for gpu in gpus)):
        yield "another GPU of the same model"
    drivers = [gpu.get("driver") for gpu in gpus]
    if _differ(*drivers):
        yield f"driver {drivers[1]!s:.60}, in the run {drivers[0]!s:.60}"
    threads = [_part(environment, "worker").get("threads") for environment in (record.environment, profile.environment)]
    if profile.device == "cpu" and _differ(*threads):
        yield f"threads: {threads[1]!s:.60}, in the run {threads[0]!s:.60}"
    then, now = (_part(environment, "packages") for environment in (record.environment, profile.environment))
    for name in sorted(then.keys() & now.keys()):
        if _differ(then[name], now[name]):
            yield f"{name:.60} {now[name]!s:.60}, in the run {then[name]!s:.60}"


def _part(environment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = environment.get(name)
    return found if isinstance(found, dict) else {}


def _differ(then: Any, now: Any) -> bool:
    """Return whether two values certainly differ: both are known and not equal."""
    return None not in (then, now) and then != now
