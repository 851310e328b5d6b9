"""The one case that functions are compared on: inputs from the user's own function, the result of a reference in
FP64."""

from __future__ import annotations

import copy
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from groundspeed.case import FUNCTIONS, Case, Contender, Scalar
from groundspeed.errors import BadInput
from groundspeed.kernels.work import Work
from groundspeed.suites.functions.form import BYTES, DTYPES, ERROR, Form, Tensor, form_of, name_of
from groundspeed.suites.told import case_told

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

SUITE = FUNCTIONS
SUMMARY = "functions given to gs.compare"
BASELINE = {"cpu": "", "cuda": ""}
"""None is declared: the caller of `gs.compare` names one."""
SHAPE_KEYS: dict[str, str] = {}
COMPILED_BY: tuple[str, ...] = ()
FIXED_SEED = 0
"""Seed of the inputs that are the same in every set."""


@dataclass(frozen=True)
class Given:
    """What the user gave besides the functions. A process that only reads a bundle has none of it."""

    make: Callable[[], Any]
    reference: Callable[..., Any]


@dataclass
class InFp64:
    """A module, the baseline, as a reference: a copy of it with its parameters in FP64, made when it is first called.
    Only the module itself is sent, which is a half or a quarter of the size."""

    module: Any
    copied: Any = None
    own: bool = False
    """Whether nothing else in this process has the module: it was sent for this."""

    def __call__(self, *inputs: Any) -> Any:
        if self.copied is None:
            self.copied = (self.module if self.own else copy.deepcopy(self.module)).double()
        return self.copied(*inputs)

    def forget(self) -> None:
        """Release the copy."""
        self.copied = None

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self.module, "copied": None, "own": True}


@dataclass
class Functions:
    """A suite as `registry.SuiteModule` describes it."""

    form: Form | None = None
    given: Given | None = None
    SUMMARY: str = SUMMARY
    BASELINE: dict[str, str] = field(default_factory=lambda: BASELINE)
    DTYPES: tuple[str, ...] = DTYPES
    SHAPE_KEYS: dict[str, str] = field(default_factory=lambda: SHAPE_KEYS)
    COMPILED_BY: tuple[str, ...] = COMPILED_BY

    def all_cases(self) -> list[Case]:
        return [self._case(self.form)] if self.form else []

    def preset_cases(self, preset: str, device: str) -> list[Case]:
        return self.all_cases() or _refuse()

    def default_dtypes(self, device: str) -> tuple[str, ...]:
        return self.DTYPES

    def case_of_params(self, params: dict[str, Scalar]) -> Case:
        return case_told(SUITE, params, lambda told: self._case(form_of(told)))

    def shape_cases(self, text: str, dtypes: Sequence[str]) -> list[Case]:
        _refuse()

    def contenders(self) -> list[Contender]:
        return []

    def preset_contenders(self, preset: str, device: str) -> None:
        return None

    def preset_skips(self, preset: str, cases: Mapping[str, Case], baseline: str) -> dict[tuple[str, str], str]:
        return {}

    def _case(self, form: Form) -> Case:
        names = [*form.inputs]
        dtype = form.output.dtype
        first = form.inputs[names[form.drawn[0]]]
        given = self.given or Given(_refuse, _refuse)
        return Case(
            suite=SUITE,
            name="-".join(filter(None, (form.name, first.size, dtype))),
            params=form.params,
            work=Work(form.flops, form.bytes_moved),
            counts={},
            tolerance={"rms_rel": ERROR[dtype] if form.tolerance is None else form.tolerance},
            inputs=partial(_inputs, given.make, form),
            refresh=partial(_refresh, given.make, form),
            oracle=partial(_oracle, given.reference, form),
            oracle_flops_per_row=1,  # all rows cost as much as one: the reference computes the whole
            input_names=tuple(names[place] for place in (*form.drawn, *form.fixed)),
            output_shape=form.output.shape,
            arguments={},
            output_dtype=dtype,
            fixed_inputs=len(form.fixed),
        )


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise BadInput("functions can be compared only from the Python code that defines them; call gs.compare there")


