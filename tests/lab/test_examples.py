"""Every example runs. A file in examples/ that nothing here runs is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundspeed.lab import session
from groundspeed.lab.check import verify
from groundspeed.lab.request import Request

EXAMPLES = Path(__file__).parents[2] / "examples"
CONTENDERS = {"my_kernel.py": ("mine",), "itself.py": (*(f"again-{i}" for i in range(1, 6)), "planted")}
"""Files for `--with`, and what they register."""
TEXTS = ("claims.md",)
"""Texts whose check docs/commands.md quotes."""
WORKFLOWS = ("ci",)
"""What tests/lab/test_workflow.py runs."""
SCRIPTS = ("llama_generate.py",)
"""What tests/hf/test_hf_example.py runs."""


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
