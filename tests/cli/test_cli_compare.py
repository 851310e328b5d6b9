"""`groundspeed compare` (C2): of revisions in real repositories with scripted workers, and of bundles."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invocation import BundleOf, Cli, Done, printed_commands

from fakes import FakeClock, FakeWorker, Seconds, no_fault, noisy
from groundspeed.evidence import bundle, store
from groundspeed.evidence.revision import SIDES, installed_of, revisions_of
from groundspeed.lab import revisions, session
from groundspeed.report.regression import MARK
from repositories import CONTENDER, KERNEL, commit, git, with_two_revisions

HOW = ("--with", "bench.py", "--preset", "quick", "--device", "cpu", "--shape", "S=64,causal=0", "--seed", "7")
SLOWER = {"mine@base": 1e-3, "mine@head": 1.1e-3}


class Member(FakeWorker):
    """Of a team: time is everybody's."""

    now = 0.0

    def spend(self, seconds: float) -> float:
        begin, Member.now = Member.now, Member.now + seconds
        return begin


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`script(means)`: revisions are measured with scripted workers from here on."""

    def install(times: Mapping[str, float] | Seconds, noise: float = 0.005) -> None:
        seconds = times if callable(times) else noisy(times, noise)
        monkeypatch.setattr(
            session, "ProcessWorker", lambda command, threads, gpu: Member(FakeClock(), seconds, no_fault)
        )

    return install


@pytest.fixture
def scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where worktrees are put, alone."""
    folder = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def compare(cli: Cli, *arguments: object) -> Done:
    return cli("compare", *arguments, *HOW)


def test_a_slow_down_between_two_revisions_is_found_and_told(
    cli: Cli, script: Callable[..., None], tmp_path: Path, scratch: Path
) -> None:
    base, head = with_two_revisions(tmp_path)
    script(SLOWER)
    done = compare(cli, "HEAD~1", "main", "--markdown", "comment.md", "--json", "all.json")
    assert done.code == 1, done.err
    assert "REGRESSED: 1 regressed of 1 comparison" in done.out
    assert f"HEAD~1 ({base[:12]}) → main ({head[:12]})" in done.out
    comment = Path("comment.md").read_text().splitlines()
    assert comment[:2] == [MARK, "### groundspeed: REGRESSED: 1 regressed of 1 comparison"]
    told = json.loads(Path("all.json").read_text())
    assert told["overall"] == "REGRESSED"
    assert told["changes"][0]["speed"] == pytest.approx(1 / 1.1, rel=0.01)
    (made,) = store.finished(store.RUNS)
    record = bundle.read(made).record
    assert {r.name: r.commit for r in revisions_of(record.environment).values()} == {
        "mine@base": base,
        "mine@head": head,
    }
    assert record.protocol.isolated
    assert record.run.with_files == ("bench.py",)
    assert [c.version for c in record.measured] == [f"commit {base[:12]}", f"commit {head[:12]}"]
    assert len({c.source_sha256 for c in record.measured}) == 2  # the file is the same, what it imports is not
    for command in (("verify", "latest"), ("show", "latest")):
        assert cli(*command).code == 0
    report = cli("report", "latest", "--md", "-").out
    assert f"commit {base[:12]}" in report
    assert "a profile needs the code, and what was compared is gone" in report
    for refused in ("--resume", "--reproduce"):
        assert f"groundspeed compare {base[:12]} {head[:12]} --suite" in cli("run", refused, "latest").sentence
    codes = [cli(*command).code for command in printed_commands(report)]
    assert codes == [0, 1, 0], "it is found again"
    again = bundle.read(store.finished(store.RUNS)[-1]).record
    assert again.protocol.seed != record.protocol.seed
    assert (again.cases, again.run.with_files) == (record.cases, record.run.with_files)
    assert git(tmp_path, "worktree", "list").count("\n") == 0
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("head", "noise", "code", "said"),
    [
        (0.9e-3, 0.005, 0, "NO REGRESSION: 1 improved of 1 comparison"),
        (1e-3, 0.005, 0, "NO REGRESSION: 1 same of 1 comparison"),
        (1.01e-3, 0.2, 3, "UNCLEAR: 1 unclear of 1 comparison; 1 unclear one may hide a regression"),
    ],
)
def test_the_exit_code_is_the_answer(
    cli: Cli, script: Callable[..., None], tmp_path: Path, head: float, noise: float, code: int, said: str
) -> None:
    with_two_revisions(tmp_path)
    script({"mine@base": 1e-3, "mine@head": head}, noise=noise)
    done = compare(cli, "HEAD~1", "HEAD")
    assert done.code == code, done.err
    assert said in done.out


