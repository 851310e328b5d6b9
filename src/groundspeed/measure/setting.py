"""What contenders share in a worker besides their inputs: PyTorch's settings, which one must not leave changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
            raise gate.Incorrect(f"left PyTorch's {name} at {now}, not {self.values[name]} as declared")


def _settings(torch: Any) -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    return {
        "number of threads": (torch.get_num_threads, torch.set_num_threads),
        "matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "deterministic mode": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
        "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    }
