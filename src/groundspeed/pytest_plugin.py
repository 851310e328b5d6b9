"""The pytest plugin: the fixture `groundspeed`, with which a test measures functions and requires a speed of them.

    def test_fused_is_faster(groundspeed):
        groundspeed.compare({"fused": fused, "eager": eager}, inputs=make_inputs, baseline="eager", require=1.2)

pytest imports this module whenever groundspeed is installed, so it imports nothing heavy before a test measures."""

from __future__ import annotations

import fcntl
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from groundspeed.judge.requirement import Answer
    from groundspeed.lab.function_run import FunctionRun

MARKER = "groundspeed"
PROPERTY = "groundspeed"
"""The key of a summary line among the properties of a test, by which it gets from an xdist worker to the controller."""
PRESET, OUT, UNCLEAR = "--groundspeed-preset", "--groundspeed-out", "--groundspeed-unclear"
LONGEST_NAME = 48
"""The most characters that `gs.compare(name=…)` takes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("groundspeed", "groundspeed: how fast functions are")
    group.addoption(
        PRESET,
        default="quick",
        choices=("quick", "standard", "paper"),
        help="how much evidence a comparison takes where its test names no preset (default: %(default)s)",
    )
    group.addoption(OUT, type=Path, metavar="DIR", help="folder for the bundles (default: .groundspeed/runs)")
    group.addoption(
        UNCLEAR,
        default="skip",
        choices=("skip", "fail", "pass"),
        help="what becomes of a test whose requirement the evidence does not decide (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}: uses the fixture `groundspeed`; set by itself, for -m")
    config.pluginmanager.register(_Summary(), "groundspeed-summary")


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if MARKER in getattr(item, "fixturenames", ()):
            item.add_marker(MARKER)


@pytest.fixture
def groundspeed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Measure:
    """Measure functions against each other, and fail the test if one is wrong or not as fast as required."""
    return Measure(request.node, tmp_path_factory)


class Measure:
    """What a test gets as `groundspeed`."""

    def __init__(self, node: pytest.Item, temporary: pytest.TempPathFactory) -> None:
        self._node, self._temporary = node, temporary
        self._made = 0

    def compare(
        self,
        functions: Mapping[str, Callable[..., Any]],
        *,
        inputs: Callable[[], Any],
        baseline: str,
        require: str | float | None = "not-slower",
        **options: Any,
    ) -> FunctionRun:
        """Call `gs.compare`, and hold its result against a requirement.

        `require` is "faster", "not-slower", or a number: at least that many times the speed of the baseline. It is for
        every function but the baseline, by every clock. None only checks and measures. The test fails if a function is
        wrong, raises, hangs or does not meet the requirement; if the evidence does not decide, the test is skipped, or
        what --groundspeed-unclear says. `options` are those of `gs.compare`; `preset` and `out` come from the command
        line and `name` from the test if they are not given."""
        __tracebackhide__ = True
        from groundspeed.errors import GroundspeedError

        try:
            return self._compare(functions, inputs, baseline, require, options)
        except GroundspeedError as error:
            raise error.with_traceback(None) from None  # its sentence says all; the frames are ours

    def _compare(
        self,
        functions: Mapping[str, Callable[..., Any]],
        inputs: Callable[[], Any],
        baseline: str,
        require: str | float | None,
        options: dict[str, Any],
    ) -> FunctionRun:
        __tracebackhide__ = True
        import groundspeed as gs
        from groundspeed.judge.requirement import parse

        wanted = None if require is None else parse(require, "require")
        self._made += 1
        given = {"name": self._name(), "preset": self._option(PRESET), **options}
        if (folder := self._option(OUT)) is not None:
            given.setdefault("out", folder)
        with self._one_at_a_time():
            run = gs.compare(functions, inputs=inputs, baseline=baseline, **given)
        self._node.add_report_section("call", "groundspeed", repr(run))
        if run.judgement is None:
            self._fail(f"not measured in fresh processes, so nothing can be required: {run.why}")
        for line in _lines(run):
            self._node.user_properties.append((PROPERTY, line))
        self._refuse_failures(run)
        if wanted is not None:
            from groundspeed.judge.requirement import requirement

            self._hold(requirement(run.judgement, wanted), require, run)
        return run

    def _option(self, name: str) -> Any:
        return self._node.config.getoption(name)

    def _name(self) -> str:
        """The name of the work in the bundle: that of the test, shortened if it is too long, and numbered from the
        second comparison of a test on."""
        said = f"{self._node.path.stem}.{self._node.name}" + (f".{self._made}" if self._made > 1 else "")
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", said).strip("-.")
        if plain == said and len(plain) <= LONGEST_NAME:
            return plain
        digest = hashlib.sha256(said.encode()).hexdigest()[:8]  # two tests may differ in what was left out
        return f"{plain[: LONGEST_NAME - len(digest) - 1]}-{digest}"

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Wait for the other workers of pytest-xdist: they would measure each other."""
        if not hasattr(self._node.config, "workerinput"):
            yield
            return
        shared = self._temporary.getbasetemp().parent / "groundspeed.lock"
        with shared.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _refuse_failures(self, run: FunctionRun) -> None:
        __tracebackhide__ = True
        assert run.judgement is not None
        for case in run.judgement.cases:
            for result in case.results:
                if result.status not in ("PASSED", "SKIPPED"):
                    self._fail(f"{result.contender} is {result.status}: {result.reason}")

    def _hold(self, answer: Answer, require: str | float | None, run: FunctionRun) -> None:
        __tracebackhide__ = True
        said = f"require={require!r} is {answer.word}: {answer.why}; evidence: {run.path}"
        if answer.word == "not met" or (answer.word == "not decided" and self._option(UNCLEAR) == "fail"):
            self._fail(said)
        if answer.word == "not decided" and self._option(UNCLEAR) == "skip":
            pytest.skip(f"UNCLEAR, {said}")

    def _fail(self, sentence: str) -> NoReturn:
        __tracebackhide__ = True
        pytest.fail(f"groundspeed: {sentence}")


def _lines(run: FunctionRun) -> Iterator[str]:
    """`FASTER      fused 1.72× (1.60–1.84) vs eager` for each function that is judged, by each clock."""
    from groundspeed.judge.claims import with_interval
    from groundspeed.report.text import safe

    assert run.judgement is not None
    judged, baseline = run.judgement.record.run.judged, run.judgement.record.run.baseline
    clocks = len(run.judgement.cases) > 1
    for case in run.judgement.cases:
        by = f", {case.clock}" if clocks else ""
        for name in judged:
            result = case.result(name)
            word, how_fast = result.status, ""
            if result.status == "PASSED" and (c := result.comparison):
                word, how_fast = c.verdict or "no verdict", f" {with_interval(c.interval)}"
            yield safe(f"{word:<11} {name}{how_fast} vs {baseline}{by}")


class _Summary:
    """Collects the lines of all tests, and prints them at the end."""

    def __init__(self) -> None:
        self._lines: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._lines += [(report.nodeid, str(line)) for key, line in report.user_properties if key == PROPERTY]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._lines:
            terminalreporter.section("groundspeed")
        for nodeid, line in self._lines:
            terminalreporter.line(f"{line}  {nodeid}")
