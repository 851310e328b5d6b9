"""`groundspeed list`: suites, cases, contenders, and why a contender is absent here."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import typer

from groundspeed.cli.console import output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from groundspeed.case import Case
    from groundspeed.suites.registry import SuiteModule

NAME = "list"
EXAMPLE = "Example: groundspeed list attention"

ROOMY = 80
"""From this console width on, only names and descriptions are wrapped."""
SHAPE_WIDTH = 40


def command(
    suite: str = typer.Argument(None, help="Show the cases and contenders of this suite.", show_default=False),
    device: str = typer.Option(None, help="cuda (default if PyTorch can use a GPU) or cpu.", show_default=False),
) -> None:
    """List the suites, or the cases and contenders (implementations) of one suite, and why some are absent here."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from groundspeed.errors import unknown
    from groundspeed.lab import declare, presets
    from groundspeed.report.layout import hanging
    from groundspeed.report.text import count, safe
    from groundspeed.suites import registry

    console = output()
    if device is not None and device not in declare.DEVICES:
        raise unknown("device", device, declare.DEVICES)
    here_is = declare.choose_device(None)
    device = device or here_is
    if suite is None:
        width = max(map(len, registry.suite_names()))
        for name in registry.suite_names():
            console.print(hanging(console, Text(f"{name:<{width + 1}}"), Text(registry.suite_module(name).SUMMARY)))
        console.print(Text("`groundspeed list SUITE` shows its cases and contenders", style="dim"))
        return
    loaded = registry.load(suite)
    module, dtypes = loaded.module, loaded.module.default_dtypes(device)
    inside = {p: {case.name for case in module.preset_cases(p, device)} for p in presets.PRESETS}

    def table(*headings: str) -> Table:
        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
        for heading in headings:
            made.add_column(heading, justify="right" if heading == "FLOP" else "left", overflow="fold")
            made.columns[-1].no_wrap = heading in ("shape", "FLOP", "presets here") and console.width >= ROOMY
        return made

    cases = table("case", "shape", "FLOP", "presets here")
    shapes = _by_shape(case for case in module.all_cases() if case.params["dtype"] == dtypes[0])
    for names, forms in shapes.items():
        shape = " ".join(f"{k}={v}" for k, v in forms[0].params.items() if k not in ("dtype", "causal"))
        work = " / ".join(count(case.work.flops) for case in forms)
        here = " ".join(p for p, chosen in inside.items() if forms[0].name in chosen)
        cases.add_row(names, _in_lines(shape), work, here)
    console.print(cases)
    names, forms = next(iter(shapes.items()))
    shape, full = names.partition(",")[0], " and ".join(case.name for case in forms)
    keys = module.SHAPE_KEYS
    offered = f"a shape of your own by these keys; {_of_one(module, dtypes[0])}" if keys else "not for this suite"
    width = max(map(len, keys), default=0)
    for flag, takes in (
        ("--case", f"a shape ({shape} means {full}), the full name of a case, or a pattern"),
        ("--dtype", f"{', '.join(module.DTYPES)} (default here: {', '.join(dtypes)})"),
        ("--shape", offered),
        *((f"{'':8} {key:<{width}} ", meaning) for key, meaning in keys.items()),
        ("--with", f"a file with contenders of your own, each called as f({_called_with(forms[0])})"),
    ):
        console.print(hanging(console, Text(f"{flag:<8}", style="dim"), Text(takes, style="dim")))
    console.print()
    if device == "cuda" and here_is == "cpu":
        console.print(Text("PyTorch can use no GPU here; the table shows what a GPU would offer.", "yellow"))
    contenders = table("contender", "what it is", "here" if device == here_is else f"on {device}")
    for contender in loaded.contenders.values():
        absent = contender.absent(device)
        here = "yes, the baseline" if contender.name == module.BASELINE[device] else "yes"
        contenders.add_row(
            Text(safe(contender.name), style="dim" if absent else "bold"),
            Text(safe(contender.description), style="dim" if absent else ""),
            Text(safe(f"ABSENT: {absent}") if absent else here, style="dim" if absent else "green"),
        )
    console.print(contenders)


def _called_with(case: Case) -> str:
    return ", ".join([*case.input_names, *(["*", *case.arguments] if case.arguments else [])])


def _of_one(module: SuiteModule, dtype: str) -> str:
    """Return the defaults of a shape of which the user gives only one size."""
    key = next(key for key in ("S", "T", "M") if key in module.SHAPE_KEYS)
    params = module.shape_cases(f"{key}=128", (dtype,))[0].params
    told = " ".join(f"{k}={v}" for k, v in params.items() if k in module.SHAPE_KEYS and type(v) is int)
    return f"{key}=128 alone means {told}"


def _in_lines(shape: str) -> str:
    """Wrap a shape before the table does: a shape with many lengths would leave no room for names."""
    return textwrap.fill(shape.replace("+", "+ "), SHAPE_WIDTH).replace("+ ", "+")


def _by_shape(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Return cases by the names of their shape, `medium, t1`: a case is named SHAPE-MASK-DTYPE, or SHAPE-DTYPE if there
    are no masks."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        parts = 2 if "causal" in case.params else 1
        found.setdefault(", ".join(name.rsplit("-", parts)[0] for name in case.names), []).append(case)
    return found
