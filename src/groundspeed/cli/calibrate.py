"""`groundspeed calibrate`: the roofs of this machine and the noise under which it can tell nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from groundspeed.cli.console import output
from groundspeed.cli.run import interruptible

NAME = "calibrate"
EXAMPLE = "Example: groundspeed calibrate --preset quick"


def command(
    preset: Annotated[str, typer.Option(help="For runs of this preset: quick, standard or paper.")] = "standard",
    device: Annotated[
        str | None, typer.Option(help="cuda (default where PyTorch can use a GPU) or cpu.", show_default=False)
    ] = None,
    isolate: Annotated[bool, typer.Option("--isolate", help="For runs with --isolate.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the bundle, not the one that runs look in.", show_default=False),
    ] = None,
) -> None:
    """Measure the bandwidth and matrix rate of this machine, and how far it tells a contender from itself.

    The bundle is kept where every later run finds it: its floors then decide what may be claimed."""
    from groundspeed.cli.progress import progress
    from groundspeed.judge.calibration import calibration_of
    from groundspeed.lab import calibration, check, session
    from groundspeed.lab.request import Request
    from groundspeed.report.calibration import alarms, noise_lines, roof_lines

    with interruptible(), progress() as tell:
        request = Request(calibration.SUITE, preset, device=device, isolated=isolate, out=out or calibration.folder())
        bundle = session.run(request, tell)
    judgement = check.verify(bundle.path)[1].judgement
    screen: Any = output()
    if not judgement.record.complete:
        screen.print(f"interrupted; go on with: groundspeed run --resume {bundle.path}")
        raise typer.Exit(3)
    found = calibration_of(judgement, bundle.identity)
    screen.print(f"{judgement.device_name}, preset {preset}, {found.processes} processes\n")
    screen.print("\n".join(roof_lines(found, judgement.peaks)))
    screen.print()
    screen.print("\n".join(noise_lines(found, judgement.record.run.device)))
    screen.print(f"\nevidence  {bundle.path}")
    if alarms(found):
        raise typer.Exit(1)