def called(function: Callable[..., Any], form: Form) -> Callable[..., Any]:
    """Return the function in the form that takes the inputs of a case, among which the fixed ones come last."""
    order = (*form.drawn, *form.fixed)
    if order == tuple(range(len(order))):
        return function
    places = [order.index(place) for place in range(len(order))]
    return lambda *inputs: function(*(inputs[place] for place in places))


def made(make: Callable[[], Any], seed: int) -> tuple[Any, ...]:
    """Return what the user's function makes from this seed, whichever generator it uses. The states of the generators
    are restored afterwards."""
    with _seeded(seed):
        found = make()
    if isinstance(found, Mapping):
        raise BadInput("inputs() returns a dict; return a tuple of tensors, in the order of the functions' arguments")
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def told(name: str, value: Any) -> Tensor:
    """Return what a case states about a tensor. BadInput if a case cannot have it."""
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise BadInput(
            f"{name} is of type {type(value).__name__}, not a tensor; keep other values inside the functions"
        )
    dtype = name_of(value.dtype)
    if dtype is None:
        raise BadInput(f"{name} has dtype {value.dtype}; supported are {', '.join(BYTES)}")
    if value.dim() == 0 or value.numel() == 0:
        raise BadInput(f"{name} has shape {list(value.shape)}; it needs elements and at least one dimension")
    return Tensor(tuple(value.shape), dtype)


def drawn_as(make: Callable[[], Any], form: Form, seed: int) -> tuple[torch.Tensor, ...]:
    """Return what the user's function makes. BadInput if sizes or dtypes are not those of the record."""
    found = made(make, seed)
    seen, said = [told("an input", x) for x in found], [*form.inputs.values()]
    if seen != said:
        shown = ("; ".join(f"{x.dtype} {list(x.shape)}" for x in some) for some in (seen, said))
        raise BadInput("inputs() made {} here, but {} where gs.compare was called".format(*shown))
    return found


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    import numpy as np
    import torch

    generators = [torch.default_generator]  # not torch.manual_seed, which takes longer than small inputs do
    if torch.cuda.is_initialized():
        generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
    states = [generator.get_state() for generator in generators]
    known, numbers = random.getstate(), np.random.get_state()
    for generator in generators:
        generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
    try:
        with torch.no_grad():
            yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        random.setstate(known)
        np.random.set_state(numbers)


def _inputs(make: Callable[[], Any], form: Form, seed: int, device: str) -> tuple[torch.Tensor, ...]:
    drawn = drawn_as(make, form, seed)
    fixed = drawn_as(make, form, FIXED_SEED) if form.fixed else ()
    chosen = [*(drawn[place] for place in form.drawn), *(fixed[place] for place in form.fixed)]
    return tuple(tensor.detach().to(device, copy=True).contiguous() for tensor in chosen)


def _refresh(
    make: Callable[[], Any], form: Form, inputs: tuple[torch.Tensor, ...], earlier: tuple[torch.Tensor, ...]
) -> None:
    """Draw new inputs from the user's function: rotating the old ones could break an order that they have."""
    others = drawn_as(make, form, secrets.randbits(62))
    for tensor, place in zip(inputs, form.drawn, strict=False):
        tensor.data.copy_(others[place].detach())  # .data leaves PyTorch's version counter alone


def _oracle(
    reference: Callable[..., Any], form: Form, *inputs: torch.Tensor, rows: torch.Tensor | None = None
) -> torch.Tensor:
    result = called(reference, form)(*map(exactly, inputs))
    return whole(result) if rows is None else whole(result)[rows.to(result.device)]


def exactly(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in FP64; integers stay as they are, since they are exact."""
    return tensor.double() if tensor.is_floating_point() else tensor.clone()


def whole(result: Any) -> torch.Tensor:
    """Return the result as [rows, last dimension]. TypeError if it was not computed in FP64."""
    import torch

    if not isinstance(result, torch.Tensor) or result.dtype != torch.float64:
        kind = result.dtype if isinstance(result, torch.Tensor) else type(result).__name__
        raise TypeError(f"the reference returned {kind} for FP64 inputs, not torch.float64")
    return result.detach().reshape(-1, result.shape[-1])
