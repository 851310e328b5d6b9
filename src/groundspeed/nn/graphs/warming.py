"""A capture and the warm-up calls before it: finds what a captured function must not do, and restores what the calls
changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.utils import _pytree as pytree

from groundspeed.nn.graphs.buckets import is_apart
from groundspeed.nn.graphs.cuda import Backend
from groundspeed.nn.graphs.graph import Graph, check_outputs
from groundspeed.nn.graphs.waits import Waits

_here = threading.local()


def is_inside() -> bool:
    """Whether this thread is warming up or capturing, so that its calls are part of that."""
    return getattr(_here, "inside", False)


def captured_once() -> dict[Any, Any] | None:
    """Return a dict that lives as long as the current capture, for what the capture computes once and uses several
    times; None outside of a capture by `capture`."""
    return getattr(_here, "once", None)


@contextmanager
def apart(backend: Backend, kept: Sequence[torch.Tensor]) -> Iterator[Callable[[], None]]:
    """A context whose calls leave `kept` and the random generators unchanged; it gives a function that restores `kept`
    at once. Autocast does not cache their casts, whose addresses a graph would otherwise keep."""
    saved = [(tensor, tensor.clone()) for tensor in kept if not _is_expanded(tensor)]
    cached, inside = torch.is_autocast_cache_enabled(), is_inside()

    def restore() -> None:
        for tensor, was in saved:
            with torch.inference_mode() if tensor.is_inference() else nullcontext():
                tensor.copy_(was)

    torch.set_autocast_cache_enabled(False)
    _here.inside = True
    try:
        with torch.random.fork_rng(backend.generators):
            yield restore
    finally:
        _here.inside = inside
        torch.set_autocast_cache_enabled(cached)
        restore()


def capture(
    graph: Graph,
    run: Callable[[], Any],
    backend: Backend,
    name: str,
    warmup: int,
    gradients: bool,
    restore: Callable[[], None],
    named: Callable[[], Sequence[torch.Tensor]],
) -> None:
    """Warm up and capture a graph whose inputs are filled. `gradients`: whether they are enabled around the call.
    `restore` is called after each warm-up call, and `named` returns the tensors of objects that the function names."""
    before, made = list(named()), None
    inputs = {i: graph.leaves[i] for i in graph.structure.tensors if i not in graph.structure.in_place}
    given = {i: (tensor.clone(), tensor._version) for i, tensor in inputs.items()}
    for i in range(warmup):
        with ExitStack() as around:
            around.enter_context(backend.aside())
            if i == warmup - 1:  # foreign code may compile something else under a mode, as in the capture
                around.enter_context(Waits(backend.device, name, raises=False))
            around.enter_context(torch.random.fork_rng(backend.generators))  # every call draws the same numbers
            if i == 0 and gradients:
                around.enter_context(torch.enable_grad())
            outputs = run()
        check_outputs(outputs, name)
        derived = (isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in pytree.tree_leaves(outputs))
        if i == 0 and gradients and any(derived):
            raise RuntimeError(needs_gradients(name))
        del outputs
        restore()
        made = _made(before, named(), made, name)
    for i, tensor in inputs.items():
        was, version = given[i]
        if tensor._version != version or not torch.equal(_bits(tensor), _bits(was)):
            argument = graph.structure.leaves[i].argument
            raise ValueError(
                f"{name} writes to its argument {graph.structure.leaves[i].text!r}, which is a copy here: name it in "
                f"in_place=[{argument!r}]"
            )

    def watched() -> Any:
        _here.once = {}
        try:
            with Waits(backend.device, name):
                return run()
        finally:
            _here.once = None

    graph.take(*backend.capture(watched, name))


Made = list[tuple[torch.Tensor, torch.Tensor]]
"""Tensors with copies of them."""


def _made(before: Sequence[torch.Tensor], now: Sequence[torch.Tensor], last: Made | None, name: str) -> Made:
    """Return the tensors that a warm-up call has made in objects that the function names. Nothing can restore these, so
    raise ValueError if the call began where the one before it had ended."""
    had = {id(tensor) for tensor in before}
    made = [(tensor, tensor.clone()) for tensor in now if id(tensor) not in had]
    if last is not None and (len(made) != len(last) or any(map(_goes_on, made, last))):
        raise ValueError(
            f"{name} makes tensors in an object that it names, and continues from them in its next call, as a cache "
            "does that grows or is empty at first: give it a cache of fixed size, and call it once without "
            "compile_graphs if that cache is empty"
        )
    return made


def _goes_on(new: tuple[torch.Tensor, torch.Tensor], old: tuple[torch.Tensor, torch.Tensor]) -> bool:
    """Whether a tensor is not what the same call made of it before, rounding aside."""
    (tensor, now), (last, was) = new, old
    if tensor is last:
        return not torch.equal(_bits(now), _bits(was))
    return (now.shape, now.dtype) != (was.shape, was.dtype) or is_apart(now, was)


def needs_gradients(name: str) -> str:
    return f"this call of {name} needs gradients, which a graph does not support: call it under torch.inference_mode()"


def _is_expanded(tensor: torch.Tensor) -> bool:
    """Whether elements share memory, in which case the tensor cannot be written to."""
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor, so that NaN compares equal to NaN."""
    return tensor.contiguous().view(-1).view(torch.uint8)
