"""The pytest plugin: tests that require a speed, in a pytest of their own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import groundspeed as gs
from fakes import noisy
from groundspeed.judge.judgement import judge
from groundspeed.lab.function_run import FunctionRun
from records import run as record_of

pytest_plugins = "pytester"

A_TEST = """
def test_speed(groundspeed):
    found = groundspeed.compare({"ours": len, "base": sum}, inputs=list, baseline="base", require=%s)
    assert found["ours"].status == "PASSED"
"""
FASTER, SLOWER = {"base": 1e-3, "ours": 0.5e-3}, {"base": 1e-3, "ours": 2e-3}


class Scripted:
    """`gs.compare` that measures nothing and finds what it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[dict[str, Any]] = []
        self.found = _found(FASTER)
        monkeypatch.setattr(gs, "compare", self)

    def __call__(self, functions: object, **given: Any) -> FunctionRun:
        self.asked.append(given)
        return self.found


def _found(means: Mapping[str, float], noise: float = 0.005, **more: Any) -> FunctionRun:
    return FunctionRun(judge(record_of(noisy(means, noise), list(means), **more)), Path("runs/of-a-test"), {})


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import what a run needs before `pytester` does, which lets go of the modules that came with each of its runs."""
    repr(_found(FASTER))


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    return Scripted(monkeypatch)


def outcomes(pytester: pytest.Pytester, require: object, *options: str) -> tuple[dict[str, int], str]:
    pytester.makepyfile(A_TEST % repr(require))
    result = pytester.runpytest_inprocess(*options)
    return result.parseoutcomes(), result.stdout.str()


@pytest.mark.parametrize(
    ("means", "require", "outcome"),
    [
        (FASTER, "faster", "passed"),
        (FASTER, "not-slower", "passed"),
        (FASTER, 1.5, "passed"),
        (FASTER, 3, "failed"),
        (SLOWER, "not-slower", "failed"),
        (SLOWER, "faster", "failed"),
        (SLOWER, None, "passed"),
    ],
)
def test_a_test_passes_if_its_requirement_is_met(
    pytester: pytest.Pytester, scripted: Scripted, means: dict[str, float], require: object, outcome: str
) -> None:
    scripted.found = _found(means)
    found, out = outcomes(pytester, require)
    assert found == {outcome: 1}
    if outcome == "failed":
        assert re.search(r"groundspeed: require=\S+ is not met: b1-\S+, ours: .*; evidence: runs/of-a-test", out)
        assert "pytest_plugin.py" not in out, "the traceback ends in the test"


@pytest.mark.parametrize(
    ("option", "outcome"), [((), "skipped"), (("=skip",), "skipped"), (("=fail",), "failed"), (("=pass",), "passed")]
)
def test_thin_evidence_is_neither_yes_nor_no(
    pytester: pytest.Pytester, scripted: Scripted, option: tuple[str, ...], outcome: str
) -> None:
    scripted.found = _found({"base": 1e-3, "ours": 1e-3}, noise=0.5)
    found, out = outcomes(pytester, "faster", "-rs", *(f"--groundspeed-unclear{word}" for word in option))
    assert found == {outcome: 1}
    if outcome == "skipped":
        assert "UNCLEAR, require='faster' is not decided" in out
        assert "SKIPPED [1] test_thin_evidence" in out, "at the line of the test, not in the plugin"


@pytest.mark.parametrize("require", [None, "not-slower", 0.1])
def test_a_wrong_function_fails_whatever_is_required(
    pytester: pytest.Pytester, scripted: Scripted, require: object
) -> None:
    fault = {"status": "INCORRECT", "reason": "rms_rel error 0.01 is over the tolerance of 2e-05"}
    scripted.found = _found(FASTER, fault=lambda who, case, block: fault if (who, block) == ("ours", None) else None)
    found, out = outcomes(pytester, require)
    assert found == {"failed": 1}
    assert "groundspeed: ours is INCORRECT: rms_rel error 0.01" in out


def test_what_no_fresh_process_could_measure_fails(pytester: pytest.Pytester, scripted: Scripted) -> None:
    scripted.found = FunctionRun(None, None, {}, "ours cannot be pickled (a lock)")
    found, out = outcomes(pytester, "not-slower", "--groundspeed-unclear=pass")
    assert found == {"failed": 1}
    assert "nothing can be required: ours cannot be pickled (a lock)" in out


@pytest.mark.parametrize("require", ["fastest", 0, -1.5, float("nan"), True])
def test_a_requirement_that_says_nothing_is_refused_before_anything_is_measured(
    pytester: pytest.Pytester, scripted: Scripted, require: object
) -> None:
    pytester.makepyfile((A_TEST % repr(require)).replace("nan", "float('nan')"))
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("*unknown value of require*")
    assert not scripted.asked


def test_bad_input_is_a_sentence_at_the_line_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_speed(groundspeed):
            groundspeed.compare({"slow": len, "fast": sum}, inputs=list, baseline="slw")
        """
    )
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    out = result.stdout.str()
    assert "BadInput: unknown baseline 'slw'; did you mean slow?" in out
    assert "pytest_plugin.py" not in out
    assert "src/groundspeed" not in out


