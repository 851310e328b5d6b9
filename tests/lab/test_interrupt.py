"""A real run that is killed or interrupted: what was measured stays, no worker does, and `--resume` completes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from groundspeed.evidence import journal, store
from groundspeed.lab.check import verify

GROUNDSPEED = [sys.executable, "-c", "from groundspeed.cli import main; main()"]
RUN = [*GROUNDSPEED, "run", "attention", "--preset", "quick", "--processes", "2", "--warmup", "0.01"]
SHAPES = ["--shape", "S=16,D=16,H=1", "--shape", "S=32,D=16,H=1"]

pytestmark = pytest.mark.slow


def wait_until(condition: Callable[[], object], what: str, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:.0f} s"
        time.sleep(0.01)


def written(runs: Path, words: bytes) -> bool:
    return any(words in path.read_bytes() for path in runs.glob(f"*{store.PARTIAL}/{journal.FILE}"))


def _listen() -> None:
    """A shell starts what it puts into the background deaf to Ctrl-C, these tests with all their children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def started(runs: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*RUN, *SHAPES, "--out", str(runs), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_listen,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Send the signal; the exit code and what it said, once none of its workers is left."""
    runner = psutil.Process(process.pid)
    wait_until(runner.children, "a worker that could be left behind")
    family = runner.children(recursive=True)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    wait_until(lambda: all(map(ended, family)), "the end of all workers", 10)
    return process.returncode, errors


def ended(process: psutil.Process) -> bool:
    """Also one that nobody has asked for its exit code, as where the container's first process does not."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def resume(name: str, runs: Path) -> None:
    done = subprocess.run(
        [*GROUNDSPEED, "run", "--resume", name, "--out", str(runs)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_killed_run_leaves_no_worker_and_can_be_completed(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        wait_until(lambda: written(tmp_path, b'"kind":"block"'), "a block")
        code, _ = end(process, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert store.finished(tmp_path) == []
    (partial,) = tmp_path.glob(f"*{store.PARTIAL}")
    before = journal.to_record(journal.read_events(partial), "journal")
    resume(str(partial), tmp_path)
    (path,) = store.finished(tmp_path)
    record = verify(path)[0].record
    assert record.complete
    assert record.finished_attempts == {0: 1, 1: 0}
    for name, column in before.samples.items():
        assert np.array_equal(record.samples[name][: len(column)], column, equal_nan=True)


def test_ctrl_c_leaves_a_valid_bundle_and_exit_code_3(tmp_path: Path) -> None:
    with started(tmp_path, "--processes", "6") as process:  # so many that it does not end before it is told to
        wait_until(lambda: written(tmp_path, b'"kind":"process end"'), "a process")
        code, errors = end(process, signal.SIGINT)
    assert code == 3
    assert "--resume" in errors
    (path,) = store.finished(tmp_path)
    left = verify(path)[0]
    assert not left.record.complete
    assert left.record.finished_attempts[0] == 0
    assert list(tmp_path.glob(f"*{store.PARTIAL}")) == []
    resume(left.short, tmp_path)
    complete = [p for p in store.finished(tmp_path) if p != path]
    assert [verify(p)[0].record.complete for p in complete] == [True]
    assert len(verify(complete[0])[0].record.samples["process"]) > len(left.record.samples["process"])


SLOW = """\
import os
import subprocess
import time

started = subprocess.Popen(["sleep", "60"])
with open("numbers", "w") as file:
    print(os.getpid(), started.pid, file=file)
time.sleep(60)
"""


def test_ctrl_c_while_a_file_of_the_user_is_imported_is_one_sentence(tmp_path: Path) -> None:
    """C1. A terminal sends it to the whole group of processes."""
    (tmp_path / "slow.py").write_text(SLOW)
    command = [*GROUNDSPEED, "run", "attention", "--with", "slow.py", "--device", "cpu"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=_listen, start_new_session=True
    )
    try:
        numbers = tmp_path / "numbers"
        wait_until(lambda: numbers.exists() and numbers.read_text().endswith("\n"), "the import of the file")
        family = [psutil.Process(int(number)) for number in numbers.read_text().split()]
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    wait_until(lambda: all(map(ended, family)), "the end of the import", 10)
    assert (process.returncode, errors) == (3, "groundspeed: interrupted\n")