def test_head_is_the_commit_and_a_dot_is_the_tree_as_it_is(
    cli: Cli, script: Callable[..., None], tmp_path: Path
) -> None:
    base = commit(tmp_path, {"bench.py": CONTENDER, KERNEL: "ROUNDS = 1\n"})
    (tmp_path / KERNEL).write_text("ROUNDS = 3\n")
    script(SLOWER)
    done = compare(cli, "HEAD", "HEAD")
    assert "both revisions have the same content" in done.out
    assert "HEAD is the commit, without the changes in the working tree" in done.out
    done = compare(cli, "HEAD", ".")
    assert f"the working tree ({base[:12]}+changes)" in done.out
    assert "same content" not in done.out
    record = bundle.read(store.finished(store.RUNS)[-1]).record
    assert revisions_of(record.environment)["mine@head"].commit == f"{base}+changes"


def test_dependencies_that_differ_and_contenders_of_one_side_are_told(
    cli: Cli, script: Callable[..., None], tmp_path: Path
) -> None:
    project = '[project]\nname = "project"\nversion = "1"\ndependencies = ["{}"]\n'
    commit(tmp_path, {"bench.py": CONTENDER, KERNEL: "ROUNDS = 1\n", "pyproject.toml": project.format("numpy>=1")})
    more = CONTENDER + CONTENDER.replace("def mine", "def newer")
    commit(tmp_path, {"bench.py": more, "pyproject.toml": project.format("numpy>=2")})
    script(SLOWER)
    done = compare(cli, "HEAD~1", "HEAD", "--no-venv")
    asked = "the dependencies differ (base numpy>=1; head numpy>=2)"
    assert f"{asked}: both were measured with what is installed here" in " ".join(done.out.split())
    assert "newer is only in head" in done.out
    (made,) = store.finished(store.RUNS)
    assert {one.met for one in installed_of(bundle.read(made).record.environment).values()} == {"unknown"}


def test_ctrl_c_leaves_evidence_and_no_worktree(
    cli: Cli, script: Callable[..., None], tmp_path: Path, scratch: Path
) -> None:
    with_two_revisions(tmp_path)
    times, count = noisy(SLOWER, 0.005), [0]

    def interrupted(contender: str, case: str, block: int) -> float:
        count[0] += 1
        if count[0] > 50:
            raise KeyboardInterrupt
        return times(contender, case, block)

    script(interrupted)
    done = compare(cli, "HEAD~1", "HEAD")
    assert done.code == 3
    assert "interrupted" in done.err
    assert len(store.finished(store.RUNS)) == 1
    assert git(tmp_path, "worktree", "list").count("\n") == 0
    assert list(scratch.iterdir()) == []


def with_second(folder: Path) -> None:
    both = CONTENDER + CONTENDER.replace("def mine", "def second")
    commit(folder, {"bench.py": both, KERNEL: "ROUNDS = 1\n"})
    commit(folder, {KERNEL: "ROUNDS = 2\n"})


@pytest.mark.parametrize("measured", [0, 30, 70])
def test_a_contender_that_ctrl_c_kept_from_being_measured_is_no_pass(
    cli: Cli, script: Callable[..., None], tmp_path: Path, measured: int
) -> None:
    """The first contender got faster, the second has nothing, or a process or two: a gate must not turn green."""
    with_second(tmp_path)
    faster = {f"{name}@{side}": 1e-3 if side == "base" else 0.9e-3 for name in ("mine", "second") for side in SIDES}
    times, count = noisy(faster, 0.005), [0]

    def interrupted(contender: str, case: str, block: int) -> float:
        count[0] += contender.startswith("second")
        if count[0] > measured:
            raise KeyboardInterrupt
        return times(contender, case, block)

    script(interrupted)
    done = compare(cli, "HEAD~1", "HEAD", "--json", "all.json")
    assert done.code == 3
    assert "; the run was interrupted" in done.out
    assert "--resume" not in done.out + done.err
    told = json.loads(Path("all.json").read_text())
    assert (told["overall"], told["incomplete"]) == ("UNCLEAR", "the run was interrupted")
    assert told["changes"][0]["verdict"] == "IMPROVED"


