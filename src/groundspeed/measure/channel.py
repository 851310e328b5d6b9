"""Messages between runner and worker, one JSON object per line over pipes; and the worker as the runner sees it."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from typing import IO, Any, Protocol

from groundspeed.measure.memory import kernel_oom_kills, wants_memory

Message = dict[str, Any]


class Silence(Exception):
    """The worker sent nothing within the time limit."""

    contender: str | None = None
    """The contender whose worker it is, if each contender has its own."""


class Died(Exception):
    """The worker has ended."""

    contender: str | None = None
    """The contender whose worker it was, if each contender has its own."""

    def __init__(self, reason: str, *, out_of_memory: bool = False) -> None:
        super().__init__(reason)
        self.out_of_memory = out_of_memory


class Worker(Protocol):
    """A worker as the runner sees it. Tests replace it with a scripted one."""

    @property
    def ended(self) -> bool:
        """Whether the worker has ended, for whatever reason."""
        ...

    def send(self, message: Message) -> None: ...
    def receive(self, timeout_s: float) -> Message: ...
    def close(self) -> None: ...


class ProcessWorker:
    """A fresh Python process in a session of its own, so that Ctrl-C reaches only the runner."""

    def __init__(self, command: list[str], threads: int, gpu: str | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._oom_kills = kernel_oom_kills()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=worker_environment(threads, gpu),
            start_new_session=True,
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._buffer = b""
        self._ready: deque[Message] = deque()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def send(self, message: Message) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._obituary() from None

    def receive(self, timeout_s: float) -> Message:
        deadline = time.monotonic() + timeout_s
        while not self._ready:
            left = deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                raise Silence
            chunk = os.read(self._stdout.fileno(), 1 << 20)
            if not chunk:
                raise self._obituary()
            *lines, self._buffer = (self._buffer + chunk).split(b"\n")
            self._ready.extend(map(_message, lines))
        return self._ready.popleft()

    def close(self) -> None:
        """Kill the worker and everything that it started, immediately: it holds no data that the runner lacks."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass  # a pipe whose reader is gone cannot be flushed, and need not be

    def _obituary(self) -> Died:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return Died("the process closed its pipe but kept running")
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 4000))
        said = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        last = f"; its last output was: {said[-1].strip()[:300]}" if said else ""
        hungry = any(map(wants_memory, said[-3:]))
        if code >= 0:
            return Died(f"the process exited with code {code}{last}", out_of_memory=hungry)
        name = signal.Signals(-code).name
        now = kernel_oom_kills()
        if name == "SIGKILL" and now is not None and self._oom_kills is not None and now > self._oom_kills:
            return Died("the kernel killed the process because memory ran out", out_of_memory=True)
        return Died(f"the process was killed by {name}{last}", out_of_memory=hungry)


def _message(line: bytes) -> Message:
    try:
        message = json.loads(line)
        if isinstance(message, dict):
            return message
    except ValueError:
        pass
    raise Died(f"it wrote {line[:80]!r}, which is not a message, to the pipe that the laboratory reads")


def worker_environment(threads: int, gpu: str | None) -> dict[str, str]:
    count = str(threads)
    environment = {**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}
    if gpu is not None:  # a UUID is unambiguous, however the worker's CUDA library orders the devices
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    return environment


def worker_command(python: str | None = None) -> list[str]:
    """Return the command that starts a worker with this interpreter, or with that of another environment."""
    return [python or sys.executable, "-m", "groundspeed.measure.worker", str(os.getpid())]
