"""Capture and replay on an NVIDIA GPU. All graphs of one function share one memory pool: they run one after another,
and of what a graph leaves in the pool only its results are read, and these are kept alive."""

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
    """Capture and replay on one device."""

    device: torch.device
    generators: list[int]
    """The devices from whose random generators a call may draw, as `fork_rng` takes them."""

    def is_capturing(self) -> bool:
        """Whether the current stream is being captured, so that launches become part of a graph."""
        ...

    def turn(self) -> Any:
        """Return a context in which calls run after all earlier calls, whichever stream those were on."""
        ...

    def aside(self) -> Any:
        """Return a context for warm-up calls, on a stream apart from the current one."""
        ...

    def capture(self, run: Run, name: str) -> tuple[Any, Captured]:
        """Return what `run` returned, and a graph whose replay computes that again in place."""
        ...

    def pool_bytes(self) -> int | None: ...

    def settle(self) -> None:
        """Wait until no replay is running."""
        ...

    def renew(self) -> None:
        """Give the next graph a new pool. Called when all graphs have been freed."""
        ...


_one_at_a_time = threading.Lock()
"""PyTorch allows only one capture at a time in a process."""


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
        """Return the stream of all captures. There is only one, because a pool hands out memory by stream."""
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
                    first = error  # ending the capture will fail too, with a less helpful error
                    raise
        except BaseException as error:
            self._give_up(graph, current)
            if isinstance(first, (Uncapturable, torch.OutOfMemoryError)) or not isinstance(first or error, Exception):
                raise (first or error) from None
            raise Uncapturable(uncapturable(name, _line(first or error))) from error
        self._pools.add(tuple(self._pool))
        return outputs, graph

    def _give_up(self, graph: Any, current: Any) -> None:
        """Clean up after a failed capture. Ending it may have failed too, before it restored the stream and before it
        notified the allocators and the random number generator. PyTorch up to 2.11 then draws no random numbers outside
        of a capture until another capture has ended successfully, so an empty graph is captured here."""
        torch.cuda.set_stream(current)
        try:
            torch._C._cuda_endAllocateToPool(self.device.index, self._pool)
        except (RuntimeError, AttributeError):
            pass  # the allocator was notified already
        self._pool = None  # existing graphs keep their pool
        self._failed.append(graph)  # kept alive because the host allocator may still query it
        empty = torch.cuda.graph(torch.cuda.CUDAGraph(), None, self._side(), capture_error_mode="thread_local")
        try:
            with _one_at_a_time, warnings.catch_warnings(action="ignore"), empty:  # PyTorch warns that it is empty
                pass
        except RuntimeError:
            torch.cuda.set_stream(current)

    def pool_bytes(self) -> int | None:
        try:
            segments = torch.cuda.memory_snapshot()
            return sum(one["total_size"] for one in segments if tuple(one["segment_pool_id"]) in self._pools)
        except (KeyError, RuntimeError, TypeError):  # other versions of PyTorch may report it differently
            return None

    def settle(self) -> None:
        torch.cuda.synchronize(self.device)

    def renew(self) -> None:
        self._pool, self._pools = None, set()


def _line(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]:.200}" if said else type(error).__name__
