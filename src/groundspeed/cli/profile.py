"""`groundspeed profile`: where a call spends its time, and what the hardware counts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from groundspeed.cli.console import bundle_name, output
from groundspeed.cli.flags import Names, checked_seconds, flag, split
from groundspeed.cli.run import interruptible
from groundspeed.cli.written import check_twice, write_all
from groundspeed.errors import BadInput

NAME = "profile"
EXAMPLE = "Example: groundspeed profile attention xlarge-causal-fp32 --only sdpa-flash --html profile.html"


def command(
    suite: Annotated[str, typer.Argument(help="`groundspeed list` shows the suites.", show_default=False)],
    case: Annotated[
        str | None,
        typer.Argument(help="One case by its name; `groundspeed list SUITE` shows them.", show_default=False),
    ] = None,
    shape: Annotated[str | None, flag("A shape of your own instead of a case, as in S=777,D=96,causal=0.")] = None,
    dtype: Annotated[str | None, flag("fp32, fp16 or bf16.")] = None,
    only: Annotated[Names, flag("Only these contenders; of a --with file those named, or else all.")] = None,
    with_: Annotated[Names, flag("A Python file with contenders of your own.", None, "--with")] = None,
    device: Annotated[str | None, flag("cuda (default if PyTorch can use a GPU) or cpu.")] = None,
    timeout: Annotated[float | None, flag("Time limit of one call in seconds (default 30).")] = None,
    ncu: Annotated[Path | None, flag("Path of Nsight Compute's `ncu`, if it is not on the PATH.")] = None,
    no_ncu: Annotated[bool, flag("No hardware counters, only the timeline.", None, "--no-ncu")] = False,
    keep_ncu_rep: Annotated[
        bool, flag("Keep Nsight Compute's own reports beside the bundle.", None, "--keep-ncu-rep")
    ] = False,
    out: Annotated[Path | None, flag("Folder for the bundle (default .groundspeed/profiles).")] = None,
    html: Annotated[Path | None, flag("Write an HTML page with timelines and roofline.")] = None,
    markdown: Annotated[Path | None, flag("Write a Markdown report.")] = None,
    json: Annotated[Path | None, flag("Write all results as JSON.")] = None,
) -> None:
    """Look into a few calls of each contender on one case: kernels, copies, gaps, roofline, hardware counters.

    A profile only describes and claims nothing; to measure speed, use `run`.

    Exits 1 if no contender passed and at least one was incorrect, 4 if none ran."""
    if (case is None) == (shape is None):
        raise BadInput("a profile covers one case: name one from `groundspeed list SUITE`, or give a --shape")
    if ncu is not None and no_ncu:
        raise BadInput("--ncu and --no-ncu exclude each other; leave one out")
    check_twice([path for path in (html, markdown, json) if path is not None])
    from groundspeed.evidence import store
    from groundspeed.lab import profile
    from groundspeed.lab.request import Request
    from groundspeed.report.profile import show

    request = Request(
        suite,
        profile.PRESET,
        case=(case,) if case else (),
        shape=(shape,) if shape else (),
        dtype=split([dtype] if dtype else None),
        only=split(only),
        with_files=tuple(with_ or ()),
        device=device,
        timeout_s=checked_seconds("--timeout", timeout) or Request.timeout_s,
        out=out or store.PROFILES,
    )
    with interruptible():
        made = profile.run(request, ncu, no_ncu, keep_ncu_rep, lambda said: print(f"profiling {said}", file=sys.stderr))
    found, picture, _ = profile.verify(made.path)
    write_all(picture, found.identity, html=html, markdown=markdown, json=json)
    if Path("-") not in (html, markdown, json):
        show(output(), picture, found.path, bundle_name(found.path, found.short, store.PROFILES))
    statuses = {look.seen.status for look in picture.looks}
    if "PASSED" not in statuses:
        raise typer.Exit(1 if "INCORRECT" in statuses else 4)
