"""Starting a worker, up to its greeting. If a file must not be imported, another worker is started without it."""

from __future__ import annotations

from collections.abc import Callable

from groundspeed.errors import GroundspeedError
from groundspeed.measure.channel import Died, Message, Silence, Worker

START_LIMIT_S = 300.0


def greeted(spawn: Callable[[], Worker], start: Message) -> tuple[Worker, Message, Message]:
    """Return the worker, its greeting, and `start` without the files that did something forbidden when they were
    imported. Whatever such a file did may persist in its process, so another worker is started without it."""
    while True:
        worker = spawn()
        try:
            worker.send(dict(start))
            hello = worker.receive(START_LIMIT_S)
        except Died as death:
            worker.close()
            raise GroundspeedError(f"the measuring process did not start: {death}") from None
        except Silence:
            worker.close()
            raise GroundspeedError(f"the measuring process did not start within {START_LIMIT_S:.0f} s") from None
        except BaseException:
            worker.close()
            raise
        files = hello.get("refused")
        if not files:
            return worker, hello, start
        worker.close()
        refused = {name: why for names in files.values() for name, why in names.items()}
        left = [file for file in start["with_files"] if file not in files]
        start = {**start, "with_files": left, "refused": {**start.get("refused", {}), **refused}}
