"""`groundspeed compare`: is head slower than base?"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groundspeed.cli.console import bundle_name, output
from groundspeed.cli.flags import Names, checked_seconds, checked_whole, flag, split
from groundspeed.cli.run import interruptible
from groundspeed.cli.written import check_twice, write_to
from groundspeed.errors import BadInput

if TYPE_CHECKING:
    from groundspeed.lab.compare import Compared
    from groundspeed.report.regression import Told

NAME = "compare"
EXAMPLE = "Example: groundspeed compare main HEAD --with kernels/mine.py --preset quick"
EXIT_CODES = {"NO REGRESSION": 0, "REGRESSED": 1, "UNCLEAR": 3}

WHAT, HOW, THEN = "What is compared", "How revisions are measured", "Output"


def command(
    base: Annotated[str, typer.Argument(help="A bundle, or a git revision.", show_default=False)],
    head: Annotated[
        str, typer.Argument(help="What is compared with base; `.` is the working tree.", show_default=False)
    ],
    suite: Annotated[str | None, flag("The suite to measure (default attention).", HOW)] = None,
    case: Annotated[Names, flag("Cases by name or pattern, as in 'medium-*'.", WHAT)] = None,
    only: Annotated[Names, flag("Only these contenders.", WHAT, "--only", "--contender")] = None,
    with_: Annotated[Names, flag("The file in the repository that defines your contenders.", HOW, "--with")] = None,
    shape: Annotated[Names, flag("A shape of your own, as in S=777,D=96.", HOW)] = None,
    dtype: Annotated[Names, flag("fp32, fp16, bf16.", HOW)] = None,
    clock: Annotated[Names, flag("On a GPU: default, warm, graph, eager.", HOW)] = None,
    preset: Annotated[str | None, flag("How much evidence: quick, standard (default) or paper.", HOW)] = None,
    device: Annotated[str | None, flag("cuda (default if PyTorch can use a GPU) or cpu.", HOW)] = None,
    processes: Annotated[int | None, flag("Number of fresh processes (default: the preset's).", HOW)] = None,
    timeout: Annotated[float | None, flag("Time limit of one sample in seconds (default 30).", HOW)] = None,
    seed: Annotated[int | None, flag("Seed of inputs and orders (default: random).", HOW)] = None,
    calibration: Annotated[
        str | None, flag("The calibration to use, or none (default: the newest that fits).", HOW)
    ] = None,
    out: Annotated[Path | None, flag("Folder for the bundles (default .groundspeed/runs).", HOW)] = None,
    no_venv: Annotated[bool, flag("Install nothing, even if the dependencies differ.", HOW, "--no-venv")] = False,
    force: Annotated[bool, flag("Compare bundles even if they are from different hardware.", THEN, "--force")] = False,
    markdown: Annotated[Path | None, flag("Write a comment for a pull request, in Markdown.", THEN)] = None,
    json: Annotated[Path | None, flag("Write all results as JSON.", THEN)] = None,
) -> None:
    """Say whether head is slower than base: two bundles, or two git revisions that are measured in one run.

    Exits 0 without a regression, 1 with one, 3 if an unclear result may hide one."""
    check_twice([path for path in (markdown, json) if path is not None])  # before anything is measured
    asked: dict[str, Any] = {
        "suite": suite,
        "preset": preset,
        "shape": tuple(shape or ()),
        "dtype": split(dtype),
        "clock": split(clock),
        "with_files": tuple(with_ or ()),
        "device": device,
        "timeout_s": checked_seconds("--timeout", timeout),
        "processes": checked_whole("--processes", processes, 1, 1000),
        "seed": checked_whole("--seed", seed, 0, 2**62),
        "calibration": calibration,
        "out": out,
        "no_venv": no_venv or None,
    }
    asked = {field: value for field, value in asked.items() if value not in (None, ())}
    cases, names = split(case), split(only)
    from groundspeed.lab import compare
    from groundspeed.report import regression

    if compare.are_bundles(base, head):
        if asked:
            flag = next(iter(asked)).removesuffix("_s").removesuffix("_files").replace("_", "-")
            raise BadInput(f"--{flag} is only for measuring revisions, and these are bundles; leave it out")
        compared = compare.bundles(base, head, names, cases, force)
        names_of = (compared.bundles[0].short, compared.bundles[1].short)
    else:
        if force:
            raise BadInput("--force is only for bundles, since revisions are measured on one machine; leave it out")
        compared, names_of = _measured(base, head, names, {**asked, "case": cases})
    record = compared.bundles[-1].record
    where = f"{record.run.suite}, {record.protocol.preset}, {compared.device_name}"
    identities = tuple(bundle.identity for bundle in compared.bundles)
    told = regression.Told(compared.result, *names_of, where, identities)
    files = ((markdown, regression.to_markdown), (json, regression.to_json))
    if not any(str(path) == "-" for path, _ in files):
        _show(compared, told)
    for path, make in files:
        if path is not None:
            write_to(path, make(told))
    if not all(bundle.record.complete for bundle in compared.bundles):
        print("groundspeed: interrupted; the comparison covers only what was measured before that", file=sys.stderr)
    raise typer.Exit(EXIT_CODES[compared.result.overall])


def _measured(base: str, head: str, names: tuple[str, ...], asked: dict[str, Any]) -> tuple[Compared, tuple[str, str]]:
    from groundspeed.evidence import store
    from groundspeed.lab import compare, revisions
    from groundspeed.lab.progress import progress
    from groundspeed.lab.request import Request

    build = not asked.pop("no_venv", False)
    request = Request(**{"suite": "attention", "out": store.RUNS, **asked})
    with interruptible(), revisions.checked_out(base, head) as pair:
        with progress() as tell:
            compared = compare.measured(pair, request, names, tell, build)
        return compared, (pair.base.words, pair.head.words)


def _show(compared: Compared, told: Told) -> None:
    from groundspeed.evidence import store
    from groundspeed.report import regression
    from groundspeed.report.text import safe

    screen = output()
    regression.show(screen, told)
    screen.print()
    for bundle in compared.bundles:
        name = bundle_name(bundle.path, bundle.short, store.RUNS)
        for what, line in (
            ("evidence", safe(bundle.path)),
            ("check it", f"groundspeed verify {shlex.quote(safe(name))}"),
        ):
            screen.print(f"{what:<9} {line}", style="dim", soft_wrap=True)
