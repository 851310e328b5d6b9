"""Workers that each serve one contender, and together act as one worker to the runner.

A contender with a process to itself cannot replace what the others call, keep their results or hold the interpreter's
lock. The workers take turns as contenders do in one process: while one is timed, the others wait for a message."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from groundspeed.measure.channel import Died, Message, Silence, Worker

ENDS = ("prepared", "rounded", "block end")
OTHERS, MEASURED = "by_contender", "clock_tick_s"
"""Keys in the environment of workers: for what differs between them; and for what each measures itself, which is never
quite the same."""


def start_of(start: Message, name: str, files: Mapping[str, str]) -> Message:
    """Return the first message to the worker of one contender: it imports only that contender's own file, and its
    loader gets only what concerns that contender."""
    own = [file for file in start["with_files"] if file == files.get(name)]
    sources = {key: value for key, value in start["sources"].items() if key == name}
    return {**start, "with_files": own, "sources": sources, "loaded": start.get("loaded", {}).get(name, {})}


def _differences(environment: Mapping[str, object], other: Mapping[str, object]) -> dict[str, object]:
    known = dict.fromkeys((*environment, *other))
    return {key: other.get(key) for key in known if key != MEASURED and environment.get(key) != other.get(key)}


class Team:
    def __init__(self, spawn: Callable[[str], Worker], contenders: Sequence[str], files: Mapping[str, str]) -> None:
        """`spawn` starts the worker of a contender. `files`: contender that comes from a file → the file to import."""
        self._spawn, self._contenders, self._files = spawn, contenders, files
        self._members: dict[str, Worker] = {}
        self._late: dict[str, float] = {}
        """Seconds by which a member's clock began later than that of the first."""
        self._turns: deque[tuple[str, Message]] = deque()
        """(member, request), in the order of turns. An entry that has a `kind` is not a request but a message to the
        runner."""
        self._present: str | None = None
        self._fallen: set[str] = set()
        """Members whose contender failed on the current case: they get no more requests for it."""
        self._ready: deque[Message] = deque()

    def send(self, message: Message) -> None:
        if not self._members:
            self._start(message)
        elif "prepare" in message:
            self._fallen.clear()
            self._turns.clear()  # of a case that ended because all contenders failed
            names = message["prepare"]["contenders"]
            for name in names:
                self._take_turns(name, {"prepare": {**message["prepare"], "contenders": [name], "alone": True}})
            for name in names:
                self._take_turns(name, {"round": True})
            self._turns.append(("", {"kind": "prepared"}))
        else:
            for block, order in message["blocks"]:
                for name in order:
                    self._turns.append((name, {"blocks": [(block, [name])]}))
                self._turns.append(("", {"kind": "block end", "block": block}))

    def _take_turns(self, name: str, request: Message) -> None:
        """Announce the contender before its request, so that no other is blamed for what happens until it reports by
        itself."""
        self._turns.append((name, {"kind": "at", "contender": name}))
        self._turns.append((name, request))

    def _start(self, message: Message) -> None:
        for name in random.SystemRandom().sample(self._contenders, len(self._contenders)):
            self._members[name] = member = self._spawn(name)
            member.send(start_of(message, name, self._files))

    def receive(self, timeout_s: float) -> Message:
        if not self._late:
            return self._meet(timeout_s)
        while not self._ready:
            if self._present is None:
                self._next()
            else:
                self._hear(self._present, timeout_s)
        return self._ready.popleft()

    def _meet(self, timeout_s: float) -> Message:
        """Return one greeting when all members have sent theirs. It has the environment of the first contender in the
        line-up, and how those of the others differ: they have packages of their own if revisions are compared."""
        hellos = {name: member.receive(timeout_s) for name, member in self._members.items()}
        first = next(iter(hellos.values()))
        began = float(first.get("began", 0.0))
        self._late = {name: float(hello.get("began", began)) - began for name, hello in hellos.items()}
        refused = {file: why for hello in hellos.values() for file, why in hello.get("refused", {}).items()}
        told = {name: hellos[name].get("environment") for name in self._contenders}
        environments = {name: one if isinstance(one, dict) else {} for name, one in told.items()}
        environment = dict(environments[self._contenders[0]])
        others = {name: _differences(environment, other) for name, other in environments.items()}
        if any(others.values()):
            environment[OTHERS] = {name: differs for name, differs in others.items() if differs}
        return {**first, "refused": refused, "environment": environment}

    def _next(self) -> None:
        name, request = self._turns.popleft()
        if name in self._fallen:
            return
        if "kind" in request:
            self._ready.append(request)
            return
        try:
            self._members[name].send(request)
        except Died as death:
            death.contender = name
            raise
        self._present = name

    def _hear(self, name: str, timeout_s: float) -> None:
        try:
            message = self._members[name].receive(timeout_s)
            if message.get("contender", name) != name:
                raise Died("it sent a message in the name of another contender")
        except (Died, Silence) as loss:
            loss.contender = name
            raise
        kind = message.get("kind")
        if kind == "fault all":  # "all" is one contender in this worker
            message = {**message, "kind": "fault", "contender": name, "broken": False, "errors": {}}
        if message.get("kind") == "fault":
            self._fallen.add(name)
        if kind in (*ENDS, "fault all"):
            self._present = None
        if kind not in ENDS:
            self._ready.append(self._by_one_clock(name, message))

    def _by_one_clock(self, name: str, message: Message) -> Message:
        late = self._late[name]
        try:
            if "start" in message:
                message["start"] += late
            if "samples" in message:
                message["samples"] = [[start + late, *rest] for start, *rest in message["samples"]]
        except (TypeError, ValueError):
            loss = Died("it wrote something that is not a message to the pipe that the laboratory reads")
            loss.contender = name
            raise loss from None
        return message

    @property
    def ended(self) -> bool:
        return any(member.ended for member in self._members.values())

    def close(self) -> None:
        for member in self._members.values():
            member.close()
