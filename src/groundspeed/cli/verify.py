"""`groundspeed verify`: recompute every number and checksum, offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from groundspeed.cli.console import output
from groundspeed.errors import GroundspeedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from groundspeed.evidence.bundle import Bundle
    from groundspeed.judge.replay import Replay

NAME = "verify"
EXAMPLE = "Example: groundspeed verify latest"

PROVES = (
    "Hashes prove that these files are the ones that were written; the replay, that the figures follow from the "
    "samples. Who measured them is for a signature to say; whether it is true, only another run can tell."
)


def command(bundles: list[str] = typer.Argument(help="Folders, starts of identities, or `latest`.")) -> None:
    """Check bundles: recompute every hash, random draw and figure, without a GPU and without torch.

    A run and its calibration, given together or lying side by side, are checked against each other. Exits 1 if a bundle
    does not match its hashes or its protocol, 2 for something that is not a bundle."""
    from rich.text import Text

    from groundspeed.evidence import store
    from groundspeed.evidence.integrity import PROFILE, kind_of
    from groundspeed.judge.calibration import check_kept
    from groundspeed.lab import check
    from groundspeed.report.text import plural, safe

    console, codes = output(), []
    verified: dict[str, tuple[Bundle, Replay]] = {}
    for name in bundles:
        try:
            where = store.find(name)
            if kind_of(where) is PROFILE:
                console.print(Text("\n").join(_profile(where)), soft_wrap=True)
                codes.append(0)
                continue
            found, replay = check.verify(where)
        except GroundspeedError as error:
            codes.append(error.exit_code)
            if error.exit_code == 1:
                console.print(Text(f"FAILED  {safe(error)}", style="red"), soft_wrap=True)
            else:
                print(f"groundspeed: {safe(error)}", file=sys.stderr)
            continue
        codes.append(0)
        verified[found.identity] = found, replay
        samples = len(found.record.samples["process"])
        console.print(Text(f"OK      {safe(found.path)}", style="green"), soft_wrap=True)
        for line in (
            f"identity {found.short} and all hashes agree",
            f"{plural(replay.blocks, 'block')} in the drawn order, "
            f"{plural(replay.stops, 'stop')} where the protocol says",
            f"{plural(replay.figures, 'figure')} recomputed from {plural(samples, 'sample')}",
        ):
            console.print(f"        {line}")
    for found, _ in verified.values():
        kept = found.record.calibration
        if kept is None:
            console.print(f"        {found.short} has no calibration: its floors are the default ones")
            continue
        beside = None if kept.identity in verified else store.calibration_beside(found)
        if kept.identity not in verified and not beside:
            missing = f"{kept.identity[:12]}, neither given nor beside it"
            console.print(f"        the floors of {found.short} are of calibration {missing}")
            continue
        try:
            _, replay = check.verify(beside) if beside else verified[kept.identity]
            check_kept(kept, replay.judgement)
            there = ", which lies beside it" if beside else ""
            console.print(
                f"        the floors of {found.short} are those of its calibration {kept.identity[:12]}{there}"
            )
        except GroundspeedError as error:
            codes.append(error.exit_code)
            console.print(Text(f"FAILED  {safe(found.path)}: {safe(error)}", style="red"), soft_wrap=True)
    if 0 in codes:
        console.print(Text(PROVES, style="dim"))
    if any(codes):
        raise typer.Exit(1 if 1 in codes else max(codes))


def _profile(where: Path) -> Iterator[Text]:
    from rich.text import Text

    from groundspeed.lab import profile
    from groundspeed.report.text import plural, safe

    found, picture, reports = profile.verify(where)
    facts = picture.profile
    passed = sum(look.seen.status == "PASSED" for look in picture.looks)
    yield Text(f"OK      {safe(found.path)}", style="green")
    yield Text(f"        identity {found.short} and all hashes agree; a profile, which claims nothing")
    yield Text(
        f"        {plural(len(facts.events), 'event')} in {plural(len(facts.calls), 'call')} of {passed} of "
        f"{plural(len(picture.looks), 'contender')}, {plural(len(facts.counted), 'launch', 'es')} counted"
    )
    if reports:
        yield Text(f"        {plural(reports, 'report')} of Nsight Compute beside it, as it was then")
