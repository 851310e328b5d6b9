"""Cached launches of Triton kernels.

A repeated launch neither looks up the compiled kernel in Triton again nor encodes again the TMA descriptor of a tensor
that it has seen: for small kernels, both take longer than the kernel itself."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
from triton import knobs
from triton.runtime import driver

from groundspeed.kernels import calls

MULTIPROCESSORS = 132
"""The number of multiprocessors of an H100 or H200."""
MOST_KEPT = 1024
"""The most TMA descriptors that a launcher caches: a model passes the same tensors to it again and again."""
Encode = Callable[[int, Any], list[Any]]
"""Takes the position of a box and the described tensor; returns the arguments that the C launcher expects for it."""


_address = torch.Tensor.data_ptr
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: 0)
_empty_strided_cuda: Callable[..., Any] | None = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
"""The allocation function of PyTorch's compiler. It takes a third of the time of `torch.empty`, and always allocates on
the current device."""


def _index(device: torch.device) -> int | None:
    """Return the index of the device that must be current during a launch, or None if any may be."""
    return device.index if device.type == "cuda" else None


def maker(device: torch.device, *kinds: tuple[Sequence[int], torch.dtype]) -> Callable[[], list[torch.Tensor]]:
    """Return a function that allocates contiguous tensors of these shapes and dtypes at each call."""
    told = [(tuple(shape), torch.empty(shape, device="meta").stride(), dtype) for shape, dtype in kinds]
    return _maker(device, told)


def maker_like(*tensors: torch.Tensor) -> Callable[[], list[torch.Tensor]]:
    """Return a function that allocates at each call what `torch.empty_like` would for each of these tensors."""
    told = [(tuple(x.shape), torch.empty_like(x, device="meta").stride(), x.dtype) for x in tensors]
    return _maker(tensors[0].device, told)


def _maker(
    device: torch.device, told: list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]]
) -> Callable[[], list[torch.Tensor]]:
    fast, index = _empty_strided_cuda if device.type == "cuda" else None, _index(device)

    def make() -> list[torch.Tensor]:
        if fast is None or _current_device() != index:
            return [torch.empty_strided(shape, strides, dtype=dtype, device=device) for shape, strides, dtype in told]
        return [fast(shape, strides, dtype) for shape, strides, dtype in told]

    return make


def on(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which `device` is current: Triton launches on the current device, whatever device its tensors
    are on."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class Box(NamedTuple):
    """The contents of a TMA descriptor except the address: the same for all tensors of one shape and layout."""

    shape: list[int]
    strides: list[int]
    block: list[int]
    layout: Any

    @classmethod
    def made(cls, shape: Sequence[int], strides: Sequence[int], block: Sequence[int], dtype: torch.dtype) -> Box:
        """Return a box whose blocks get the shared-memory layout that wgmma reads."""
        return cls(list(shape), list(strides), list(block), _layout(tuple(block), dtype))

    def of(self, tensor: Any) -> Any:
        """Return the descriptor of a tensor in the form that Triton takes as an argument."""
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

        return TensorDescriptor(tensor, self.shape, self.strides, self.block, self.layout)


@cache
def _layout(block: tuple[int, ...], dtype: torch.dtype) -> Any:
    from triton.experimental.gluon import language as gl

    known = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}
    return gl.NVMMASharedLayout.get_default_for(list(block), known[dtype])


def multiprocessors(device: torch.device) -> int:
    return calls.multiprocessors(device) if device.type == "cuda" else MULTIPROCESSORS  # only compiled, not run


class Launcher:
    """A kernel with its grid and everything that it is compiled for: device, types, alignments and constants.

    A cache of launchers must be keyed by all of these. A call may pass only tensors and numbers that change none of
    them. Each box describes one of the first arguments, a tensor that TMA reads or writes."""

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        constants: Mapping[str, Any],
        options: Mapping[str, Any],
        device: torch.device,
        boxes: Sequence[Box] = (),
    ) -> None:
        """`constants` are in the order in which they follow the arguments in the signature of the kernel."""
        self._kernel, self._grid, self._constants, self._options = kernel, grid, constants, options
        self._device, self._index, self._boxes = device, _index(device), tuple(boxes)
        self._again: Callable[[tuple[Any, ...]], Any] | None = None
        """Launches the compiled kernel. Set in a single assignment, since threads may share a launcher."""

    def __call__(self, *arguments: Any) -> None:
        if self._index is not None and self._index != _current_device():
            with on(self._device):
                self(*arguments)
            return
        again = self._again
        if again is None or knobs.runtime.launch_enter_hook.calls or knobs.runtime.launch_exit_hook.calls:
            described = _described(self._boxes, arguments)
            found = self._kernel[self._grid](*described, **self._constants, **self._options)
            if hasattr(found, "packed_metadata"):  # Triton's interpreter compiles nothing
                self._again = _again(found, self._grid, self._boxes, arguments, tuple(self._constants.values()))
            return
        again(arguments)


def _described(boxes: Sequence[Box], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    boxed = [box.of(tensor) for box, tensor in zip(boxes, arguments, strict=False)]
    return *boxed, *arguments[len(boxed) :]


def _again(
    compiled: Any, grid: tuple[int, int, int], boxes: Sequence[Box], arguments: tuple[Any, ...], values: tuple[Any, ...]
) -> Callable[[tuple[Any, ...]], Any]:
    """Return a function that launches the compiled kernel with other arguments of the same types: by calling the C
    launcher directly, or through Triton's own launcher if this version of Triton has another structure."""
    active = driver.active
    device, stream_of = active.get_current_device(), active.get_current_stream
    pointers = [i for i in range(len(boxes), len(arguments)) if isinstance(arguments[i], torch.Tensor)]
    straight, told = _straight(compiled, grid, boxes), _Told(boxes, compiled.run)
    if straight is None or (boxes and told.encode is None):
        parts = compiled.function, compiled.packed_metadata, None, None, None

        def through(arguments: tuple[Any, ...]) -> None:
            compiled.run(*grid, stream_of(device), *parts, *_described(boxes, arguments), *values)

        return through
    launch, parts, together = straight

    x, y, z = grid

    def directly(arguments: tuple[Any, ...]) -> None:
        given = [*arguments, *values]
        for i in pointers:  # given a tensor, the C launcher would call data_ptr and query the driver
            given[i] = given[i].data_ptr()
        if boxes:
            given[: len(boxes)] = told(arguments)
        if together:
            launch(x, y, z, stream_of(device), *parts, given)
        else:
            launch(x, y, z, stream_of(device), *parts, *given)

    return directly


