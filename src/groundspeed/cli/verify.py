"""`groundspeed verify`: recompute every number and checksum, offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from groundspeed.cli.console import output
from groundspeed.errors import GroundspeedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.text import Text

    from groundspeed.evidence.bundle import Bundle
    from groundspeed.judge.replay import Replay

NAME = "verify"
EXAMPLE = "Example: groundspeed verify latest"

PROVES = (
    "Hashes prove that these files are the ones that were written; the replay proves that the figures follow from the "
    "samples. Neither shows who measured them (a signature can) or whether they are true (only another run can)."
)


def command(bundles: list[str] = typer.Argument(help="Folders, starts of identities, or `latest`.")) -> None:
    """Check bundles: recompute every hash, random draw and figure, without a GPU and without torch.

    A run is also checked against its calibration, if that is given too or lies beside the run.

    Exits 1 if a bundle does not match its hashes, protocol or calibration, 2 for something that is not a bundle."""
    from rich.text import Text

    from groundspeed.evidence.integrity import PROFILE, kind_of
    from groundspeed.report.text import safe

    console, codes = output(), []
    found = [_found(name) for name in bundles]
    verifier = _Verifier([where for where in found if isinstance(where, Path)])
    for where in found:
        try:
            if isinstance(where, GroundspeedError):
                raise where
            lines = _profile(where) if kind_of(where) is PROFILE else _run(where, verifier)
            console.print(Text("\n").join(lines), soft_wrap=True)
            codes.append(0)
        except GroundspeedError as error:
            codes.append(error.exit_code)
            if error.exit_code == 1:
                console.print(Text(f"FAILED  {safe(error)}", style="red"), soft_wrap=True)
            else:
                print(f"groundspeed: {safe(error)}", file=sys.stderr)
    if 0 in codes:
        console.print(Text(PROVES, style="dim"))
    if any(codes):
        raise typer.Exit(1 if 1 in codes else max(codes))


def _found(name: str) -> Path | GroundspeedError:
    from groundspeed.evidence import store

    try:
        return store.find(name)
    except GroundspeedError as error:
        return error


class _Verifier:
    """Verifies bundles, and runs against their calibrations. A calibration is verified when it is first needed, and
    only once, so that a run can be reported before a calibration that is given after it."""

    def __init__(self, given: Sequence[Path]) -> None:
        self._given = given
        self._calibrations: dict[Path, tuple[Bundle, Replay]] = {}

    def verify(self, where: Path) -> tuple[Bundle, Replay]:
        from groundspeed.lab import check
        from groundspeed.lab.calibration import SUITE

        real = where.resolve()
        found, replay = self._calibrations.get(real) or check.verify(where)
        if found.record.run.suite == SUITE:
            self._calibrations[real] = found, replay
        return found, replay

    def floors(self, found: Bundle) -> str | None:
        """Return a sentence about the floors of a run; None for a calibration, which needs none. GroundspeedError if
        the calibration was found, and does not verify or has other floors."""
        from groundspeed.evidence import store
        from groundspeed.judge.calibration import check_kept
        from groundspeed.lab.calibration import SUITE

        kept = found.record.calibration
        if found.record.run.suite == SUITE:
            return None
        if kept is None:
            return "no calibration: its floors are the defaults"
        given = next((path for path in self._given if path.resolve().name.endswith(kept.identity)), None)
        where = given or store.calibration_beside(found)
        floors = f"its floors are those of calibration {kept.identity[:12]}"
        if where is None:
            return f"{floors}, which is neither given nor beside it: not checked"
        try:
            check_kept(kept, self.verify(where)[1].judgement)
        except GroundspeedError as error:
            raise type(error)(f"{found.path}: {error}") from None
        return floors if given else f"{floors}, which lies beside it"


def _run(where: Path, verifier: _Verifier) -> Iterator[Text]:
    from rich.text import Text

    from groundspeed.report.text import plural, safe

    found, replay = verifier.verify(where)
    floors = verifier.floors(found)
    samples = len(found.record.samples["process"])
    yield Text(f"OK      {safe(found.path)}", style="green")
    yield Text(f"        identity {found.short} and all hashes agree")
    yield Text(
        f"        {plural(replay.blocks, 'block')} in the drawn order, "
        f"{plural(replay.stops, 'stop')} where the protocol says"
    )
    yield Text(f"        {plural(replay.figures, 'figure')} recomputed from {plural(samples, 'sample')}")
    if floors:
        yield Text(f"        {floors}")


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
        yield Text(f"        {plural(reports, 'report')} of Nsight Compute beside it, unchanged")
