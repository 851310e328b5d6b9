"""D6: what a contender leaves may sleep, or finish what it began; whoever leaves something running is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from groundspeed.measure import cores, stillness
from groundspeed.measure.cores import CoreUse
from groundspeed.measure.gate import Incorrect
from groundspeed.measure.stillness import WINDOW_S, LeftRunning, Stillness

Share = Callable[[float], float]
"""Of a core, that something takes at a time."""


class Scene:
    """Threads and processes that take what they are told to, in a time of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 0.0
        self.alive = 0
        self.shares: dict[tuple[str, int], Share] = {}
        self.spent: dict[tuple[str, int], float] = {}
        monkeypatch.setattr(stillness, "_present", lambda: {stillness._Item(*item) for item in self.shares})
        monkeypatch.setattr(stillness._Item, "cpu_s", lambda item: self.spent.get(tuple(item), 0.0))
        monkeypatch.setattr(stillness, "_end_processes", lambda: None)
        monkeypatch.setattr(stillness.time, "perf_counter", lambda: self.time)
        monkeypatch.setattr(stillness.time, "sleep", self.pass_)

    def pass_(self, seconds: float) -> None:
        for item, share in self.shares.items():
            self.spent[item] = self.spent.get(item, 0.0) + seconds * share(self.time)
        self.time += seconds

    def beat(self) -> None:
        self.alive += 1


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with monkeypatch.context() as patched:
        yield Scene(patched)


def until(end: float, share: float = 1.0) -> Share:
    return lambda now: share if now < end else 0.0


def always(share: float) -> Share:
    return lambda now: share


def test_where_there_is_nothing_it_takes_no_time(scene: Scene) -> None:
    Stillness().check("mine")
    assert scene.time == 0


@pytest.mark.parametrize(
    ("kind", "share", "longest"),
    [
        ("thread", always(0.0), WINDOW_S),
        ("thread", always(0.05), 1.0),
        ("thread", until(0.2), 0.3),
        ("thread", until(1.9), 2.1),
        ("process", until(9.5), 10.0),
    ],
    ids=["sleeps", "polls", "spins for a while", "finishes", "starts"],
)
def test_what_is_still_in_the_end_is_waited_for(scene: Scene, kind: str, share: Share, longest: float) -> None:
    still = Stillness()
    scene.shares[kind, 1] = share
    still.check("mine", scene.beat)
    assert scene.time <= longest
    assert scene.alive >= (scene.time - WINDOW_S) / (2 * WINDOW_S)


@pytest.mark.parametrize("kind", ["thread", "process"])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.15])
def test_what_goes_on_is_named(scene: Scene, kind: str, share: float) -> None:
    still = Stillness()
    scene.shares[kind, 1] = always(share)
    with pytest.raises(LeftRunning, match=f"left a {kind} running that uses {share:.0%} of a core") as caught:
        still.check("mine", scene.beat)
    assert caught.value.contender == "mine"
    assert scene.alive > 10


def test_many_that_spin_for_a_while_are_none_that_goes_on(scene: Scene) -> None:
    still = Stillness()
    scene.shares = {("thread", number): until(0.2) for number in range(64)}
    still.check("mine")


def test_it_is_whose_it_was_when_it_was_first_seen(scene: Scene) -> None:
    still = Stillness()
    scene.shares["thread", 1] = until(0.0)
    still.note("first")
    scene.shares["thread", 2] = until(0.0)
    still.note("second")
    scene.shares["thread", 1] = always(1.0)
    with pytest.raises(LeftRunning) as caught:
        still.check("second")
    assert caught.value.contender == "first"


def test_what_was_there_before_anybody_is_put_down_to_the_one_that_is_asked_about(scene: Scene) -> None:
    scene.shares["thread", 1] = always(1.0)
    with pytest.raises(LeftRunning) as caught:
        Stillness().check("mine")
    assert caught.value.contender == "mine"


