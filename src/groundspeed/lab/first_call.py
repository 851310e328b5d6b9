"""The first call of the functions of `gs.compare`, in this process: what goes in, what comes out, and whether it is
right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from groundspeed.errors import BadInput
from groundspeed.measure import gate
from groundspeed.suites.functions import form as forms
from groundspeed.suites.functions.suite import Functions, called, exactly, made, told, whole
from groundspeed.suites.signature import signature_of

if TYPE_CHECKING:
    from torch import Tensor

    from groundspeed.case import Case

Function = Callable[..., Any]


def form_of_call(
    function: Function,
    make: Callable[[], Any],
    baseline: str,
    tolerance: float | None,
    work: tuple[int, int],
    name: str,
) -> tuple[forms.Form, str]:
    """Return the form of the functions' inputs and output, from a call of the baseline here, and the device. BadInput
    for what cannot be compared."""
    import torch

    try:
        drawn, again = made(make, 1), made(make, 2)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(
            f"inputs() fails ({type(error).__name__}: {error!s:.200}); it is called without arguments"
        ) from None
    if len(drawn) > forms.MOST_INPUTS:
        raise BadInput(
            f"inputs() makes {len(drawn)} tensors, and there can be {forms.MOST_INPUTS}; stack some, or keep them in "
            "the functions"
        )
    names = _names(function, len(drawn))
    if long := next((name for name in names if len(name) > forms.LONGEST_NAME), None):
        raise BadInput(f"the argument {long!r:.20}… has a name of more than {forms.LONGEST_NAME} letters; shorten it")
    tensors = [told(key, x) for key, x in zip(names, drawn, strict=True)]
    if tensors != [told("an input", x) for x in again]:
        raise BadInput(
            "inputs() makes tensors of different sizes in different calls; keep the sizes, one comparison for each"
        )
    if apart := next((key for key, x in zip(names, drawn, strict=True) if not x.is_contiguous()), None):
        raise BadInput(f"{apart} is not contiguous; make it contiguous in inputs(), and transpose in the functions")
    devices = {str(x.device.type) for x in drawn}
    if len(devices) != 1 or not devices <= {"cpu", "cuda"}:
        raise BadInput(f"the inputs are on {', '.join(sorted(devices)) or 'no device'}; put all on cpu, or all on cuda")
    result = _called(function, drawn, baseline)
    output = told("the result", result) if isinstance(result, torch.Tensor) else None
    if output is None or output.dtype not in forms.DTYPES:
        kind = output.dtype if output else type(result).__name__
        raise BadInput(f"{baseline} returns {kind}; it must return one tensor in {', '.join(forms.DTYPES)}")
    form = forms.Form(dict(zip(names, tensors, strict=True)), output, tolerance, *work, name)
    same = [names[i] for i in form.drawn if torch.equal(_bits(drawn[i]), _bits(again[i]))]
    if same and len(same) < len(form.drawn):
        raise BadInput(
            f"inputs() makes the same {same[0]} in every call; keep it in the functions (a closure or a module, say), "
            "and let inputs() make what differs from call to call"
        )
    if same:
        raise BadInput(
            "inputs() makes the same tensors in every call; make them inside it (torch.randn(…)), and leave the seed "
            "to gs.compare, which sets it"
        )
    try:
        forms.form_of(form.params)
    except (KeyError, ValueError) as error:
        raise BadInput(f"these inputs cannot be a case: {form.params!r:.200} ({error})") from None
    return form, devices.pop()


def _called(function: Function, drawn: Sequence[Tensor], baseline: str) -> Any:
    import torch

    with torch.no_grad():
        try:
            return function(*(x.detach().clone() for x in drawn))
        except Exception as error:
            raise BadInput(
                f"{baseline} fails on the inputs ({type(error).__name__}: {error!s:.200}); fix it (gradients are off: "
                "a function that needs them turns them on, with torch.enable_grad())"
            ) from None


def _bits(tensor: Tensor) -> Tensor:
    import torch

    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _names(function: Function, count: int) -> list[str]:
    """Return names for the inputs: the function's own parameter names if they are known, else x0, x1, …; with an
    underscore behind a name that another parameter of a case has."""
    signature = signature_of(function)
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    known = [name for name, kind, _ in signature.parameters if kind in positional] if signature else []
    names = known[:count] if len(known) >= count else [f"x{i}" for i in range(count)]
    while taken := next((i for i, name in enumerate(names) if name in (*forms.RESERVED, *names[:i])), None):
        names[taken] += "_"
    return names


def refuse_baseline(function: Function, suite: Functions, baseline: str, device: str) -> None:
    """Raise BadInput if the right result cannot be computed, or if the baseline, which the others are compared with, is
    not right itself."""
    assert suite.form is not None
    assert suite.given is not None
    import torch

    (case,) = suite.all_cases()
    inputs = case.inputs(1, device)
    try:
        with torch.no_grad():
            exact = [*map(exactly, inputs)]
            with _watched(exact) as lowered:
                right = called(suite.given.reference, suite.form)(*exact)
            answer = gate.Answer(None, whole(right).cpu())
    except Exception as error:
        raise BadInput(
            f"{baseline} or reference= computes the right result from inputs in FP64, and it fails on those "
            f"({type(error).__name__}: {error!s:.200}); give a reference= that computes in FP64 (a module is converted "
            "only if it is the baseline itself)"
        ) from None
    if lowered:
        raise BadInput(
            f"{baseline} or reference= computes the right result from inputs in FP64, and on the way it goes down to "
            f"{lowered[0]}; give a reference= that stays in FP64"
        )
    if not bool((finite := answer.expected.isfinite()).all()):
        value = float(answer.expected[~finite][0])
        raise BadInput(
            f"the right result has {value} in it, which cannot be compared; have the functions return finite numbers"
        )
    if tuple(right.shape) != case.output_shape:
        raise BadInput(
            f"the reference returns shape {list(right.shape)}, and {baseline} returns {list(case.output_shape)}; "
            "both must return the same"
        )
    try:
        check_call(case, inputs, called(function, suite.form), answer)
    except gate.Incorrect as error:
        way_out = "give a tolerance=, or another reference=" if error.errors else "fix it"
        raise BadInput(f"{baseline} itself is not right: {error}; {way_out}") from None


@contextmanager
def _watched(exact: Sequence[Tensor]) -> Iterator[list[str]]:
    """Yield a list that collects the dtypes coarser than FP64 to which values computed from `exact` are lowered in the
    meantime. A conversion in numpy is not seen."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.weak import WeakTensorKeyDictionary

    found: list[str] = []
    theirs = WeakTensorKeyDictionary()
    fine = torch.float64, torch.complex128

    def keep(tensor: Tensor) -> None:
        theirs[tensor] = True

    for tensor in exact:
        keep(tensor)

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = op(*args, **(kwargs or {}))
            given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x in theirs]
            results = [x for x in tree_leaves(made) if isinstance(x, torch.Tensor)]
            if given and results:
                first = results[0]
                whole = not (first.is_floating_point() or first.is_complex())
                if not whole and first.dtype not in fine and any(x.dtype in fine for x in given):
                    found.append(str(first.dtype).removeprefix("torch."))
                for x in results:
                    keep(x)
            return made

    with Watch():
        yield found


def check_call(case: Case, inputs: Sequence[Any], function: Function, answer: gate.Answer) -> None:
    """Raise Incorrect if a function is wrong or changes its inputs."""
    import torch

    given = [x.clone() for x in inputs]
    with torch.no_grad():
        gate.check(case, inputs, function(*given), answer)
    for name, before, after in zip(case.input_names, inputs, given, strict=True):
        if not torch.equal(_bits(before), _bits(after)):
            raise gate.Incorrect(f"changed its input {name}")
