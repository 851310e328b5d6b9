"""What contenders share in a worker besides their inputs: settings of PyTorch, of Python and of the process, which one
must not leave changed."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from groundspeed.measure import gate


@dataclass(frozen=True)
class Setting:
    """What a contender could leave changed for those after it."""

    values: dict[str, Any]

    @classmethod
    def now(cls) -> Setting:
        import torch

        return cls({name: get() for name, (get, _) in _settings(torch).items()})

    def check(self) -> None:
        """Put everything back as it was; Incorrect where something was not."""
        import torch

        settings = _settings(torch)
        changed = {name: now for name, (get, _) in settings.items() if (now := get()) != self.values[name]}
        for name in changed:
            settings[name][1](self.values[name])
        for name, now in changed.items():
            raise gate.Incorrect(f"left {name} at {now}, not {self.values[name]} as declared")


def _settings(torch: Any) -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    settings: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "PyTorch's number of threads": (torch.get_num_threads, torch.set_num_threads),
        "PyTorch's matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "PyTorch's deterministic mode": (
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
        "PyTorch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "PyTorch's gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
        "modes of PyTorch's functions": (torch._C._len_torch_function_stack, _pop_modes(torch)),
        "the profile function": (sys.getprofile, sys.setprofile),
        "the trace function": (sys.gettrace, sys.settrace),
        "the callbacks of the collector": (lambda: tuple(map(id, gc.callbacks)), lambda _: gc.callbacks.clear()),
        "the collector": (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
        "the interval timer": (lambda: signal.getitimer(signal.ITIMER_REAL) > (0.0, 0.0), _stop_timer),
        "the priority": (lambda: os.getpriority(os.PRIO_PROCESS, 0), _set_priority),
    }
    if hasattr(os, "sched_getaffinity"):
        settings["the cores"] = lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores)
    for name, flags in (("cuda.matmul", "allow_tf32"), ("cudnn", "allow_tf32"), ("mkldnn", "enabled")):
        backend: Any = torch.backends
        for part in name.split("."):
            backend = getattr(backend, part)
        if isinstance(getattr(backend, flags, None), bool):
            settings[f"PyTorch's {name}.{flags}"] = partial(getattr, backend, flags), partial(setattr, backend, flags)
    return settings


def _pop_modes(torch: Any) -> Callable[[int], None]:
    def pop(wanted: int) -> None:
        while torch._C._len_torch_function_stack() > wanted:
            torch._C._pop_torch_function_stack()

    return pop


def _stop_timer(running: bool) -> None:
    if not running:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _set_priority(wanted: int) -> None:
    """Lower it as far as the system lets us: only the mighty may raise it again."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, wanted)
    except PermissionError:
        pass