class TestOptions:
    def test_preset_and_name_come_from_the_command_line_and_the_test(
        self, pytester: pytest.Pytester, scripted: Scripted
    ) -> None:
        outcomes(pytester, "faster")
        outcomes(pytester, "faster", "--groundspeed-preset=paper", "--groundspeed-out=kept")
        assert [given["preset"] for given in scripted.asked] == ["quick", "paper"]
        assert [given.get("out") for given in scripted.asked] == [None, Path("kept")]
        assert len({given["name"] for given in scripted.asked}) == 1, "a test keeps its name from run to run"

    def test_a_test_that_says_more_decides(self, pytester: pytest.Pytester, scripted: Scripted) -> None:
        pytester.makepyfile(
            """
            def test_it(groundspeed):
                for name in ("mine", "yours"):
                    groundspeed.compare(
                        {}, inputs=list, baseline="base", name=name, preset="standard", out="here", flops=2, processes=3
                    )
            """
        )
        pytester.runpytest_inprocess("--groundspeed-out=kept").assert_outcomes(passed=1)
        said = {"preset": "standard", "out": "here", "flops": 2, "processes": 3, "inputs": list, "baseline": "base"}
        assert scripted.asked == [{**said, "name": "mine"}, {**said, "name": "yours"}]

    def test_names_are_told_apart_and_are_as_gs_compare_takes_them(
        self, pytester: pytest.Pytester, scripted: Scripted
    ) -> None:
        pytester.makepyfile(
            test_speed="""
            import pytest

            @pytest.mark.parametrize("size", [1, 2, "a b", "a,b", "x" * 60, "x" * 61])
            def test_it(groundspeed, size):
                groundspeed.compare({}, inputs=list, baseline="base")
                groundspeed.compare({}, inputs=list, baseline="base")
            """
        )
        pytester.runpytest_inprocess().assert_outcomes(passed=6)
        names = [given["name"] for given in scripted.asked]
        assert len({*names}) == 12
        assert all(re.fullmatch(r"test_speed\.test_it[A-Za-z0-9._-]+", name) and len(name) <= 48 for name in names)

    def test_a_marker_leaves_them_out(self, pytester: pytest.Pytester, scripted: Scripted) -> None:
        pytester.makepyfile(A_TEST % None + "\n\ndef test_other():\n    pass\n")
        pytester.runpytest_inprocess("-m", "not groundspeed", "--strict-markers").assert_outcomes(
            passed=1, deselected=1
        )
        assert not scripted.asked

    def test_the_options_are_told(self, pytester: pytest.Pytester) -> None:
        result = pytester.runpytest_inprocess("--help")
        for option in ("--groundspeed-preset", "--groundspeed-out", "--groundspeed-unclear"):
            result.stdout.fnmatch_lines(f"*{option}*")


