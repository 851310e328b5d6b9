"""A guard over what the laboratory itself calls in a worker, as it was before a contender's file was imported: a
contender that replaced a comparison, a clock or an oracle could make it say anything.

Python in one process cannot be sealed. The guard finds replacements that are in place when it looks, and undoes
them."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from groundspeed.case import Contender
from groundspeed.measure import gate

PYTORCH = ("torch", "torch.nn.functional", "torch.nn.attention", "torch.cuda")
FOREIGN = (*PYTORCH, "builtins", "time", "secrets", "random", "os", "json", "gc", "itertools")
OWN = "groundspeed."
CONSTANTS = (int, float, str, tuple, frozenset)
"""Types of the laboratory's own constants, such as how many rows are checked."""
SHIFTING = ("torch.manual_seed", "torch.Storage")
"""Names that PyTorch itself replaces: when it compiles, and when the default dtype is set."""
CLASSES = (
    ("torch", "Tensor"),
    ("torch.cuda", "Event"),
    ("torch.cuda", "Stream"),
    ("torch.cuda", "CUDAGraph"),
    ("random", "SystemRandom"),
    ("json", "JSONEncoder"),
)
INSTANCES = (("secrets", "_sysrand"),)
"""Instances that a module's functions use. Their names are not those of functions, so they are watched separately."""


class _Watched(NamedTuple):
    """A function as it was."""

    name: str
    function: FunctionType
    code: CodeType
    defaults: Any
    keywords: Any
    cells: tuple[Any, ...]


class Guard:
    """Remembers functions and classes by identity, groundspeed's own constants too, and its own functions also by their
    code."""

    def __init__(self) -> None:
        self._owners: list[tuple[str, Any, dict[str, Any]]] = []
        self._whole: dict[str, dict[str, Any]] = {}
        """Owner → everything it held when it was last found in order, which makes comparing fast."""
        self._functions: dict[int, _Watched] = {}
        self._of_case: dict[int, _Watched] = {}
        """Functions that were built for one case, with the weights and caches that they enclose. By identity, which
        stays theirs because they are kept."""
        self._contenders: list[tuple[Contender, dict[str, Any]]] = []
        self._instances = [
            (f"{module}.{name}", owner, name, vars(owner)[name], dict(vars(vars(owner)[name])))
            for module, name in INSTANCES
            if (owner := sys.modules.get(module)) and name in vars(owner)
        ]
        for name in FOREIGN:
            if module := sys.modules.get(name):
                self._remember(name, module)
        for module_name, name in CLASSES:
            if module := sys.modules.get(module_name):
                self._remember(f"{module_name}.{name}", getattr(module, name))
        for name, module in list(sys.modules.items()):
            if name.startswith(OWN) and isinstance(module, ModuleType):
                self._remember(name, module)
                for thing in list(vars(module).values()):
                    if isinstance(thing, type) and thing.__module__ == name:
                        self._remember(f"{name}.{thing.__name__}", thing)

    def _remember(self, name: str, owner: Any) -> None:
        own = name.startswith(OWN)
        called = {
            key: value
            for key, value in vars(owner).items()
            if (
                callable(value)
                or isinstance(value, property)
                or (own and key.isupper() and isinstance(value, CONSTANTS))
            )
            and f"{name}.{key}" not in SHIFTING
        }
        self._owners.append((name, owner, called))
        if name.startswith(OWN):
            for key, value in called.items():
                if isinstance(value, FunctionType) and (value.__module__ or "").startswith(OWN):
                    self.watch(f"{name}.{key}", value)

    def watch(self, name: str, function: Any, *, of_case: bool = False) -> None:
        """Watch this function, and the functions that it encloses. `of_case`: only until `let_go`."""
        while isinstance(function, functools.partial):
            function = function.func
        if isinstance(function, FunctionType) and id(function) not in self._functions | self._of_case:
            enclosed = [(cell, _content(cell)) for cell in function.__closure__ or ()]
            cells = tuple((cell, content) for cell, content in enclosed if callable(content))
            defaults = function.__defaults__, function.__kwdefaults__
            kept = self._of_case if of_case else self._functions
            kept[id(function)] = _Watched(name, function, function.__code__, *defaults, cells)

    def let_go(self) -> None:
        """Release the functions of the last case: what they enclose would stay on the device."""
        self._of_case.clear()

    def watch_contenders(self, contenders: Iterable[Contender]) -> None:
        """Watch the parts of each contender: how it is built, what is entered around its calls, and the rest."""
        for contender in contenders:
            parts = {field.name: getattr(contender, field.name) for field in dataclasses.fields(contender)}
            self._contenders.append((contender, parts))
            for part, value in parts.items():
                self.watch(f"{part} of {contender.name}", value)

    def renew(self) -> None:
        """Accept what has been replaced: a library that was just imported may do that."""
        for _, owner, called in self._owners:
            now = vars(owner)
            called.update({key: now[key] for key in called if key in now})

    def check(self) -> None:
        """Put everything back as it was; raise Incorrect if something had changed."""
        changed = [*self._replaced(), *self._rewritten(), *self._exchanged(), *self._furnished()]
        for _, restore in changed:
            restore()
        if changed:
            raise gate.Incorrect(f"replaced {changed[0][0]}, which the laboratory calls")

    def _replaced(self) -> Iterator[tuple[str, Callable[[], None]]]:
        for name, owner, called in self._owners:
            now = vars(owner)
            if now == self._whole.get(name):
                continue
            changed = [key for key, value in called.items() if now.get(key) is not value]
            for key in changed:
                yield f"{name}.{key}", functools.partial(setattr, owner, key, called[key])
            for key in self._shadows(owner, called):
                changed.append(key)
                yield f"{name}.{key}", functools.partial(delattr, owner, key)
            if not changed:
                self._whole[name] = dict(now)

    def _rewritten(self) -> Iterator[tuple[str, Callable[[], None]]]:
        for name, function, code, defaults, keywords, cells in (*self._functions.values(), *self._of_case.values()):
            if function.__code__ is not code:
                yield name, functools.partial(setattr, function, "__code__", code)
            if function.__defaults__ is not defaults:
                yield name, functools.partial(setattr, function, "__defaults__", defaults)
            if function.__kwdefaults__ is not keywords:
                yield name, functools.partial(setattr, function, "__kwdefaults__", keywords)
            for cell, content in cells:
                if _content(cell) is not content:
                    yield name, functools.partial(setattr, cell, "cell_contents", content)

    def _shadows(self, owner: Any, called: dict[str, Any]) -> list[str]:
        """Return the names that a class now defines itself and inherited before."""
        if not isinstance(owner, type):
            return []
        new = [key for key, value in vars(owner).items() if key not in called and callable(value)]
        return [key for key in new if any(key in vars(base) for base in owner.__mro__[1:])]

    def _exchanged(self) -> Iterator[tuple[str, Callable[[], None]]]:
        for contender, parts in self._contenders:
            for part, value in parts.items():
                if getattr(contender, part) is not value:
                    restore = functools.partial(object.__setattr__, contender, part, value)
                    yield f"{part} of {contender.name}", restore

    def _furnished(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Find instances that were replaced or given functions of their own."""
        for name, owner, key, instance, content in self._instances:
            if vars(owner).get(key) is not instance or vars(instance) != content:

                def restore(owner: Any = owner, key: str = key, instance: Any = instance, own: Any = content) -> None:
                    setattr(owner, key, instance)
                    vars(instance).clear()
                    vars(instance).update(own)

                yield name, restore


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is still empty
        return None
