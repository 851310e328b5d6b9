"""Which kernel serves few queries: decode.py, in which each split has a workspace of its own, or relay.py, in which
they share one."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from groundspeed.kernels.attention import decode, relay
from groundspeed.kernels.attention.split import GPU, gpu_of

MANY_ROWS = 64
"""From so many rows of a key head on, the two were compared. With fewer, relay serves only what decode cannot."""


def kernel(q: Any, k: Any, v: Any, gpu: GPU | None = None) -> ModuleType | None:
    """Return the module of the kernel that serves a call without windows, soft-caps and sinks; None if neither suits
    it."""
    relays = relay.suits(q, k, v, gpu)
    if not decode.suits(q, k, v):
        return relay if relays else None
    return relay if relays and _relay_is_faster(q, k, gpu or gpu_of(q.device)) else decode


def _relay_is_faster(q: Any, k: Any, gpu: GPU) -> bool:
    """Compare the keys that programs process one after the other. For tiles of at least 64 rows, as many keys take the
    decode kernel 1.3 to 1.45 times as long as relay's tiles of 16 rows (docs/log.md)."""
    if q.shape[2] * (q.shape[1] // k.shape[1]) < MANY_ROWS:
        return False
    one, other = decode.launch_of(q, k, gpu), relay.launch_of(q, k, gpu)
    keys = k.shape[2]
    taken = keys / other.splits + relay.HANDED_ON * other.splits
    return other.splits > one.splits and taken < 1.25 * keys / one.splits
