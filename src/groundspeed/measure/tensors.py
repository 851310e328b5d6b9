"""The tensors that PyTorch's operators return, seen as they are made and freed; and a memory profile of the host by
them.

A storage counts once, however many views of it there are, from the operator that first returned a tensor in it until
nothing refers to it. What an operator allocates and frees internally is not seen, and neither is what compiled code
allocates.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Protocol

import torch
import torch._dynamo  # PyTorch disables its compiler in modes, and would import it amid the first operator
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from groundspeed.evidence.memory import Allocation, Span
from groundspeed.measure.alive import Alive, Scope
from groundspeed.measure.memory import HostPeak
from groundspeed.measure.memory_profile import Clock, Reading, Totals

_OURS = Path(__file__).parent.parent
BETWEEN = tuple(f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, _OURS / "measure", _OURS / "lab"))
"""Folders whose stack frames lie between an operator and the code that asked for it."""


class Told(Protocol):
    """The receiver of events, called by one thread at a time."""

    def made(self, key: int, what: Allocation, address: int, at: float) -> None: ...
    def freed(self, key: int, at: float) -> None: ...


class _Watched(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to a storage, of which the last strong one may go at any moment and in any thread."""

    __slots__ = ("counted", "key", "size")
    counted: bool
    key: int
    size: int


class TensorWatch(TorchDispatchMode):
    """Reports the tensors on a device that are returned by operators of this thread, and of the backward passes that it
    starts. A tensor that is passed in and was never returned existed before, and is not reported."""

    supports_higher_order_operators = True
    _groundspeed_observes = True
    """Our kernels take the same path as without this mode (`groundspeed.kernels.recall.has_modes`)."""

    def __init__(self, device: torch.device, told: Told, clock: Clock) -> None:
        super().__init__()
        self._device, self._told, self._clock = device, told, clock
        self._known: dict[int, _Watched] = {}
        self._gone: deque[tuple[_Watched, float]] = deque()
        self._lock = threading.Lock()
        self.unseen = 0
        """The number of tensors without a storage, such as sparse ones."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True: under a mode that does not, compiled functions run as if they were not compiled."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        fresh = func is torch.ops.aten.lift_fresh.default  # wraps what a constructor made
        with self._lock:
            self._settle()
            for storage, tensor in self._storages((args, kwargs)):
                if not fresh or not storage.resizable():  # foreign memory, such as NumPy's, is not
                    self._meet(storage, tensor, func)
        result = func(*args, **kwargs)
        with self._lock:
            self._settle()
            for storage, tensor in self._storages(result):
                self._take(storage, tensor, func)
        return result

    def settle(self) -> None:
        """Report all that is gone by now."""
        with self._lock:
            self._settle()

    def forget(self) -> None:
        """Report nothing any more."""
        with self._lock:
            self._known.clear()
            self._gone.clear()

    def _settle(self) -> None:
        while self._gone:
            watched, at = self._gone.popleft()
            if self._known.get(watched.key) is watched:
                del self._known[watched.key]
            if watched.counted:
                self._told.freed(watched.key, at)

    def _meet(self, storage: Any, tensor: Any, func: Any) -> None:
        if storage._cdata in self._known:
            self._take(storage, tensor, func)  # it may have been resized in between
        else:
            self._watch(storage, counted=False)

    def _take(self, storage: Any, tensor: Any, func: Any) -> None:
        known, size = self._known.get(storage._cdata), storage.nbytes()
        if known is not None and (not known.counted or known.size == size):
            return
        if known is None:
            known = self._watch(storage, counted=True)
        known.size = size
        name = str(func).removesuffix(".default")
        what = Allocation(size, tuple(tensor.shape), _dtype(tensor), name, _where(sys._getframe()))
        self._told.made(known.key, what, storage.data_ptr(), self._clock())

    def _watch(self, storage: Any, *, counted: bool) -> _Watched:
        watched = _Watched(storage, self._note)
        watched.key, watched.counted, watched.size = storage._cdata, counted, storage.nbytes()
        self._known[watched.key] = watched
        return watched

    def _note(self, watched: _Watched) -> None:
        """Only record the event: it may happen in the middle of anything, including this class."""
        self._gone.append((watched, self._clock()))

    def _storages(self, value: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the storages on the device, each with a tensor in it."""
        for tensor in _tensors(value):
            try:
                storage = tensor.untyped_storage()
            except (NotImplementedError, RuntimeError):
                self.unseen += 1
                continue
            if storage.device == self._device:
                yield storage, tensor


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        if is_traceable_wrapper_subclass(value):
            for name in value.__tensor_flatten__()[0]:
                yield from _tensors(getattr(value, name))
        else:
            yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


@lru_cache(4096)
def is_between(filename: str) -> bool:
    return filename.startswith(BETWEEN)


def _where(frame: FrameType | None) -> str | None:
    while frame is not None and is_between(frame.f_code.co_filename):
        frame = frame.f_back
    return place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name) if frame else None


def place(filename: str, line: int, function: str) -> str:
    return f"{_shown(filename)}:{line} {function}".encode(errors="replace").decode()


@lru_cache
def _shown(filename: str) -> str:
    """Return the path, relative to the working folder if it lies there."""
    path, here = Path(filename), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else filename


class HostSource:
    """Host memory, by the tensors of the thread that starts the profile."""

    device: Literal["cpu", "cuda"] = "cpu"
    name = "the host"

    _running = 0

    def __init__(self, keep: int) -> None:
        self._alive = Alive(keep=keep)

    def start(self, clock: Clock) -> None:
        self._clock = clock
        self._watch = TensorWatch(torch.device("cpu"), self, clock)
        # The kernel keeps one peak per process; the outermost profile gets it.
        self._resident = HostPeak() if HostSource._running == 0 else None
        HostSource._running += 1
        if self._resident:
            self._resident.__enter__()
        self._whole = self._alive.open()
        self._alive.point(0.0)
        self._watch.__enter__()

    def made(self, key: int, what: Allocation, address: int, at: float) -> None:
        self._alive.make(key, what, at)

    def freed(self, key: int, at: float) -> None:
        self._alive.free(key, at)

    def open(self) -> Scope:
        self._watch.settle()
        return self._alive.open()

    def close(self, opened: object) -> Reading:
        assert isinstance(opened, Scope)
        self._watch.settle()
        self._alive.close(opened)
        return Reading(opened.begin, opened.peak, self._alive.level, opened.largest)

    def stop(self, spans: list[Span]) -> Totals:
        self._watch.__exit__(None, None, None)
        HostSource._running -= 1
        if self._resident:
            self._resident.__exit__()
        whole, alive = self.close(self._whole), self._alive
        alive.point(self._clock())
        self._watch.forget()
        return Totals(
            before=whole.begin,
            after=whole.end,
            peak=whole.peak,
            times=alive.times,
            levels=alive.levels,
            largest=whole.largest,
            notes=list(_notes(self._watch, alive)),
            resident=self._resident.peak_bytes if self._resident else None,
        )


def _notes(watch: TensorWatch, alive: Alive) -> Iterator[str]:
    yield (
        "The profile counts tensors that PyTorch operators returned to this thread. It excludes tensors from before it "
        "began, what an operator or compiled code allocates internally, other threads, and memory outside tensors."
    )
    if watch.unseen:
        yield f"Tensors without storage of their own, such as sparse ones, are not counted; {watch.unseen:,} were seen."
    if alive.thinned:
        yield "There were more changes than the timeline keeps; of neighbouring points it keeps the highest."
