"""The rival libraries of a mixture of experts, called as a user would call them. Both take only SwiGLU, and matrices in
our layout. Each uses its own routing, or PyTorch's if it has none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case
from groundspeed.suites.moe.pytorch import routed
from groundspeed.suites.rival import Rival

if TYPE_CHECKING:
    from torch import Tensor


def _liger(case: Case) -> Callable[..., Tensor]:
    from liger_kernel.ops import LigerFusedMoEFunction

    _forget_tuning(LigerFusedMoEFunction)

    def call(x: Tensor, router: Tensor, up: Tensor, down: Tensor, *, top_k: int, activation: str) -> Tensor:
        import torch

        experts, weights = routed(x, router, top_k)
        out: Tensor = LigerFusedMoEFunction.apply(x, up, down, experts.to(torch.int32), weights)
        return out.to(x.dtype)

    return call


def _forget_tuning(function: Any) -> None:
    """Have the kernels tuned for this case. What they keep is by the widths of the matrices alone, so the number of
    tokens of the first case in a process would decide for all the others."""
    from triton.runtime.autotuner import Autotuner

    for kernel in vars(sys.modules[function.__module__]).values():
        while kernel is not None and not isinstance(kernel, Autotuner):
            kernel = getattr(kernel, "fn", None)  # a heuristic around it
        if kernel is not None:
            kernel.cache.clear()


def _hugging_face(case: Case) -> Callable[..., Tensor]:
    """Return Mixtral's block, with the grouped products that Transformers' models use by default."""
    import torch
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    told = case.params
    config: Any = MixtralConfig(
        hidden_size=told["H"],
        intermediate_size=told["I"],
        num_local_experts=told["E"],
        num_experts_per_tok=told["K"],
    )
    config._experts_implementation = "grouped_mm"
    with torch.device("meta"):
        block = MixtralSparseMoeBlock(config).eval()
    given: list[Any] = []

    def call(x: Tensor, router: Tensor, up: Tensor, down: Tensor, **_: Any) -> Tensor:
        if given != [id(router), id(up), id(down)]:  # in the first call, which is never timed
            given[:] = id(router), id(up), id(down)
            weights = {"gate.weight": router, "experts.gate_up_proj": up, "experts.down_proj": down}
            block.load_state_dict(weights, assign=True)
            block.requires_grad_(False)
        out: Tensor = block(x[None])
        return out[0]

    return call


def _swiglu_alone(case: Case, device: str) -> str | None:
    return None if case.params["act"] == "swiglu" else "SwiGLU only"


RIVALS = {
    rival.name: rival
    for rival in (
        Rival("liger", "liger_kernel", "liger_kernel", ("liger-kernel", "triton", "torch"), _liger, _swiglu_alone),
        Rival("hugging-face", "transformers", "transformers", ("transformers", "torch"), _hugging_face, _swiglu_alone),
    )
}
