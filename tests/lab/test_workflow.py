"""The workflow of examples/ci: its steps run here, with a `groundspeed` in its place that answers as it is told. Its
YAML was held against GitHub's schema and actionlint by hand."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
import typer

from groundspeed.cli import app
from groundspeed.report.regression import MARK
from repositories import commit, git

WORKFLOW = (Path(__file__).parents[2] / "examples" / "ci" / "groundspeed-compare.yml").read_text()


def step(name: str) -> str:
    found = re.search(rf"- name: {name}\n(?:.*\n)*?        run: \|\n((?:          .*\n|\n)+)", WORKFLOW)
    assert found, name
    return textwrap.dedent(found[1])


def run(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """As GitHub does."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("code", "strict", "answer", "said"),
    [
        (0, "false", 0, "no regression"),
        (1, "false", 1, "::error::slower"),
        (3, "false", 0, "::warning::"),
        (3, "true", 3, "::warning::"),
        (2, "false", 2, "::error::it was not measured"),
        (4, "false", 4, "::error::it was not measured"),
    ],
)
def test_the_answer_of_compare_is_that_of_the_job(
    tmp_path: Path, code: int, strict: str, answer: int, said: str
) -> None:
    """C2: base is where the pull request forked, its comment goes to the summary, and its exit code is respected."""
    fork = commit(tmp_path / "clone", {"a.py": ""})
    head = commit(tmp_path / "clone", {"a.py": "1\n"})
    git(tmp_path / "clone", "checkout", "-q", fork)
    base = commit(tmp_path / "clone", {"b.py": ""})
    stand_in = tmp_path / "bin" / "groundspeed"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" > asked\necho told > comment.md\nexit {code}\n')
    stand_in.chmod(0o755)
    done = run(
        step("Compare"),
        tmp_path / "clone",
        PATH=f"{stand_in.parent}{os.pathsep}{os.environ['PATH']}",
        BASE=base,
        HEAD=head,
        CONTENDERS="bench/my own.py",
        SUITE="attention",
        PRESET="quick",
        ARGUMENTS="--case medium-full --dtype fp32",
        GITHUB_OUTPUT=str(tmp_path / "output"),
        GITHUB_STEP_SUMMARY=str(tmp_path / "summary"),
    )
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "clone" / "asked").read_text().splitlines()
    assert asked[:3] == ["compare", fork, head]
    assert asked[-4:] == ["--case", "medium-full", "--dtype", "fp32"]
    assert "bench/my own.py" in asked
    known = {flag for parameter in typer.main.get_command(app).commands["compare"].params for flag in parameter.opts}  # type: ignore[attr-defined]
    assert {word for word in asked if word.startswith("--")} <= known
    assert (tmp_path / "output").read_text() == f"code={code}\n"
    assert (tmp_path / "summary").read_text() == "told\n"
    done = run(step("Answer"), tmp_path, CODE=str(code), FAIL_ON_UNCLEAR=strict)
    assert done.returncode == answer
    assert said in done.stdout


def test_the_comment_is_found_again_by_its_mark() -> None:
    assert f'startswith("{MARK}")' in step("Write the comment, or write it anew")
