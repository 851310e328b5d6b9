"""A kernel that is launched again is launched straight, with what Triton would have given it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from triton import knobs
from triton.runtime import driver

from groundspeed.kernels.launch import Launcher

CPU = torch.device("cpu")


class Compiled:
    function, packed_metadata = "function", "metadata"

    def __init__(self, log: list[Any]) -> None:
        self.run = lambda *arguments: log.append(("straight", arguments))


class Kernel:
    """As Triton's: asked with a grid, it launches and returns what it compiled."""

    def __init__(self, log: list[Any], *, interpreted: bool = False) -> None:
        self.log, self.interpreted = log, interpreted

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, **named: Any) -> Any:
            self.log.append(("asked", grid, arguments, named))
            return None if self.interpreted else Compiled(self.log)

        return launch


class Driver:
    def get_current_device(self) -> int:
        return 3

    def get_current_stream(self, device: int) -> str:
        return f"stream of {device}"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(type(driver), "active", property(lambda self: Driver()))
    return []


def launcher(kernel: Kernel) -> Launcher:
    return Launcher(kernel, (7, 1, 1), {"CAUSAL": True, "BLOCK": 64}, {"num_warps": 4})


def test_the_first_time_triton_is_asked_and_then_no_more(log: list[Any]) -> None:
    launch = launcher(Kernel(log))
    launch(CPU, "q", 1.0)
    launch(CPU, "k", 2.0)
    asked = ("asked", (7, 1, 1), ("q", 1.0), {"CAUSAL": True, "BLOCK": 64, "num_warps": 4})
    told = (7, 1, 1, "stream of 3", "function", "metadata", None, None, None)
    assert log == [asked, ("straight", (*told, "k", 2.0, True, 64))]


def test_where_somebody_watches_launches_triton_is_asked(log: list[Any]) -> None:
    launch = launcher(Kernel(log))
    launch(CPU, "q")
    seen = lambda metadata: None  # noqa: E731
    knobs.runtime.launch_enter_hook.add(seen)
    try:
        launch(CPU, "q")
    finally:
        knobs.runtime.launch_enter_hook.remove(seen)
    launch(CPU, "q")
    assert [entry[0] for entry in log] == ["asked", "asked", "straight"]


def test_what_is_interpreted_is_never_launched_straight(log: list[Any]) -> None:
    launch = launcher(Kernel(log, interpreted=True))
    for _ in range(3):
        launch(CPU, "q")
    assert [entry[0] for entry in log] == ["asked"] * 3
