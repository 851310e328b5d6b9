"""A worker as the runner sees it: real processes that answer, say nothing, or die (statistics.md 16)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from groundspeed.measure import channel
from groundspeed.measure.channel import Died, ProcessWorker, Silence, worker_command

Start = Callable[..., ProcessWorker]

ECHO = "import sys\nfor line in sys.stdin: sys.stdout.write(line); sys.stdout.flush()"


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python code as a worker; all are closed in the end."""
    workers: list[ProcessWorker] = []

    def launch(code: str, threads: int = 1) -> ProcessWorker:
        workers.append(ProcessWorker([sys.executable, "-I", "-c", code], threads))
        return workers[-1]

    yield launch
    for worker in workers:
        worker.close()


def has_ended(process: psutil.Process) -> bool:
    """Within ten seconds; also if nobody asks for its exit code, as where a container's first process does not."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.005)
    return False


def death(worker: ProcessWorker) -> Died:
    with pytest.raises(Died) as caught:
        worker.receive(30)
    return caught.value


def test_messages_go_to_the_worker_and_back(start: Start) -> None:
    worker = start(ECHO)
    for message in ({"a": 1}, {"text": "π\n\u2028", "list": [1.5, None]}, {"long": "x" * 3_000_000}):
        worker.send(message)
        assert worker.receive(30) == message


def test_messages_that_arrive_together_or_in_pieces_are_told_apart(start: Start) -> None:
    worker = start(
        "import sys\n"
        "out = sys.stdout\n"
        "for part in ('{\"n\": 1}\\n{\"n\": 2}\\n{\"n\"', ': 3}', '\\n', '{\"n\": 4}\\n'):\n"
        "    out.write(part); out.flush(); sys.stdin.readline()\n"
    )
    for n in (1, 2):
        assert worker.receive(30) == {"n": n}
    worker.send({})
    worker.send({})
    assert worker.receive(30) == {"n": 3}
    worker.send({})
    assert worker.receive(30) == {"n": 4}


def test_a_worker_that_says_nothing_is_silence_and_not_death(start: Start) -> None:
    worker = start(ECHO)
    with pytest.raises(Silence):
        worker.receive(0.01)
    with pytest.raises(Silence):
        worker.receive(0.0)
    worker.send({"still": "here"})
    assert worker.receive(30) == {"still": "here"}


def test_half_a_message_is_silence(start: Start) -> None:
    worker = start("import sys\nsys.stdout.write('{\"n\": '); sys.stdout.flush(); sys.stdin.readline()")
    with pytest.raises(Silence):
        worker.receive(0.3)


@pytest.mark.parametrize(
    ("code", "reason", "hungry"),
    [
        ("raise SystemExit(3)", "the process exited with code 3", False),
        ("pass", "the process exited with code 0", False),
        ("1 / 0", "exited with code 1; its last output was: ZeroDivisionError: division by zero", False),
        ("raise MemoryError", "exited with code 1; its last output was: MemoryError", True),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the process was killed by SIGSEGV", False),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "the process was killed by SIGKILL", False),
        (
            "import os, sys; sys.stderr.write('terminate called\\n  what():  std::bad_alloc\\n'); sys.stderr.flush()\n"
            "os.abort()",
            "the process was killed by SIGABRT; its last output was: what():  std::bad_alloc",
            True,
        ),
    ],
)
def test_a_death_says_how_it_came(start: Start, code: str, reason: str, hungry: bool) -> None:
    died = death(start(code))
    assert reason in str(died)
    assert died.out_of_memory is hungry


def test_a_kill_by_the_kernel_for_want_of_memory_is_known(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter([4, 5])
    monkeypatch.setattr(channel, "kernel_oom_kills", lambda: next(kills))
    died = death(start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    assert str(died) == "the kernel killed the process because memory ran out"
    assert died.out_of_memory


def test_what_was_said_before_a_death_is_received_first(start: Start) -> None:
    worker = start("print('{\"last\": true}', flush=True); raise SystemExit(3)")
    assert worker.receive(30) == {"last": True}
    assert "exited with code 3" in str(death(worker))


def test_a_chatterbox_is_quoted_shortly(start: Start) -> None:
    died = death(start("import sys; sys.stderr.write('y' * 5_000_000 + '\\n' + 'z' * 1000); sys.exit(1)"))
    assert len(str(died)) < 400
    assert str(died).endswith("z" * 300)


def test_sending_to_the_dead_is_death(start: Start) -> None:
    worker = start("raise SystemExit(5)")
    assert "exited with code 5" in str(death(worker))
    with pytest.raises(Died, match="exited with code 5"):
        worker.send({"x": "y" * 1_000_000})


def test_a_worker_that_closed_its_pipe_and_went_on_is_given_up(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = start("import os, time\nos.close(1)\ntime.sleep(600)")

    def wait(timeout: float) -> Any:
        raise subprocess.TimeoutExpired("worker", timeout)

    monkeypatch.setattr(worker._process, "wait", wait)
    assert str(death(worker)) == "the process closed its pipe but kept running"
    monkeypatch.undo()


def test_closing_ends_the_worker_and_what_it_started(start: Start) -> None:
    worker = start(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('{\"child\": %d}' % child.pid, flush=True)\n"
        "while True: pass"
    )
    family = [psutil.Process(worker.receive(30)["child"]), psutil.Process(worker._process.pid)]
    worker.close()
    assert all(map(has_ended, family))
    worker.close()  # again: nothing is there to be closed


def test_ctrl_c_at_the_terminal_does_not_reach_a_worker(start: Start) -> None:
    """The terminal signals a process group, and the worker is in one of its own."""
    worker = start(ECHO)
    worker.send({})
    worker.receive(30)
    assert os.getpgid(worker._process.pid) == worker._process.pid != os.getpgid(0)


def test_a_worker_has_the_threads_it_is_given(start: Start) -> None:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    worker = start(f"import json, os; print(json.dumps({{n: os.environ[n] for n in {names}}}), flush=True)", threads=3)
    assert worker.receive(30) == dict.fromkeys(names, "3")


ORPHAN = """
import subprocess, sys
from groundspeed.measure import channel
child = subprocess.Popen([sys.executable, "-c", {code!r}, sys.argv[1]], stdout=subprocess.PIPE)
print(child.pid, child.stdout.readline().decode().strip(), flush=True)
sys.stdin.readline()
"""
DIE_WITH = """
import sys, time
from groundspeed.measure.worker import die_with
die_with({parent})
print("alive", flush=True)
time.sleep(600)
"""


def runner(parent: str) -> subprocess.Popen[str]:
    """A process that starts one which dies with it."""
    code = ORPHAN.format(code=DIE_WITH.format(parent=parent))
    return subprocess.Popen(
        [sys.executable, "-c", code, "unused"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
def test_a_worker_dies_with_its_runner_even_by_kill_9() -> None:
    with runner("__import__('os').getppid()") as process:
        assert process.stdout is not None
        pid, state = process.stdout.readline().split()
        assert state == "alive"
        worker = psutil.Process(int(pid))
        process.send_signal(signal.SIGKILL)
        assert has_ended(worker)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
def test_a_worker_whose_runner_is_gone_already_does_not_start() -> None:
    with runner("1234567890") as process:
        assert process.stdout is not None
        assert len(process.stdout.readline().split()) == 1  # it never said that it was alive
        process.communicate("\n")


def test_a_worker_is_told_who_started_it() -> None:
    """Not by the number of its parent alone: in a container the runner itself may be process 1."""
    assert worker_command()[-2:] == ["groundspeed.measure.worker", str(os.getpid())]
