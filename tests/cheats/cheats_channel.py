"""Cheats that get between a measuring process and whoever reads what it reports."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

from cheating import cheat, right
from torch import Tensor

STATE: dict[str, Any] = {"calls": 0}


def pipes() -> list[int]:
    """The descriptors of pipes, without the three that everybody has."""
    found = []
    for name in (path.name for path in Path("/proc/self/fd").iterdir()):
        try:
            if int(name) > 2 and stat.S_ISFIFO(os.fstat(int(name)).st_mode):
                found.append(int(name))
        except OSError:
            continue
    return found


def _halve(source: int, to: int, name: str) -> None:
    """Pass on what comes, with half the time for one contender."""
    with os.fdopen(source) as lines:
        for line in lines:
            message = json.loads(line)
            if message.get("contender") == name and "seconds" in message:
                message["seconds"] /= 2
            os.write(to, json.dumps(message).encode() + b"\n")


@cheat("cheat-channel-replaced")
def replaced(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A pipe of its own in the place of the one that samples are reported by, and half the time in what comes out"""
    if not STATE.get("thread"):
        for number in pipes():
            theirs, (out, into) = os.dup(number), os.pipe()
            os.dup2(into, number)
            arguments = (out, theirs, "cheat-channel-replaced")
            STATE["thread"] = threading.Thread(target=_halve, args=arguments, daemon=True)
            STATE["thread"].start()
    return right(q, k, v, causal, scale)


@cheat("cheat-channel-written")
def written(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A sample of its own making, before the one that was measured"""
    STATE["calls"] += 1
    sample = {"kind": "sample", "contender": "cheat-channel-written", "start": 1.0, "seconds": 1e-6, "launches": 1}
    if STATE["calls"] > 200:
        for number in pipes():
            os.write(number, json.dumps({**sample, "block": 0, "check": True}).encode() + b"\n")
    return right(q, k, v, causal, scale)


@cheat("cheat-channel-others")
def others(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """A message that a rival failed"""
    STATE["calls"] += 1
    fault = {"kind": "fault", "contender": "sdpa-math", "status": "INCORRECT", "reason": "it is wrong", "errors": {}}
    if STATE["calls"] == 200:
        for number in pipes():
            os.write(number, json.dumps({**fault, "broken": False, "block": 0}).encode() + b"\n")
    return right(q, k, v, causal, scale)
