"""The modules that stand in for Triton's while a kernel is imported to be run on paper."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import paper
import torch


def _scalar(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of numbers a number, of tensors a tensor."""

    def call(*values: Any) -> Any:
        if not any(isinstance(value, torch.Tensor) for value in values):
            return function(*(torch.tensor(value) for value in values)).item()
        return paper.tile(function(*(v if isinstance(v, torch.Tensor) else torch.tensor(v) for v in values)))

    return call


def _jit(function: Any = None, **_: Any) -> Any:
    return function if function is not None else lambda function: function


def _allocate(dtype: Any, shape: Sequence[int], layout: Any) -> Any:
    if layout == "barrier":
        return paper.Barriers(shape[0])
    return paper.Memory(torch.full(tuple(shape), float("nan"), dtype=dtype))


def _keep(constant: Any) -> Any:
    return constant


def modules() -> dict[str, ModuleType]:
    """What stands in for Triton's modules while a kernel is imported."""
    language: dict[str, Any] = {
        "constexpr": _keep,
        "tensor": object,
        "shared_memory_descriptor": object,
        "float32": torch.float32,
        "int32": torch.int32,
        "int64": torch.int64,
        "SliceLayout": lambda *_: None,
        "DotOperandLayout": lambda *_: None,
        "NVMMADistributedLayout": lambda **_: None,
        "NVMMASharedLayout": SimpleNamespace(get_default_for=lambda *_: None),
        "program_id": lambda axis: paper.here.number,
        "num_programs": lambda axis: paper.here.programs,
        "static_range": range,
        "arange": lambda start, end, layout: paper.tile(torch.arange(start, end)),
        "full": lambda shape, value, dtype, layout: paper.tile(torch.full(tuple(shape), value, dtype=dtype)),
        "zeros": lambda shape, dtype, layout: paper.tile(torch.zeros(tuple(shape), dtype=dtype)),
        "where": _scalar(torch.where),
        "minimum": _scalar(torch.minimum),
        "maximum": _scalar(torch.maximum),
        "max": lambda x, axis: x.amax(axis),
        "sum": lambda x, axis: x.sum(axis),
        "exp2": lambda x: x.exp2(),
        "log2": lambda x: x.log2(),
        "reshape": lambda x, shape: x.reshape(tuple(shape)),
        "permute": lambda x, order: x.permute(order),
        "split": lambda x: (x[..., 0], x[..., 1]),
        "convert_layout": lambda x, layout: x,
        "broadcast": lambda x, y: (x, y),
        "to_tensor": _keep,
        "inline_asm_elementwise": paper.asm,
        "allocate_shared_memory": _allocate,
        "warp_specialize": paper.specialize,
        "store": lambda where, value, mask: where(value, mask),
        "load": lambda where, mask=None, other=0.0: where.load(mask, other),
    }
    hopper: dict[str, Any] = {
        "fence_async_shared": paper.fence,
        "warpgroup_mma": lambda a, b, acc, use_acc=True, is_async=True: paper.Product(a, b, acc, use_acc),
        "warpgroup_mma_wait": paper.wait_for_products,
        "mbarrier": SimpleNamespace(
            MBarrierLayout=lambda: "barrier",
            init=lambda barrier, count: setattr(barrier, "count", count),
            wait=lambda barrier, parity, pred=True: barrier.wait(parity) if pred else None,
            arrive=lambda barrier, count=1: barrier.arrive(count),
            expect=lambda barrier, size, pred=True: barrier.arrive(expected=size) if pred else None,
        ),
        "tma": SimpleNamespace(
            async_copy_global_to_shared=paper.load, async_copy_shared_to_global=paper.store, store_wait=paper.store_wait
        ),
    }
    parts: dict[str, dict[str, Any]] = {
        "triton.experimental": {"gluon": SimpleNamespace(jit=_jit, constexpr_function=_keep)},
        "triton.experimental.gluon": {"language": SimpleNamespace(**language)},
        "triton.experimental.gluon.language.nvidia.hopper": hopper,
        "triton.language.core": {"_aggregate": _keep},
    }
    made = {}
    for name, content in parts.items():
        made[name] = ModuleType(name)
        vars(made[name]).update(content)
    return made


@contextmanager
def instead_of_triton(*reloaded: str) -> Iterator[None]:
    """Inside, these modules are imported anew, on paper; afterwards all is as it was."""
    fakes = modules()
    before = {name: sys.modules.pop(name) for name in [*sys.modules] if name in fakes or name.startswith(reloaded)}
    parents = {name: (sys.modules.get(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in before}
    sys.modules.update(fakes)
    try:
        yield
    finally:
        for name in [*sys.modules]:
            if name in fakes or name.startswith(reloaded):
                del sys.modules[name]
        sys.modules.update(before)
        for name, (parent, last) in parents.items():  # what was imported anew is an attribute of its package
            if parent is not None:
                setattr(parent, last, before[name])
