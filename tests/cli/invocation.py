"""What the fixtures of the command line are, for type hints; and the command as a process of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from groundspeed.evidence.bundle import Bundle


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """What went wrong: one line on stderr, and never a traceback."""
        lines = [
            line for line in self.err.splitlines() if not line.startswith(("measuring ", "process "))
        ]  # how far a run is
        assert len(lines) == 1, self.err
        assert lines[0].startswith("groundspeed: "), self.err
        assert "Traceback" not in self.err
        assert "a bug in groundspeed" not in self.err
        return lines[0].removeprefix("groundspeed: ")


Cli = Callable[..., Done]
Script = Callable[..., None]
BundleOf = Callable[..., Bundle]

COMMAND = Path(sys.executable).with_name("groundspeed")
# With the seed left to chance, tests that expect UNCLEAR from noise fail in one run of twenty, as seed 1 does.
QUICK = ("run", "attention", "--preset", "quick", "--shape", "S=64,causal=0", "--seed", "7")


def printed_commands(report: str) -> list[list[str]]:
    """What a Markdown report says to run, as arguments."""
    block = report.partition("\n## Reproduce it\n")[2].split("```")[1]
    lines = [shlex.split(line) for line in block.strip().splitlines()]
    assert [line[0] for line in lines] == ["groundspeed"] * 3
    return [line[1:] for line in lines]


def process(*arguments: object, cwd: Path, **options: Any) -> Done:
    """The installed command, as a user starts it."""
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR", "GROUNDSPEED_DEBUG")}
    environment |= options.pop("env", {})
    done = subprocess.run(
        [str(COMMAND), *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        **options,
    )
    return Done(done.returncode, done.stdout, done.stderr)
