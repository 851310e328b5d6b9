"""`gs.compare`: functions of the user's own, held against each other from a notebook or a script."""

from __future__ import annotations

import copy
import gc
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from groundspeed.case import Case
from groundspeed.errors import BadInput, unknown
from groundspeed.evidence import store
from groundspeed.evidence.protocol import DEFAULT_PRESET
from groundspeed.lab import check, session, trial
from groundspeed.lab.declare import need_torch
from groundspeed.lab.first_call import Function, check_call, form_of_call, refuse_baseline
from groundspeed.lab.function_run import FunctionResult, FunctionRun
from groundspeed.lab.modules import tell, used_by
from groundspeed.lab.progress import progress
from groundspeed.lab.request import Request
from groundspeed.measure import gate
from groundspeed.measure.fault import describe
from groundspeed.suites.functions import form as forms
from groundspeed.suites.functions import sent
from groundspeed.suites.functions.suite import SUITE, Functions, Given, called
from groundspeed.suites.registry import check_name
from groundspeed.suites.signature import misfit, signature_of

HERE_ROUNDS, HERE_S = 50, 5.0
"""Of a look at this process alone: at most so many calls of each, and about so long in all."""


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
    """Check and time functions against one of them, in fresh processes, and keep a bundle.

    `inputs()` makes what all are called with: a tensor or several, other ones in every call, of which those with
    fractions are drawn anew and mixed with earlier ones, and the others (indices, masks) stay. They lie on the device
    to measure on; functions return one tensor in FP32, FP16 or BF16. The right result is that of `reference`, or of the
    baseline, on the same inputs in FP64; how far off another may be, as a part of its root mean square, is `tolerance`,
    or what rounding to the dtype explains. `flops` and `bytes_moved`: of one call, for the figures that need them.
    `name`: what the functions do, by which later runs find it. `timeout_s`: of a sample; a first call has ten times
    that. The others are as the flags of `groundspeed run`.

    What a script or notebook defines is sent by value; modules are imported again where they are, and refused where
    that gives other functions or constants; what differs otherwise (an object that was changed, a patched library) is
    not seen. Where functions cannot be sent the result describes this process only, and has no claim. Ctrl-C ends it:
    what was measured is kept."""
    need_torch()
    _refuse_words(functions, inputs, baseline, name, processes, timeout_s)
    _refuse_kinds(name=(name, str), preset=(preset, str), clock=(clock, (str, list, tuple)), out=(out, (str, Path)))
    used = used_by([*functions.values(), inputs, reference])
    modules = tell(sent.somebodys(), used)  # before anything of them is called
    given = Given(inputs, reference or _in_fp64(functions[baseline]))
    work = _whole("flops", flops), _whole("bytes_moved", bytes_moved)
    form, device = form_of_call(functions[baseline], inputs, baseline, _share(tolerance), work, name)
    suite = Functions(form, given)
    _refuse_misfits(functions, suite)
    refuse_baseline(functions[baseline], suite, baseline, device)
    _let_go(device)
    scratch = Path(tempfile.mkdtemp(prefix="groundspeed-")).resolve()
    try:
        sent.write(scratch, functions, given, form)
        sent.note_parts(scratch, trial.try_reading(scratch, modules, used))
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
        with progress() as say:
            found = session.run(request, say, sent.suite_of(scratch, suite, functions))
    except sent.CannotSend as error:
        why = str(error)
    else:
        if not found.record.complete:  # whoever calls this in a loop wants to get out of it
            raise KeyboardInterrupt(f"gs.compare was interrupted; what was measured is in {found.path}")
        return FunctionRun(check.made(found), found.path, {})
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return FunctionRun(None, None, _here(functions, suite, device), why)


def _refuse_kinds(**given: tuple[Any, Any]) -> None:
    for word, (value, kinds) in given.items():
        if not isinstance(value, kinds):
            raise BadInput(f"{word}={value!r:.40} is {type(value).__name__}; see help(groundspeed.compare)")


def _let_go(device: str) -> None:
    """Of memory on the GPU that this process had for what it tried: others are to measure there."""
    import torch

    if device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _refuse_words(
    functions: Any, inputs: Any, baseline: str, name: str, processes: int | None, timeout_s: float
) -> None:
    if not isinstance(functions, Mapping) or len(functions) < 2:
        raise BadInput("one function is compared with nothing; give two by their names: {'mine': f, 'torch': g}")
    for key, function in functions.items():
        check_name(SUITE, key)
        if not callable(function):
            raise BadInput(f"{key} is no function but {type(function).__name__}, which cannot be called")
    if not callable(inputs):
        raise BadInput(f"inputs is a {type(inputs).__name__}; give a function that makes them, other ones in each call")
    if not isinstance(baseline, str) or baseline not in functions:
        raise unknown("baseline", str(baseline), functions)
    if name and not (isinstance(name, str) and forms.WORK_NAME.fullmatch(name)):
        raise BadInput(
            f"the name cannot be {name!r:.80}; use letters, digits, dots, dashes and underscores, 48 at most"
        )
    if processes is not None and not (isinstance(processes, int) and processes >= 1):
        raise BadInput(f"processes={processes}: at least one process has to measure")
    if not (isinstance(timeout_s, (int, float)) and timeout_s > 0):
        raise BadInput(f"timeout_s={timeout_s}: give seconds, more than 0")


def _whole(name: str, value: Any) -> int:
    """`2e9` is one too, and so are the numbers of numpy."""
    whole = int(value) if isinstance(value, Integral) or (isinstance(value, float) and value % 1 == 0) else -1
    if isinstance(value, bool) or not 0 <= whole <= forms.MOST_WORK:
        raise BadInput(f"{name}={value!r:.40}: give a whole number, what one call needs")
    return whole


def _share(tolerance: float | None) -> float | None:
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and 0.0 <= tolerance < 1.0):
        raise BadInput(f"tolerance={tolerance}: give a part of the result's root mean square, from 0 to less than 1")
    return None if tolerance is None else float(tolerance)


def _in_fp64(function: Function) -> Function:
    """As it is before it is compiled; a module with its parameters in FP64 too."""
    import torch

    plain: Function = getattr(function, "_torchdynamo_orig_callable", getattr(function, "_orig_mod", function))
    return copy.deepcopy(plain).double() if isinstance(plain, torch.nn.Module) else plain


def _refuse_misfits(functions: Mapping[str, Function], suite: Functions) -> None:
    (case,) = suite.all_cases()
    for name, function in functions.items():
        if (signature := signature_of(function)) and (why := misfit(signature, case)):
            raise BadInput(f"{name} cannot be called with what inputs() makes, {len(case.input_names)} tensors: {why}")


def _here(functions: Mapping[str, Function], suite: Functions, device: str) -> dict[str, FunctionResult]:
    """Medians of calls in random order, on one thread of a CPU; who is wrong or fails has none."""
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
            failed = {name: fault for name in functions if (fault := _fault(case, first, ready[name], answer))}
            times = _times(case, {name: ready[name] for name in ready if name not in failed}, device)
    finally:
        torch.set_num_threads(threads)
    statuses = {name: failed.get(name, {"status": "PASSED", "reason": ""}) for name in functions}
    medians = {name: statistics.median(some) for name, some in times.items() if some}
    return {
        name: FunctionResult(name, one["status"], one["reason"], medians.get(name), None, None, None, None)
        for name, one in statuses.items()
    }


def _fault(case: Case, inputs: Sequence[Any], function: Function, answer: gate.Answer) -> dict[str, Any] | None:
    try:
        check_call(case, inputs, function, answer)
    except Exception as error:
        return describe(error)
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
