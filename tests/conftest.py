"""What all tests share."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))
hypothesis.settings.register_profile("any machine", deadline=None)  # nothing fails for being slow
hypothesis.settings.register_profile("landing", deadline=None, derandomize=True)  # nor for what others left to chance
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "any machine"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What compiles takes a minute each: first, or it is waited for at the end; and in every process some of it, which
    begin with as many tests each, in this order."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first = [item for item in items if item.path.parent.name == "compile"]
    others = iter([item for item in items if item.path.parent.name != "compile"])
    share, ordered = len(items) // processes, []
    for number in range(processes):
        mine = first[number::processes]
        ordered += [*mine, *itertools.islice(others, max(0, share - len(mine)))]
    items[:] = [*ordered, *others]


@pytest.fixture(autouse=True, scope="session")
def no_calibration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What somebody measured on this machine decides nothing here, and nothing is left in a cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
