"""`gs.compare`: functions sent by value to fresh processes, checked, timed and judged as any contender is."""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import groundspeed as gs
from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import bundle
from groundspeed.lab import check, request, session
from groundspeed.report import commands

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
    """What is in a test module cannot be imported elsewhere by its name, so it is defined here, and goes by value."""
    kept: list[torch.Tensor] = []

    def wrong(ids: torch.Tensor, table: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return table[ids] * weight * 1.001

    def keeps(ids: torch.Tensor, table: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept.append(table[ids] * weight)
        return kept[0].clone()

    functions = {"plain": plain, "embedding": by_name, "wrong": wrong, "keeps": keeps}
    out = tmp_path_factory.mktemp("runs")
    return gs.compare(functions, inputs=make, baseline="plain", preset="quick", processes=2, flops=2048, out=out)


def test_the_bundle_verifies_and_says_what_was_compared(compared: Any) -> None:
    found, replay = check.verify(compared.path)
    (case,) = found.record.cases
    assert dict(case.params) == {
        "ids": "int64:64",
        "table": "100x32",
        "weight": "32",
        "output": "64x32",
        "dtype": "fp32",
        "flops": 2048,
    }
    assert (case.name, case.flops, case.bytes) == ("100x32-fp32", 2048, 8 * 64 + 4 * (3200 + 32 + 64 * 32))
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
    shown = repr(compared)  # as a notebook does
    assert shown == str(compared)
    assert "embedding" in shown
    assert "groundspeed verify" in shown
    assert "INCORRECT" in shown


def test_a_claim_is_what_the_evidence_supports_or_the_reason_why_not(compared: Any) -> None:
    try:
        said = compared.claim()
    except GroundspeedError as error:
        said = str(error)
    assert "embedding" in said
    assert "wrong is" not in said


def test_no_command_measures_it_again(compared: Any) -> None:
    record = bundle.read(compared.path).record
    with pytest.raises(BadInput, match=r"functions that gs\.compare was given, and they are gone; call it again"):
        request.repetition(record, "0" * 64, None, None, Path("runs"))
    with pytest.raises(BadInput, match=r"they are gone; call it again"):
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
    assert str(run).startswith("In this process only, and no claim (held cannot be pickled (TypeError: ")
    with pytest.raises(GroundspeedError, match="no claim: held cannot be pickled"):
        run.claim()
    assert list(tmp_path.iterdir()) == []


def test_here_too_nobody_wrong_is_timed() -> None:
    locked = _lock()
    with pytest.raises(BadInput, match="double returns something else than the reference does"):
        gs.compare({"double": lambda *x: 2 * locked(*x), "plain": plain}, inputs=make, baseline="plain")


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


X = {"f": lambda x: x + 1, "g": lambda x: 1 + x}


@pytest.mark.parametrize(
    ("functions", "make", "told"),
    [
        ({"f": X["f"]}, None, "give two"),
        ({"f": 3, "g": X["g"]}, None, "f is no function but int"),
        ({"f f": X["f"], "g": X["g"]}, None, "a contender's name cannot be 'f f'"),
        ({"f": X["f"], "other": X["g"]}, None, "unknown baseline 'g'"),
        (X, lambda: (torch.randn(4), 3), "g cannot be called|x1 is int and not a tensor"),
        (X, lambda: torch.randn(4, 6).T, "x is not contiguous"),
        (X, lambda: torch.randn(4).double(), r"x is in torch\.float64"),
        (X, lambda: torch.randn(0, 4), "x has the shape"),
        (X, lambda: torch.randint(0, 4, (4,)), "returns int64; have it return one tensor in fp32, fp16, bf16"),
        (X, _always, "makes the same tensors again and again; leave seeds to gs.compare"),
        ({"f": X["f"], "g": lambda x: (x, x)}, None, "g returns tuple"),
        ({"f": X["f"], "g": lambda x: x.float()}, None, "give reference=, a function that computes in FP64"),
        ({"f": X["f"], "g": lambda x: x @ x}, None, "g fails on the inputs"),
        ({"f": lambda x, y: x, "g": X["g"]}, None, "f cannot be called with what inputs.. makes, 1 tensors: missing"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence_with_the_way_out(
    functions: dict[str, Any], make: Any, told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        gs.compare(functions, inputs=make or (lambda: torch.randn(4, 6)), baseline="g")


def test_a_reference_of_another_shape_is_refused() -> None:
    with pytest.raises(BadInput, match="the reference returns the shape"):
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
        {"x": "int64:4", "output": "4", "dtype": "fp32"},
        {"x": "fp32:4", "output": "4", "dtype": "fp32"},
        {"x": "9" * 15 + "x999", "output": "4", "dtype": "fp32"},
        {"x": "x".join("1" * 40), "output": "4", "dtype": "fp32"},
        {"x<b>": "4", "output": "4", "dtype": "fp32"},
        {"x": 4, "output": "4", "dtype": "fp32"},
        {"x": "4", "output": "4", "dtype": "fp32", "tolerance": 1.0},
        {"x": "4", "output": "4", "dtype": "fp32", "tolerance": float("nan")},
        {"x": "4", "output": "4", "dtype": "fp32", "flops": -1},
        {"x": "4", "output": "4", "dtype": "fp32", "flops": True},
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
    assert done.stderr.startswith("groundspeed: functions are compared from Python")
