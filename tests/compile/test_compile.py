"""The portable kernel compiles for GPUs that are not here, without spills and within their shared memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SHARED_BYTES = {80: 163 << 10, 90: 227 << 10}
"""The most that one block may use: CUDA C++ Programming Guide, table of compute capabilities."""


FP32 = "torch.float32"
SPILLED_BYTES = {"torch.float16": 0, "torch.bfloat16": 0, FP32: 600}
"""Per thread. FP32 in three TF32 products needs more registers than there are: what was fastest spills a little."""
ANY_PRODUCT = {"wgmma", "mma.sync"}


@pytest.mark.slow
@pytest.mark.parametrize("capability", SHARED_BYTES)
def test_the_portable_kernel_compiles_for(capability: int) -> None:
    script = Path(__file__).with_name("compile_attention.py")
    done = subprocess.run([sys.executable, script, str(capability)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == 24
    for result in results:
        assert result["shared"] <= SHARED_BYTES[capability], result
        assert result["stack"] <= SPILLED_BYTES[result["dtype"]], result
        tensor_cores = (
            {"wgmma"} if capability == 90 and result["queries"] > 1 and result["dtype"] != FP32 else ANY_PRODUCT
        )
        assert tensor_cores & set(result["instructions"]), result
