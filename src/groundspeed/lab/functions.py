"""`gs.compare`: compares a user's own functions with each other, from a notebook or a script."""

from __future__ import annotations

import gc
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any

from groundspeed.case import Case
from groundspeed.errors import BadInput, GroundspeedError, unknown
from groundspeed.evidence import store
from groundspeed.evidence.protocol import DEFAULT_PRESET, MAX_NUMBER
from groundspeed.lab import check, session, trial
from groundspeed.lab.contained import used_by
from groundspeed.lab.declare import need_torch
from groundspeed.lab.first_call import Function, check_call, form_of_call, refuse_baseline
from groundspeed.lab.function_run import FunctionResult, FunctionRun, in_python
from groundspeed.lab.modules import tell
from groundspeed.lab.progress import progress
from groundspeed.lab.request import Request
from groundspeed.measure import gate
from groundspeed.measure.fault import describe
from groundspeed.suites.functions import form as forms
from groundspeed.suites.functions import sent
from groundspeed.suites.functions.suite import SUITE, Functions, Given, InFp64, called
from groundspeed.suites.functions.written import written_in
from groundspeed.suites.registry import check_name
from groundspeed.suites.signature import misfit, signature_of

HERE_ROUNDS, HERE_S = 50, 5.0
"""Limits for timing in this process alone: at most this many calls of each function, and about this long in all."""

MOST_S = 100_000
"""The longest time limit of a sample: more than a day."""


def compare(
    functions: Mapping[str, Function],
    *,
    inputs: Callable[[], Any],
    baseline: str,
    name: str = "",
    reference: Function | None = None,
    tolerance: float | None = None,
    flops: int = 0,
    bytes_moved: int = 0,
    preset: str = DEFAULT_PRESET,
    processes: int | None = None,
    clock: str | Sequence[str] = (),
    isolated: bool = False,
    timeout_s: float = 30.0,
    calibration: str | None = None,
    out: str | Path = store.RUNS,
) -> FunctionRun:
    """Check and time functions against one of them, the baseline, in fresh processes, and keep a bundle.

    `inputs()` returns the arguments of all functions: one tensor or several, on the device to measure on, with new
    values at every call. Floating-point tensors are drawn anew and mixed with earlier ones; tensors beside them
    (indices, masks) stay the same. Functions return one tensor in FP32, FP16 or BF16. The right result is that of
    `reference`, or of the baseline, on the same inputs in FP64. `tolerance` is the permitted error as a fraction of the
    result's root mean square; by default, what rounding to the dtype explains. `flops` and `bytes_moved` count one
    call, for the figures that need them. `name` says what the functions do, and later runs find this one by it.
    `timeout_s` limits a sample; a first call has ten times that. The other arguments are the flags of
    `groundspeed run`.

    What a script or notebook defines is sent by value. Modules are imported again from their files, and refused if that
    gives other functions or constants; other differences (an object that was changed, a patched library) are not
    detected. If functions cannot be sent, the result describes this process only and has no claim. Ctrl-C ends the
    comparison and keeps what was measured."""
    need_torch()
    _refuse_words(functions, inputs, baseline, name, processes, timeout_s)
    _refuse_kinds(name=(name, str), preset=(preset, str), clock=(clock, (str, list, tuple)), out=(out, (str, Path)))
    used = used_by([*functions.values(), inputs, reference])
    modules = tell(sent.somebodys(), used)  # before any of the functions is called
    given = Given(inputs, reference or _in_fp64(functions[baseline]))
    work = _whole("flops", flops), _whole("bytes_moved", bytes_moved)
    form, device = form_of_call(functions[baseline], inputs, baseline, _share(tolerance), work, name)
    suite = Functions(form, given)
    _refuse_misfits(functions, suite)
    refuse_baseline(functions[baseline], suite, baseline, device)
    _let_go(given, device)
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
    try:
        with _scratch() as scratch, progress() as say:
            with _room_for(scratch):
                sent.write(scratch, functions, given, form)
                sent.note_parts(scratch, trial.try_reading(scratch, modules, used, baseline))
            found = session.run(request, say, sent.suite_of(scratch, suite, functions))
    except sent.CannotSend as error:
        return FunctionRun(None, None, _here(functions, suite, device), str(error))
    except GroundspeedError as error:
        error.args = (in_python(str(error)),)
        raise
    if not found.record.complete:  # Ctrl-C must also end a loop around this call
        raise KeyboardInterrupt(f"gs.compare was interrupted; what was measured is in {found.path}")
    return FunctionRun(check.made(found), found.path, {})


def _refuse_kinds(**given: tuple[Any, Any]) -> None:
    for word, (value, kinds) in given.items():
        if not isinstance(value, kinds):
            raise BadInput(f"{word}={value!r:.40} has the type {type(value).__name__}; see help(groundspeed.compare)")


