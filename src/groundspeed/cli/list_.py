"""`groundspeed list`: suites, cases, contenders, and why a contender is absent here."""

from __future__ import annotations

import typer

from groundspeed.cli.console import output

NAME = "list"
EXAMPLE = "Example: groundspeed list attention"


def command(
    suite: str = typer.Argument(None, help="Show the cases and contenders of this suite.", show_default=False),
    device: str = typer.Option("cpu", help="The device that contenders are asked about: cpu or cuda."),
) -> None:
    """List the suites; or the cases and contenders of one, with the reason where a contender is absent here."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from groundspeed.errors import unknown
    from groundspeed.lab import declare
    from groundspeed.suites import registry

    console = output()
    if suite is None:
        for name in registry.suite_names():
            console.print(f"{name}  {registry.suite_module(name).SUMMARY}")
        return
    if device not in declare.DEVICES:
        raise unknown("device", device, declare.DEVICES)
    loaded = registry.load(suite)
    presets = {p: {case.name for case in loaded.module.preset_cases(p, device)} for p in declare.PRESETS}
    cases = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="cases", title_justify="left")
    for heading in ("case", "shape", "also", "GFLOP", "presets here"):
        cases.add_column(heading, justify="right" if heading == "GFLOP" else "left")
    dtypes = loaded.module.default_dtypes(device)
    for case in loaded.module.all_cases():
        if case.params["dtype"] in dtypes:
            shape = " ".join(f"{k}={v}" for k, v in case.params.items() if k not in ("dtype", "causal"))
            inside = ", ".join(p for p, names in presets.items() if case.name in names)
            cases.add_row(case.name, shape, ", ".join(case.aliases), f"{case.work.flops / 1e9:,.3g}", inside)
    console.print(cases)
    others = [d for d in loaded.module.DTYPES if d not in dtypes]
    keys = ", ".join(f"{key} ({meaning})" for key, meaning in loaded.module.SHAPE_KEYS.items())
    console.print(f"also in {', '.join(others)}: --dtype.  A shape of your own: --shape with {keys}.\n")
    contenders = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="contenders", title_justify="left")
    for heading in ("contender", "what it is", "here"):
        contenders.add_column(heading)
    for contender in loaded.contenders.values():
        absent = contender.absent(device)
        note = "baseline" if contender.name == loaded.module.BASELINE[device] else "yes"
        contenders.add_row(
            Text(contender.name), Text(contender.description), Text(f"ABSENT: {absent}" if absent else note)
        )
    console.print(contenders)
