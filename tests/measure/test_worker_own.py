"""What a measuring process does with contenders of `--with`: the others have no reason to cheat."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from benches import Bench, of, right
from torch import Tensor

from groundspeed.measure import bench as room
from groundspeed.measure import worker
from groundspeed.measure.gate import Incorrect
from groundspeed.measure.stillness import LeftRunning, Stillness


class Left(Stillness):
    """Of `owner` something goes on."""

    def __init__(self, owner: str) -> None:
        super().__init__()
        self.owner = owner

    def check(self, name: str, alive: Callable[[], None] = lambda: None) -> None:
        raise LeftRunning(self.owner, "left a thread running")


class TestOwn:
    def test_d6_all_intervals_are_checked(self) -> None:
        bench = Bench({"mine": right, "b": right}, own=["mine"])
        bench.prepare()
        said = bench.blocks(12)
        for name in ("mine", "b"):  # of everybody: one that follows a check is a little slower than one that does not
            assert [m["block"] for m in of(said, "checked", name)] == list(range(12))

    def test_d6_rivals_are_built_before_it_is_called(self) -> None:
        done: list[str] = []

        def calling(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
            done.append("call")
            return right(q, k, v, **options)

        bench = Bench({"mine": calling, "b": right, "c": right}, own=["mine"])
        for name, contender in bench.session.suite.contenders.items():
            build = contender.build
            object.__setattr__(
                contender, "build", lambda case, name=name, build=build: [done.append(name), build(case)][1]
            )
        said = bench.prepare("mine", "b", "c")
        assert done[:4] == ["b", "c", "mine", "call"]
        assert sorted(done[:3]) == sorted(set(done) - {"call"})  # each once
        assert [m["contender"] for m in of(said, "ready")] == ["mine", "b", "c"]

    def test_a_rival_that_cannot_be_built_fails_in_its_turn(self) -> None:
        bench = Bench({"mine": right, "b": right}, own=["mine"])
        object.__setattr__(bench.session.suite.contenders["b"], "supports", lambda case, device: "not this")
        said = bench.prepare("mine", "b")
        assert [(m["contender"], m["status"], m["reason"]) for m in of(said, "fault")] == [("b", "SKIPPED", "not this")]
        assert [m["contender"] for m in of(said, "ready")] == ["mine"]

    @pytest.mark.parametrize("owner", ["mine", "other"])
    def test_d6_whoever_left_something_running_is_refused_and_the_worker_with_him(
        self, owner: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = Bench({"other": right, "mine": right, "b": right}, own=["other", "mine"])
        bench.prepare()
        bench.session.stillness = Left(owner)
        monkeypatch.setattr(room, "STILL_ONE_IN", 1)
        said = bench.blocks(1, "mine")
        fault = of(said, "fault")[0]
        assert (fault["contender"], fault["status"], fault["broken"]) == (owner, "INCORRECT", True)
        assert fault["reason"] == "left a thread running"
        assert of(said, "sample", owner) == []  # it was looked before the block

    def test_d6_what_is_left_by_one_that_fails_otherwise_costs_the_worker_too(self) -> None:
        def fails(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
            raise ValueError("no")

        bench = Bench({"mine": fails}, own=["mine"])
        bench.session.stillness = Left("mine")
        fault = of(bench.prepare(), "fault")[0]
        assert (fault["reason"], fault["broken"]) == ("left a thread running", True)

    def test_d6_whoever_takes_more_cores_than_declared_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bench = Bench({"mine": right, "b": right}, own=["mine"])
        bench.prepare()
        bench.session.entrants["mine"].use.cpu_s = 1e6
        said = bench.blocks(1)
        assert [m["contender"] for m in of(said, "fault")] == ["mine"]
        assert "cores on average" in of(said, "fault")[0]["reason"]

    def test_one_that_is_refused_need_not_be_there(self) -> None:
        bench = Bench({"b": right})
        bench.session.refused = {"gone": "its file did it"}
        said = bench.prepare("gone", "b")
        assert [(m["contender"], m["status"], m["reason"]) for m in of(said, "fault")] == [
            ("gone", "INCORRECT", "its file did it")
        ]
        assert [m["contender"] for m in of(said, "ready")] == ["b"]


def test_d6_files_are_looked_at_one_by_one() -> None:
    """Each answers for what its own import did."""
    files = {"good.py": ["a"], "bad.py": ["b", "c"], "late.py": ["d"]}
    imported: list[str] = []

    def load(names: list[str]) -> Any:
        imported[:] = names
        return SimpleNamespace(own=[own for name in names for own in files[name]])

    def check() -> None:
        if imported[-1] == "bad.py":
            raise Incorrect("did it")

    refused = worker._import(load, list(files), (check, check))
    assert refused == {"bad.py": {"b": "its file did it", "c": "its file did it"}}
