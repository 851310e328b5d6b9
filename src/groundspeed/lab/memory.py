"""The memory profiler that a user calls: it reads a source on the device, keeps the facts and reports them."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from groundspeed.errors import BadInput
from groundspeed.evidence import memory as facts
from groundspeed.evidence.memory import Allocation, MemoryUse, Phase
from groundspeed.measure.memory_profile import Profiler, Source

KEEP = 10
"""The default number of largest allocations that are named."""


class profile_memory:  # noqa: N801 – it is called like a function
    """Shows how much memory each phase of a program takes, and which allocations are largest at its peak.

        with gs.profile_memory() as memory:
            with memory.phase("prefill"): ...
            with memory.phase("decode"): ...
        print(memory)

    or, for every call of a function, `@gs.profile_memory(report=print)`. `device` is by default the current GPU if
    there is one, else the host; `"cpu"`, `"cuda"` and `"cuda:1"` name one. `report` is called with the profile when it
    ends, also after an exception. `largest` is the number of allocations that are named. On a GPU, `shapes=False` does
    not intercept operators; allocations then have no shape and no dtype.

    On a GPU it counts what PyTorch's allocator hands out, and resets the allocator's peak statistics. On the host it
    counts the tensors that operators return to the thread that entered the profile. Results are the same as without it,
    but every operator passes through Python, so do not time anything inside. Entering it again starts a new profile."""

    def __init__(
        self,
        device: Any = None,
        *,
        report: Callable[[profile_memory], object] | None = None,
        largest: int = KEEP,
        shapes: bool = True,
    ) -> None:
        if inspect.isroutine(device) or inspect.isclass(device):
            raise TypeError("profile_memory takes a device, not a function: write @gs.profile_memory(report=print)")
        if isinstance(largest, bool) or not isinstance(largest, int) or largest < 0:
            raise ValueError(f"largest is the number of allocations to name, not {largest!r:.80}")
        self._device, self._report, self._keep, self._shapes = device, report, largest, shapes
        self._use: MemoryUse | None = None
        self._profiler: Profiler | None = None
        self._thread = 0

    def __enter__(self) -> profile_memory:
        if self._profiler is not None:
            raise RuntimeError("this profile is already open; to nest one in it, use another profile_memory()")
        profiler = Profiler(_source(self._device, self._keep, self._shapes))
        self._use, self._thread = None, threading.get_ident()
        profiler.start()
        self._profiler = profiler
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        profiler, self._profiler = self._profiler, None
        assert profiler is not None, "a with that ends has begun"
        try:
            self._use = profiler.stop(kind.__name__ if kind else None)
        except Exception:
            if error is None:
                raise
            return  # the error from inside the profile is the one that matters
        if self._report:
            self._report(self)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Return a context manager for a part of the program. A name may occur again, and phases may be nested."""
        if self._profiler is None:
            raise RuntimeError("a phase needs an open profile: write it inside `with profile_memory() as …`")
        if threading.get_ident() != self._thread:
            raise RuntimeError(
                "only the thread that entered the profile can open a phase; give this thread its own profile"
            )
        if not facts.is_name(name):
            raise ValueError(f"the name of a phase is text of 1 to {facts.LONGEST_NAME} characters, not {name!r:.80}")
        return self._profiler.phase(name)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a function. Each call is profiled anew, and `function.memory` is the profile of the latest call."""
        if not callable(function):
            raise TypeError(f"profile_memory decorates functions, not {type(function).__name__}")
        inner = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        asks = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
        if any(ask(one) for ask in asks for one in (function, inner)):
            name = getattr(function, "__name__", "this function")
            raise TypeError(
                f"{name} is a generator or async: use `with gs.profile_memory()` around the code that runs it"
            )

        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            profile = profile_memory(self._device, report=self._report, largest=self._keep, shapes=self._shapes)
            profiled.memory = profile  # type: ignore[attr-defined]
            with profile:
                return function(*args, **kwargs)

        return profiled

    @property
    def use(self) -> MemoryUse:
        """All facts of the profile."""
        if self._use is None:
            state = "is still open: read it after its `with` block" if self._profiler else "has not been entered yet"
            raise RuntimeError(f"this profile {state}")
        return self._use

    @property
    def peak_bytes(self) -> int:
        return self.use.peak_bytes

    @property
    def phases(self) -> dict[str, Phase]:
        return {phase.name: phase for phase in self.use.phases}

    @property
    def timeline(self) -> list[tuple[float, int]]:
        """Pairs of the seconds since the profile began, and the bytes that were alive from then on."""
        return list(zip(self.use.times_s, self.use.levels_bytes, strict=True))

    @property
    def largest(self) -> tuple[Allocation, ...]:
        """The allocations that were made inside and were alive at the peak, the largest first."""
        return self.use.largest

    def __str__(self) -> str:
        from groundspeed.report.memory.views import to_text

        return to_text(self._use) if self._use else f"profile_memory, {'open' if self._profiler else 'not entered'}"

    __repr__ = __str__

    def save(self, path: str | Path) -> None:
        """Write the profile as JSON, which `load` reads."""
        from groundspeed.report.memory.views import to_json

        _write(path, to_json(self.use))

    def chart(self, path: str | Path) -> None:
        """Write a chart of the timeline: `.svg`, or `.html` for a page with the tables. Needs the extra `report`."""
        from groundspeed.report import memory

        made = {".svg": memory.to_svg, ".html": memory.to_html}.get(Path(path).suffix)
        if made is None:
            raise ValueError(f"{path} is not a chart: its name must end in .svg or .html; save() writes JSON")
        _write(path, made(self.use))

    @classmethod
    def load(cls, path: str | Path) -> profile_memory:
        found = cls()
        found._use = facts.read(Path(path))
        return found


def _write(path: str | Path, content: str) -> None:
    folder = Path(path).parent
    if not folder.is_dir():
        raise BadInput(f"cannot write {path}: there is no folder {folder}; make it, or choose another")
    Path(path).write_text(content, encoding="utf-8")


def _source(device: Any, keep: int, shapes: bool) -> Source:
    import torch

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        raise ValueError(f"{device!r:.80} is not a device; use 'cpu', 'cuda', or a number as in 'cuda:1'") from None
    if found.type == "cpu":
        from groundspeed.measure.tensors import HostSource

        return HostSource(keep)
    if found.type != "cuda" or not torch.cuda.is_available():
        raise NotImplementedError(
            f"profile_memory works on the host and on the NVIDIA GPUs of this machine, not on {found}; try 'cpu'"
        )
    from groundspeed.measure.allocator import DeviceSource

    return DeviceSource(torch.cuda.current_device() if found.index is None else found.index, keep, shapes)
