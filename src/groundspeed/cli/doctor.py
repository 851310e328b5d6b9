"""`groundspeed doctor`: what this machine is, and what will disturb a measurement on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from groundspeed.cli.console import output, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "doctor"
SHOWN = 3
"""How many calibrations are shown."""
EXAMPLE = "Example: groundspeed doctor --write GPU_ENV.md"


def command(
    write: Path = typer.Option(None, help="Also write the environment as Markdown to this file.", show_default=False),
) -> None:
    """Describe this machine, what will disturb a measurement on it, and what to do about that."""
    from rich.text import Text

    from groundspeed.judge.warnings import environment_warnings
    from groundspeed.measure.environment import host_environment
    from groundspeed.report.environment import environment_lines
    from groundspeed.report.layout import hanging
    from groundspeed.report.text import amount_of_bytes, plural, safe

    console, environment = output(), host_environment()
    cpu, memory, gpu = environment["cpu"], environment["memory"], environment["gpu"]
    system, packages = environment["os"], environment["packages"]
    free, total = amount_of_bytes(memory["available_bytes"]), amount_of_bytes(memory["total_bytes"])
    for label, said in (
        ("cpu", f"{cpu['name']}, {plural(cpu['cores'], 'core')}, load {cpu['load_1min']}"),
        ("governor", cpu["governor"] or "not reported by this system"),
        ("memory", f"{free} of {total} free"),
        ("gpu", f"{gpu['name']}, driver {gpu['driver']}" if gpu else "none found by NVML"),
        ("system", f"{system['name']}, kernel {system['kernel']}, Python {environment['python']['version']}"),
        ("packages", ", ".join(f"{name} {version}" for name, version in packages.items())),
    ):
        console.print(hanging(console, Text(f"{label:<9}"), Text(safe(said))))
    for label, said in _calibrations():
        console.print(hanging(console, Text(f"{label:<9}"), Text(safe(said))))
    console.print()

    def warn(sentence: str) -> None:
        console.print(hanging(console, Text("warning  ", style="yellow"), Text(sentence, style="yellow")))

    if "torch" not in packages:
        measuring = "`run`, `compare` of revisions, `profile` and `calibrate`"
        why = f"the kernels and the commands that measure ({measuring}) need it; those that read bundles do not"
        warn(f"torch is not installed: pip install 'groundspeed[torch]'; {why}")
    found = list(environment_warnings(environment))
    for warning in found:
        warn(safe(f"{warning.message}; {warning.remedy}"))
    if not found:
        console.print(Text("nothing found that would disturb a measurement", style="green"))
    if write is not None:
        write_file(write, "\n".join(["# Environment", "", *environment_lines(environment)]) + "\n")
        console.print(f"written to {write}", soft_wrap=True)


def _calibrations() -> Iterator[tuple[str, str]]:
    """Yield what is known of the noise of this machine: from when, for which runs, under what load, with which floors.
    A calibration that was measured beside other work has floors that hide differences."""
    from groundspeed.judge.warnings import environment_warnings
    from groundspeed.lab import calibration
    from groundspeed.report.calibration import noise_lines

    label = "noise"
    for found, noise in calibration.kept(SHOWN):
        record, protocol = found.record, found.record.protocol
        on = f"{protocol.preset} on {record.run.device}, {protocol.processes} processes"
        busy = next((w.message for w in environment_warnings(record.environment) if w.code == "busy"), None)
        again = f"; {busy} when it was measured: delete it and calibrate again" if busy else ""
        yield label, f"calibrated on {record.run.finished[:10]} for {on}, in {found.path}{again}"
        label = ""
        for line in noise_lines(noise, record.run.device):
            yield "", line
    if label:
        yield (
            label,
            "never calibrated: runs use default floors; `groundspeed calibrate` measures the noise of this machine",
        )