def _let_go(given: Given, device: str) -> None:
    """Free the memory that this process used for its trial calls, because other processes will measure there."""
    import torch

    if isinstance(given.reference, InFp64):
        given.reference.forget()
    if device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _refuse_words(
    functions: Any, inputs: Any, baseline: str, name: str, processes: int | None, timeout_s: float
) -> None:
    if not isinstance(functions, Mapping) or len(functions) < 2:
        raise BadInput("give two or more functions by name, as in {'mine': f, 'torch': g}")
    for key, function in functions.items():
        check_name(SUITE, key)
        if not callable(function):
            raise BadInput(f"{key} is not a function but {type(function).__name__}, which cannot be called")
    if not callable(inputs):
        raise BadInput(f"inputs is a {type(inputs).__name__}; give a function that makes new inputs in each call")
    if not isinstance(baseline, str) or baseline not in functions:
        raise unknown("baseline", str(baseline), functions)
    if name and not (isinstance(name, str) and forms.WORK_NAME.fullmatch(name)):
        raise BadInput(f"the name cannot be {name!r:.80}; use at most 48 letters, digits, dots, dashes and underscores")
    if processes is not None and not (isinstance(processes, int) and 1 <= processes <= MAX_NUMBER):
        raise BadInput(f"processes={processes}: give a whole number, from 1 to {MAX_NUMBER}")
    if not (isinstance(timeout_s, (int, float)) and 0 < timeout_s <= MOST_S):
        raise BadInput(f"timeout_s={timeout_s}: give a number of seconds above 0, at most {MOST_S}")


def _whole(name: str, value: Any) -> int:
    """Return a whole number, given as an int, as a float such as `2e9` or as a number of numpy; BadInput for others."""
    whole = int(value) if isinstance(value, Integral) or (isinstance(value, float) and value % 1 == 0) else -1
    if isinstance(value, bool) or not 0 <= whole <= forms.MOST_WORK:
        raise BadInput(f"{name}={value!r:.40}: give a whole number, counted for one call")
    return whole


def _share(tolerance: float | None) -> float | None:
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and 0.0 <= tolerance < 1.0):
        raise BadInput(f"tolerance={tolerance}: give a fraction of the result's root mean square, from 0 to below 1")
    return None if tolerance is None else float(tolerance)


def _in_fp64(function: Function) -> Function:
    """Return the function as it was before it was compiled; a module as one with its parameters in FP64."""
    import torch

    plain: Any = getattr(function, "_orig_mod", None)
    if plain is None:
        plain = getattr(function, "_torchdynamo_orig_callable", function)
    found: Function = InFp64(plain) if isinstance(plain, torch.nn.Module) else plain
    return found


@contextmanager
def _scratch() -> Iterator[Path]:
    """Yield a new folder, which is deleted afterwards."""
    with _room_for(Path(os.environ.get("TMPDIR") or "/tmp")):
        folder = Path(tempfile.mkdtemp(prefix="groundspeed-")).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _room_for(folder: Path) -> Iterator[None]:
    """Turn a failure to write into a GroundspeedError that names the folder."""
    try:
        yield
    except OSError as error:
        raise GroundspeedError(
            f"cannot write the functions to {folder}: {error.strerror or error}; make room, or name another folder in "
            "the environment variable TMPDIR"
        ) from None


def _refuse_misfits(functions: Mapping[str, Function], suite: Functions) -> None:
    (case,) = suite.all_cases()
    for name, function in functions.items():
        if (signature := signature_of(function)) and (why := misfit(signature, case)):
            raise BadInput(
                f"{name} cannot be called with the {len(case.input_names)} tensors that inputs() makes: {why}"
            )


def _here(functions: Mapping[str, Function], suite: Functions, device: str) -> dict[str, FunctionResult]:
    """Return the results of calls in this process, in random order, on one thread of a CPU. A function that is wrong or
    fails has no median."""
    import torch

    assert suite.form is not None
    (case,) = suite.all_cases()
    ready = {name: called(function, suite.form) for name, function in functions.items()}
    threads = torch.get_num_threads()
    torch.set_num_threads(threads if device == "cuda" else 1)
    try:
        with torch.no_grad():
            first = case.inputs(1, device)
            answer = gate.Answer(None, case.oracle(*first).cpu())
            faults = {name: _fault(case, first, ready[name], answer, written_in(functions[name])) for name in functions}
            times = _times(case, {name: ready[name] for name in ready if faults[name] is None}, device)
    finally:
        torch.set_num_threads(threads)
    statuses = {name: fault or {"status": "PASSED", "reason": ""} for name, fault in faults.items()}
    medians = {name: statistics.median(some) for name, some in times.items() if some}
    return {
        name: FunctionResult(name, one["status"], one["reason"], medians.get(name), None, None, None, None)
        for name, one in statuses.items()
    }


def _fault(
    case: Case, inputs: Sequence[Any], function: Function, answer: gate.Answer, written: str | None
) -> dict[str, Any] | None:
    try:
        check_call(case, inputs, function, answer)
    except Exception as error:
        return describe(error, written)
    return None


def _times(case: Case, ready: Mapping[str, Function], device: str) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in ready}
    began, drawing = time.perf_counter(), random.Random()
    for seed in range(2, HERE_ROUNDS + 2):
        tensors = case.inputs(seed, device)
        for name in drawing.sample([*ready], len(ready)):
            _wait(device)
            begin = time.perf_counter()
            ready[name](*tensors)
            _wait(device)
            times[name].append(time.perf_counter() - begin)
        if time.perf_counter() - began > HERE_S:
            break
    return times


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
