"""JSON of any values that a bundle may contain."""

from __future__ import annotations

import json
import math
from typing import Any


def dump(value: Any, indent: int | None = None) -> str:
    """Return JSON that is readable and safe to display: characters that could move a cursor or change the direction of
    the text are written as \\u…."""
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, indent=indent)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _finite(value: Any) -> Any:
    """Replace infinity and NaN, which JSON does not have, by null: the ends of an interval that does not exist."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
