"""A site of all bundles in a folder: each is verified, judged and reported once, then all are shown side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from groundspeed.case import joint_hash
from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import index, store
from groundspeed.evidence.index import Kept
from groundspeed.evidence.integrity import FACTS, MANIFEST, PROFILE, SAMPLES, kind_of, sha256
from groundspeed.judge import history
from groundspeed.judge.history import Run
from groundspeed.judge.lines import lines as lines_through
from groundspeed.judge.profile import Picture
from groundspeed.lab import check, reported
from groundspeed.lab.profile import verify as verify_profile
from groundspeed.lab.site import Site, report_name
from groundspeed.measure.environment import usable_cores
from groundspeed.report import history as pages
from groundspeed.report import page
from groundspeed.report.html import library

INDEX = "index.html"
PACKAGE = Path(__file__).parent.parent
MANY_BYTES = 4 << 20
"""The size of the new bundles above which starting further processes costs less time than it saves."""
MOST_PROCESSES = 8

Progress = Callable[[int, int], None]
"""Called with the number of new bundles that are done, and of all new bundles."""


@dataclass(frozen=True)
class Task:
    """A bundle to read."""

    path: Path
    name: str
    """Its path inside the folder."""
    repeating: tuple[Path, ...]
    """Bundles that state that they repeat its run."""
    profiles: tuple[Path, ...]
    """The profiles beside it. Its report shows those of what it measured."""
    report: bool
    """Whether to make its report too."""


@dataclass(frozen=True)
class Read:
    """The result of a task: a run and its report, or one sentence why there is none."""

    run: Run | None = None
    report: str | None = None
    refused: str | None = None


@dataclass
class Built:
    runs: list[Run]
    lines: int
    """The number of lines of a contender on a case, as the page counts them: its time and its speed-up are one."""
    read: int
    """The number of bundles that were new or needed a new report."""
    reports: int
    """The number of reports that were written."""
    refused: dict[str, str] = field(default_factory=dict)
    """Bundles that have no place in the history, and why."""


def build(folder: Path, target: Path, progress: Progress = lambda done, of: None) -> Built:
    """Make the site of the runs in `folder`, or bring it up to date. BadInput if there is no run, or none that can be
    shown; then no page is changed. Profiles are shown in the reports of the runs that they belong to."""
    if (folder / MANIFEST).is_file():
        raise BadInput(f"{folder} is a bundle itself; give the folder that contains it")
    if not page.installed():  # else each bundle would be blamed in turn
        raise GroundspeedError(page.NEEDED)
    found = store.gathered(folder)
    profiles = tuple(path for path in found if kind_of(path) is PROFILE)
    if folder == store.RUNS:
        profiles += tuple(store.finished(store.PROFILES))
    paths = [path for path in found if path not in profiles]
    if not paths:
        raise BadInput(
            f"there is no bundle of a run in {folder}; make one with: groundspeed run attention --preset quick"
        )
    _looked.cache_clear()
    refused = {path.name: said for path in profiles if isinstance(said := _looked(path), str)}
    profiles = tuple(path for path in profiles if path.name not in refused)
    site, program = Site(target), _program()
    names = {path: str(path.relative_to(folder)) for path in paths}
    stamps = {path: index.stamp_of(path) for path in paths}
    kept = index.load(index.path_of(folder), program)
    runs = {path: run for path in paths if (run := _known(kept.get(names[path]), stamps[path]))}
    repeating = _repeating(paths, runs)
    tasks, sources = [], {}
    for path in paths:
        identity = store.identity_of(path)
        sources[path] = _source(program, [*repeating.get(identity, ()), *profiles])
        stale = not site.has(report_name(identity), sources[path])
        if path not in runs or stale:
            tasks.append(Task(path, names[path], tuple(repeating.get(identity, ())), profiles, stale))
    built = Built([], 0, len(tasks), 0, refused)
    for done, (task, read) in enumerate(_read_all(tasks), 1):
        if read.run is None:
            runs.pop(task.path, None)
            built.refused[task.name] = read.refused or ""
        else:
            runs[task.path] = read.run
        if read.report is not None:
            site.write(report_name(runs[task.path].identity), sources[task.path], read.report)
            built.reports += 1
        progress(done, len(tasks))
    if not runs:
        name, sentence = list(built.refused.items())[-1]
        raise BadInput(f"no bundle in {folder} can be shown ({name:.80}: {sentence}); `groundspeed verify` says why")
    if tasks or len(kept) != len(runs):
        now = {names[path]: Kept(stamp, history.to_json(run)) for path, run in runs.items() if (stamp := stamps[path])}
        index.save(index.path_of(folder), program, now)
    built.runs = history.in_order(runs.values())
    lines = lines_through(built.runs)
    built.lines = sum(line.kind == "time" for line in lines)
    if not site.has(pages.LIBRARY, program):
        site.write(pages.LIBRARY, program, library.javascript())
    site.write(INDEX, program, pages.to_page(built.runs, lines, built.refused))
    site.finish({INDEX, pages.LIBRARY, *(report_name(run.identity) for run in built.runs)})
    return built


def _program() -> str:
    """Return a hash of all that figures and pages depend on besides the bundles: the code and the page sources."""
    files = sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".html", ".css", ".js"))
    return joint_hash(path.read_bytes() for path in files) or ""


@cache
def _looked(profile: Path) -> tuple[str, Picture] | str:
    """Return a profile's identity and picture, or why it does not verify. It is read once in each process of a build
    and not for every report, because a profile of a CPU has thousands of events."""
    try:
        found, picture, _ = verify_profile(profile)
    except GroundspeedError as error:
        return _without(profile, str(error))
    return found.identity, picture


def _known(kept: Kept | None, stamp: str | None) -> Run | None:
    if kept is None or kept.stamp != stamp:
        return None
    try:
        return history.from_json(kept.value)
    except BadInput:
        return None


def _repeating(paths: Sequence[Path], runs: dict[Path, Run]) -> dict[str, list[Path]]:
    """Return the bundles that repeat a run, or state that they do, by the identity of that run's bundle."""
    found: dict[str, list[Path]] = {}
    for path in paths:
        run = runs.get(path)
        repeats = run.reproduces if run else store.said_to_repeat(path)
        if repeats:
            found.setdefault(repeats, []).append(path)
    return found


