"""Host memory: the peak of a call is seen, and a hungry one fails instead of the machine (A4; statistics.md 16)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from groundspeed.measure.memory import HostPeak, kernel_oom_kills, wants_memory

MIB = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere these say None")


def test_a4_the_peak_of_a_call_is_seen_although_it_is_free_again() -> None:
    with HostPeak() as memory:
        block = b"x" * (64 * MIB)
        del block
    assert memory.peak_bytes is not None
    assert memory.extra_bytes is not None
    assert 63 * MIB <= memory.extra_bytes < 96 * MIB
    assert memory.peak_bytes > memory.extra_bytes


def test_a4_an_earlier_peak_is_not_counted_again() -> None:
    block = b"x" * (64 * MIB)
    del block
    with HostPeak() as memory:
        pass
    assert memory.extra_bytes is not None
    assert memory.extra_bytes < 8 * MIB


def test_the_peak_is_told_when_the_call_raises() -> None:
    memory = HostPeak()
    with pytest.raises(ValueError, match="no"), memory:
        raise ValueError("no")
    assert memory.peak_bytes is not None


LIMITED = """
from groundspeed.measure.memory import limit_host_memory
limit_host_memory(512 << 20)
small = bytearray(64 << 20)
try:
    large = bytearray(1 << 30)
except MemoryError:
    print("MemoryError")
"""


def test_beyond_its_limit_an_allocation_fails_and_the_process_lives() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "MemoryError\n"), done.stderr


def test_a_limit_set_from_outside_is_not_raised() -> None:
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n"
        "from groundspeed.measure.memory import limit_host_memory\n"
        "limit_host_memory(1 << 40)\n"
        "print(resource.getrlimit(resource.RLIMIT_DATA) == (1 << 30, 1 << 30))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize(
    ("text", "hungry"),
    [
        ("terminate called after throwing an instance of 'std::bad_alloc'", True),
        ("MemoryError", True),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.", True),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("ValueError: no", False),
    ],
)
def test_what_a_failed_allocation_says_is_recognised(text: str, hungry: bool) -> None:
    assert wants_memory(text) is hungry


def test_the_kernel_tells_how_many_it_has_killed() -> None:
    kills = kernel_oom_kills()
    assert kills is None or kills >= 0
