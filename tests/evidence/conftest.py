"""A bundle that all tests here start from, and a limit on what may hang."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from bundles import small_record, write, write_schema_1

from groundspeed.evidence.record import Record


@pytest.fixture(scope="session")
def record() -> Record:
    return small_record()


@pytest.fixture(scope="session")
def good(record: Record, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that verifies. Tests change copies of it."""
    return write(record, tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="session")
def old(record: Record, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in the first schema."""
    return write_schema_1(record, tmp_path_factory.mktemp("old"))


@pytest.fixture
def within_seconds() -> Iterator[None]:
    """Reading a damaged bundle never hangs: a test that does fails instead of waiting."""

    def hung(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError("this bundle is read for ever")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