def _source(program: str, others: Sequence[Path]) -> str:
    """Return a hash of what a report depends on besides its bundle."""
    return sha256(" ".join([program, *sorted(map(store.identity_of, others))]).encode())[:16]


def _read_all(tasks: Sequence[Task]) -> Iterator[tuple[Task, Read]]:
    size = sum(_size(task.path / name) for task in tasks for name in (FACTS, SAMPLES))
    processes = min(usable_cores(), MOST_PROCESSES, len(tasks)) if size >= MANY_BYTES else 1
    if processes < 2:
        yield from ((task, _read(task)) for task in tasks)
        return
    try:
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            yield from zip(tasks, pool.map(_read, tasks, chunksize=4), strict=True)
    except BrokenProcessPool:
        raise GroundspeedError(
            "a process that was reading bundles died, perhaps for lack of memory; try again with fewer bundles"
        ) from None


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _read(task: Task) -> Read:
    try:
        found, replay = check.verify(task.path, task.repeating)
        run = history.run_of(replay.judgement, found.identity)
        if not task.report:
            return Read(run)
        looked = (said for path in task.profiles if not isinstance(said := _looked(path), str))
        profiles = reported.fitting(replay.judgement.record, looked)
        return Read(run, pages.to_report(replay.judgement, found.identity, profiles))
    except GroundspeedError as error:
        return Read(refused=_without(task.path, str(error)))
    except Exception as error:  # whatever is in one bundle, the others keep their place
        return Read(refused=_without(task.path, f"not readable ({type(error).__name__}: {error!s:.200})"))


def _without(path: Path, sentence: str) -> str:
    """Return a sentence without the path of its bundle. It is shown beside the bundle's name on a page that may be
    published, and must not reveal a user's folders."""
    for said in (f"{path}/", f"{path}: ", f"{path} "):
        sentence = sentence.replace(said, "")
    return sentence.replace(str(path), "it")
