"""The contenders of a mixture of experts: PyTorch's own, rival libraries, and ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from groundspeed.case import Case, Contender
from groundspeed.suites.available import (
    expect,
    joined,
    reasons,
    sixteen_bit_on_gpu,
    torch_version,
    triton_version,
    without_compiler,
    without_gpu,
    without_hopper,
    without_torch,
    without_triton,
)
from groundspeed.suites.compiled import compiled_for_one_shape
from groundspeed.suites.expert_kernels import compile_product, empty, files, without_odd_rows
from groundspeed.suites.moe import pytorch
from groundspeed.suites.moe.products import a_layer_alone, by_ours, by_pytorch, is_products, products_alone
from groundspeed.suites.moe.rivals import RIVALS
from groundspeed.suites.moe.shapes import shape_of

COMPILED_BY = ("H", "I", "E", "K", "act", "dtype")
_SHIPPED = "as its library ships it"
_COMPILED = (
    "torch.compile for this shape alone, in default mode; its first call tries a few configurations of some kernels"
)
_TUNED = {"liger": "by Triton's autotuner over the configurations that its library ships, anew for each case"}
_RIVALS = {
    "liger": ("Liger's fused MoE", without_gpu),
    "hugging-face": ("Hugging Face's Mixtral block, with grouped products", without_torch),
}


def contenders() -> list[Contender]:
    runs = partial(Contender, "moe", version=torch_version, absent=without_torch, tuning=_SHIPPED)
    layer = partial(runs, supports=a_layer_alone)
    compiles = partial(layer, absent=without_compiler, tuning=_COMPILED, tries=True)
    ours = partial(Contender, "moe", version=triton_version, tuning="tiles from a table; no tuning at run time")
    return [
        layer("expert-loop", "a loop over the experts in eager PyTorch", lambda case: pytorch.expert_loop),
        compiles("expert-loop-compiled", "the same under torch.compile", _compiled(pytorch.expert_loop, whole=False)),
        layer("grouped-mm", "sorted tokens and PyTorch's grouped_mm, eager", lambda case: pytorch.grouped),
        compiles(
            "grouped-mm-compiled",
            "the same under torch.compile",
            _compiled(pytorch.grouped, whole=True),
            supports=reasons(a_layer_alone, _bf16_alone),
        ),
        runs(
            "plain-products",
            "the layer's two products with plain matrices, by PyTorch: cuBLAS on a GPU",
            lambda case: by_pytorch,
            supports=products_alone,
        ),
        *map(_rival, _RIVALS),
        ours(
            "ours-portable",
            "groundspeed's kernels in portable Triton",
            _ours(hopper=False),
            absent=without_triton,
            supports=sixteen_bit_on_gpu,
            **files(hopper=False, layer=True),
            launches=expect("moe_grouped_gemm_kernel"),
            compiles=partial(_compile, hopper=False),
        ),
        ours(
            "ours-hopper",
            "groundspeed's kernels for Hopper, products in Gluon",
            _ours(hopper=True),
            absent=without_hopper,
            supports=reasons(sixteen_bit_on_gpu, without_odd_rows("H", "I")),
            **files(hopper=True, layer=True),
            launches=expect("moe_grouped_gemm_hopper", "moe_grouped_gemm_transposed"),
            compiles=partial(_compile, hopper=True),
        ),
    ]


def preset_contenders(preset: str, device: str) -> tuple[str, ...] | None:
    """Return the contenders that a preset measures; None for all."""
    if preset == "quick":
        return tuple(c.name for c in contenders() if not c.name.endswith("-compiled"))
    return None


def preset_skips(preset: str, cases: Mapping[str, Case], baseline: str) -> dict[tuple[str, str], str]:
    """Return (case, contender) → reason for what `standard` leaves out because it would take most of the time."""
    if preset != "standard":
        return {}
    skips: dict[tuple[str, str], str] = {}
    compiled: dict[tuple[object, ...], tuple[object, ...]] = {}
    for name, case in cases.items():
        kind, shape = tuple(map(case.params.get, COMPILED_BY)), tuple(map(case.params.get, ("T", "routing")))
        if not is_products(case) and compiled.setdefault(kind, shape) != shape:
            for late in ("expert-loop-compiled", "grouped-mm-compiled"):
                if late != baseline:
                    skips[name, late] = "preset standard compiles it for one number of tokens per shape of the experts"
    return skips


def _compiled(function: Callable[..., Any], *, whole: bool) -> Callable[[Case], Callable[..., Any]]:
    return lambda case: compiled_for_one_shape(function, whole=whole)


def _bf16_alone(case: Case, device: str) -> str | None:
    return None if case.params["dtype"] == "bf16" else "PyTorch's compiler supports grouped products in BF16 only"


def _ours(*, hopper: bool) -> Callable[[Case], Callable[..., Any]]:
    def build(case: Case) -> Callable[..., Any]:
        from groundspeed.kernels.moe.api import moe

        return by_ours(hopper=hopper) if is_products(case) else partial(moe, impl="hopper" if hopper else "triton")

    return build


def _compile(case: Case, capability: tuple[int, int], *, hopper: bool) -> None:
    from groundspeed.kernels.moe import layer
    from groundspeed.kernels.moe.form import Routing

    if is_products(case):
        M, H, inner = (int(case.params[key]) for key in "MHI")
        for N, K in ((inner, H), (H, inner)):
            compile_product(case, M, N, K, capability, hopper=hopper)
        return
    shape, activation = shape_of(case.params), str(case.params["act"])
    x, router, up, down = empty(case, (shape.T, shape.H), *shape.weights(activation))
    forward = layer.prepared(x, router, up, down, Routing(shape.K), activation, capability=capability, hopper=hopper)
    forward(x, router, up, down)


def _rival(name: str) -> Contender:
    rival, (description, without) = RIVALS[name], _RIVALS[name]

    def absent(device: str) -> str | None:
        return joined(without(device), rival.missing())

    return Contender(
        "moe",
        name,
        description,
        rival.build,
        absent=absent,
        supports=reasons(a_layer_alone, rival.supports),
        version=rival.version,
        tuning=_TUNED.get(name, _SHIPPED),
        tries=name in _TUNED,
    )