class _Told:
    """A cache of the TMA descriptors of the tensors of a call, each encoded once per address."""

    def __init__(self, boxes: Sequence[Box], run: Any) -> None:
        self._boxes = boxes
        self._kept: dict[tuple[int, int], list[Any]] = {}
        self._together: dict[tuple[int, ...], list[Any]] = {}
        """The descriptors of whole calls, by the addresses of their tensors: the same tensors recur together."""
        self.encode = _encoder(run) if boxes else None

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        places = tuple(map(_address, tensors[: len(self._boxes)]))
        known = self._together.get(places)
        if known is None:
            known = [x for i, place in enumerate(places) for x in self._one(i, place, tensors[i])]
            if len(self._together) >= MOST_KEPT:
                self._together.clear()
            self._together[places] = known
        return known

    def _one(self, i: int, place: int, tensor: Any) -> list[Any]:
        known = self._kept.get((i, place))
        if known is None:
            assert self.encode is not None
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            known = self._kept[i, place] = self.encode(i, self._boxes[i].of(tensor))
        return known


def _straight(
    compiled: Any, grid: tuple[int, int, int], boxes: Sequence[Box]
) -> tuple[Any, tuple[Any, ...], bool] | None:
    """Return the C function behind Triton's launcher, the arguments that it takes between the stream and the kernel's
    arguments, and whether it takes the latter as one tuple; or None if this cannot be determined.

    A copy of the launcher is called with a recording function in place of the C function."""
    stream, marks, seen = object(), (object(), object()), []
    try:
        probe, run = copy.copy(compiled.run), compiled.run
        if run.global_scratch_size or run.profile_scratch_size:
            return None  # scratch memory is allocated for each launch
        probe.launch = lambda *told: seen.append(told)
        probe(*grid, stream, compiled.function, compiled.packed_metadata, None, None, None, *marks)
        launch = inspect.getclosurevars(run.launch).nonlocals["launcher"] if boxes else run.launch
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    if len(seen) != 1:
        return None
    told = seen[0]
    together = told[-1] == marks
    parts = told[4:-1] if together else told[4 : -len(marks)]
    if told[:4] != (*grid, stream) or not (together or told[-len(marks) :] == marks):
        return None
    return launch, parts, together


def _encoder(run: Any) -> Encode | None:
    """Return Triton's function for encoding TMA descriptors, which its launcher would call in every launch; or None if
    this version of Triton does it in another way."""
    try:
        from triton.backends.nvidia.driver import make_tensordesc_arg

        forms = inspect.getclosurevars(run.launch).nonlocals["tensordesc_meta"]
        inspect.signature(make_tensordesc_arg).bind("box", "form")
    except (ImportError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return lambda place, described: make_tensordesc_arg(described, forms[place])
