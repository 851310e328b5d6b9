"""Capture and replay on an NVIDIA GPU. All graphs of one function share one pool of memory: they run one after the
other, and what one leaves there nobody reads but its results, which are kept."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from groundspeed.nn.graphs.waits import Uncapturable, uncapturable

Run = Callable[[], Any]


class Captured(Protocol):
    def replay(self) -> None: ...
    def reset(self) -> None: ...


class Backend(Protocol):
    """Of one device."""

    device: torch.device
    generators: list[int]
    """The devices whose random numbers a call may draw, as `fork_rng` takes them."""

    def is_capturing(self) -> bool:
        """Whether somebody else captures what is launched now."""
        ...

    def turn(self) -> Any:
        """A context in which calls run after all that came before, on whichever stream that was."""
        ...

    def aside(self) -> Any:
        """A context in which a call warms up, beside the stream that others use."""
        ...

    def capture(self, run: Run, name: str) -> tuple[Any, Captured]:
        """What it returned, and what makes that anew where it lies."""
        ...

    def pool_bytes(self) -> int | None: ...

    def settle(self) -> None:
        """Wait until nothing is replayed."""
        ...

    def renew(self) -> None:
        """All graphs are gone: the next one has another pool."""
        ...


_one_at_a_time = threading.Lock()
"""In a process: PyTorch allows no two captures."""


class CudaGraphs:
    def __init__(self, device: torch.device) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        self.generators = [self.device.index]
        self._stream: Any = None
        self._done: Any = None
        self._last: Any = None
        self._pool: Any = None
        self._pools = set[tuple[int, int]]()
        self._failed: list[Any] = []

    def is_capturing(self) -> bool:
        return bool(torch.cuda.is_current_stream_capturing())

    @contextmanager
    def turn(self) -> Iterator[None]:
        with torch.cuda.device(self.device):
            current = torch.cuda.current_stream()
            if self._done is not None and self._last != current:
                current.wait_event(self._done)
            try:
                yield
            finally:
                self._done = self._done or torch.cuda.Event()
                self._done.record(current)
                self._last = current

    @contextmanager
    def aside(self) -> Iterator[None]:
        current, side = torch.cuda.current_stream(), self._side()
        side.wait_stream(current)
        try:
            with torch.cuda.stream(side):
                yield
        finally:
            current.wait_stream(side)

    def _side(self) -> Any:
        """All captures on one: a pool hands memory out by stream."""
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        return self._stream

    def capture(self, run: Run, name: str) -> tuple[Any, Captured]:
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        first: BaseException | None = None
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        begun = torch.cuda.graph(graph, self._pool, self._side(), capture_error_mode="thread_local")
        try:
            with _one_at_a_time, begun:
                try:
                    outputs = run()
                except BaseException as error:
                    first = error  # the end of the capture will fail too, and says less
                    raise
        except BaseException as error:
            self._give_up(graph, current)
            if isinstance(first, (Uncapturable, torch.OutOfMemoryError)) or not isinstance(first or error, Exception):
                raise (first or error) from None
            raise Uncapturable(uncapturable(name, _line(first or error))) from error
        self._pools.add(tuple(self._pool))
        return outputs, graph

    def _give_up(self, graph: Any, current: Any) -> None:
        """The end of a capture that failed may fail too, before it has put back the stream, and before it has told the
        allocators and the generator of random numbers. Of the latter, PyTorch up to 2.11 draws nothing outside of a
        capture until another one has ended well."""
        torch.cuda.set_stream(current)
        try:
            torch._C._cuda_endAllocateToPool(self.device.index, self._pool)
        except (RuntimeError, AttributeError):
            pass  # it was told
        self._pool = None  # the graphs that there are keep theirs
        self._failed.append(graph)  # the allocator of the host may go on asking it
        empty = torch.cuda.graph(torch.cuda.CUDAGraph(), None, self._side(), capture_error_mode="thread_local")
        try:
            with _one_at_a_time, warnings.catch_warnings(action="ignore"), empty:  # a warning says that it is
                pass
        except RuntimeError:
            torch.cuda.set_stream(current)

    def pool_bytes(self) -> int | None:
        try:
            segments = torch.cuda.memory_snapshot()
            return sum(one["total_size"] for one in segments if tuple(one["segment_pool_id"]) in self._pools)
        except (KeyError, RuntimeError, TypeError):  # another PyTorch may tell it otherwise
            return None

    def settle(self) -> None:
        torch.cuda.synchronize(self.device)

    def renew(self) -> None:
        self._pool, self._pools = None, set()


def _line(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]:.200}" if said else type(error).__name__
