"""Compile our kernels for a GPU that is not here, as a run would launch them, to save time on the machine with the GPU.

    TRITON_CACHE_DIR=/scratch/kernels python tools/compile_ahead.py 'sweep-*' t3 --dtype bf16 [--capability 9.0]
    TRITON_CACHE_DIR=/scratch/kernels python tools/compile_ahead.py '*' --suite moe

That machine finds the kernels if the folder has the same path there and Triton and Python have the same versions."""

from __future__ import annotations

import argparse
import fnmatch
import multiprocessing
import os
import time

from groundspeed.lab.standin import binaries
from groundspeed.suites import registry


def compiled(job: tuple[str, str, tuple[int, int], list[str]]) -> int:
    """Compile the kernels of one contender on these cases, and return how many there are."""
    suite, contender, capability, names = job
    cases = {case.name: case for case in registry.suite_module(suite).all_cases()}
    found = binaries(suite, contender, capability, [dict(cases[name].params) for name in names])
    return len({code for hashes in found for code in hashes})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="+", help="names or patterns, as in groundspeed run --case")
    parser.add_argument("--suite", default="attention")
    parser.add_argument("--dtype", default="bf16,fp16")
    parser.add_argument("--capability", default="9.0")
    options = parser.parse_args()
    if "TRITON_CACHE_DIR" not in os.environ:
        parser.error("set TRITON_CACHE_DIR to a folder that has the same path on the other machine")
    capability = tuple(map(int, options.capability.split(".")))
    module, began = registry.suite_module(options.suite), time.monotonic()
    wanted = [
        case
        for case in module.all_cases()
        if case.params["dtype"] in options.dtype.split(",")
        and any(fnmatch.fnmatch(case.name, pattern) or case.name.startswith(f"{pattern}-") for pattern in options.case)
    ]
    cores = os.cpu_count() or 1
    jobs = []
    for contender in (c for c in module.contenders() if c.compiles):
        names = [case.name for case in wanted if contender.supports(case, "cuda") is None]
        jobs += [(options.suite, contender.name, capability, names[i::cores]) for i in range(cores) if names[i::cores]]
    with multiprocessing.get_context("spawn").Pool(cores) as pool:  # a process sets its driver once
        made = sum(pool.map(compiled, jobs, chunksize=1))
    print(f"{len(wanted)} cases, about {made} kernels in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
