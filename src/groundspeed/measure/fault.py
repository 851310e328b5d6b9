"""What went wrong with a contender: a status, and a reason of one line that any file can hold."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from groundspeed.measure import gate
from groundspeed.measure.memory import wants_memory


class Unsupported(Exception):
    """The contender says that it cannot do this case."""


def describe(error: BaseException, source: str | None = None, prefix: str = "") -> dict[str, Any]:
    """Return status, errors and reason, with the line of the contender's own file that the error comes from."""
    kind, text, errors = type(error).__name__, str(error), {}
    if isinstance(error, Unsupported):
        status = "SKIPPED"
    elif isinstance(error, gate.Incorrect):
        status, errors = "INCORRECT", error.errors
    else:
        status = "OOM" if isinstance(error, MemoryError) or wants_memory(text) else "ERROR"
        text = f"{kind}: {text}" if text.strip() else kind
    line = (" | ".join(part.strip() for part in text.splitlines() if part.strip()) or kind)[:300]
    reason = prefix + line.encode(errors="replace").decode() + _where(error, source)
    return {"status": status, "reason": reason, "errors": errors}


def _where(error: BaseException, source: str | None) -> str:
    if source is None:
        return ""
    own = Path(source).resolve()
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).resolve() == own
    ]
    name = "a cell of the notebook" if own.parent.name.startswith("ipykernel_") else own.name
    return f" ({name}, line {lines[-1]})" if lines else ""


def device_is_broken(device: str) -> bool:
    """Return whether everything that this process asks of the GPU fails from now on: some faults are not
    recoverable."""
    if device != "cuda":
        return False
    import torch

    try:
        torch.cuda.synchronize()
        return not bool(torch.ones(1, device="cuda").item() == 1.0)
    except BaseException:
        return True
