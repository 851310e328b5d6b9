"""Values as JSON, whatever a bundle has in it."""

from __future__ import annotations

import json
import math
from typing import Any


def dump(value: Any, indent: int | None = None) -> str:
    """JSON that reads as it is and is safe to look at: what could move a cursor or turn the text is written as \\u…."""
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, indent=indent)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _finite(value: Any) -> Any:
    """JSON has no infinity: an interval that does not exist is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
