"""D4: when the machine code of a bundle can be compared with what is here, and what that says."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from fakes import begin, continue_run, header, noisy
from groundspeed.case import Contender
from groundspeed.evidence.launched import Launched
from groundspeed.evidence.record import Record
from groundspeed.lab import rebuild, sources
from groundspeed.measure.binaries import FORM
from groundspeed.measure.environment import ptxas
from groundspeed.suites.registry import suite_module

THEN, NOW = f"{FORM}{'ab' * 32}", f"{FORM}{'cd' * 32}"
OURS = "ours-portable"
TRITON = version("triton")


def ours() -> Contender:
    return next(contender for contender in suite_module("attention").contenders() if contender.name == OURS)


def names(record: Record) -> list[str]:
    return [case.name for case in record.cases]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Of our kernel on an H200, from a source that is no longer here."""
    begin(tmp_path, header(["sdpa-math", OURS])).close()
    made = continue_run(tmp_path, noisy({"sdpa-math": 1e-3, OURS: 1e-3}, 0.005))
    launched = tuple(Launched(case.name, OURS, ("attention_forward_kernel",), (THEN,), ()) for case in made.cases)
    return replace(
        made,
        contenders=(made.contenders[0], replace(made.contenders[1], source_sha256="ab" * 32)),
        environment={
            "gpu": {"compute_capability": "9.0"},
            "packages": {"triton": TRITON},
            "worker": {"ptxas": ptxas((9, 0))},
        },
        launched=launched,
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was to be compiled; each comes out as it was, the last as another."""
    calls: list[tuple[Any, ...]] = []

    def compiled(*arguments: Any) -> list[list[str]]:
        calls.append(arguments)
        return [[THEN]] * (len(arguments[3]) - 1) + [[NOW]]

    monkeypatch.setattr(rebuild, "compiled", compiled)
    return calls


def test_every_case_is_compiled_as_it_was_measured(record: Record, asked: list[tuple[Any, ...]]) -> None:
    assert rebuild.changed_cases(record, ours(), names(record)) == [record.cases[-1].name]
    assert asked == [("attention", OURS, (9, 0), [dict(case.params) for case in record.cases], TRITON, ptxas((9, 0)))]


def test_what_is_not_quoted_is_not_compiled(record: Record, asked: list[tuple[Any, ...]]) -> None:
    first = record.cases[0]
    assert rebuild.changed_cases(record, ours(), [first.name]) == [first.name]
    by_clock = replace(first, name=f"{first.name}@warm", params={**first.params, "clock": "warm"}, aliases=())
    passed = next(o for o in record.outcomes if (o.case, o.contender) == (first.name, OURS))
    outcomes = (*record.outcomes, replace(passed, case=by_clock.name))
    both = replace(record, cases=(*record.cases, by_clock), outcomes=outcomes)
    assert rebuild.changed_cases(both, ours(), [by_clock.name]) == [first.name], "the same work"
    assert [call[3] for call in asked] == [[dict(first.params)]] * 2


def test_where_it_differs_the_figures_are_stale(record: Record, asked: list[tuple[Any, ...]]) -> None:
    ((sentence, stale, _),) = sources.changes(record, names(record))
    where = record.cases[-1].name
    assert sentence == f"{OURS} is not the kernel that was measured: its machine code on {where} changed"
    assert stale


def test_where_it_is_the_same_they_are_not(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "compiled", lambda *arguments: [[THEN]] * len(arguments[3]))
    ((sentence, stale, _),) = sources.changes(record, names(record))
    assert (sentence, stale) == (f"{OURS} has the same machine code, although its code changed", False)


def test_nothing_is_compiled_unasked_or_without_need(record: Record, asked: list[tuple[Any, ...]]) -> None:
    ((_, stale, compared),) = sources.changes(record)
    assert (stale, compared) == (True, True)
    here = ours().source_hash()
    same = replace(record, contenders=(record.contenders[0], replace(record.contenders[1], source_sha256=here)))
    assert list(sources.changes(same, names(record))) == []
    code = {**record.environment, sources.CODE: {OURS: sources.code_hash(ours())}}
    assert list(sources.changes(replace(record, environment=code), names(record))) == []
    assert asked == []


def without(record: Record, **parts: Any) -> Record:
    return replace(record, environment={**record.environment, **parts})


@pytest.mark.parametrize(
    ("unlike", "why"),
    [
        (lambda r: replace(r, launched=()), "its machine code was not recorded"),
        (lambda r: replace(r, launched=r.launched[1:]), "its machine code was not recorded"),
        (
            lambda r: replace(r, launched=tuple(replace(seen, binaries=("ab" * 32,)) for seen in r.launched)),
            "its machine code was recorded with source line numbers in it",
        ),
        (
            lambda r: without(r, variables={"TRITON_PTXAS_PATH": "ptxas"}),
            "TRITON_PTXAS_PATH was set when it was compiled",
        ),
        (lambda r: without(r, gpu=None), "the GPU that it was compiled for was not recorded"),
        (lambda r: without(r, gpu={"compute_capability": "9.x"}), "the GPU that it was compiled for was not recorded"),
        (
            lambda r: without(r, packages={"triton": "0.0.1"}),
            "it was compiled by triton '0.0.1', which is not installed here; to install it: pip install --no-deps "
            f"--target {Path(sys.prefix) / 'triton-0.0.1'} triton==0.0.1",
        ),
        (lambda r: without(r, worker=None), "the ptxas that assembled it was not recorded"),
        (lambda r: without(r, packages=None), "it was compiled by triton '', which is not installed here"),
    ],
)
def test_where_it_cannot_be_told_the_source_decides(record: Record, unlike: Any, why: str) -> None:
    with pytest.raises(rebuild.CannotTell, match=re.escape(why)):
        rebuild.changed_cases(unlike(record), ours(), names(record))
    ((sentence, stale, compared),) = sources.changes(unlike(record), names(record))
    assert sentence == f"cannot tell whether {OURS} is the kernel that was measured ({why}): its source changed"
    assert (stale, compared) == (True, False)
    known = without(unlike(record), **{sources.CODE: {OURS: "cd" * 32}})
    ((sentence, stale, compared),) = sources.changes(known, names(record))
    assert sentence == f"{OURS} may not be the kernel that was measured ({why}): its code changed"
    assert (stale, compared) == (True, False)


def test_a_bundle_chooses_no_folder_to_run_code_from(record: Record, tmp_path: Path) -> None:
    """The version that it names is part of a path."""
    (tmp_path / "triton-" / "triton").mkdir(parents=True)
    (tmp_path / "evil" / "triton").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "prefix", str(tmp_path))
        for name in ("/../evil", "../evil", ""):
            with pytest.raises(rebuild.CannotTell, match="which is not installed here"):
                rebuild.changed_cases(without(record, packages={"triton": name}), ours(), names(record))


@pytest.mark.slow
def test_the_whole_way(record: Record) -> None:
    """Compiled for the GPU of the record, by the Triton of the record."""
    made = rebuild.compiled(
        "attention", OURS, (9, 0), [dict(case.params) for case in record.cases], TRITON, ptxas((9, 0))
    )
    assert all(len(found) == 1 for found in made)
    launched = [replace(seen, binaries=tuple(now)) for seen, now in zip(record.launched, made, strict=True)]
    ((_, stale, _),) = sources.changes(replace(record, launched=tuple(launched)), names(record))
    assert not stale
    launched[0] = replace(launched[0], binaries=(THEN,))
    ((sentence, stale, _),) = sources.changes(replace(record, launched=tuple(launched)), names(record))
    assert sentence.endswith(f"its machine code on {record.cases[0].name} changed")
    assert stale


@pytest.mark.slow
def test_what_cannot_be_compiled_says_why() -> None:
    with pytest.raises(rebuild.CannotTell, match=r"it cannot be compiled here: .*BadInput"):
        rebuild.compiled("attention", OURS, (9, 0), [{"B": 1}], TRITON, ptxas((9, 0)))


@pytest.mark.slow
def test_another_assembler_makes_other_machine_code(record: Record) -> None:
    with pytest.raises(rebuild.CannotTell, match=r"it was assembled by ptxas 0\.1, and ptxas \d+"):
        rebuild.changed_cases(without(record, worker={"ptxas": "0.1"}), ours(), names(record))
