"""Compile what `ours-hopper` launches for an H200, for every case of some suites; run by test_compile.py in a process
of its own.

    python compile_expected.py SUITE…

Prints one JSON line per case: the names of its kernels, and what the contender says about them."""

from __future__ import annotations

import json
import sys

from triton import knobs

from groundspeed.lab.standin import StandIn, set_driver
from groundspeed.suites import registry

HOPPER = 9, 0


def main(suites: list[str]) -> None:
    set_driver(StandIn(90))
    names: list[str] = []
    knobs.runtime.kernel_load_end_hook.add(lambda module, function, name, files, key: names.append(name))
    knobs.runtime.launch_enter_hook.add(lambda told: names.append(told.get()["name"]))
    for suite in suites:
        module = registry.suite_module(suite)
        ours = next(one for one in module.contenders() if one.name == "ours-hopper")
        for case in module.all_cases():
            if case.params["dtype"] == "bf16" and ours.supports(case, "cuda") is None:
                names.clear()
                ours.compiles(case, HOPPER)
                kernels = sorted(set(names))
                print(json.dumps({"case": case.name, "kernels": kernels, "said": ours.launches(kernels)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
