"""A linear layer of many rows with its activation in the product, by the Hopper kernel of the experts: the result of
the product is neither written nor read before it is activated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from groundspeed.kernels import calls
from groundspeed.kernels.activation.api import activate
from groundspeed.kernels.moe.form import widening
from groundspeed.kernels.recall import Recall

if TYPE_CHECKING:
    from torch import Tensor

KINDS = (torch.float16, torch.bfloat16)
MULTIPROCESSORS = 132
"""Of an H100 or H200."""
TILE = 128, 256
"""The rows and columns of a tile of the product for many rows."""
FULL_PERCENT = 95
"""The least share of the time of all rounds of tiles that goes into useful work."""
MOST_K = 8192
"""The largest K."""
LINE = 64
"""The elements in 128 bytes."""


def is_chosen(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> bool:
    """Return whether the product with the activation in it serves x [..., K], weight [N, K] and bias [N]."""
    K = x.shape[-1]
    if not x.is_cuda or x.dtype not in KINDS or weight.dim() != 2 or not K:
        return False
    return pays(x.numel() // K, len(weight), K) and _can_serve(x, weight, bias, activation)


def pays(rows: int, columns: int, K: int) -> bool:
    """Return whether the fused product is expected to take less time than cuBLAS's and a separate activation, for this
    many rows of x and of the matrix: if its tiles, dealt out to all multiprocessors in rounds, leave at most a
    twentieth of the places in them empty, K is not too large, and rows are multiples of 128 bytes.

    A separate GELU reads and writes the result: some 7,000 cycles of a multiprocessor for a tile. GELU in the product
    takes some 4,100, two instructions of its special functions for each element. The products of a tile take 16 · K.
    So the gain is largest for small K: on an H200 both together take 0.84 of the time for 32768×3072×768, 0.93 for
    8192×8192×2048 and 0.94 for 16384×16384×4096, and more where tiles do not fill the GPU (docs/log.md).
    `tools/tune_activated.py` times both."""
    if K > MOST_K or K % LINE or columns % LINE:
        return False
    block_m, block_n = TILE
    tiles = -(-rows // block_m) * -(-columns // block_n)
    places = -(-tiles // MULTIPROCESSORS) * MULTIPROCESSORS
    return 100 * rows * columns > FULL_PERCENT * places * block_m * block_n


def _can_serve(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> bool:
    """Return whether the kernel can, besides what does not depend on the tensors. Whoever calls it otherwise computes
    the parts, and says what is wrong."""
    tensors, wide = _tensors(x, weight, bias), widening(activation)
    if torch.is_autocast_enabled(x.device.type):
        return False
    if any((tensor.dtype, tensor.device) != (x.dtype, x.device) for tensor in tensors):
        return False
    if weight.shape[1] != x.shape[-1] or (bias is not None and (bias.shape != weight.shape[:1] or wide > 1)):
        return False
    in_eights = not (x.shape[-1] % 8 or len(weight) % (8 * wide))
    if not (in_eights and x.is_contiguous() and weight.is_contiguous()):
        return False
    if not (calls.is_aligned(x) and calls.is_aligned(weight)):
        return False
    return (
        calls.why_not_by_rows(*tensors) is None
        and calls.capability(x.device) == calls.HOPPER
        and (calls.multiprocessors(x.device) == MULTIPROCESSORS)
    )


def activated_linear(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Return activation(x·weightᵀ + bias), which `is_chosen` has said can be served. The product and the activation are
    computed in FP32 and rounded once."""
    if calls.is_plain(*_tensors(x, weight, bias)):
        return _launch(x, weight, bias, activation)
    return torch.ops.groundspeed.activated_linear_forward(x, weight, bias, activation)


_recall = Recall()


def _tensors(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    return (x, weight) if bias is None else (x, weight, bias)


def _launch(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    key, tensors = (activation, bias is None), _tensors(x, weight, bias)
    kept = _recall.find(key, tensors)
    if kept is not None:
        return kept(*tensors)
    if x.data_ptr() % 16 or weight.data_ptr() % 16:  # a compiler knows no addresses
        return activate(functional.linear(x, weight, bias), activation)
    from groundspeed.kernels.moe import dense

    K = x.shape[-1]
    M, shape = x.numel() // K, (*x.shape[:-1], len(weight) // widening(activation))
    biased = bias is not None
    multiply = dense.prepared(
        x.view(M, K), weight, capability=calls.HOPPER, hopper=True, activation=activation, biased=biased
    )

    def forward(x: Tensor, *others: Tensor) -> Tensor:
        return multiply(x.view(M, K), *others).view(shape)

    found = forward(*tensors)
    _recall.keep(key, tensors, forward)  # only after it has served a call
    return found


def _fake(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0] // widening(activation)))


_library = torch.library.Library("groundspeed", "FRAGMENT")
_tags: Any = (torch.Tag.needs_exact_strides,)
_takes = "Tensor x, Tensor weight, Tensor? bias, str activation"
_library.define(f"activated_linear_forward({_takes}) -> Tensor", tags=_tags)
_library.impl("activated_linear_forward", _launch, "CUDA")
torch.library.register_fake("groundspeed::activated_linear_forward", _fake, lib=_library)
