"""Show where the time of the gate goes: `groundspeed run` with every part of the gate timed.

    python tools/time_gate.py attention --case 'decode-x4-*' --processes 1

Takes the arguments of `groundspeed run`. For each place in the laboratory that counts as the gate, the table has how
often and for how long it ran; the indented lines are parts of these. The parts wait for the device before and after, so
everything is a little slower than in a normal run. This is a tool for making the gate cheaper; the share that counts is
the one that the run itself prints."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = "GROUNDSPEED_TIME_GATE"
PARTS = {
    "gate": ("ask", "check", "spoil", "examine", "ask_sums", "check_sums", "poison", "choose_rows"),
    "inputs.Inputs": ("refresh", "glance", "check", "hold_back", "check_all"),
    "setting.Setting": ("check",),
}
EVERY_S = 0.3


def watch() -> None:
    """Start timing in a measuring process, before anything else runs there."""
    from groundspeed.measure import gate, inputs, setting, toll

    count, seconds, told = Counter[str](), Counter[str](), [0.0]
    enter, leave, tell = toll.Toll.__enter__, toll.Toll.__exit__, toll.Toll.tell
    places: list[str] = []

    def note(name: str, took: float) -> None:
        count[name] += 1
        seconds[name] += took

    def entered(self: Any) -> None:
        caller = sys._getframe(1)
        places.append(f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno} {caller.f_code.co_name}")
        enter(self)

    def left(self: Any, *failure: Any) -> None:
        leave(self, *failure)
        note(places.pop(), self._last_s)

    def telling(self: Any) -> float:
        if time.time() - told[0] > EVERY_S:
            told[0] = time.time()
            known = {name: (count[name], seconds[name]) for name in count}
            Path(os.environ[FOLDER], f"{os.getpid()}.json").write_text(json.dumps(known))
        return tell(self)

    toll.Toll.__enter__, toll.Toll.__exit__, toll.Toll.tell = entered, left, telling  # type: ignore[method-assign]
    owners = {"gate": gate, "inputs.Inputs": inputs.Inputs, "setting.Setting": setting.Setting}
    for owner, names in PARTS.items():
        for name in names:
            setattr(owners[owner], name, _timed(getattr(owners[owner], name), f"  {owner}.{name}", note))


def _timed(function: Callable[..., Any], name: str, note: Callable[[str, float], None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        import torch

        wait = torch.cuda.synchronize if torch.cuda.is_initialized() else lambda: None
        wait()
        begin = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            wait()
            note(name, time.perf_counter() - begin)

    return call


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(f"import sys; sys.path.append({str(Path(__file__).parent)!r})\n"
                                                    "import time_gate; time_gate.watch()\n")  # fmt: skip
        paths = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": paths, FOLDER: folder}
        done = subprocess.run([sys.executable, "-m", "groundspeed", "run", *sys.argv[1:]], env=environment)
        found = [json.loads(file.read_text()) for file in Path(folder).glob("*.json")]
    count, seconds = Counter[str](), Counter[str]()
    for one in found:
        for name, (times, took) in one.items():
            count[name] += times
            seconds[name] += took
    for name, took in seconds.most_common():
        print(f"{name:40} {count[name]:7} × {1e3 * took / count[name]:8.3f} ms = {took:7.2f} s")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
