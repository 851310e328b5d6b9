"""Checks whether a function can be called as its suite calls it, before anything is measured."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case, Signature
from groundspeed.errors import BadInput

if TYPE_CHECKING:
    from groundspeed.suites.registry import Suite

KINDS = {
    int(kind): kind
    for kind in (
        Parameter.POSITIONAL_ONLY,
        Parameter.POSITIONAL_OR_KEYWORD,
        Parameter.VAR_POSITIONAL,
        Parameter.KEYWORD_ONLY,
        Parameter.VAR_KEYWORD,
    )
}


def signature_of(function: Callable[..., Any]) -> Signature | None:
    """Return the signature of the function that is called, not of one that it wraps, which may take other arguments: a
    wrapper that takes anything fits. None if Python does not know the signature."""
    compiled = inspect.isfunction(function)  # not a bound method, whose first argument is given already
    function = getattr(function, "_torchdynamo_orig_callable", function) if compiled else function
    try:
        found = inspect.signature(function, follow_wrapped=inspect.ismethod(function)).parameters.values()
    except (TypeError, ValueError):
        return None  # unknown to Python, as for some built-in functions
    name = getattr(function, "__name__", type(function).__name__)
    return Signature(str(name), tuple((p.name, int(p.kind), p.default is not p.empty) for p in found))


def refuse_misfits(suite: Suite, names: Sequence[str], cases: Sequence[Case]) -> None:
    """Raise BadInput if one of these contenders is of `--with` and can be called on none of these cases. One that fits
    some of the cases is called, and fails only on the others."""
    for name, file in suite.files.items():
        if name not in names:
            continue
        signature = suite.contenders[name].signature
        reasons = [misfit(signature, case) for case in cases] if signature else []
        if signature and reasons and all(reasons):
            raise BadInput(
                f"--with {file}: {signature.function}() cannot be called as {suite.name} calls its contenders, "
                f"{signature.function}({_call(cases[0])}): {reasons[0]}"
            )


def misfit(signature: Signature, case: Case) -> str | None:
    """Return Python's own message for calling the function on this case, or None if it can be called."""
    try:
        as_python_has_it(signature).bind(*case.input_names, **case.arguments)
    except TypeError as error:
        return str(error)
    return None


def as_python_has_it(signature: Signature) -> inspect.Signature:
    """Return the signature as Python's own type. ValueError, TypeError or KeyError if it is not valid."""
    return inspect.Signature(
        [
            Parameter(name, KINDS[kind], default=None if optional else Parameter.empty)
            for name, kind, optional in signature.parameters
        ]
    )


def _call(case: Case) -> str:
    return ", ".join([*case.input_names, *(f"{name}=…" for name in case.arguments)])
