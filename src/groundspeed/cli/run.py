"""`groundspeed run`: gate, measure, write the bundle, print table and claims."""

from __future__ import annotations

import shlex
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groundspeed.cli.console import bundle_name, output
from groundspeed.cli.flags import Names, checked_price, checked_seconds, checked_whole, flag, split
from groundspeed.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from groundspeed.judge.judgement import Judgement

NAME = "run"
EXAMPLE = "Example: groundspeed run attention --preset quick --case 'xlarge-*'"
EXIT_CODES = {"met": 0, "not met": 1, "not decided": 3}

WHAT, HOW, THEN = "What is measured", "How it is measured", "Verdicts and output"


def command(
    suite: Annotated[
        str | None, typer.Argument(help="The suite to measure; `groundspeed list` shows them.", show_default=False)
    ] = None,
    case: Annotated[Names, flag("Cases by name or pattern, as in 'medium-*'.", WHAT)] = None,
    shape: Annotated[Names, flag("A shape of your own, as in S=777,D=96.", WHAT)] = None,
    dtype: Annotated[Names, flag("fp32 (default on a CPU), fp16 and bf16 (on a GPU).", WHAT)] = None,
    clock: Annotated[Names, flag("On a GPU: default, warm, graph, eager.", HOW)] = None,
    only: Annotated[
        Names, flag("Only these and the baseline; of a --with file those named, or else all.", WHAT)
    ] = None,
    with_: Annotated[Names, flag("A Python file with contenders of your own.", WHAT, "--with")] = None,
    preset: Annotated[
        str | None, flag("How much evidence: quick (a minute or two), standard (default), paper.", HOW)
    ] = None,
    device: Annotated[str | None, flag("cuda (default if PyTorch can use a GPU) or cpu.", HOW)] = None,
    processes: Annotated[int | None, flag("Number of fresh processes (default: the preset's).", HOW)] = None,
    warmup: Annotated[float | None, flag("Minimum warm-up in seconds (default: the preset's).", HOW)] = None,
    timeout: Annotated[float | None, flag("Time limit of one sample in seconds (default 30).", HOW)] = None,
    seed: Annotated[int | None, flag("Seed of inputs and orders (default: random).", HOW)] = None,
    sequential: Annotated[
        bool, flag("Also time each contender by itself, many calls in a row.", HOW, "--sequential")
    ] = False,
    extend: Annotated[bool, flag("Double the processes if a verdict is UNCLEAR.", HOW, "--extend")] = False,
    isolate: Annotated[bool, flag("Run each contender in its own process.", HOW, "--isolate")] = False,
    calibration: Annotated[
        str | None, flag("The calibration to use, or none (default: the newest that fits).", HOW)
    ] = None,
    baseline: Annotated[str | None, flag("Compare with this contender (default: see `list SUITE`).", THEN)] = None,
    judge: Annotated[Names, flag("Give verdicts on these (default: ours and yours).", THEN)] = None,
    require: Annotated[
        str | None, flag("faster, not-slower or a ratio, as in 1.2: exit 1 if not met, 3 if unclear.", THEN)
    ] = None,
    price_per_hour: Annotated[float | None, flag("Price of one device hour; adds what the run cost.", THEN)] = None,
    out: Annotated[Path | None, flag("Folder for the bundle (default .groundspeed/runs).", THEN)] = None,
    reproduce: Annotated[str | None, flag("Repeat the run of this bundle, and compare the claims.", THEN)] = None,
    resume: Annotated[str | None, flag("Continue an interrupted run: its bundle, or latest.", THEN)] = None,
) -> None:
    """Check and time the contenders of a suite, write a bundle, and print the claims.

    A flag that takes names accepts several: separate them by commas, or repeat the flag."""
    from groundspeed.judge.requirement import parse, requirement

    price = checked_price(price_per_hour)
    wanted = None if require is None else parse(require, "--require")
    if suite is not None and resume is not None:
        raise BadInput("--resume continues a run as it was declared; leave out the suite")
    if suite is None and resume is None and reproduce is None:
        example = "`groundspeed run attention --preset quick`"
        raise BadInput(f"name a suite, as in {example}, or a run to continue, as in --resume latest")
    asked: dict[str, Any] = {
        "preset": preset,
        "case": split(case),
        "shape": tuple(shape or ()),
        "dtype": split(dtype),
        "clock": split(clock),
        "only": split(only),
        "with_files": tuple(with_ or ()),
        "baseline": baseline,
        "judge": split(judge),
        "device": device,
        "timeout_s": checked_seconds("--timeout", timeout),
        "processes": checked_whole("--processes", processes, 1, 1000),
        "warmup_s": checked_seconds("--warmup", warmup),
        "seed": checked_whole("--seed", seed, 0, 2**62),
        "sequential": sequential or None,
        "extend": extend or None,
        "isolated": isolate or None,
        "calibration": calibration,
    }
    asked = {field: value for field, value in asked.items() if value not in (None, ())}
    if reproduce is not None and (suite or resume or require or asked.keys() - {"device", "calibration"}):
        raise BadInput(
            "--reproduce repeats the run of a bundle, and its exit code says whether the claims are the same; leave "
            "out the suite, and all flags except --device, --calibration, --price-per-hour and --out"
        )
    if resume is not None and asked:
        flag = next(iter(asked)).removesuffix("_s").removesuffix("_files").replace("isolated", "isolate")
        raise BadInput(f"--resume continues a run as it was declared; leave out --{flag}")
    from groundspeed.cli.calibrate import summary
    from groundspeed.evidence import store
    from groundspeed.lab import check, request, session
    from groundspeed.lab.calibration import SUITE as CALIBRATION
    from groundspeed.lab.progress import progress
    from groundspeed.report import screen

    runs = out or store.RUNS
    found = check.verify(store.find(reproduce)) if reproduce is not None else None
    left = store.find_to_resume(resume, runs) if resume is not None else None
    if left is not None and wanted is not None and store.left(left).run.reproduces:
        raise BadInput(
            "this run repeats that of another bundle, and its exit code says whether the claims are the same; leave "
            "out --require"
        )
    with interruptible(), progress() as tell:
        if found is not None:
            again = request.repetition(found[0].record, found[0].identity, device, calibration, runs)
            bundle = session.run(again, tell)
        elif left is not None:
            bundle = session.resume(left, tell)
        else:
            bundle = session.run(request.Request(suite=str(suite), out=runs, **asked), tell)
    judgement = check.made(bundle)
    if judgement.record.run.suite == CALIBRATION:
        raise typer.Exit(summary(bundle, judgement))
    name = bundle_name(bundle.path, bundle.short, store.RUNS)
    screen.show(output(), judgement, bundle.path, name, price_per_hour=price)
    if not judgement.record.complete:
        _say(f"interrupted; continue with: groundspeed run --resume {shlex.quote(name)}")
        raise typer.Exit(3)
    if found is None and (repeats := judgement.record.run.reproduces):
        found = check.verify(store.find(repeats))
    if found is not None:
        raise typer.Exit(_compare(found[1].judgement, judgement))
    if wanted is not None:
        answer = requirement(judgement, wanted)
        if answer.why:
            _say(f"--require {require} is {answer.word}: {answer.why}")
        raise typer.Exit(EXIT_CODES[answer.word])


def _compare(then: Judgement, now: Judgement) -> int:
    from groundspeed.judge.reproduction import overall, repeated
    from groundspeed.report.reproduction import differences, lines

    claims, screen = repeated(then, now), output()
    screen.print()
    for line in (*differences(then, now), *lines(claims)):
        screen.print(line)
    return {"reproduced": 0, "not reproduced": 1, "not decided": 3}[overall(claims)]


def _say(sentence: str) -> None:
    print(f"groundspeed: {sentence}", file=sys.stderr)


@contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM end a run as Ctrl-C does, with a valid bundle."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