def test_a_contender_asked_for_by_name_that_cannot_run_here_is_no_pass(
    cli: Cli, script: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_second(tmp_path)
    script({"mine@base": 1e-3, "mine@head": 0.9e-3})
    load = revisions.load

    def without_second(*arguments: Any) -> Any:
        suites = load(*arguments)
        for side, suite in suites.items():
            second = suite.contenders[f"second@{side}"]
            suite.contenders[f"second@{side}"] = replace(second, absent=lambda device: "no GPU")
        return suites

    monkeypatch.setattr(revisions, "load", without_second)
    assert compare(cli, "HEAD~1", "HEAD").code == 0
    done = compare(cli, "HEAD~1", "HEAD", "--only", "mine,second")
    assert done.code == 3
    assert "UNCLEAR: 1 improved of 1 comparison; second cannot run here" in done.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nosuch", "HEAD"), "'nosuch' is neither a bundle nor a revision of"),
        (("HEAD", "--nosuch"), "no such option: --nosuch"),
        (("HEAD~1", "HEAD", "--with", "new.py"), "--with new.py: base (HEAD~1) has no such file"),
        (("HEAD~1", "HEAD", "--with", "src/project/kernel.py"), "registers no contender of attention"),
        (("HEAD~1", "HEAD", "--with", "broken.py"), "--with broken.py: line 1: ZeroDivisionError"),
        (("HEAD~1", "HEAD"), "name the file that defines yours with --with FILE"),
        (("HEAD~1", "HEAD", "--with", "bench.py", "--only", "mien"), "unknown contender of both revisions 'mien'"),
        (("HEAD~1", "HEAD", "--with", "bench.py", "--suite", "atention"), "unknown suite 'atention'"),
        (("HEAD~1", "HEAD", "--with", "bench.py", "--preset", "qick"), "unknown preset 'qick'"),
        ((".", "."), "both are the working tree"),
        (("HEAD~1", "HEAD", "--force"), "--force is only for bundles"),
        (("latest", "HEAD"), "latest is a bundle and HEAD is not"),
    ],
)
def test_bad_input_is_one_sentence(
    cli: Cli, bundle_of: BundleOf, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    commit(tmp_path, {"bench.py": CONTENDER, KERNEL: "ROUNDS = 1\n", "broken.py": "1 / 0\n"})
    commit(tmp_path, {"new.py": CONTENDER})
    bundle_of()
    done = cli("compare", *arguments)
    assert done.code == 2
    assert sentence in done.sentence
    assert done.out == ""


def test_outside_of_a_repository_there_are_no_revisions(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    done = cli("compare", "main", "HEAD")
    assert done.code == 2
    assert "is not in a git repository" in done.sentence


def two(bundle_of: BundleOf, ours: float = 1.5e-4, **changes: Any) -> tuple[Path, Path]:
    base = bundle_of(seed=1)
    return base.path, bundle_of({"sdpa-math": 3e-4, "sdpa-flash": ours}, seed=2, **changes).path


def test_two_bundles_are_compared_with_what_is_the_same_in_both(cli: Cli, bundle_of: BundleOf) -> None:
    base, head = two(bundle_of, 1.8e-4)
    done = cli("compare", base, head, "--markdown", "-")
    assert done.code == 1
    assert done.out.startswith(f"{MARK}\n### groundspeed: REGRESSED: 2 regressed of 2 comparisons\n")
    assert "each contender was compared with sdpa-math in its own run" in done.out
    assert cli("compare", head, base).code == 0


def test_the_same_bundle_twice_and_flags_of_measuring_are_refused(cli: Cli, bundle_of: BundleOf) -> None:
    base, head = two(bundle_of)
    assert "are the same bundle" in cli("compare", base, base).sentence
    assert "--preset is only for measuring revisions" in cli("compare", base, head, "--preset", "quick").sentence
    assert "--no-venv is only for measuring revisions" in cli("compare", base, head, "--no-venv").sentence


def test_another_protocol_is_refused(cli: Cli, bundle_of: BundleOf) -> None:
    base, head = two(bundle_of, threads=2)
    done = cli("compare", base, head)
    assert done.code == 2
    assert "the number of threads is 1 in base and 2 in head" in done.sentence


def test_other_hardware_is_compared_by_force_and_every_line_says_so(cli: Cli, bundle_of: BundleOf) -> None:
    base, head = two(bundle_of)
    found = bundle.read(head)
    environment = {**found.record.environment, "cpu": {"name": "Other <b>CPU</b>", "cores": 2}}
    other = bundle.write(replace(found.record, environment=environment), store.RUNS, "other").path
    refused = cli("compare", base, other)
    assert refused.code == 2
    assert "different hardware" in refused.sentence
    forced = cli("compare", base, other, "--force", "--markdown", "-")
    rows = [line for line in forced.out.splitlines() if line.startswith("| b")]
    assert len(rows) == 2
    assert all("(other hardware)" in row for row in rows)
    assert "<b>" not in forced.out


@pytest.mark.parametrize("damage", ["samples", "facts", "manifest"])
def test_a_bundle_that_does_not_verify_is_bad_input_and_no_regression(
    cli: Cli, bundle_of: BundleOf, damage: str
) -> None:
    base, head = two(bundle_of)
    (file,) = head.glob(f"{damage}.*")
    file.write_bytes(file.read_bytes()[:-10] + b"0123456789")
    done = cli("compare", base, head)
    assert done.code == 2
    assert done.sentence
