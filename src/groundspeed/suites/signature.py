"""Whether a function can be called as its suite calls it: told before anything is measured."""

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
    """Of what is called, not of what it wraps, which may be called otherwise: a wrapper that takes anything fits."""
    compiled = inspect.isfunction(function)  # of a method the first argument is given already
    function = getattr(function, "_torchdynamo_orig_callable", function) if compiled else function
    try:
        found = inspect.signature(function, follow_wrapped=inspect.ismethod(function)).parameters.values()
    except (TypeError, ValueError):
        return None  # Python does not know it, of something built in say
    name = getattr(function, "__name__", type(function).__name__)
    return Signature(str(name), tuple((p.name, int(p.kind), p.default is not p.empty) for p in found))


def refuse_misfits(suite: Suite, cases: Sequence[Case]) -> None:
    """BadInput for a contender of `--with` that can be called on none of these cases; what fits some is called, and
    fails on the others alone."""
    for name, file in suite.files.items():
        signature = suite.contenders[name].signature
        reasons = [misfit(signature, case) for case in cases] if signature else []
        if signature and reasons and all(reasons):
            raise BadInput(
                f"--with {file}: {signature.function}() cannot be called as {suite.name} does, "
                f"{signature.function}({_call(cases[0])}): {reasons[0]}"
            )


def misfit(signature: Signature, case: Case) -> str | None:
    """Python's own words, which it would say when the function is called."""
    try:
        as_python_has_it(signature).bind(*case.input_names, **case.arguments)
    except TypeError as error:
        return str(error)
    return None


def as_python_has_it(signature: Signature) -> inspect.Signature:
    """ValueError, TypeError or KeyError for what is none."""
    return inspect.Signature(
        [
            Parameter(name, KINDS[kind], default=None if optional else Parameter.empty)
            for name, kind, optional in signature.parameters
        ]
    )


def _call(case: Case) -> str:
    return ", ".join([*case.input_names, *(f"{name}=…" for name in case.arguments)])
