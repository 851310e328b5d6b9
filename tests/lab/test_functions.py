"""`gs.compare`: functions sent by value to fresh processes, checked, timed and judged as any contender is."""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import groundspeed as gs
from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import bundle, store
from groundspeed.judge import apart
from groundspeed.judge.claims import conditions
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.lab import check, request, session
from groundspeed.lab.cases import choose_cases
from groundspeed.lab.function_run import FunctionRun
from groundspeed.report import commands, words
from groundspeed.suites import registry
from groundspeed.suites.functions import form as forms
from groundspeed.suites.functions.suite import Functions

SIZE = 64


def make() -> tuple[torch.Tensor, ...]:
    return torch.randint(0, 100, (SIZE,)), torch.randn(100, 32), torch.randn(32)


def plain(ids: torch.Tensor, table: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """As it is written."""
    return table[ids] * weight


def by_name(ids: torch.Tensor, table: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.embedding(ids, table).mul_(weight)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`plain` and `by_name` are imported again by its name, the others go by value."""
    kept: list[torch.Tensor] = []

    def wrong(ids: torch.Tensor, table: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return table[ids] * weight * 1.001

    def keeps(ids: torch.Tensor, table: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept.append(table[ids] * weight)
        return kept[0].clone()

    functions = {"plain": plain, "embedding": by_name, "wrong": wrong, "keeps": keeps}
    out = tmp_path_factory.mktemp("runs")
    return gs.compare(
        functions, inputs=make, baseline="plain", preset="quick", processes=2, flops=2048, name="rows", out=out
    )


@pytest.fixture(scope="module")
def a_faster_one() -> Judgement:
    """A run with a claim."""
    evidence = Path(__file__).parents[2] / "evidence" / "amd-epyc"
    found = store.find(str(next(evidence.glob("attention-quick-20261116T181734-*"))))
    return check.verify(found)[1].judgement


def test_the_bundle_verifies_and_says_what_was_compared(compared: Any) -> None:
    found, replay = check.verify(compared.path)
    (case,) = found.record.cases
    assert dict(case.params) == {
        "name": "rows",
        "ids": "int64:64",
        "table": "100x32",
        "weight": "32",
        "output": "64x32",
        "dtype": "fp32",
        "flops": 2048,
    }
    assert (case.name, case.flops, case.bytes) == ("rows-100x32-fp32", 2048, 0)
    assert found.record.run.baseline_origin == "asked"
    assert found.record.contenders[0].description == "As it is written."
    assert replay.judgement.record.complete


def test_who_is_wrong_or_keeps_results_is_found(compared: Any) -> None:
    (case,) = compared.judgement.cases
    assert {one.contender: one.status for one in case.results} == {
        "plain": "PASSED",
        "embedding": "PASSED",
        "wrong": "INCORRECT",
        "keeps": "INCORRECT",
    }


def test_printed_it_is_the_table(compared: Any) -> None:
    shown = repr(compared)
    assert shown == str(compared)
    assert "embedding" in shown
    assert "groundspeed verify" in shown
    assert "INCORRECT" in shown
    assert "gs.case_of" not in shown  # nobody can make these inputs again without the function
    page = compared._repr_html_()  # as a notebook does
    assert page.startswith("<pre")
    assert "embedding" in page


def test_the_numbers_are_at_hand(compared: Any) -> None:
    found, baseline, wrong = compared["embedding"], compared["plain"], compared["wrong"]
    assert found.status == "PASSED"
    assert found.low <= found.ratio <= found.high
    assert found.verdict in ("FASTER", "SAME", "SLOWER", "UNCLEAR")
    assert found.median_s > 0
    assert (baseline.verdict, baseline.ratio) == (None, None)
    assert (wrong.status, wrong.median_s) == ("INCORRECT", None)
    assert "over the tolerance" in wrong.reason
    with pytest.raises(BadInput, match="unknown function 'embeding'; did you mean embedding"):
        compared["embeding"]
    with pytest.raises(BadInput, match="unknown clock of this run 'graph'"):
        compared.result("embedding", clock="graph")


def test_a_claim_is_what_the_evidence_supports(a_faster_one: Judgement) -> None:
    said = FunctionRun(a_faster_one, Path("bundle"), {}).claim()
    assert said.startswith("sdpa-flash is faster: ")
    assert "95% CI" in said


def test_where_it_supports_none_the_reason_is_raised(compared: Any) -> None:
    wrong = [one for one in compared.judgement.record.run.judged if one != "embedding"]
    record = compared.judgement.record
    record = replace(record, run=replace(record.run, judged=tuple(wrong)))
    judged = replace(
        compared.judgement, record=record, grids=tuple(g for g in compared.judgement.grids if g.contender in wrong)
    )
    for asked in (replace(compared, judgement=judged).claim, lambda: compared.claim("wrong")):
        with pytest.raises(GroundspeedError, match=r"No claim about wrong: wrong was INCORRECT \(rms_rel error"):
            asked()
    with pytest.raises(BadInput, match="plain is the baseline"):
        compared.claim("plain")
    with pytest.raises(BadInput, match="unknown function that was compared 'embeding'; did you mean embedding"):
        compared.claim("embeding")


def test_c2_two_runs_are_of_the_same_work_where_it_has_a_name(compared: Any) -> None:
    """Shapes alone do not tell a sum from a sort."""
    record = compared.judgement.record
    assert conditions(record.cases[0]) == "rows ids=int64:64 table=100x32 weight=32 output=64x32 fp32"
    assert apart.why_not(record, record) is None
    params = {name: value for name, value in record.cases[0].params.items() if name != "name"}
    nameless = replace(record, cases=(replace(record.cases[0], params=params),))
    assert "only gs.compare(name=…) says" in str(apart.why_not(nameless, nameless))


def test_no_command_measures_it_again(compared: Any) -> None:
    record = bundle.read(compared.path).record
    with pytest.raises(
        BadInput, match=r"functions given to gs\.compare, and they no longer exist; call gs\.compare again"
    ):
        request.repetition(record, "0" * 64, None, None, Path("runs"))
    with pytest.raises(BadInput, match=r"they no longer exist; call gs\.compare again"):
        session.resume(compared.path)
    offered = commands.commands(record, "0" * 64, "md")
    assert [command.split()[:2] for command in offered] == [["groundspeed", "verify"], ["groundspeed", "report"]]


def _lock() -> Callable[..., torch.Tensor]:
    lock = threading.Lock()

    def held(ids: torch.Tensor, table: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        with lock:
            return table[ids] * weight

    return held


def test_where_nothing_can_be_sent_it_describes_this_process_and_claims_nothing(tmp_path: Path) -> None:
    run = gs.compare({"held": _lock(), "plain": plain}, inputs=make, baseline="plain", out=tmp_path)
    assert run.path is None
    assert run.here.keys() == {"held", "plain"}
    assert str(run).startswith("Measured in this process only, without a claim (held cannot be pickled (TypeError: ")
    assert run._repr_html_().startswith("<p>Measured in this process only")
    assert run["held"] is run.here["held"]
    assert run["held"].median_s > 0
    assert run["held"].verdict is None
    with pytest.raises(GroundspeedError, match="no claim: held cannot be pickled"):
        run.claim()
    assert list(tmp_path.iterdir()) == []


def test_here_too_nobody_wrong_is_timed() -> None:
    locked = _lock()

    def fails(*x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such tile")

    functions = {"double": lambda *x: 2 * locked(*x), "fails": fails, "plain": plain}
    run = gs.compare(functions, inputs=make, baseline="plain")
    assert (run["double"].status, run["double"].median_s) == ("INCORRECT", None)
    line = fails.__code__.co_firstlineno + 1
    said = f"ValueError: no such tile (test_functions.py, line {line})"
    assert (run["fails"].status, run["fails"].reason) == ("ERROR", said)
    assert run["plain"].status == "PASSED"
    assert "double INCORRECT, fails ERROR, plain " in str(run)


def test_here_cpus_are_used_by_one_thread_alone() -> None:
    """As it is where others measure, and afterwards as before."""
    locked = _lock()
    seen: list[int] = []

    def threads(*x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return locked(*x)

    known = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        gs.compare({"threads": threads, "plain": plain}, inputs=make, baseline="plain")
        assert {*seen} == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(known)


def test_from_a_script_by_the_modules_beside_it(tmp_path: Path) -> None:
    """What is imported is not in the pickle: a fresh process finds it where this one does."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "beside.py").write_text("def twice(x):\n    return x + x\n")
    script = tmp_path / "code" / "script.py"
    script.write_text(
        "import sys, torch, groundspeed as gs\n"
        "from beside import twice\n"
        "FACTOR = 2\n"
        "run = gs.compare({'twice': twice, 'times': lambda x: x * FACTOR}, inputs=lambda: torch.randn(8, 16),\n"
        "                 baseline='times', preset='quick', processes=1, out=sys.argv[1])\n"
        "print([(one.contender, one.status) for one in run.judgement.cases[0].results])\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "runs")], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "[('twice', 'PASSED'), ('times', 'PASSED')]\n", done.stderr


def _always() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 4)


class Keeping(torch.nn.Module):
    """Keeps a tensor with a graph, of which there is no deep copy."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.kept = self.linear.weight * 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.kept.to(x.dtype)


X = {"f": lambda x: x + 1, "g": lambda x: 1 + x}
MANY = {"f": lambda *x: sum(x), "g": lambda *x: sum(x)}
TWO = {"f": lambda x, y: x + y, "g": lambda x, y: x + y}
INFINITE = {"f": lambda x: x, "g": lambda x: x.masked_fill(x == x[0, 0], float("-inf"))}
UNCOPIED = {"f": X["f"], "g": Keeping()}
LONG: dict[str, Any] = {"f": X["f"]}
exec(f"def g({'x' * 70}): return 1 + {'x' * 70}", {}, LONG)


@pytest.mark.parametrize(
    ("functions", "make", "told"),
    [
        ({"f": X["f"]}, None, "give two"),
        ([X["f"], X["g"]], None, "give two or more functions by name"),
        (X, lambda n: torch.ones(n), "inputs.. fails .TypeError: .*; it is called without arguments"),
        (X, (torch.ones(3),), "inputs is a tuple; give a function that makes new inputs"),
        (
            X,
            lambda: torch.randn(int(torch.randint(4, 60, (1,))), 6),
            "makes tensors of different sizes in different calls",
        ),
        ({"f": X["f"], "g": lambda x: x.add_(1)}, None, "g itself is not right: changed its input x; fix it"),
        ({"f": X["f"], "g": lambda x: x / 0}, None, "the right result has (-?inf|nan) in it, which cannot be compared"),
        (
            {"f": X["f"], "g": lambda x: x if x.dtype == torch.float64 else x.half().float()},
            None,
            "g itself is not right: rms_rel error.*tolerance=",
        ),
        ({"f": 3, "g": X["g"]}, None, "f is not a function but int"),
        ({"f f": X["f"], "g": X["g"]}, None, "invalid contender name 'f f'"),
        ({"f": X["f"], "other": X["g"]}, None, "unknown baseline 'g'"),
        (X, lambda: (torch.randn(4), 3), "g cannot be called|x1 is of type int, not a tensor"),
        (X, lambda: torch.randn(4, 6).T, "x is not contiguous"),
        (X, lambda: torch.randn(4).double(), r"x has dtype torch\.float64"),
        (X, lambda: torch.randn(0, 4), "x has shape"),
        (X, lambda: {"x": torch.randn(4)}, r"inputs\(\) returns a dict; return a tuple of tensors"),
        (MANY, lambda: tuple(torch.randn(4) for _ in range(70)), "makes 70 tensors, and there can be 64; stack some"),
        (LONG, None, "has a name of more than 64 letters; shorten it"),
        (TWO, lambda: (torch.randn(4), torch.ones(4)), r"makes the same y in every call; keep it in the functions \("),
        (INFINITE, None, "the right result has -inf in it, which cannot be compared; have the functions return finite"),
        (UNCOPIED, None, "Only Tensors created explicitly.*; give a reference= that computes in FP64"),
        (X, lambda: torch.randint(0, 4, (4,)), "returns int64; it must return one tensor in fp32, fp16, bf16"),
        (X, _always, "makes the same tensors in every call; make them inside it .*, and leave the seed to gs.compare"),
        ({"f": X["f"], "g": lambda x: (x, x)}, None, "g returns tuple"),
        ({"f": X["f"], "g": lambda x: x.float()}, None, "give a reference= that computes in FP64"),
        ({"f": X["f"], "g": lambda x: x @ x}, None, "g fails on the inputs"),
        (
            {"f": lambda x, y: x, "g": X["g"]},
            None,
            "f cannot be called with the 1 tensors that inputs.. makes: missing",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_sentence_with_the_way_out(
    functions: dict[str, Any], make: Any, told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        gs.compare(functions, inputs=make or (lambda: torch.randn(4, 6)), baseline="g")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"flops": 2.5}, "flops=2.5: give a whole number"),
        ({"bytes_moved": -1}, "bytes_moved=-1: give a whole number"),
        ({"flops": True}, "flops=True: give a whole number"),
        ({"tolerance": 2}, "tolerance=2: give a fraction of the result's root mean square, from 0 to below 1"),
        ({"processes": 0}, "processes=0: give a whole number, from 1 to 32767"),
        ({"processes": 10**9}, "processes=1000000000: give a whole number, from 1 to 32767"),
        ({"timeout_s": float("inf")}, "timeout_s=inf: give a number of seconds above 0, at most 100000"),
        ({"timeout_s": -1}, "timeout_s=-1: give a number of seconds"),
        ({"name": "a/b"}, "the name cannot be 'a/b'"),
        ({"name": 3}, "the name cannot be 3"),
        ({"clock": 3}, "clock=3 has the type int"),
        ({"tolerance": "0.1"}, "tolerance=0.1: give a fraction"),
        ({"preset": "best"}, "unknown preset 'best'"),
    ],
)
def test_words_that_mean_nothing(asked: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=told):
        gs.compare(X, inputs=lambda: torch.randn(4, 6), baseline="g", out=tmp_path, **asked)


@pytest.mark.parametrize("before", [lambda x: x, lambda x: (2 * x).exp().sum(-1, keepdim=True) + x])
def test_a_reference_that_goes_down_on_the_way_is_refused(before: Callable[[Any], Any]) -> None:
    """As models write it: its result is in FP64, and no more exact than FP32. Also if it is not an input that goes
    down."""

    def norm(x: torch.Tensor) -> torch.Tensor:
        x = before(x)
        return (x.float() / x.float().square().mean(-1, keepdim=True).sqrt()).to(x.dtype)

    with pytest.raises(BadInput, match="on the way it goes down to float32; give a reference= that stays in"):
        gs.compare({"f": norm, "g": norm}, inputs=lambda: torch.randn(4, 6), baseline="g")


def test_what_does_not_come_from_the_inputs_may_be_coarser(tmp_path: Path) -> None:
    """Angles are made in FP32 by everybody; and a sum that is asked for in FP32 is none in FP64."""

    def turned(x: torch.Tensor) -> torch.Tensor:
        angles = (1 / 10000 ** (torch.arange(0, 6, dtype=torch.float64) / 6)).float()
        return x * angles.cos()

    run = gs.compare(
        {"f": turned, "g": lambda x: turned(x)},
        inputs=lambda: torch.randn(4, 6),
        baseline="f",
        preset="quick",
        processes=1,
        out=tmp_path,
    )
    assert run["g"].status == "PASSED"
    assert (run["g"].low, run["g"].high, run["g"].verdict) == (None, None, None)

    def summed(x: torch.Tensor) -> torch.Tensor:
        return x.sum(-1, dtype=torch.float32).to(x.dtype)

    with pytest.raises(BadInput, match="on the way it goes down to float32"):
        gs.compare({"f": summed, "g": summed}, inputs=lambda: torch.randn(4, 6), baseline="g")


def test_interrupted_it_ends_and_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls it in a loop wants to get out of the loop."""

    def interrupted(self: Any, processes: int | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("groundspeed.measure.runner.Runner.run", interrupted)
    with pytest.raises(KeyboardInterrupt, match="what was measured is in ") as raised:
        gs.compare(X, inputs=lambda: torch.randn(4, 6), baseline="g", out=tmp_path)
    left = Path(str(raised.value).rpartition(" ")[2])
    claims = words.claim_lines(check.verify(left)[1].judgement)
    assert [said for _, said in claims if "call gs.compare again" in said]


def test_what_triton_interpreted_has_no_claim(a_faster_one: Judgement) -> None:
    record = a_faster_one.record
    environment = {**record.environment, "variables": {"TRITON_INTERPRET": "1"}}
    with pytest.raises(GroundspeedError, match=r"TRITON_INTERPRET is set.*whose times mean nothing"):
        FunctionRun(judge(replace(record, environment=environment)), Path("bundle"), {}).claim()


def test_whole_numbers_alone_are_drawn_anew(tmp_path: Path) -> None:
    """Tokens of a model: a result that is kept would be right for the same ones."""
    table = torch.randn(100, 16)
    exact = table.double()
    kept: list[torch.Tensor] = []

    def keeps(ids: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept.append(table[ids])
        return kept[0].clone()

    run = gs.compare(
        {
            "keeps": keeps,
            "rows": lambda ids: torch.nn.functional.embedding(ids, table),
            "plain": lambda ids: table[ids],
        },
        inputs=lambda: torch.randint(0, 100, (32,)),
        reference=lambda ids: exact[ids],
        baseline="plain",
        preset="quick",
        processes=1,
        out=tmp_path,
    )
    assert [run[name].status for name in ("keeps", "rows", "plain")] == ["INCORRECT", "PASSED", "PASSED"]
    assert check.verify(run.path)[0].record.cases[0].params["ids"] == "int64:32"


@pytest.mark.slow
@pytest.mark.parametrize("two", [False, True])
def test_a_cache_by_content_gains_nothing(two: bool, tmp_path: Path) -> None:
    kept: dict[int, torch.Tensor] = {}

    def slow(x: torch.Tensor, *w: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            x = x.sin()
        return x * w[0] if w else x

    def keeps(x: torch.Tensor, *w: torch.Tensor) -> torch.Tensor:
        key = hash(tuple(one.numpy().tobytes() for one in (x, *w)))
        if key not in kept:
            kept[key] = slow(x, *w)
        return kept[key].clone()

    run = gs.compare(
        {"slow": slow, "keeps": keeps},
        inputs=lambda: (torch.randn(64, 32), torch.randn(32))[: 1 + two],
        baseline="slow",
        preset="quick",
        processes=1,
        out=tmp_path,
    )
    assert run["keeps"].status == "PASSED"
    assert run["keeps"].ratio < 1.05


def test_inputs_of_another_dtype_than_the_result_are_a_case() -> None:
    form = forms.Form(
        {"x": forms.Tensor((4, 8), "bf16"), "w": forms.Tensor((8,), "fp32")}, forms.Tensor((4, 8), "bf16")
    )
    suite = registry.Suite("functions", Functions(form), {})  # type: ignore[arg-type]
    (case,) = choose_cases(suite, request.Request("functions", "quick", device="cpu"), "cpu")
    assert case.params == {"x": "4x8", "w": "fp32:8", "output": "4x8", "dtype": "bf16"}


def test_a_reference_of_another_shape_is_refused() -> None:
    with pytest.raises(BadInput, match="the reference returns shape"):
        gs.compare(X, inputs=lambda: torch.randn(4, 6), baseline="g", reference=lambda x: x[:2])


def test_seeds_are_left_as_they_were() -> None:
    from groundspeed.suites.functions.suite import made

    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    first, second = (made(lambda: torch.randn(4), seed)[0] for seed in (1, 1))
    assert torch.equal(first, second)
    assert torch.equal(torch.randn(3), expected)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"x": "4", "output": "4", "dtype": "fp64"},
        {"x": "4", "output": "0", "dtype": "fp32"},
        {"x": "4x", "output": "4", "dtype": "fp32"},
        {"x": "fp32:4", "output": "4", "dtype": "fp32"},
        {"x": "9" * 15 + "x999", "output": "4", "dtype": "fp32"},
        {"x": "x".join("1" * 40), "output": "4", "dtype": "fp32"},
        {"x<b>": "4", "output": "4", "dtype": "fp32"},
        {"x": 4, "output": "4", "dtype": "fp32"},
        {"x": "4", "output": "4", "dtype": "fp32", "tolerance": 1.0},
        {"x": "4", "output": "4", "dtype": "fp32", "tolerance": float("nan")},
        {"x": "4", "output": "4", "dtype": "fp32", "flops": -1},
        {"x": "4", "output": "4", "dtype": "fp32", "flops": True},
        {"x": "4", "output": "4", "dtype": "fp32", "bytes_moved": 2**63},
        {"name": "", "x": "4", "output": "4", "dtype": "fp32"},
        {"name": "<b>", "x": "4", "output": "4", "dtype": "fp32"},
        {"name": 3, "x": "4", "output": "4", "dtype": "fp32"},
        {"output": "4", "dtype": "fp32", "x": "4"},
        {"x": "04", "output": "4", "dtype": "fp32"},
    ],
)
def test_a_record_with_other_parameters_is_of_no_such_case(params: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="not the parameters of a functions case"):
        gs.case_of("functions", **params)


def test_a_tolerance_that_was_asked_for_stands_in_the_record() -> None:
    case = gs.case_of("functions", x="4x8", output="4x8", dtype="bf16", tolerance=0.25)
    assert case.tolerance == {"rms_rel": 0.25}
    assert case.params["tolerance"] == 0.25


@pytest.mark.parametrize("command", ["run functions", "run functions --shape x=4"])
def test_the_command_line_sends_to_python(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "groundspeed", *shlex.split(command)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("groundspeed: functions can be compared only from the Python code that defines them")