class TestSummary:
    def test_it_has_a_line_for_each_function(self, pytester: pytest.Pytester, scripted: Scripted) -> None:
        scripted.found = _found({"base": 1e-3, "ours": 0.5e-3, "other": 2e-3}, shapes=["B=1,S=64,causal=0"])
        _, out = outcomes(pytester, None)
        assert re.search(r"=+ groundspeed =+\n", out)
        assert re.search(r"^FASTER      ours \S+× \(\S+\) vs base  test_\S+::test_speed$", out, re.MULTILINE)
        assert re.search(r"^SLOWER      other ", out, re.MULTILINE)

    def test_without_a_comparison_there_is_none(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile("def test_it(groundspeed):\n    pass\n")
        result = pytester.runpytest_inprocess()
        result.assert_outcomes(passed=1)
        result.stdout.no_fnmatch_line("*= groundspeed =*")


def test_importing_it_imports_nothing_heavy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it():
            assert "groundspeed.pytest_plugin" in sys.modules
            assert not {"torch", "triton", "numpy", "scipy", "pandas"} & sys.modules.keys()
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest", "-p", "no:benchmark")
    result.assert_outcomes(passed=1)


WORKERS = """
import time
from pathlib import Path

import groundspeed as gs
import pytest
from groundspeed.lab.function_run import FunctionRun


@pytest.fixture(autouse=True)
def slow(monkeypatch):
    def compare(functions, **given):
        began = time.monotonic()
        time.sleep(0.3)
        with Path("times").open("a") as file:
            print(began, time.monotonic(), file=file)
        return FunctionRun(None, None, {}, "of a test")

    monkeypatch.setattr(gs, "compare", compare)
"""


def test_workers_of_xdist_measure_one_after_the_other(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(WORKERS)
    one = "def test_{0}(groundspeed):\n    groundspeed.compare({{}}, inputs=list, baseline='base', require=None)\n"
    pytester.makepyfile(**{f"test_{name}": one.format(name) for name in "abcd"})
    pytester.runpytest_subprocess("-n", "2").assert_outcomes(failed=4)
    times = sorted(tuple(map(float, line.split())) for line in (pytester.path / "times").read_text().splitlines())
    assert len(times) == 4
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))


REAL = """
import torch


def plain(x):
    assert x.dim() == 2
    return x.softmax(-1)


def written_out(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def make_inputs():
    return torch.randn(64, 256)


def compare(groundspeed, functions, require):
    groundspeed.compare(functions, inputs=make_inputs, baseline="plain", require=require)


def test_too_much_is_required(groundspeed):
    compare(groundspeed, {"written-out": written_out, "plain": plain}, 1e9)


def test_a_wrong_one(groundspeed):
    def wrong(x):
        return x.softmax(0)

    compare(groundspeed, {"wrong": wrong, "plain": plain}, None)


def test_a_right_one(groundspeed):
    compare(groundspeed, {"written-out": written_out, "plain": plain}, 1e-9)
"""


@pytest.mark.slow
def test_a_real_suite_measures_in_fresh_processes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_softmax=REAL)
    result = pytester.runpytest_subprocess("-v")
    out = result.stdout
    out.re_match_lines(
        [r".*test_too_much_is_required FAILED.*", r".*test_a_wrong_one FAILED.*", r".*test_a_right_one PASSED.*"]
    )
    out.re_match_lines(
        [r"E .*require=1000000000.0 is not met: .* is under 1e\+09×; evidence: .groundspeed/runs/functions-quick-.*"]
    )
    out.re_match_lines([r"E .*wrong is INCORRECT: .*"])
    out.fnmatch_lines("*Captured groundspeed call*")
    assert len([*(pytester.path / ".groundspeed" / "runs").glob("functions-quick-*")]) == 3


@pytest.mark.slow
def test_the_example_is_measured(pytester: pytest.Pytester) -> None:
    example = Path(__file__).parents[1] / "examples" / "test_speed.py"
    pytester.makepyfile(test_speed=example.read_text())
    result = pytester.runpytest_subprocess("-rs")
    found = result.parseoutcomes()
    assert found == {"passed": 1} or (found == {"skipped": 1} and "UNCLEAR, require=1.1 is" in result.stdout.str())
    result.stdout.re_match_lines(
        [r"\w+ +fused \d\S+× \(\S+\) vs written-out  test_speed.py::test_fused_attention_is_worth_it"]
    )


def test_every_option_stands_in_the_docs(pytester: pytest.Pytester) -> None:
    page = (Path(__file__).parents[1] / "docs" / "pytest.md").read_text()
    told = {*re.findall(r"--groundspeed-\w+", pytester.runpytest_inprocess("--help").stdout.str())}
    assert len(told) == 3
    assert {option for option in told if f"`{option}" not in page} == set()
