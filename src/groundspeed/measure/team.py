"""Workers that never share a process with each other's contender, and are one worker to the runner.

Whoever has a process to himself cannot replace what the others call, keep their results or hold their lock. They take
turns as in one process: while one is timed, the others wait for a message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from groundspeed.measure.channel import Message, Worker

ENDS = ("prepared", "block end")


class Team:
    def __init__(self, spawn: Callable[[], Worker], contenders: Sequence[str], files: Mapping[str, str]) -> None:
        """`files`: which file to import for a contender that comes from one; nobody else's process imports it."""
        self._spawn, self._contenders, self._files = spawn, contenders, files
        self._members: dict[str, Worker] = {}
        self._late: dict[str, float] = {}
        """How much later than the first a member's clock began."""
        self._turns: deque[tuple[str, Message, bool]] = deque()
        """Whose turn it is, with which request, and whether the runner's request ends with it. What is no request is
        said to the runner."""
        self._present: tuple[str, bool] | None = None
        self._ready: deque[Message] = deque()

    def send(self, message: Message) -> None:
        if not self._members:
            self._start(message)
        elif "prepare" in message:
            names = message["prepare"]["contenders"]
            for name in names:  # announced, so that nobody else is blamed for what happens until it says so itself
                self._turns.append((name, {"kind": "at", "contender": name}, False))
                part = {"prepare": {**message["prepare"], "contenders": [name]}}
                self._turns.append((name, part, name == names[-1]))
        else:
            for block, order in message["blocks"]:
                self._turns.extend((name, {"blocks": [(block, [name])]}, name == order[-1]) for name in order)

    def _start(self, message: Message) -> None:
        for name in self._contenders:
            own = [file for file in message["with_files"] if file == self._files.get(name)]
            sources = {key: value for key, value in message["sources"].items() if key == name}
            self._members[name] = member = self._spawn()
            member.send({**message, "with_files": own, "sources": sources})

    def receive(self, timeout_s: float) -> Message:
        if not self._late:
            return self._meet(timeout_s)
        while not self._ready:
            if self._present is None:
                self._next()
                continue
            name, last = self._present
            message = self._members[name].receive(timeout_s)
            kind = message.get("kind")
            if kind in ENDS:
                self._present = None
            if kind == "fault all":  # what one cannot do for its contender, nobody can
                self._present = None
                self._turns.clear()
            if kind not in ENDS or last:
                self._ready.append(self._by_one_clock(name, message))
        return self._ready.popleft()

    def _meet(self, timeout_s: float) -> Message:
        """The greeting of the first, when all have said theirs."""
        hellos = {name: member.receive(timeout_s) for name, member in self._members.items()}
        first = next(iter(hellos.values()))
        began = float(first.get("began", 0.0))
        self._late = {name: float(hello.get("began", began)) - began for name, hello in hellos.items()}
        refused = {file: why for hello in hellos.values() for file, why in hello.get("refused", {}).items()}
        return {**first, "refused": refused}

    def _next(self) -> None:
        name, request, last = self._turns.popleft()
        if "kind" in request:
            self._ready.append(request)
        else:
            self._members[name].send(request)
            self._present = name, last

    def _by_one_clock(self, name: str, message: Message) -> Message:
        late = self._late[name]
        if "start" in message:
            message["start"] += late
        if "samples" in message:
            message["samples"] = [[start + late, *rest] for start, *rest in message["samples"]]
        return message

    def close(self) -> None:
        for member in self._members.values():
            member.close()
