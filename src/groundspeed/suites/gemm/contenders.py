"""The contenders of a matrix product: cuBLAS as PyTorch calls it, and ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case, Contender
from groundspeed.kernels.linear import form as linear_form
from groundspeed.suites.available import (
    expect,
    reasons,
    sixteen_bit_on_gpu,
    torch_version,
    triton_version,
    without_hopper,
    without_torch,
    without_triton,
)
from groundspeed.suites.expert_kernels import compile_product, empty, files, without_odd_rows

if TYPE_CHECKING:
    from torch import Tensor

COMPILED_BY: tuple[str, ...] = ()
LIBRARY = "pytorch"


def contenders() -> list[Contender]:
    ours = partial(Contender, "gemm", version=triton_version, tuning="tiles from a table; no tuning at run time")
    return [
        Contender(
            "gemm",
            LIBRARY,
            "PyTorch's own: cuBLAS on a GPU, _scaled_mm in FP8",
            _library,
            absent=without_torch,
            supports=_without_fp8_on_cpu,
            version=torch_version,
            tuning="cuBLAS's own heuristic",
        ),
        ours(
            "ours-portable",
            "groundspeed's kernel for experts, in portable Triton",
            _ours(hopper=False),
            absent=without_triton,
            supports=_without_fp8(sixteen_bit_on_gpu),
            **files(hopper=False, layer=False),
            launches=expect("moe_grouped_gemm_kernel"),
            compiles=partial(_compile, hopper=False),
        ),
        ours(
            "ours-hopper",
            "groundspeed's kernel for experts, in Gluon for Hopper",
            _ours(hopper=True),
            absent=without_hopper,
            supports=_without_fp8(reasons(sixteen_bit_on_gpu, without_odd_rows("N", "K"))),
            **files(hopper=True, layer=False),
            launches=expect("moe_grouped_gemm_hopper"),
            compiles=partial(_compile, hopper=True),
        ),
        ours(
            "ours-few-rows",
            "groundspeed.linear for a few rows, in portable Triton",
            lambda case: _few_rows,
            absent=without_triton,
            supports=_without_fp8(reasons(sixteen_bit_on_gpu, _with_few_rows)),
            source=str(Path(linear_form.__file__).with_name("triton.py")),
            parts=tuple(map(str, sorted(Path(linear_form.__file__).parent.glob("*.py")))),
            launches=expect("linear_few_rows_kernel"),
            compiles=_compile_few_rows,
        ),
    ]


def preset_contenders(preset: str, device: str) -> tuple[str, ...] | None:
    return None


def preset_skips(preset: str, cases: Mapping[str, Case], baseline: str) -> dict[tuple[str, str], str]:
    return {}


def _library(case: Case) -> Callable[..., Tensor]:
    import torch
    from torch.nn.functional import linear

    if case.params["dtype"] != "fp8":
        return lambda a, b: linear(a, b)
    ones: list[Tensor] = []

    def scaled(a: Tensor, b: Tensor) -> Tensor:
        if not ones:  # in the first call, which is never timed
            ones.append(torch.ones((), device=a.device))
        return torch._scaled_mm(a, b.T, scale_a=ones[0], scale_b=ones[0], out_dtype=torch.bfloat16)

    return scaled


def _ours(*, hopper: bool) -> Callable[[Case], Callable[..., Any]]:
    def build(case: Case) -> Callable[..., Any]:
        from groundspeed.kernels.moe.dense import matmul

        return partial(matmul, hopper=hopper)

    return build


def _few_rows(a: Tensor, b: Tensor) -> Tensor:
    from groundspeed.kernels.linear.api import linear

    return linear(a, b, impl="triton")


def _with_few_rows(case: Case, device: str) -> str | None:
    most = linear_form.MOST_ROWS
    return f"up to {most} rows only" if int(case.params["M"]) > most else None


def _compile_few_rows(case: Case, capability: tuple[int, int]) -> None:
    from groundspeed.kernels.linear import triton

    M, N, K = (int(case.params[key]) for key in "MNK")
    triton.forward(*empty(case, (M, K), (N, K)), chained=capability >= (9, 0))


def _compile(case: Case, capability: tuple[int, int], *, hopper: bool) -> None:
    M, N, K = (int(case.params[key]) for key in "MNK")
    compile_product(case, M, N, K, capability, hopper=hopper)


def _without_fp8(rest: Callable[[Case, str], str | None]) -> Callable[[Case, str], str | None]:
    return lambda case, device: "FP16 and BF16 only" if case.params["dtype"] == "fp8" else rest(case, device)


def _without_fp8_on_cpu(case: Case, device: str) -> str | None:
    return "FP8 on a GPU only" if case.params["dtype"] == "fp8" and device == "cpu" else None
