"""An output folder that cannot be written (issue 2): exit 4, one sentence, and nothing half-written looks complete."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from invocation import QUICK, Cli, Done, Script

from groundspeed.evidence import bundle, journal, store
from groundspeed.lab import check

FASTER = {"sdpa-math": 2e-3, "sdpa-flash": 1e-3}


def nothing_complete(runs: Path) -> bool:
    return store.finished(runs) == []


def test_out_under_a_file(cli: Cli, script: Script, tmp_path: Path) -> None:
    script(FASTER)
    (tmp_path / "file").write_text("mine")
    done = cli(*QUICK, "--out", "file/runs")
    assert done.code == 4
    assert "file/runs" in done.sentence
    assert "--out" in done.sentence
    assert (tmp_path / "file").read_text() == "mine"


def test_a_read_only_folder(cli: Cli, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere, so that the refusal of a read-only file system is played."""
    script(FASTER)

    def refuse(self: Path, *arguments: object, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    done = cli(*QUICK, "--out", "runs")
    assert done.code == 4
    assert "cannot write to runs: Read-only file system; choose another folder with --out" in done.sentence
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("after", [1, 2, 30])
def test_a_disk_that_fills_while_measuring(
    cli: Cli, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    script(FASTER)
    real, calls = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(journal.os, "fsync", full)
        done = cli(*QUICK)
    assert done.code == 4
    assert "No space left on device" in done.err
    assert ".groundspeed/runs" in done.err
    assert nothing_complete(tmp_path / store.RUNS)
    assert cli("show", "latest").code == 2
    (left,) = (tmp_path / store.RUNS).iterdir()
    assert cli("verify", left).code in (1, 2), "what is left is no bundle"
    assert cli("run", "--resume", left).code == 0, "with room again the run goes on"
    check.verify(store.finished(tmp_path / store.RUNS)[-1])


def test_a_disk_that_fills_at_the_very_end(
    cli: Cli, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is whole; writing the bundle fails."""
    script(FASTER)

    def full(path: Path, content: bytes) -> None:
        path.write_bytes(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(bundle, "_write_through", full)
        done = cli(*QUICK)
    assert done.code == 4
    assert "No space left on device" in done.err
    assert nothing_complete(tmp_path / store.RUNS)
    (left,) = (tmp_path / store.RUNS).iterdir()
    assert left.name.endswith(store.PARTIAL), "nothing half-written, and the journal is still there"
    assert cli("run", "--resume", left).code == 0


FULL = """
    import resource, sys
    sys.path.insert(0, {tests!r})
    from fakes import FakeClock, FakeWorker, no_fault, noisy
    from groundspeed.cli import main
    from groundspeed.lab import check, declare, session
    from groundspeed.report import screen

    session.ProcessWorker = lambda command, threads, gpu: FakeWorker(
        FakeClock(), noisy({{"sdpa-math": 2e-3, "sdpa-flash": 1e-3}}), no_fault
    )
    if {limit}:
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
    sys.argv = ["groundspeed", *{arguments!r}]
    main()
"""


def limited(arguments: list[str], limit: int, cwd: Path) -> Done:
    """A run in a process that can write no file beyond `limit` bytes: a write really fails, in the middle."""
    tests = str(Path(__file__).parent.parent)
    source = textwrap.dedent(FULL).format(tests=tests, limit=limit, arguments=arguments)
    done = subprocess.run([sys.executable, "-c", source], cwd=cwd, capture_output=True, text=True, timeout=60)
    return Done(done.returncode, done.stdout, done.stderr)


def test_a_write_that_really_fails_in_the_middle(tmp_path: Path) -> None:
    done = limited([*QUICK, "--out", "runs"], 8192, tmp_path)
    assert done.code == 4
    (left,) = (tmp_path / "runs").iterdir()
    assert f"cannot write to {left.relative_to(tmp_path)}" in done.sentence
    assert "File too large" in done.sentence
    assert nothing_complete(tmp_path / "runs")
    again = limited(["run", "--resume", str(left), "--out", "runs"], 0, tmp_path)
    assert again.code == 0, again.err
    assert check.verify(store.finished(tmp_path / "runs")[-1])[0].record.complete


@pytest.mark.parametrize("where", ["nosuch/report.md", ".", "file/report.md"])
def test_a_report_that_cannot_be_written(cli: Cli, script: Script, tmp_path: Path, where: str) -> None:
    script(FASTER)
    assert cli(*QUICK).code == 0
    (tmp_path / "file").write_text("")
    for command in (("report", "latest", "--md", where), ("doctor", "--write", where)):
        done = cli(*command)
        assert done.code == 2
        assert f"cannot write {where}: " in done.sentence


def test_a_report_is_written_whole_or_not_at_all(
    cli: Cli, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(FASTER)
    assert cli(*QUICK).code == 0
    (tmp_path / "report.md").write_text("the report of yesterday")

    def full(self: Path, content: str, **options: object) -> None:
        with self.open("w") as file:
            file.write(content[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        done = cli("report", "latest", "--md", "report.md")
    assert done.code == 4
    assert "No space left on device" in done.sentence
    assert (tmp_path / "report.md").read_text() == "the report of yesterday"
    assert {path.name for path in tmp_path.iterdir()} == {".groundspeed", "report.md"}
