"""Cases of attention that some contenders cannot do, and why."""

from __future__ import annotations

from collections.abc import Callable

from groundspeed.case import Case


def without_empty_rows(case: Case, device: str) -> str | None:
    empty = case.params["causal"] and "N" in case.params and int(case.params["N"]) < int(case.params["S"])
    return "it returns NaN for rows that see no key" if empty else None


def without_groups(case: Case, device: str) -> str | None:
    return "needs as many key heads as query heads" if "G" in case.params else None


def without_nested_groups(case: Case, device: str) -> str | None:
    packed = "lengths" in case.params
    return "its nested tensors need as many key heads as query heads" if packed and "G" in case.params else None


def without_nested_on_cpu(case: Case, device: str) -> str | None:
    packed = "lengths" in case.params
    return (
        "it gets packed sequences as nested tensors, which it does not support on a CPU"
        if packed and device == "cpu"
        else None
    )


def without_forms(*served: str) -> Callable[[Case, str], str | None]:
    """Return a `supports` for contenders that do full and causal masks, and of the other forms only `served`."""
    words = {"V": "values with a different dimension", "W": "windows", "cap": "soft-caps", "sinks": "sinks"}

    def supports(case: Case, device: str) -> str | None:
        missing = [word for key, word in words.items() if key in case.params and key not in served]
        return f"does not support {' or '.join(missing)}" if missing else None

    return supports
