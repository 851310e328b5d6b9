"""Decides which graph serves a call, and which calls run without one."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from groundspeed.kernels import calls
from groundspeed.nn.graphs import warming
from groundspeed.nn.graphs.arguments import Arguments, Parts
from groundspeed.nn.graphs.buckets import Padded, Sizes, is_apart
from groundspeed.nn.graphs.cuda import Backend, CudaGraphs
from groundspeed.nn.graphs.graph import Graph, Structure
from groundspeed.nn.graphs.modules import Watch, slots

Tensors = Mapping[int, torch.Tensor]
"""Tensors by their positions among the leaves of a call."""
MOST_KEPT = 1024
"""The number of kinds of calls that are kept. Kinds that have graphs are always kept."""


@dataclass(frozen=True)
class Options:
    """The options of `compile_graphs`."""

    buckets: Mapping[str, Mapping[int, Sizes]]
    pad_value: Any
    in_place: tuple[str, ...]
    copy_outputs: bool
    slice_outputs: bool
    max_graphs: int
    warmup: int
    restore: bool
    impl: str


class Graphed:
    """The callable that `compile_graphs` returns. Calls may come from several threads and streams; they run one after
    another."""

    _groundspeed_repeatable = True
    """Another `Graphed` does not restore what this one holds."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        modules: Sequence[nn.Module],
        backend: Callable[[torch.device], Backend] = CudaGraphs,
        device_type: str = "cuda",
    ) -> None:
        self.function = function
        self._arguments, self._options, self._watch = Arguments(function), options, Watch(modules, slots(function))
        self.__signature__ = self._arguments.signature
        self._name = getattr(function, "__name__", type(function).__name__)
        self._make, self._type = backend, device_type
        self._structures: dict[Hashable, list[Structure]] = {}
        self._graphs: dict[Hashable, Graph] = {}
        self._backends: dict[torch.device, Backend] = {}
        self._state: tuple[Any, ...] = ()
        self._lock = threading.RLock()
        padded = options.pad_value if isinstance(options.pad_value, dict) else {}
        for option, names in (("buckets", options.buckets), ("in_place", options.in_place), ("pad_value", padded)):
            self._arguments.check(option, list(names))
        if both := [name for name in options.in_place if name in options.buckets]:
            raise ValueError(f"{both[0]!r} cannot be both padded and used in place: name it in buckets or in in_place")

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs in the order of their capture. Each has `shapes`, `values`, `inputs` and `replays`."""
        with self._lock:
            return tuple(self._graphs.values())

    @property
    def pool_bytes(self) -> int | None:
        """The memory that all graphs hold together, besides their inputs; None if PyTorch does not report it."""
        with self._lock:
            found = [backend.pool_bytes() for backend in self._backends.values()]
        return None if None in found else sum(size for size in found if size is not None)

    def reset(self) -> None:
        """Free all graphs and their memory. Results that are not copies must not be used afterwards."""
        with self._lock:
            self._drop()
            self._structures.clear()

    def _drop(self, but: Graph | None = None) -> None:
        for backend in self._backends.values():
            backend.settle()
        for key, graph in list(self._graphs.items()):
            if graph is not but:
                graph.free()
                del self._graphs[key]
        if not self._graphs:
            for backend in self._backends.values():
                backend.renew()

    def __repr__(self) -> str:
        return f"<compile_graphs of {self._name}, captured: {len(self._graphs)}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or self._options.impl == "torch" or self._is_inside():
            return self.function(*args, **kwargs)
        parts = self._arguments.take_apart(args, kwargs)
        tensors = {i: leaf for i, leaf in enumerate(parts.leaves) if isinstance(leaf, torch.Tensor)}
        self._check(tensors)
        with self._lock:
            if self._watch.state() != self._state:  # the graphs read parameters at their old addresses
                self.reset()
                self._watch.refresh()
                self._state = self._watch.state()
            structure = self._structure(parts, tensors)
            if self._options.buckets:
                structure.check(tensors)
            shapes, backend = structure.bucket(tensors), self._backend(structure, tensors)
        if backend is None or self._is_inside() or any(tensor.numel() == 0 for tensor in tensors.values()):
            result = self.function(*args, **kwargs)
        else:
            with self._lock, backend.turn():
                result = self._serve(structure, parts, tensors, shapes, backend)
        if self._options.buckets:
            structure.remember(tensors)
        return result

    def _is_inside(self) -> bool:
        """Whether this call is part of a capture, by another `Graphed` or by other code, or of a warm-up."""
        return warming.is_inside() or any(backend.is_capturing() for backend in list(self._backends.values()))

    def _check(self, tensors: Tensors) -> None:
        if module := self._watch.training():
            raise RuntimeError(
                f"{type(module).__name__} is in training mode, but graphs are for inference: call .eval()"
            )
        if torch.is_grad_enabled() and (
            any(tensor.requires_grad for tensor in tensors.values()) or self._watch.need_gradients()
        ):
            raise RuntimeError(warming.needs_gradients(self._name))
        for tensor in tensors.values():
            if type(tensor) not in calls.PLAIN or tensor.layout != torch.strided:
                kind = f"{type(tensor).__name__} ({tensor.layout})"
                raise TypeError(f"an argument of {self._name} is a {kind}: graphs support only plain tensors")

    def _structure(self, parts: Parts, tensors: Tensors) -> Structure:
        kept = self._structures.setdefault(parts.key, [])
        if found := next((one for one in kept if one.spec == parts.spec), None):
            return found
        if len(self._structures) > MOST_KEPT:
            used = {id(graph.structure) for graph in self._graphs.values()}
            few = {key: [one for one in many if id(one) in used] for key, many in self._structures.items()}
            self._structures = {key: many for key, many in few.items() if many}
            kept = self._structures.setdefault(parts.key, [])
        asked, leaves = self._options, self._arguments.leaves(parts.leaves, parts.spec)
        whole = {one.argument: i for i, one in enumerate(leaves) if one.is_whole}
        given = {one.argument for one in leaves}
        padded = []
        for name, dims in asked.buckets.items():
            i = whole.get(name, -1)
            if i in tensors:
                padded += [_padded(i, name, tensors[i].dim(), dim, sizes) for dim, sizes in dims.items()]
            elif name in given and (i < 0 or parts.leaves[i] is not None):
                raise ValueError(f"buckets names {name!r}, which is not a tensor in this call: name only tensors")
        values = asked.pad_value if isinstance(asked.pad_value, dict) else dict.fromkeys(asked.buckets, asked.pad_value)
        in_place = frozenset(i for i in tensors if leaves[i].argument in asked.in_place)
        kept.append(Structure(parts.spec, leaves, list(tensors), in_place, padded, values))
        return kept[-1]

    def _backend(self, structure: Structure, tensors: Tensors) -> Backend | None:
        """Return the backend for the device of the tensors, or None if that device has no graphs."""
        devices = list(dict.fromkeys(tensor.device for tensor in tensors.values()))
        if not devices:
            devices = [self._watch.device() or torch.device("cpu")]
        if all(device.type != self._type for device in devices):
            reason = f"CUDA graphs need an NVIDIA GPU, but the tensors are on {devices[0].type}"
            if self._options.impl == "cuda":
                raise NotImplementedError(f"{reason}; impl='torch' or 'auto' can")
            calls.say_once("compile_graphs", reason)
            return None
        if len(devices) > 1:
            named = ", ".join(f"{structure.leaves[i].text!r} is on {tensor.device}" for i, tensor in tensors.items())
            raise ValueError(f"the tensors of a graph must be on one device, but {named}: move them first")
        if devices[0] not in self._backends:
            self._backends[devices[0]] = self._make(devices[0])
        return self._backends[devices[0]]

    def _serve(
        self,
        structure: Structure,
        parts: Parts,
        tensors: Tensors,
        shapes: Mapping[int, tuple[int, ...]],
        backend: Backend,
    ) -> Any:
        gradients, true = torch.is_grad_enabled(), structure.sizes(tensors)
        key = (id(structure), _places(structure, tensors, shapes), backend.device, gradients, _autocast(self._type))
        sliced = self._options.slice_outputs and bool(structure.padded)
        with torch.no_grad():
            graph = self._graphs.get(key)
            if graph is None:
                graph = self._graphs[key] = self._captured(structure, parts, shapes, backend, gradients)
            graph.fill(parts, true)
            if not sliced or graph.knows(true):
                graph.replay()
            else:
                with warming.apart(backend, self._kept(graph)):
                    plain = self._run(parts.leaves, structure)
                expected = graph.learn(true, plain)
                graph.replay()
                if any(map(is_apart, graph.tensors(true), expected)):
                    warnings.warn(_apart(self._name, structure, true), UserWarning, stacklevel=calls._caller())
            return graph.results(true if sliced else None, copied=self._options.copy_outputs)

    def _captured(
        self,
        structure: Structure,
        parts: Parts,
        shapes: Mapping[int, tuple[int, ...]],
        backend: Backend,
        gradients: bool,
    ) -> Graph:
        if len(self._graphs) >= self._options.max_graphs:
            raise RuntimeError(self._too_many())
        graph = Graph.prepare(structure, parts, shapes)
        graph.fill(parts, structure.sizes({i: parts.leaves[i] for i in structure.tensors}))
        with warming.apart(backend, self._kept(graph)) as restore:
            run = partial(self._run, graph.leaves, structure)
            warming.capture(graph, run, backend, self._name, self._options.warmup, gradients, restore, self._named)
        self._watch.refresh()
        if (state := self._watch.state()) != self._state:  # for example, a table that grew with the longest input
            self._drop(but=graph)
            self._state = state
        return graph

    def _run(self, leaves: Sequence[Any], structure: Structure) -> Any:
        args, kwargs = self._arguments.put_together(leaves, structure.spec)
        return self.function(*args, **kwargs)

    def _kept(self, graph: Graph) -> list[torch.Tensor]:
        """Return the tensors that calls before the actual one may write to, and that are restored after those calls."""
        if not self._options.restore:
            return []
        return [*(graph.leaves[i] for i in graph.structure.in_place), *self._watch.buffers(), *self._named()]

    def _named(self) -> list[torch.Tensor]:
        return self._watch.named(self._type) if self._options.restore else []

    def _too_many(self) -> str:
        told = [{**graph.shapes, **graph.values} for graph in self._graphs.values()]
        names = dict.fromkeys(name for one in told for name in one)
        changing = [name for name in names if len({repr(one.get(name)) for one in told}) > 1]
        why = f" ({', '.join(changing)} changed)" if changing else ""
        return (
            f"{self._name} has {len(told)} graphs already{why}: use buckets for sizes that change, tensors for "
            "numbers that change, a larger max_graphs, or reset() to free them"
        )


def _padded(i: int, name: str, dims: int, dim: int, sizes: Sizes) -> Padded:
    if not -dims <= dim < dims:
        raise ValueError(f"buckets names dimension {dim} of {name!r}, which has {dims} dimensions in this call")
    return Padded(i, dim % dims, sizes, name)


def _places(structure: Structure, tensors: Tensors, shapes: Mapping[int, tuple[int, ...]]) -> tuple[Hashable, ...]:
    """Return what a graph assumes about its tensors: shape and dtype, and also address and strides if a tensor is used
    in place."""
    found: list[Hashable] = []
    for i, tensor in tensors.items():
        found += [shapes[i], tensor.dtype]
        if i in structure.in_place:
            found += [tensor.data_ptr(), tensor.stride()]
    return tuple(found)


def _autocast(device_type: str) -> Hashable:
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None


def _apart(name: str, structure: Structure, true: Sizes) -> str:
    sizes = ", ".join(
        f"{one.name!r} from {n} to {one.bucket(n)}" for one, n in zip(structure.padded, true, strict=True)
    )
    return (
        f"{name} does not return the same with padding ({sizes}) as without: its positions see each other; pass a "
        "mask or lengths that say which positions count, another pad_value, or no buckets"
    )
