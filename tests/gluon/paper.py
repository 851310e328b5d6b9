"""Gluon on paper: as much of it as our Hopper kernels use, on a CPU, so that their values, barriers and buffers can be
tested where there is no GPU. (Triton's interpreter does not run Gluon.)

A program runs with a thread for each of its partitions. What a GPU does asynchronously comes late here: a copy by TMA
after a random while, from and to shared memory as it is then; a product of a warpgroup when it is waited for. It is
an error to use a product that was not waited for, to write into a buffer that a product or a copy still reads, to hand
TMA what was written without a fence, to arrive twice at a named barrier, and to wait for ever.

Not as on a GPU: NaN goes through a maximum here, and // rounds down."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

PATIENCE_S = 20.0
LATE_S = 0.001


class Broken(Exception):
    """Something that a GPU would do wrong without a word."""


class Tile(torch.Tensor):
    """A tensor in registers."""

    @property
    def type(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(layout=None)


def tile(value: torch.Tensor) -> Tile:
    made: Tile = value.as_subclass(Tile)
    return made


class Number(int):
    """A scalar argument."""

    def to(self, dtype: Any) -> int:
        return int(self)


class Program:
    """What one program shares."""

    def __init__(self, number: int, programs: int) -> None:
        self.number, self.programs = number, programs
        self.changed = threading.Condition()
        self.failed: BaseException | None = None
        self.named: dict[int, int] = {}
        self.copies: list[threading.Thread] = []

    def until(self, condition: Callable[[], bool], what: str) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.failed is not None or condition(), PATIENCE_S):
                raise Broken(f"waits for ever: {what}")
        if self.failed is not None:
            raise Broken("another partition failed")

    def later(self, copy: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            time.sleep(random.random() * LATE_S)
            try:
                copy()
            except BaseException as error:
                self.fail(error)

        thread = threading.Thread(target=run)
        self.copies.append(thread)
        thread.start()
        return thread

    def fail(self, error: BaseException) -> None:
        with self.changed:
            self.failed = self.failed or error
            self.changed.notify_all()


here: Program


class Barrier:
    """An mbarrier: a phase ends when all have arrived and all bytes are there."""

    def __init__(self) -> None:
        self.count = self.arrived = self.bytes = self.phase = 0

    def arrive(self, count: int = 1, expected: int = 0) -> None:
        with here.changed:
            self.arrived += count
            self.bytes += expected
            if self.arrived > self.count:
                raise Broken("a barrier was arrived at more often than it counts")
            self._advance()

    def fill(self, size: int) -> None:
        with here.changed:
            self.bytes -= size
            self._advance()

    def _advance(self) -> None:
        if self.arrived == self.count and self.bytes == 0:
            self.phase, self.arrived = self.phase + 1, 0
            here.changed.notify_all()

    def wait(self, parity: int) -> None:
        here.until(lambda: (self.phase & 1) != parity, f"phase {parity} of a barrier in phase {self.phase}")


class Barriers:
    def __init__(self, count: int) -> None:
        self.all = [Barrier() for _ in range(count)]

    def index(self, i: int) -> Barrier:
        return self.all[i]


class Memory:
    """A buffer in shared memory, or several."""

    def __init__(self, data: torch.Tensor, state: Any = None) -> None:
        self.data, self.dtype = data, data.dtype
        self.state = state or SimpleNamespace(readers=0, unfenced=False)

    def index(self, i: int) -> Memory:
        if not hasattr(self, "parts"):
            self.parts = [Memory(part) for part in self.data]
        return self.parts[i]

    def slice(self, begin: int, length: int, dim: int) -> Memory:
        return Memory(self.data.narrow(dim, begin, length), self.state)

    def permute(self, order: tuple[int, ...]) -> Memory:
        return Memory(self.data.permute(order), self.state)

    def _reinterpret(self, dtype: Any, shape: Sequence[int], layout: Any) -> Memory:
        """Also of the first part of it."""
        size = torch.Size(shape).numel()
        return Memory(self.data.view(-1)[:size].view(*shape), self.state)

    def store(self, value: torch.Tensor) -> None:
        self.write(value)
        self.state.unfenced = True
        fences.buffers = [*getattr(fences, "buffers", ()), self.state]

    def write(self, value: torch.Tensor) -> None:
        if self.state.readers:
            raise Broken("a buffer is overwritten that somebody still reads")
        self.data.copy_(value)


fences = threading.local()


class Descriptor:
    """A tensor in global memory as TMA sees it: what is outside of it is zero, or not written."""

    def __init__(self, tensor: torch.Tensor, block: Sequence[int]) -> None:
        self.tensor, self.dtype, self.layout = tensor, tensor.dtype, None
        size = tensor.element_size()
        for n in block:
            size *= n
        self.block_type = SimpleNamespace(shape=list(block), nbytes=size)

    def box(self, at: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        sizes = [
            max(0, min(length, whole - begin))
            for begin, length, whole in zip(at, self.block_type.shape, self.tensor.shape, strict=True)
        ]
        inside = tuple(slice(begin, begin + size) for begin, size in zip(at, sizes, strict=True))
        return inside, tuple(slice(0, size) for size in sizes)


class Boxed(Descriptor):
    """The same of what TMA is really told: any strides, and addresses that go round at 2⁶⁴ bytes."""

    def __init__(self, tensor: torch.Tensor, box: Any) -> None:
        super().__init__(tensor, box.block)
        self.told = box
        self.tensor = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
        self.begin, self.round = tensor.storage_offset(), 2**64 // tensor.element_size()

    def box(self, at: Sequence[int]) -> tuple[Any, tuple[slice, ...]]:
        told = list(zip(map(int, at), self.told.block, self.told.shape, self.told.strides, strict=True))
        assert all(begin >= 0 for begin, _, _, _ in told)
        sizes = [max(0, min(length, whole - begin)) for begin, length, whole, _ in told]
        first = (self.begin + sum(begin * stride for begin, _, _, stride in told)) % self.round
        where = torch.zeros(sizes, dtype=torch.int64)
        for dim, (size, (_, _, _, stride)) in enumerate(zip(sizes, told, strict=True)):
            if size > 1:
                where = where + (torch.arange(size) * stride).view(-1, *[1] * (len(sizes) - dim - 1))
        return where + first if where.numel() else where, tuple(slice(0, size) for size in sizes)


UNDER_WAY = "the result of a product is used that is still under way"


class Product:
    """One under way."""

    def __init__(self, a: Any, b: Memory, acc: Any, use_acc: Any) -> None:
        self.operands = [x for x in (a, b) if isinstance(x, Memory)]
        left, right = (x.data if isinstance(x, Memory) else x for x in (a, b))
        self.sources = left.clone(), right.clone()
        self.acc, self.use_acc = acc, bool(use_acc)
        for memory in self.operands:
            memory.state.readers += 1

        under_way().append(self)

    def finish(self) -> None:
        for memory in self.operands:
            memory.state.readers -= 1
        a, b = (x.as_subclass(torch.Tensor).float() for x in self.sources)
        before = self.acc.result() if isinstance(self.acc, Product) else self.acc
        self.done = tile(a @ b + (before.as_subclass(torch.Tensor) if self.use_acc else 0.0))

    def result(self) -> Tile:
        """When it and all before it were waited for."""
        if not hasattr(self, "done"):
            raise Broken(UNDER_WAY)
        return self.done

    def __getattr__(self, name: str) -> Any:
        if name == "done":
            raise AttributeError(name)
        raise Broken(UNDER_WAY)

    def __mul__(self, other: Any) -> Any:
        return self.result() * other


def under_way() -> list[Product]:
    """Products of this warpgroup, in their order."""
    if not hasattr(fences, "products"):
        fences.products = []
    found: list[Product] = fences.products
    return found


def asm(text: str, constraints: str, operands: Sequence[Any], **_: Any) -> Any:
    if found := re.match(r"bar\.(sync|arrive) (\d+), 256;", text):
        number = int(found[2])
        with here.changed:
            if found[1] == "arrive":
                if here.named.get(number):
                    raise Broken(f"named barrier {number} is arrived at twice before anybody waits")
                here.named[number] = 1
                here.changed.notify_all()
        if found[1] == "sync":
            here.until(lambda: here.named.get(number, 0) > 0, f"named barrier {number}")
            with here.changed:
                here.named[number] -= 1
        return None
    if text.startswith("rcp"):
        return tile(1 / operands[0])
    if text.startswith("mov.b32 $0, $1"):
        return operands[0]
    values, beside = operands
    if "vote.sync" in text:
        return values * beside
    assert "selp.f32" in text
    columns = torch.arange(values.shape[1])[None, :]
    return tile(torch.where(columns >= beside if "setp.le" in text else columns < beside, values, float("-inf")))


def specialize(partitions: Sequence[tuple[Callable[..., None], tuple[Any, ...]]], warps: Any, registers: Any) -> None:
    def run(function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            function(*arguments)
        except BaseException as error:
            here.fail(error)

    threads = [threading.Thread(target=run, args=partition) for partition in partitions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for copy in here.copies:
        copy.join()
    if here.failed is None and any(here.named.values()):
        here.fail(Broken("a named barrier was arrived at in vain"))


def load(descriptor: Descriptor, at: Sequence[int], barrier: Barrier, to: Memory, pred: Any = True) -> None:
    if not pred:
        return
    inside, box = descriptor.box(at)

    def copy() -> None:
        block = torch.zeros(to.data.shape, dtype=to.dtype)
        block[box] = descriptor.tensor[inside]
        to.write(block)
        barrier.fill(descriptor.block_type.nbytes)

    here.later(copy)


def store(descriptor: Descriptor, at: Sequence[int], source: Memory) -> None:
    if source.state.unfenced:
        raise Broken("TMA stores what was written without a fence")
    inside, box = descriptor.box(at)

    def copy() -> None:
        descriptor.tensor[inside] = source.data[box]
        source.state.readers -= 1

    source.state.readers += 1
    fences.stores = [*getattr(fences, "stores", ()), here.later(copy)]


def store_wait(pending: int) -> None:
    for thread in getattr(fences, "stores", ()):
        thread.join()
    fences.stores = []


def fence() -> None:
    for state in getattr(fences, "buffers", ()):
        state.unfenced = False
    fences.buffers = []


def wait_for_products(pending: int, deps: tuple[Any, ...]) -> Any:
    products = under_way()
    while len(products) > pending:
        products.pop(0).finish()
    results = tuple(product if product in products else product.result() for product in deps)
    return results if len(results) > 1 else results[0]


class Pointer:
    """Of a tensor that is read or stored into by element."""

    def __init__(self, tensor: torch.Tensor, offsets: Any = 0) -> None:
        self.tensor, self.offsets = tensor, offsets

    def __add__(self, offsets: Any) -> Pointer:
        return Pointer(self.tensor, self.offsets + offsets)

    def load(self, mask: Any = None, other: float = 0.0) -> Any:
        flat = self.tensor.view(-1)
        if not isinstance(self.offsets, torch.Tensor):
            found = flat[int(self.offsets)]
            return tile(found.clone()) if found.is_floating_point() else Number(found)
        where = self.offsets.as_subclass(torch.Tensor)
        read = torch.ones_like(where, dtype=torch.bool) if mask is None else mask.as_subclass(torch.Tensor)
        if not ((where[read] >= 0) & (where[read] < len(flat))).all():
            raise Broken("what is read lies outside of its tensor")
        values = torch.full(where.shape, other, dtype=flat.dtype)
        values[read] = flat[where[read]]
        return tile(values)

    def __call__(self, value: torch.Tensor, mask: torch.Tensor) -> None:
        flat = self.tensor.view(-1)
        where = self.offsets.as_subclass(torch.Tensor)[mask.as_subclass(torch.Tensor)]
        flat[where] = value.as_subclass(torch.Tensor)[mask.as_subclass(torch.Tensor)]


def launch(kernel: Callable[..., None], programs: int, *arguments: Any, **constants: Any) -> None:
    """Every program, one after the other, in an order that nobody may rely on."""
    global here
    for number in random.sample(range(programs), programs):
        here = Program(number, programs)
        kernel(*arguments, **constants)
        if here.failed is not None:
            raise here.failed
