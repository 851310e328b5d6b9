"""`groundspeed calibrate`: the highest rates of this machine, and the noise below which it can show no difference."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groundspeed.cli.console import output
from groundspeed.cli.flags import checked_whole
from groundspeed.cli.run import interruptible
from groundspeed.evidence.calibration import LEAST_PROCESSES
from groundspeed.evidence.protocol import DEFAULT_PRESET

if TYPE_CHECKING:
    from groundspeed.evidence.bundle import Bundle
    from groundspeed.judge.judgement import Judgement

NAME = "calibrate"
EXAMPLE = "Example: groundspeed calibrate --preset quick"


def command(
    preset: Annotated[
        str, typer.Option(help="Preset of the runs to calibrate for: quick, standard or paper.")
    ] = DEFAULT_PRESET,
    device: Annotated[
        str | None, typer.Option(help="cuda (default if PyTorch can use a GPU) or cpu.", show_default=False)
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="The --processes of the runs to calibrate for.", show_default=False)
    ] = None,
    isolate: Annotated[bool, typer.Option("--isolate", help="Calibrate for runs with --isolate.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the bundle, instead of the one where runs look for it.", show_default=False),
    ] = None,
) -> None:
    """Measure how fast this machine copies and multiplies, and the noise below which later runs make no claim.

    Later runs find the bundle by themselves; its floors then decide what they may claim."""
    from groundspeed.evidence import store
    from groundspeed.lab import calibration, check, session
    from groundspeed.lab.progress import progress
    from groundspeed.lab.request import Request

    checked_whole("--processes", processes, LEAST_PROCESSES, 1000)
    where = out or store.calibrations()
    request = Request(calibration.SUITE, preset, device=device, processes=processes, isolated=isolate, out=where)
    with interruptible(), progress() as tell:
        bundle = session.run(request, tell)
    raise typer.Exit(summary(bundle, check.made(bundle)))


def summary(bundle: Bundle, judgement: Judgement) -> int:
    """Print the results of a calibration and return the exit code."""
    from groundspeed.judge.calibration import calibration_of
    from groundspeed.report.calibration import alarms, noise_lines, roof_lines
    from groundspeed.report.text import safe

    screen: Any = output()
    if not judgement.record.complete:
        print(f"groundspeed: interrupted; continue with: groundspeed run --resume {bundle.path}", file=sys.stderr)
        return 3
    found = calibration_of(judgement, bundle.identity)
    screen.print(f"{judgement.device_name}, preset {judgement.record.protocol.preset}, {found.processes} processes\n")
    screen.print("\n".join(roof_lines(found, judgement.peaks)))
    screen.print()
    screen.print("\n".join(noise_lines(found, judgement.record.run.device)))
    for warning in judgement.warnings:
        screen.print(f"warning: {safe(warning.message)}; {safe(warning.remedy)}, and calibrate again")
    screen.print(f"\nevidence  {bundle.path}\ncheck it  groundspeed verify {bundle.path}")
    return 1 if alarms(found) else 0
