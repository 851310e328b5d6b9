"""The progress of a run on stderr: on a terminal a bar with the time left; in a pipe what is measured, and a line for
each process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from groundspeed.measure.lineup import LINE_UP
from groundspeed.measure.runner import Plan, Progress
from groundspeed.report.text import plural

Tell = Callable[[Progress], None]


@contextmanager
def progress() -> Iterator[Tell]:
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lines()
        return
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as Bar
    from rich.table import Column
    from rich.text import Text

    class Left(ProgressColumn):
        def render(self, task: Task) -> Text:
            left = task.time_remaining
            return Text(clock(task.elapsed or 0.0) + (f", {clock(left)} left" if left is not None else ""))

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        Left(Column(no_wrap=True)),
        TextColumn("{task.fields[case]}", style="dim", markup=False),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None, case="")

        def tell(now: Progress) -> None:
            description = now.stage or f"process {now.process + 1} of {now.processes}"
            bar.update(
                task, total=None if now.stage else now.total, completed=now.done, description=description, case=now.text
            )

        yield tell


def clock(seconds: float) -> str:
    """Format seconds as `0:07`, `12:34` or `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def planned(plan: Plan, finished: int, processes: int) -> str:
    """Return a line like `measuring attention: 2 cases, 2 contenders (sdpa-math, sdpa-flash), 4 processes`."""
    contenders = f"{plural(len(plan.contenders), 'contender')} ({', '.join(plan.contenders)})"
    already = f", {finished:,} of them already done" if finished else ""
    fresh = plural(processes, "process", "es")
    return f"measuring {plan.start['suite']}: {plural(len(plan.cases), 'case')}, {contenders}, {fresh}{already}"


QUIET_S = 60.0
"""The longest silence while something is measured."""


def lines(now: Callable[[], float] = time.monotonic) -> Tell:
    """Return a function that prints a line at the start, one when a process is done, and one after a minute without
    any, with the time that the rest will take at this rate."""
    began, first, said, spoke = 0.0, None, -1.0, 0.0
    stages: set[str] = set()

    def tell(at: Progress) -> None:
        nonlocal began, first, said, spoke
        if at.stage:
            if at.stage not in stages:
                what = "every contender is called on every shape, and compiles what it needs"
                say(f"{at.stage}: {what if at.stage == LINE_UP else at.text}")
            stages.add(at.stage)
            return
        if at.plan and first is None:
            say(planned(at.plan, at.process, at.processes))
        if first is None:
            began, first = now(), at.done
            spoke = began
        per_process = at.total / at.processes
        ended = at.done % per_process == 0
        if at.done == said or at.done <= first or not (ended or now() - spoke >= QUIET_S):
            return
        said, spoke = at.done, now()
        left = (spoke - began) / (at.done - first) * (at.total - at.done)
        rest = f", about {clock(left)} left" if at.done < at.total else ""
        if ended:
            say(f"process {round(at.done / per_process)} of {at.processes} done{rest}")
        else:
            say(f"process {at.process + 1} of {at.processes}, {at.done / at.total:.0%} of the run done{rest}")

    return tell


def say(line: str) -> None:
    try:
        print(line, file=sys.stderr)
    except OSError:
        pass  # the reader has gone; the run goes on
