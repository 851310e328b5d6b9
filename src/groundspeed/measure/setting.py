"""What contenders share in a worker besides their inputs: settings of PyTorch, of Python and of the process, which none
may leave changed."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any

from groundspeed.measure import gate

Settings = dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]
"""Name of a setting → how it is read and how it is set."""
UNTOLD = "a value that PyTorch does not report"
PASSES = 3
FLAGS = (
    ("cuda.matmul", "fp32_precision"),
    ("cudnn", "fp32_precision"),
    ("mkldnn.matmul", "fp32_precision"),
    ("cuda.matmul", "allow_tf32"),
    ("cudnn", "allow_tf32"),
    ("cuda.matmul", "allow_fp16_accumulation"),
    ("cuda.matmul", "allow_fp16_reduced_precision_reduction"),
    ("cuda.matmul", "allow_bf16_reduced_precision_reduction"),
    ("mkldnn", "enabled"),
)
"""Flags of `torch.backends`."""
COMPILER = (
    "TRITON_PTXAS_PATH",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "DISABLE_PTXAS_OPT",
    "DISABLE_LLVM_OPT",
    "TRITON_LIBDEVICE_PATH",
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_CACHE_DIR",
    "TRITON_KERNEL_OVERRIDE",
    "TRITON_OVERRIDE_DIR",
)
"""The environment variables that change what Triton compiles, or where it finds what was compiled."""


@dataclass(frozen=True)
class Setting:
    """The settings that a contender could leave changed for those after it."""

    values: dict[str, Any]
    settings: Settings = field(default_factory=dict, compare=False)

    @classmethod
    def now(cls) -> Setting:
        import torch

        settings = _settings(torch)  # built once: they are read after every sample
        return cls({name: _told(get) for name, (get, _) in settings.items()}, settings)

    def check(self) -> None:
        """Put everything back as it was; raise Incorrect if something was changed."""
        first = changed = self._changed()
        for _ in range(PASSES):  # one setting may move another
            for name in changed:
                self.settings[name][1](self.values[name])
            changed = self._changed() if changed else {}
        for name, now in first.items():
            raise gate.Incorrect(f"left {name} at {now} instead of {self.values[name]}")

    def _changed(self) -> dict[str, Any]:
        return {name: now for name, (get, _) in self.settings.items() if (now := _told(get)) != self.values[name]}


def one_assembler() -> None:
    """Make everything that is compiled with Triton in this process use Triton's own ptxas, or the user's choice. From
    its first call on, PyTorch's compiler would make the whole process use PyTorch's ptxas, so what the other contenders
    compile would depend on the order. What was compiled elsewhere after such a call is in the user's cache as if
    Triton's own ptxas had made it, so another cache is used here."""
    try:
        from triton import knobs

        os.environ.setdefault("TRITON_PTXAS_PATH", knobs.nvidia.ptxas.path)
        folder = Path(knobs.cache.dir)
        os.environ.setdefault("TRITON_CACHE_DIR", str(folder.with_name("groundspeed")))
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder.with_name("groundspeed-inductor")))
    except (ImportError, AttributeError, RuntimeError):
        return


def compile_alone() -> None:
    """Keep PyTorch's compiler from starting a process per core, each of which imports PyTorch beside what is measured.
    The line-up has compiled already, and cache hits need no such process."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


def _told(get: Callable[[], Any]) -> Any:
    """Return the value of a setting. PyTorch refuses to report it if the same was set under another name."""
    try:
        return get()
    except (AttributeError, RuntimeError):
        return UNTOLD


def _settings(torch: Any) -> Settings:
    settings: Settings = {}
    for name, flag in FLAGS:  # first: the others cannot be read while these disagree with them
        backend = reduce(getattr, name.split("."), torch.backends)
        settings[f"PyTorch's {name}.{flag}"] = partial(_flag, backend, flag), partial(_set_flag, backend, flag)
    settings |= {
        "PyTorch's number of threads": (torch.get_num_threads, torch.set_num_threads),
        "PyTorch's matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "PyTorch's deterministic mode": (
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
        "PyTorch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "PyTorch's gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
        "PyTorch's current stream": (
            lambda: torch.cuda.current_stream().cuda_stream if torch.cuda.is_initialized() else 0,
            lambda _: torch.cuda.set_stream(torch.cuda.default_stream()),
        ),
        "the number of torch function modes": (
            torch._C._len_torch_function_stack,
            _pop_modes(torch._C._len_torch_function_stack, torch._C._pop_torch_function_stack),
        ),
        "the number of torch dispatch modes": (
            torch._C._len_torch_dispatch_stack,
            _pop_modes(torch._C._len_torch_dispatch_stack, partial(torch._C._pop_torch_dispatch_stack, None)),
        ),
        "PyTorch's anomaly mode": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        "the interpreter's switch interval": (sys.getswitchinterval, sys.setswitchinterval),
        "the profile function": (sys.getprofile, sys.setprofile),
        "the trace function": (sys.gettrace, sys.settrace),
        "gc.callbacks": (lambda: tuple(map(id, gc.callbacks)), lambda _: gc.callbacks.clear()),
        "gc.isenabled()": (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
        "the interval timer": (lambda: signal.getitimer(signal.ITIMER_REAL) > (0.0, 0.0), _stop_timer),
        "the process priority": (lambda: os.getpriority(os.PRIO_PROCESS, 0), _set_priority),
    }
    for kind, where in (("cpu", "CPUs"), ("cuda", "GPUs")):
        enabled = partial(torch.is_autocast_enabled, kind), partial(torch.set_autocast_enabled, kind)
        dtype = partial(torch.get_autocast_dtype, kind), partial(torch.set_autocast_dtype, kind)
        settings |= {f"PyTorch's autocast on {where}": enabled, f"PyTorch's autocast dtype on {where}": dtype}
    for name in COMPILER:
        settings[f"the environment variable {name}"] = partial(os.environ.get, name), partial(_set_variable, name)
    if hasattr(os, "sched_getaffinity"):
        settings["the CPU affinity"] = lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores)
    return settings


def _set_variable(name: str, value: str | None) -> None:
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value


def _flag(backend: Any, flag: str) -> Any:
    value = getattr(backend, flag)
    return "ieee" if value == "none" else value  # an unset precision is that of the dtype


def _set_flag(backend: Any, flag: str, value: Any) -> None:
    if value != UNTOLD:
        setattr(backend, flag, value)


def _pop_modes(count: Callable[[], int], pop_one: Callable[[], object]) -> Callable[[int], None]:
    def pop(wanted: int) -> None:
        while count() > wanted:
            pop_one()

    return pop


def _stop_timer(running: bool) -> None:
    if not running:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _set_priority(wanted: int) -> None:
    """Restore the priority if the system allows it: raising it takes privileges."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, wanted)
    except PermissionError:
        pass
