"""`moe`, the function that a model calls: it checks its arguments and chooses an implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from groundspeed.kernels import calls
from groundspeed.kernels.moe import pytorch
from groundspeed.kernels.moe.form import ACTIVATIONS, Routing, widening
from groundspeed.kernels.recall import Recall

if TYPE_CHECKING:
    from torch import Tensor

IMPLEMENTATIONS = ("hopper", "triton", "torch")
DTYPES = (torch.float16, torch.bfloat16)
MAX_EXPERTS = 512
"""The most experts: a program keeps the logits of all of them in registers."""


class Routed(NamedTuple):
    """How the tokens of a call were routed. The losses are FP32 scalars on the device."""

    experts: Tensor
    """[T, top_k]: the experts that each token chose, the greatest score first."""
    weights: Tensor
    """[T, top_k] FP32."""
    counts: Tensor
    """[E]: the number of tokens of each expert."""
    balance_loss: Tensor
    """E · Σ (share of the choices · mean score) over the experts, as in Switch Transformers: 1 if all experts are used
    equally."""
    z_loss: Tensor
    """The mean square of the log-sum-exp of the logits."""


def moe(
    x: Tensor,
    router: Tensor,
    up: Tensor,
    down: Tensor,
    *,
    top_k: int,
    activation: str = "swiglu",
    score: str = "softmax",
    renormalize: bool = True,
    scale: float = 1.0,
    bias: Tensor | None = None,
    shared: Tensor | None = None,
    return_routing: bool = False,
    impl: str = "auto",
) -> Any:
    """Send each token of x [..., H] through the `top_k` of E experts that its router chooses, and return Σ weight ·
    down[e] · activation(up[e] · x), for router [E, H], up [E, F, H] and down [E, H, I]. F is I for `activation` "gelu"
    and "relu2", and 2·I for "swiglu", with the gate first. With `return_routing`, also return a `Routed`.

    The scores are the softmax or sigmoid (`score`) of the logits router · x, computed in FP32; among equal scores the
    lower index is chosen. `bias` [E] is added to them for the choice only. The weights of the chosen experts are
    divided by their sum (`renormalize`) and multiplied by `scale`. `shared` [..., H] is added to the result, like an
    expert that all tokens use. No token is dropped, however many choose the same expert.

    `impl="auto"` uses our kernels, otherwise PyTorch's path, with a one-time warning. On a Hopper GPU it uses the
    Hopper products if experts have more than a few tokens each. Calls with gradients take PyTorch's path, since we have
    no kernels for them yet. Naming an implementation (`"hopper"`, `"triton"`, `"torch"`) forces it, or raises if it
    cannot serve."""
    routing = Routing(top_k, score, renormalize, scale)
    _check(x, router, up, down, bias, shared, routing, activation)
    flat = x.reshape(x.numel() // x.shape[-1], x.shape[-1])
    beside = None if shared is None else shared.reshape(flat.shape).contiguous()
    chosen, reason = _choose(flat, router, up, down, bias, beside, impl)
    if reason:
        calls.say_once("moe", reason)
    if chosen == "torch":
        out, routed = _by_pytorch(flat, router, up, down, bias, beside, routing, activation)
        return (out.view(x.shape), routed) if return_routing else out.view(x.shape)
    tensors = [tensor for tensor in (flat, router, up, down, bias, beside) if tensor is not None]
    serve = _launch if calls.is_plain(*tensors) else torch.ops.groundspeed.moe_forward
    told = top_k, score, renormalize, scale, activation, return_routing, chosen
    out, experts, weights, counts, sums = serve(flat, router, up, down, bias, beside, *told)
    if not return_routing:
        return out.view(x.shape)
    T, E = len(flat), len(router)
    return out.view(x.shape), _routed(experts, weights, counts, sums[:E] / max(1, T), sums[E], T)


def _routed(experts: Tensor, weights: Tensor, counts: Tensor, shares: Tensor, squares: Tensor, T: int) -> Routed:
    """Return the `Routed` of a call. `shares` are means over the tokens; `squares` is a sum over them."""
    E, top_k = len(counts), experts.shape[1]
    balance = E * (counts / max(1, T * top_k) * shares).sum()
    return Routed(experts, weights, counts, balance, squares / max(1, T))


def _by_pytorch(
    x: Tensor,
    router: Tensor,
    up: Tensor,
    down: Tensor,
    bias: Tensor | None,
    shared: Tensor | None,
    routing: Routing,
    activation: str,
) -> tuple[Tensor, Routed]:
    experts, weights, shares, lse = pytorch.route(x, router, routing, bias)
    out = pytorch.mixed(x, up, down, experts, weights, activation)
    out = out if shared is None else out + shared.float()
    counts = experts.flatten().bincount(minlength=len(router))
    mean = shares.sum(0) / max(1, len(x))
    return out.to(x.dtype), _routed(experts, weights, counts, mean, lse.square().sum(), len(x))


def _choose(
    x: Tensor, router: Tensor, up: Tensor, down: Tensor, bias: Tensor | None, shared: Tensor | None, impl: str
) -> tuple[str, str | None]:
    """Return the implementation that serves a call, and the reason if it is PyTorch's without having been requested.
    With `auto`, the choice among our kernels is made later, from the tensors of the launch."""
    if impl not in ("auto", *IMPLEMENTATIONS):
        raise ValueError(f"impl={impl!r} is unknown; choose from auto, {', '.join(IMPLEMENTATIONS)}")
    if impl == "torch":
        return impl, None
    reason = _why_not_ours(x, router, up, down, bias, shared)
    if impl == "hopper" and reason is None:
        reason = _why_not_hopper(x, up, down)
    if reason and impl != "auto":
        raise NotImplementedError(f"impl={impl!r} cannot serve this call: {reason}; impl='torch' or 'auto' can")
    return ("torch", reason) if reason else (impl, None)


def _why_not_ours(
    x: Tensor, router: Tensor, up: Tensor, down: Tensor, bias: Tensor | None, shared: Tensor | None
) -> str | None:
    if x.device.type != "cuda":
        return calls.elsewhere(x.device)
    if x.dtype not in DTYPES:
        return f"our kernels support fp16 and bf16, not {x.dtype}"
    if router.dtype not in (x.dtype, torch.float32):
        return f"our kernels support a router in {x.dtype} or fp32, not {router.dtype}"
    if len(router) > MAX_EXPERTS:
        return f"our kernels support up to {MAX_EXPERTS} experts, not {len(router)}"
    if calls.is_derived(*(t for t in (x, router, up, down, bias, shared) if t is not None)):
        return "our kernels have no backward pass yet, and this call needs gradients"
    if calls.capability(x.device) < calls.MIN_CAPABILITY:
        return "our kernels need compute capability 8.0 or newer"
    if any(tensor.stride(-1) != 1 and tensor.shape[-1] > 1 for tensor in (x, router, up, down)):
        return "our kernels need rows with adjacent elements"
    return None


def _why_not_hopper(x: Tensor, up: Tensor, down: Tensor) -> str | None:
    if calls.capability(x.device) != calls.HOPPER:
        return "it needs a GPU of compute capability 9.0"
    in_eights = not any(n % 8 for n in down.shape[1:])  # rows between the kernels too, which have H and I elements
    for tensor in (up, down):
        strides = [stride for stride, size in zip(tensor.stride()[:2], tensor.shape[:2], strict=True) if size > 1]
        boxed = all(stride > 0 and stride % 8 == 0 for stride in strides)
        if not (in_eights and boxed and calls.is_aligned(tensor)):
            return "TMA needs rows with adjacent elements, at strides that are multiples of 16 bytes"
    return None


def _check(
    x: Tensor,
    router: Tensor,
    up: Tensor,
    down: Tensor,
    bias: Tensor | None,
    shared: Tensor | None,
    routing: Routing,
    activation: str,
) -> None:
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation={activation!r} is unknown; choose from {', '.join(ACTIVATIONS)}")
    calls.need_tensors(x=x, router=router, up=up, down=down, bias=bias, shared=shared)
    if x.dim() < 1 or router.dim() != 2 or up.dim() != 3 or down.dim() != 3:
        raise ValueError(
            f"x must be [..., H], router [E, H], up [E, F, H] and down [E, H, I], not {_shapes(x, router, up, down)}"
        )
    (E, H), inner = router.shape, down.shape[2]
    if x.shape[-1] != H or up.shape != (E, widening(activation) * inner, H) or down.shape != (E, H, inner):
        wide = "2·I" if widening(activation) == 2 else "I"
        raise ValueError(
            f"for x [..., H], router must be [E, H], up [E, {wide}, H] with {activation}, and down [E, H, I]: "
            f"{_shapes(x, router, up, down)}"
        )
    if not 0 < routing.top_k <= E:
        raise ValueError(f"top_k must be from 1 to the number of experts, {E}, not {routing.top_k}")
    if min(H, inner) == 0:
        raise ValueError(f"no dimension of an expert may be 0: {_shapes(x, router, up, down)}")
    if not x.dtype == up.dtype == down.dtype or not x.device == router.device == up.device == down.device:
        raise ValueError("x, up and down must share their dtype, and all tensors their device")
    if bias is not None and (bias.shape != (E,) or bias.device != x.device):
        raise ValueError(f"bias must be one for each of the {E} experts, on {x.device}")
    if shared is not None and (shared.shape != x.shape or shared.dtype != x.dtype or shared.device != x.device):
        raise ValueError(f"shared must match x: {_shapes(x, shared)}")


def _shapes(*tensors: Tensor) -> str:
    return ", ".join(str(list(tensor.shape)) for tensor in tensors)


_recall = Recall()


def _launch(
    x: Tensor,
    router: Tensor,
    up: Tensor,
    down: Tensor,
    bias: Tensor | None,
    shared: Tensor | None,
    top_k: int,
    score: str,
    renormalize: bool,
    scale: float,
    activation: str,
    losses: bool,
    impl: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the result, experts, weights, counts, and the sums over all tokens (router.py), zeros without losses."""
    E = len(router)
    bias = None if bias is None else bias.contiguous()
    if len(x) == 0:
        return _fake(x, router, up, down, bias, shared, top_k, *[None] * 6)
    routing = Routing(top_k, score, renormalize, scale)
    asked = routing, activation, losses, impl, bias is None, shared is None
    tensors = tuple(tensor for tensor in (x, router, up, down, bias, shared) if tensor is not None)
    forward = _recall.find(asked, tensors)
    served = forward is not None
    if forward is None:
        from groundspeed.kernels.moe import layer

        if impl == "hopper" and (reason := _why_not_hopper(x, up, down)):  # torch.compile saw no addresses
            raise NotImplementedError(f"impl={impl!r} cannot serve this call: {reason}; impl='torch' or 'auto' can")
        suited = impl == "auto" and layer.suits_hopper(len(x) * top_k, E) and _why_not_hopper(x, up, down) is None
        forward = layer.prepared(
            x,
            router,
            up,
            down,
            routing,
            activation,
            capability=calls.capability(x.device),
            hopper=impl == "hopper" or suited,
            bias=bias,
            sharing=shared is not None,
            losses=losses,
        )
    out, chosen, counts = forward(x, router, up, down, bias, shared)
    if not served:
        _recall.keep(asked, tensors, forward)  # only after it has served a call
    sums = chosen.sums.sum(0) if losses else x.new_zeros(E + 1, dtype=torch.float32)
    return out, chosen.experts, chosen.weights, counts, sums


def _fake(x: Tensor, router: Tensor, up: Tensor, down: Tensor, bias: Any, shared: Any, top_k: int, *_: Any) -> Any:
    T, E = len(x), len(router)
    chosen = x.new_empty((T, top_k), dtype=torch.int32), x.new_empty((T, top_k), dtype=torch.float32)
    beside = x.new_zeros((E,), dtype=torch.int32), x.new_zeros((E + 1,), dtype=torch.float32)
    return (torch.empty_like(x, memory_format=torch.contiguous_format), *chosen, *beside)


_library = torch.library.Library("groundspeed", "FRAGMENT")
_takes = (
    "Tensor x, Tensor router, Tensor up, Tensor down, Tensor? bias, Tensor? shared, int top_k, str score, "
    "bool renormalize, float scale, str activation, bool losses, str impl"
)
_library.define(f"moe_forward({_takes}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
_library.impl("moe_forward", _launch, "CUDA")
torch.library.register_fake("groundspeed::moe_forward", _fake, lib=_library)
