"""The environment manifest: what a result depends on besides the code (requirement A7).

Nothing here names a person, a host or a folder: a bundle is made to be published.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from groundspeed.measure.gpu import gpu_environment

PACKAGES = (
    "torch",
    "triton",
    "numpy",
    "scipy",
    "xformers",
    "flash-attn",
    "flash-attn-3",
    "flash-attn-4",
    "nvidia-cutlass-dsl",
    "nvidia-cudnn-cu13",
    "nvidia-cudnn-cu12",
)
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "KMP_AFFINITY",
    "MALLOC_ARENA_MAX",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TRITON_INTERPRET",
    "TRITON_PTXAS_PATH",
)


BUSY_S = 0.3
"""The time over which a busy share is taken."""


def host_environment() -> dict[str, Any]:
    """Return what can be found out without torch."""
    import psutil

    memory = psutil.virtual_memory()
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return {
        "os": {
            "name": _os_name(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "libc": " ".join(platform.libc_ver()),
        },
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "cpu": {
            "name": _cpu_name(),
            "cores": usable_cores(),
            "logical_cores": psutil.cpu_count(logical=True),
            "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            **_load(),
            "on_battery": None if battery is None else not battery.power_plugged,
        },
        "memory": {
            "total_bytes": memory.total,
            "available_bytes": memory.available,
            "swap_used_bytes": psutil.swap_memory().used,
        },
        "gpu": gpu_environment(),
        "source_sha256": source_hash(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _load() -> dict[str, float]:
    """Return the load of the last minute and, if there was one, which share of our cores is busy now: work that has
    just ended, such as an installation, disturbs nothing any more."""
    import psutil

    load = round(os.getloadavg()[0], 2)
    if load <= usable_cores() / 2:
        return {"load_1min": load}
    busy = psutil.cpu_percent(BUSY_S, percpu=True)
    ours = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(busy))
    shares = [busy[core] for core in ours if core < len(busy)]
    return {"load_1min": load, **({"busy_share": round(sum(shares) / len(shares) / 100, 3)} if shares else {})}


def torch_environment() -> dict[str, Any]:
    """Return what only torch knows; called in a worker."""
    import torch

    build = torch.__config__.show().splitlines()[1:]
    return {
        **(_cuda_environment(torch) if torch.cuda.is_available() else {}),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "build": [line.strip(" -") for line in build if "Build settings" not in line],
        "compiler_flags": _compiler_flags(" ".join(build)),
    }


def ptxas(capability: tuple[int, int]) -> str | None:
    """Return the version of the assembler that Triton uses for such a GPU, or None if Triton or the assembler is
    missing."""
    try:
        from triton import knobs

        tools = knobs.nvidia
        return str((getattr(tools, "ptxas_blackwell", tools.ptxas) if capability[0] >= 10 else tools.ptxas).version)
    except (ImportError, AttributeError, RuntimeError):  # RuntimeError: Triton finds none
        return None


def _cuda_environment(torch: Any) -> dict[str, Any]:
    device = torch.cuda.get_device_properties(0)
    return {
        "cudnn": torch.backends.cudnn.version(),
        "ptxas": ptxas((device.major, device.minor)),
        "multiprocessors": device.multi_processor_count,
        "l2_bytes": device.L2_cache_size,
        "architectures": torch.cuda.get_arch_list(),
    }


def _compiler_flags(build: str) -> dict[str, str]:
    """Return the flags that torch was compiled with. Flags with a path show where it was built, and are left out."""
    found = re.findall(r"\b(C\w+_FLAGS)=([^,]*)", build)
    return {name: " ".join(flag for flag in flags.split() if "/" not in flag) for name, flags in found}


def usable_cores() -> int:
    """Return the number of cores that this process may run on; in a container they may be fewer than the machine
    has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def source_commit() -> str | None:
    """Return the git commit of groundspeed's own source, with `+changes` if it is not clean; None outside a
    checkout."""
    package = Path(__file__).resolve().parent.parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(package), *arguments], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = git("rev-parse", "HEAD")
    return f"{commit}+changes" if commit and git("status", "--porcelain", "--", ".") else commit


def source_hash() -> str:
    """Return the sha256 of groundspeed's own code, which identifies it even if git is missing or reports only that it
    changed."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError, AttributeError):
        return f"{platform.system()} {platform.version()}"


def _cpu_name() -> str:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine() or sys.platform


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
