"""Compiles our Triton kernels for a GPU that is not here, in a separate process.

`python -m groundspeed.lab.standin` reads one JSON object, `{"suite", "contender", "capability": [9, 0], "cases":
[params, …]}`, and prints `{"triton": version, "ptxas": version, "binaries": [[hash, …], …]}`: for each case, the hashes
of the machine code that would be launched. It is a separate process because a process chooses its driver and its
version of Triton only once."""

from __future__ import annotations

import json
import sys
from typing import Any

from groundspeed.measure.binaries import launched
from groundspeed.measure.environment import ptxas
from groundspeed.suites import registry


class StandIn:
    """A driver that says which GPU to compile for, and launches nothing."""

    def __init__(self, capability: int) -> None:
        self.capability = capability
        self.loaded = 0

    @property
    def utils(self) -> StandIn:
        return self

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def map_python_to_cpp_type(self, name: str) -> str:
        return name

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": sys.maxsize}  # a kernel that does not fit has failed where it was measured

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        """Return module, function, registers, spills and threads."""
        self.loaded += 1
        return self.loaded, self.loaded, 0, 0, sys.maxsize

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        def launch(
            x: int, y: int, z: int, stream: int, function: int, packed: Any, told: Any, enter: Any, *_: Any
        ) -> None:
            if enter is not None:
                enter(told)

        return launch


def set_driver(driver: StandIn) -> None:
    import triton

    holder: Any = triton.runtime.driver
    (holder if hasattr(holder, "set_active") else holder.driver).set_active(driver)


def binaries(suite: str, contender: str, capability: tuple[int, int], cases: list[dict[str, Any]]) -> list[list[str]]:
    module = registry.suite_module(suite)
    compiles = next(known.compiles for known in module.contenders() if known.name == contender)
    assert compiles is not None, "only what can be compiled is asked for"
    set_driver(StandIn(10 * capability[0] + capability[1]))
    found = []
    for params in cases:
        with launched() as hashes:
            compiles(module.case_of_params(params), capability)
        found.append(sorted(set(hashes)))
    return found


def main() -> None:
    import triton

    asked = json.load(sys.stdin)
    capability = tuple(asked["capability"])
    made = binaries(asked["suite"], asked["contender"], capability, asked["cases"])
    print(json.dumps({"triton": triton.__version__, "ptxas": ptxas(capability), "binaries": made}))


if __name__ == "__main__":
    main()
