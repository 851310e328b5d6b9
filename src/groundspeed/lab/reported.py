"""Gathers what a report is about: a run with the profiles beside it, or a profile alone. Each bundle is verified
first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from groundspeed.errors import BadInput
from groundspeed.evidence import store
from groundspeed.evidence.integrity import PROFILE, kind_of
from groundspeed.evidence.record import Record
from groundspeed.judge.beside import Beside, beside
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.profile import Picture
from groundspeed.lab import check, profile


@dataclass(frozen=True)
class Run:
    identity: str
    judgement: Judgement
    profiles: tuple[Beside, ...]


@dataclass(frozen=True)
class Alone:
    """A profile without a run."""

    identity: str
    picture: Picture


def gather(bundles: Sequence[str]) -> Run | Alone:
    """Return the run with its profiles, or the profile alone. BadInput if the bundles are neither, VerificationFailed
    for a bundle that does not verify."""
    places = dict.fromkeys(map(store.find, bundles))
    profiles = [where for where in places if kind_of(where) is PROFILE]
    runs = [where for where in places if where not in profiles]
    if len(runs) > 1:
        raise BadInput(
            f"{runs[0]} and {runs[1]} are two runs, and a report covers one; `groundspeed compare` takes two"
        )
    if not runs and len(profiles) > 1:
        raise BadInput(
            f"{profiles[0]} and {profiles[1]} are two profiles; add the run that they belong to, or name only one"
        )
    looked = {found.identity: picture for found, picture, _ in map(profile.verify, profiles)}
    if not runs:
        ((identity, picture),) = looked.items()
        return Alone(identity, picture)
    found, replay = check.verify(runs[0])
    record = replay.judgement.record
    return Run(found.identity, replay.judgement, tuple(beside(record, *one) for one in looked.items()))


def fitting(record: Record, profiles: Iterable[tuple[str, Picture]]) -> tuple[Beside, ...]:
    """Return those of the verified profiles that are of what a run measured. They were not named by the user, so the
    others are left out silently."""

    def found() -> Iterator[Beside]:
        for identity, picture in profiles:
            with suppress(BadInput):
                yield beside(record, identity, picture)

    return tuple(found())
