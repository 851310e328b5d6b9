"""Every example runs. A file in examples/ that nothing here runs is a failure."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from groundspeed.lab import session
from groundspeed.lab.check import verify
from groundspeed.lab.request import Request
from groundspeed.report.words import claim_lines

EXAMPLES = Path(__file__).parents[2] / "examples"
CONTENDERS = {"my_kernel.py": ("mine",), "itself.py": (*(f"again-{i}" for i in range(1, 6)), "planted")}
"""Files for `--with`, and what they register."""
TEXTS = ("claims.md",)
"""Texts whose check docs/commands.md quotes."""
WORKFLOWS = ("ci",)
"""What tests/lab/test_workflow.py runs."""
SCRIPTS = ("llama_generate.py", "prove_speedup.py", "test_speed.py")
"""What tests/hf/test_hf_example.py runs, a test below, and tests/test_pytest_plugin.py."""


def test_every_example_has_a_test() -> None:
    found = {path.name for path in EXAMPLES.iterdir() if path.name != "__pycache__"}
    assert found == {*CONTENDERS, *TEXTS, *WORKFLOWS, *SCRIPTS}
    commands = (EXAMPLES.parent / "docs" / "commands.md").read_text()
    assert all(f"<!-- output: groundspeed claims check examples/{text} -->" in commands for text in TEXTS)


@pytest.mark.parametrize("file", CONTENDERS)
def test_an_example_says_how_to_run_it(file: str) -> None:
    assert f"groundspeed run attention --preset quick --with examples/{file}" in (EXAMPLES / file).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("file", CONTENDERS)
def test_a_contender_file_runs_and_is_judged(file: str, tmp_path: Path) -> None:
    """On shapes of one block and of several, not multiples of them, with each mask and in 16 bits."""
    request = Request(
        "attention",
        "quick",
        shape=("S=16,D=16,H=1", "S=300,D=24,H=1", "S=513,D=16,H=2,causal=1"),
        dtype=("fp32", "bf16") if file == "my_kernel.py" else ("fp32",),
        only=("sdpa-flash",),
        with_files=(str(EXAMPLES / file),),
        processes=2,
        warmup_s=0.01,
        out=tmp_path,
    )
    made = session.run(request)
    judgement = verify(made.path)[1].judgement
    assert made.record.complete
    assert made.record.run.judged == CONTENDERS[file]
    assert {(o.status, o.reason) for o in made.record.outcomes} == {("PASSED", None)}
    for case in judgement.cases:
        for name in CONTENDERS[file]:
            comparison = case.result(name).comparison
            assert comparison is not None
            assert comparison.verdict in {"FASTER", "SAME", "SLOWER", "UNCLEAR"}


@pytest.mark.slow
def test_prove_speedup_says_verdict_claim_and_where_its_bundle_lies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = EXAMPLES / "prove_speedup.py"
    assert "python examples/prove_speedup.py" in example.read_text()
    runpy.run_path(str(example))["main"](["--device", "cpu", "--sequence", "64", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    bundle, replay = verify(path)
    assert f"groundspeed verify {path}" in said
    assert bundle.record.run.baseline == "before"
    assert {(o.contender, o.status) for o in bundle.record.outcomes} == {("before", "PASSED"), ("after", "PASSED")}
    comparison = replay.judgement.cases[0].result("after").comparison
    assert comparison is not None
    assert str(comparison.verdict) in said
    ((_, claim),) = claim_lines(replay.judgement)
    assert " ".join(claim.split()) in " ".join(said.split())


def test_prove_speedup_says_in_one_sentence_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLES / "prove_speedup.py"))["main"]
    with pytest.raises(SystemExit) as ended:
        main(["--device", "cpu", "--sequence", "0"])
    assert ended.value.code == 2
    assert "q has shape [1, 4, 0, 64]; it needs elements" in capsys.readouterr().err
