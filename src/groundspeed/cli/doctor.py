"""`groundspeed doctor`: what this machine is, and what will disturb a measurement on it."""

from __future__ import annotations

from pathlib import Path

import typer

from groundspeed.cli.console import output
from groundspeed.errors import GroundspeedError

NAME = "doctor"
EXAMPLE = "Example: groundspeed doctor --write GPU_ENV.md"


def command(
    write: Path = typer.Option(None, help="Also write the environment as Markdown to this file.", show_default=False),
) -> None:
    """Describe this machine, and say what will disturb a measurement and what to do about it."""
    from rich.text import Text

    from groundspeed.judge.warnings import environment_warnings
    from groundspeed.measure.environment import host_environment
    from groundspeed.report.markdown import environment_lines
    from groundspeed.report.text import amount_of_bytes

    console, environment = output(), host_environment()
    cpu, memory, gpu = environment["cpu"], environment["memory"], environment["gpu"]
    packages = environment["packages"]
    governor = cpu["governor"] or "not shown"
    console.print(f"cpu      {cpu['name']}, {cpu['cores']} cores, load {cpu['load_1min']}, governor {governor}")
    console.print(
        f"memory   {amount_of_bytes(memory['available_bytes'])} of {amount_of_bytes(memory['total_bytes'])} free"
    )
    console.print(f"gpu      {gpu['name']}, driver {gpu['driver']}" if gpu else "gpu      none that NVML shows")
    system, python = environment["os"], environment["python"]["version"]
    console.print(f"system   {system['name']}, kernel {system['kernel']}, Python {python}")
    console.print(f"packages {', '.join(f'{name} {version}' for name, version in packages.items())}")
    if "torch" not in packages:
        console.print(
            Text(
                "torch is not installed: pip install 'groundspeed[torch]' (needed by `run`, by nothing else)",
                style="yellow",
            )
        )
    found = list(environment_warnings(environment))
    for warning in found:
        console.print(Text(f"warning  {warning.message}: {warning.remedy}", style="yellow"))
    if not found:
        console.print(Text("nothing found that would disturb a measurement", style="green"))
    if write is not None:
        text = "\n".join(["# Environment", "", *environment_lines(environment)]) + "\n"
        try:
            write.write_text(text, encoding="utf-8")
        except OSError as error:
            raise GroundspeedError(f"cannot write {write}: {error.strerror}") from None
        console.print(f"written to {write}")
