"""A process of our own that is asked one question, and that Ctrl-C in the terminal does not reach."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress


def ask(command: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[bytes]:
    """Run a command that answers on its standard output. `subprocess.TimeoutExpired` if it takes longer.

    It has a session of its own: a terminal sends Ctrl-C to a whole group of processes, and this one would answer it
    with a traceback. If this process is interrupted, the other ends with all that it started."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            answer, _ = process.communicate(timeout=limit_s)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, answer)
