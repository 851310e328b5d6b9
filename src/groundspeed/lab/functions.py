"""`gs.compare`: functions of the user's own, held against each other from a notebook or a script."""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groundspeed.errors import BadInput, GroundspeedError, unknown
from groundspeed.evidence import store
from groundspeed.evidence.protocol import DEFAULT_PRESET
from groundspeed.judge.judgement import Judgement
from groundspeed.lab import check, session
from groundspeed.lab.declare import need_torch
from groundspeed.lab.progress import progress
from groundspeed.lab.request import Request
from groundspeed.report import text, words
from groundspeed.suites.functions import form as forms
from groundspeed.suites.functions.sent import CannotSend, send
from groundspeed.suites.functions.suite import SUITE, Functions, Given, called, made, whole
from groundspeed.suites.registry import check_name
from groundspeed.suites.signature import misfit, signature_of

if TYPE_CHECKING:
    from torch import Tensor

Function = Callable[..., Any]
HERE_ROUNDS, HERE_S = 50, 5.0
"""Of a look at this process alone: at most so many calls of each, and about so long in all."""


@dataclass(frozen=True, repr=False)
class FunctionRun:
    """What came of it. Printed it is the run's table and verdicts, or what this process alone showed."""

    judgement: Judgement | None
    path: Path | None
    """The bundle, which `groundspeed show`, `verify` and `report` take; None where no fresh process could be asked."""
    here: Mapping[str, float]
    """Seconds, the median of each function in this process, where no other could be asked: a description."""
    why: str = ""
    """Why no fresh process could be asked."""

    def claim(self) -> str:
        """The claims that the evidence supports, a line for each function; GroundspeedError with the reason where it
        supports none."""
        if self.judgement is None:
            raise GroundspeedError(f"no claim: {self.why}; this process alone proves nothing about others")
        lines = [*words.claim_lines(self.judgement)]
        if claims := [sentence for supported, sentence in lines if supported]:
            return "\n".join(claims)
        raise GroundspeedError(" ".join(sentence for _, sentence in lines))

    def __repr__(self) -> str:
        if self.judgement is None or self.path is None:
            each = ", ".join(f"{name} {text.seconds(median)}" for name, median in self.here.items())
            return f"In this process only, and no claim ({self.why}). Medians: {each}."
        from rich.console import Console

        from groundspeed.report import screen

        console = Console(width=120, highlight=False, color_system=None)
        with console.capture() as shown:
            screen.show(console, self.judgement, self.path, str(self.path))
        return shown.get()


def compare(
    functions: Mapping[str, Function],
    *,
    inputs: Callable[[], Any],
    baseline: str,
    reference: Function | None = None,
    tolerance: float | None = None,
    flops: int = 0,
    preset: str = DEFAULT_PRESET,
    processes: int | None = None,
    clock: str | Sequence[str] = (),
    isolated: bool = False,
    timeout_s: float = 30.0,
    calibration: str | None = None,
    out: str | Path = store.RUNS,
) -> FunctionRun:
    """Check and time functions against one of them, in fresh processes, and keep a bundle.

    `inputs()` makes what all are called with: a tensor or several, other ones in every call, of which those with
    fractions are drawn anew and mixed with earlier ones, and the others (indices, masks) stay. They lie on the device
    to measure on. The right result is that of `reference`, or of the baseline, on the same inputs in FP64; how far off
    another may be, as a part of its root mean square, is `tolerance`, or what rounding to the dtype explains. `flops`:
    of one call, for the figures that need them. The others are as the flags of `groundspeed run`.

    Functions are sent by value. Where that is not possible the result describes this process only, and has no claim."""
    need_torch()
    _refuse_names(functions, baseline)
    given = Given(inputs, reference or functions[baseline])
    form, device = _form(functions[baseline], given, baseline, tolerance, flops)
    _refuse_misfits(functions, Functions(form, given))
    scratch = Path(tempfile.mkdtemp(prefix="groundspeed-")).resolve()
    try:
        suite = send(scratch, functions, given, form)
        request = Request(
            SUITE,
            preset,
            clock=((clock,) if isinstance(clock, str) else tuple(clock)) or (("default",) if device == "cuda" else ()),
            baseline=baseline,
            device=device,
            timeout_s=timeout_s,
            processes=processes,
            isolated=isolated,
            calibration=calibration,
            out=Path(out),
        )
        with progress() as tell:
            found = session.run(request, tell, suite)
    except CannotSend as why:
        return FunctionRun(None, None, _here(functions, given, form, device), str(why))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return FunctionRun(check.made(found), found.path, {})


def _refuse_names(functions: Mapping[str, Function], baseline: str) -> None:
    if len(functions) < 2:
        raise BadInput("one function is compared with nothing; give two, as in {'mine': f, 'torch': g}")
    for name, function in functions.items():
        check_name("functions", name)
        if not callable(function):
            raise BadInput(f"{name} is no function but {type(function).__name__}, which cannot be called")
    if baseline not in functions:
        raise unknown("baseline", str(baseline), functions)


def _refuse_misfits(functions: Mapping[str, Function], suite: Functions) -> None:
    (case,) = suite.all_cases()
    for name, function in functions.items():
        if (signature := signature_of(function)) and (why := misfit(signature, case)):
            raise BadInput(f"{name} cannot be called with what inputs() makes, {len(case.input_names)} tensors: {why}")