class TestTheLaboratorysOwn:
    """Threads of a driver, say: they are always there, and nobody waits for them in vain."""

    def test_is_not_waited_for_where_it_did_nothing(self, scene: Scene) -> None:
        scene.shares["thread", 1] = always(0.0)
        still = Stillness()
        scene.shares["thread", 2] = always(0.005)
        still.claim()
        for _ in range(3):
            scene.pass_(1.0)
            before = scene.time
            still.check("mine")
            assert scene.time == before

    def test_is_waited_for_where_it_did_something(self, scene: Scene) -> None:
        scene.shares["thread", 1] = always(0.0)
        still = Stillness()
        scene.pass_(1.0)
        scene.shares["thread", 1] = until(1.6)
        scene.pass_(0.1)
        still.check("mine")
        assert 1.6 <= scene.time <= 1.6 + 2 * WINDOW_S

    @pytest.mark.parametrize("late", [False, True], ids=["imported", "called"])
    def test_is_nothing_that_came_with_somebody_elses_code(self, scene: Scene, late: bool) -> None:
        """It may wake up any moment, however long it slept."""
        still = Stillness()
        if late:
            still.claim()
        scene.shares["thread", 1] = always(0.0)
        still.check("")  # after the import of a file; or it came with a call
        still.claim()
        for _ in range(2):
            scene.pass_(1.0)
            before = scene.time
            still.check("mine")
            assert scene.time == before + WINDOW_S


def test_what_somebody_left_asleep_is_waited_for_after_his_calls_alone(scene: Scene) -> None:
    still = Stillness()
    still.claim()
    scene.shares["thread", 1] = always(0.0)
    still.note("first")
    for name, wait in (("first", WINDOW_S), ("second", 0.0), ("first", WINDOW_S)):
        scene.pass_(1.0)
        before = scene.time
        still.check(name)
        assert scene.time == before + wait
    scene.shares["thread", 1] = always(1.0)
    scene.pass_(0.1)
    with pytest.raises(LeftRunning) as caught:
        still.check("second")
    assert caught.value.contender == "first"


@pytest.mark.skipif(not stillness.TASKS.is_dir(), reason="Linux tells")
def test_threads_and_processes_are_found_with_their_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before = stillness._present()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        new = stillness._present() - before
        assert {("thread", thread.native_id), ("process", child.pid)} <= {*map(tuple, new)}
        assert stillness._Item("thread", os.getpid()) not in new
        busy = stillness._Item("process", child.pid)
        while stillness.children_cpu_s() < 0.02 or busy.cpu_s() < 0.02:
            time.sleep(0.01)
        monkeypatch.setattr(stillness, "_descendants", lambda: [child.pid])
        stillness._end_processes()
        child.wait()
        assert busy.cpu_s() == 0
    finally:
        stop.set()
        child.kill()
        child.wait()
        thread.join()


class TestCores:
    @pytest.mark.parametrize(("cpu_s", "count"), [(1.0, 1), (1.09, 1), (0.1, 1), (4.3, 4)])
    def test_whoever_takes_what_is_declared_may(self, cpu_s: float, count: int) -> None:
        CoreUse(cpu_s, 1.0).check(count)

    @pytest.mark.parametrize(
        ("cpu_s", "count", "said"), [(2.0, 1, "2.0 cores .* 1 was"), (4.6, 4, "4.6 cores .* 4 were")]
    )
    def test_whoever_takes_more_is_refused(self, cpu_s: float, count: int, said: str) -> None:
        with pytest.raises(Incorrect, match=f"its calls used {said} declared"):
            CoreUse(cpu_s, 1.0).check(count)

    def test_calls_are_added_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        walls, cpus = iter([0.0, 0.5, 2.0, 3.0]), iter([1.0, 2.0, 2.0, 4.0])
        clock: Any = type("Clock", (), {"perf_counter": lambda: next(walls)})
        monkeypatch.setattr(cores, "time", clock)
        monkeypatch.setattr(cores, "_cpu_s", lambda: next(cpus))
        use = CoreUse()
        for _ in range(2):
            with use.counted():
                pass
        assert (use.wall_s, use.cpu_s) == (1.5, 3.0)
