"""`groundspeed run`: gate, measure, write the bundle, print table and claims."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from groundspeed.cli.console import output, progress, split
from groundspeed.errors import BadInput, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from groundspeed.judge.judgement import Judgement
    from groundspeed.measure.runner import Progress

NAME = "run"
EXAMPLE = "Example: groundspeed run attention --preset quick --with my_kernel.py"
REQUIRE = ("faster", "not-slower")


def command(
    suite: str = typer.Argument(None, help="What to measure: `groundspeed list` shows the suites.", show_default=False),
    preset: str = typer.Option("standard", help="How much evidence: quick, standard or paper."),
    case: list[str] = typer.Option(
        None, help="Cases by name or pattern, as in 'sweep-d64-*'; comma-separated or repeated.", show_default=False
    ),
    shape: list[str] = typer.Option(None, help="A shape of your own, as in S=777,D=96.", show_default=False),
    dtype: list[str] = typer.Option(None, help="fp32, fp16, bf16.", show_default=False),
    only: list[str] = typer.Option(None, help="Measure these contenders and the baseline only.", show_default=False),
    with_: list[str] = typer.Option(
        None, "--with", help="A Python file with contenders of your own.", show_default=False
    ),
    baseline: str = typer.Option(
        None, help="Compare with this contender instead of the declared one.", show_default=False
    ),
    judge: list[str] = typer.Option(None, help="Give verdicts on these contenders.", show_default=False),
    device: str = typer.Option(None, help="cpu or cuda.", show_default=False),
    timeout: float = typer.Option(30.0, help="Seconds that one sample may take.", min=0.001),
    processes: int = typer.Option(None, help="Fresh processes, instead of the preset's.", min=1, show_default=False),
    warmup: float = typer.Option(
        None, help="Least warm-up in seconds, instead of the preset's.", min=0.001, show_default=False
    ),
    seed: int = typer.Option(
        None, help="Seed of inputs and orders; a random one without it.", min=0, max=2**62, show_default=False
    ),
    out: Path = typer.Option(None, help="Folder for the bundle. [default: .groundspeed/runs]", show_default=False),
    resume: str = typer.Option(None, help="Go on with an interrupted run.", show_default=False),
    require: str = typer.Option(
        None, help="Exit 1 or 3 unless every verdict is this: faster, not-slower.", show_default=False
    ),
) -> None:
    """Measure a suite: gate, time, write the bundle, print table and claims."""
    if require is not None and require not in REQUIRE:
        raise unknown("value of --require", require, REQUIRE)
    if (suite is None) == (resume is None):
        raise BadInput("name a suite, as in `groundspeed run attention`, or a run to go on with, as in --resume latest")
    from groundspeed.evidence import store
    from groundspeed.lab import check, declare, session
    from groundspeed.report import screen

    runs = out or store.RUNS
    with _signals(), _bar() as tell:
        if resume is not None:
            bundle = session.resume(store.find(resume, runs), tell)
        else:
            request = declare.Request(
                suite=suite,
                preset=preset,
                case=split(case),
                shape=tuple(shape or ()),
                dtype=split(dtype),
                only=split(only),
                with_files=tuple(with_ or ()),
                baseline=baseline,
                judge=split(judge),
                device=device,
                timeout_s=timeout,
                processes=processes,
                warmup_s=warmup,
                seed=seed,
                out=runs,
            )
            bundle = session.run(request, tell)
    judgement = check.verify(bundle.path)[1].judgement
    screen.show(output(), judgement, bundle.path, bundle.short)
    if not judgement.record.complete:
        print(
            f"groundspeed: interrupted; go on with: groundspeed run --resume {bundle.short}{_out(out)}", file=sys.stderr
        )
        raise typer.Exit(3)
    if require:
        raise typer.Exit(requirement(judgement, require))


def requirement(judgement: Judgement, require: str) -> int:
    """0 if every judged comparison meets it, 1 if one does not, 3 if it cannot be told."""
    good = {"FASTER"} if require == "faster" else {"FASTER", "SAME"}
    verdicts: list[str | None] = []
    for case in judgement.cases:
        for name in judgement.record.run.judged:
            results = [r for r in case.results if r.contender == name]
            comparison = results[0].comparison if results else None
            verdicts.append(comparison.verdict or "UNCLEAR" if comparison else None)
    if any(verdict is None or verdict not in {*good, "UNCLEAR"} for verdict in verdicts):
        return 1
    return 3 if "UNCLEAR" in verdicts or not verdicts else 0


def _out(out: Path | None) -> str:
    return f" --out {out}" if out else ""


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: with a valid bundle."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    """A progress bar with the time left; in a pipe, a line for each process."""
    console = progress()
    if not console.is_terminal:
        yield _lines()
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def tell(now: Progress) -> None:
            text = f"process {now.process + 1} of {now.processes}  {now.text}"
            bar.update(task, total=now.total, completed=now.done, description=text)

        yield tell


def _lines() -> Callable[[Progress], None]:
    began, first, said = time.monotonic(), None, -1.0

    def tell(now: Progress) -> None:
        nonlocal first, said
        first = now.done if first is None else first
        per_process = now.total / now.processes
        if now.done % per_process or now.done == said or now.done <= first:
            return
        said = now.done
        left = (time.monotonic() - began) / (now.done - first) * (now.total - now.done)
        print(
            f"process {round(now.done / per_process)} of {now.processes} done, about {left:.0f} s left", file=sys.stderr
        )

    return tell