def _form(
    function: Function, given: Given, baseline: str, tolerance: float | None, flops: int
) -> tuple[forms.Form, str]:
    """What the functions are given and return, from a call of the baseline here; BadInput for what cannot be
    compared."""
    import torch

    drawn, again = made(given.make, 1), made(given.make, 2)
    devices = {str(x.device.type) for x in drawn if isinstance(x, torch.Tensor)}
    tensors = {name: _told(name, x) for name, x in zip(_names(function, len(drawn)), drawn, strict=True)}
    if len(devices) != 1 or not devices <= {"cpu", "cuda"}:
        raise BadInput(
            f"the inputs lie on {', '.join(sorted(devices)) or 'no device'}; make all on cpu, or all on cuda"
        )
    with torch.no_grad():
        try:
            result = function(*(x.detach().clone() for x in drawn))
        except Exception as error:
            raise BadInput(
                f"{baseline} fails on the inputs ({type(error).__name__}: {error!s:.200}); mend it"
            ) from None
    output = _told("the result", result) if isinstance(result, torch.Tensor) else None
    if output is None or output.dtype not in forms.DTYPES:
        kind = output.dtype if output else type(result).__name__
        raise BadInput(f"{baseline} returns {kind}; have it return one tensor in {', '.join(forms.DTYPES)}")
    form = forms.Form(tensors, output, None if tolerance is None else float(tolerance), flops)
    if not form.drawn:
        raise BadInput("no input has fractions, so that a kept result would go unseen; have inputs() make some")
    if all(torch.equal(_bits(drawn[i]), _bits(again[i])) for i in form.drawn):
        raise BadInput("inputs() makes the same tensors again and again; leave seeds to gs.compare, which sets them")
    try:
        forms.form_of(form.params)
    except (KeyError, ValueError) as error:
        raise BadInput(f"this cannot be a case: {form.params!r:.200} ({error})") from None
    _refuse_reference(given, form, baseline, drawn)
    return form, devices.pop()


def _bits(tensor: Tensor) -> Tensor:
    import torch

    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _told(name: str, value: Any) -> forms.Tensor:
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise BadInput(f"{name} is {type(value).__name__} and not a tensor; keep what is no tensor in the functions")
    dtype = forms.name_of(value.dtype)
    if dtype is None:
        raise BadInput(f"{name} is in {value.dtype}; there are {', '.join(forms.BYTES)}")
    if value.dim() == 0 or value.numel() == 0:
        raise BadInput(f"{name} has the shape {list(value.shape)}; give it elements and at least one dimension")
    if not value.is_contiguous():
        raise BadInput(f"{name} is not contiguous; have inputs() make it so, and transpose in the functions")
    return forms.Tensor(tuple(value.shape), dtype)


def _names(function: Function, count: int) -> list[str]:
    """What the function calls its arguments, where that is known and no other parameter of a case has the name."""
    signature = signature_of(function)
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    known = [name for name, kind, _ in signature.parameters if kind in positional] if signature else []
    names = known[:count] if len(known) >= count else [f"x{i}" for i in range(count)]
    return [f"{name}_" if name in forms.RESERVED else name for name in names]


def _refuse_reference(given: Given, form: forms.Form, baseline: str, drawn: Sequence[Tensor]) -> None:
    import torch

    try:
        with torch.no_grad():
            exact = [x.detach().double() if i in form.drawn else x.clone() for i, x in enumerate(drawn)]
            result = given.reference(*exact)
            whole(result)
    except Exception as error:
        raise BadInput(
            f"the right result is asked of {baseline} or reference=, on inputs in FP64, and there it fails "
            f"({type(error).__name__}: {error!s:.200}); give reference=, a function that computes in FP64"
        ) from None
    if tuple(result.shape) != form.output.shape:
        raise BadInput(
            f"the reference returns the shape {list(result.shape)}, and {baseline} {list(form.output.shape)}; "
            "have both return the same"
        )


def _here(functions: Mapping[str, Function], given: Given, form: forms.Form, device: str) -> dict[str, float]:
    """Medians of calls in random order; BadInput for a function that is wrong."""
    import torch

    (case,) = Functions(form, given).all_cases()
    ready = {name: called(function, form) for name, function in functions.items()}
    times: dict[str, list[float]] = {name: [] for name in functions}
    began = time.perf_counter()
    with torch.no_grad():
        first = case.inputs(1, device)
        expected = case.oracle(*first)
        for name, function in ready.items():
            _refuse_wrong(name, function(*(x.clone() for x in first)), expected, case.tolerance["rms_rel"])
        for seed in range(2, HERE_ROUNDS + 2):
            tensors = case.inputs(seed, device)
            for name in random.sample([*ready], len(ready)):
                _wait(device)
                begin = time.perf_counter()
                ready[name](*tensors)
                _wait(device)
                times[name].append(time.perf_counter() - begin)
            if time.perf_counter() - began > HERE_S:
                break
    return {name: statistics.median(all_) for name, all_ in times.items()}


def _refuse_wrong(name: str, result: Any, expected: Tensor, tolerance: float) -> None:
    import torch

    shaped = isinstance(result, torch.Tensor) and result.numel() == expected.numel()
    off = (result.double().reshape(expected.shape) - expected).square().mean().sqrt() if shaped else None
    if off is None or not bool(off <= tolerance * expected.square().mean().sqrt()):
        raise BadInput(f"{name} returns something else than the reference does; mend it, or give a tolerance=")


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
