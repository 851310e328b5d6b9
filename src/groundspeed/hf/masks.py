"""Masks without their M·N elements. Transformers asks for a mask once per forward call and passes it to every layer. We
return None if only causality masks keys, and otherwise at most a few numbers for each row of the batch.

`Described` defines what such a mask means. It is passed around as an integer tensor with four dimensions, because
models, caches of fixed size, hooks that move tensors and compilers expect masks to be tensors; a real mask holds
booleans or floats. What the host must know is encoded in the shape, and what only the device knows in the elements.

All other masks are built as Transformers builds them for SDPA: padding with holes, masks passed in by a user, packed
samples, chunked attention, models whose code does arithmetic with masks, and padding and windows under a compiler."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import torch
from transformers import masking_utils

from groundspeed.hf.families import HANDED_ON

EVERYTHING = -1


class Described(NamedTuple):
    """Which of N keys each of M queries sees. Query i is at position i + N − M among the keys, unless `rows` gives the
    positions."""

    causal: bool
    window: int = EVERYTHING
    """The number of keys that a query sees before its own position, and after it if the mask is not causal."""
    rows: torch.Tensor | None = None
    """[B, 4] int32: first, last, begin and end for each row of the batch. Queries from first up to but excluding last
    see only keys from begin up to but excluding end, and the last of these queries is at the position of the last of
    these keys. All other queries and keys are padding."""

    def as_tensor(self, device: Any) -> torch.Tensor:
        shape = 2 + self.causal, 2 + self.window
        if self.rows is None:
            return torch.empty((1, *shape, 0), dtype=torch.int32, device=device)
        return self.rows[:, None, None].expand(-1, *shape, -1)

    @classmethod
    def of(cls, mask: torch.Tensor | None) -> Described | None:
        """Return the meaning of a mask that was made here, or None for any other mask."""
        if mask is None or mask.dtype == torch.bool or mask.is_floating_point():
            return None
        if mask.dtype != torch.int32 or mask.dim() != 4 or mask.shape[1] not in (2, 3) or mask.shape[3] not in (0, 4):
            raise ValueError(
                f"a mask must hold booleans or floats, [batch, heads or 1, queries, keys], not {list(mask.shape)} of "
                f"{mask.dtype}: use mask.bool()"
            )
        return cls(mask.shape[1] == 3, mask.shape[2] - 2, mask[:, 0, 0] if mask.shape[3] else None)

    def dense(self, M: int, N: int, device: torch.device) -> torch.Tensor:
        """Return the mask as SDPA takes it: [B or 1, 1, M, N], true where a query sees a key."""
        keys = torch.arange(N, device=device)[None, None, None]
        after = keys - torch.arange(M, device=device)[:, None]  # distance from query to key, with query 0 at key 0
        seen, place = torch.ones((1, 1, M, N), dtype=torch.bool, device=device), N - M
        if self.rows is not None:
            _, last, begin, end = self.rows[:, :, None, None, None].unbind(1)
            seen, place = ((keys >= begin) & (keys < end)).expand(-1, -1, M, -1), end - last
        if self.causal:
            seen = seen & (after <= place)
        if self.window != EVERYTHING:
            seen = seen & (after >= place - self.window) & (after <= place + self.window)
        return seen


def mask(*given: Any, **told: Any) -> torch.Tensor | None:
    """The function that Transformers calls for the masks of our attention."""
    described = NotImplemented if given else _described(**told)
    return masking_utils.sdpa_mask(*given, **told) if described is NotImplemented else described


def _described(
    batch_size: int = 0,
    q_length: int | None = None,
    kv_length: int | None = None,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: torch.Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    config: Any = None,
    device: Any = "cpu",
    **_: Any,
) -> Any:
    """Return a described mask as a tensor; None for no mask, in which case queries are causal if their module is, and
    aligned with the first keys; or NotImplemented if the mask cannot be described. Before Transformers 5.4 there is no
    `q_length`."""
    if getattr(config, "model_type", None) not in HANDED_ON or q_length is None or kv_length is None:
        return NotImplemented
    looked_into = attention_mask is not None or local_size is not None or isinstance(q_offset, torch.Tensor)
    if looked_into and (torch.compiler.is_compiling() or torch.jit.is_tracing()):  # they see no values and no closures
        return NotImplemented
    pattern = _pattern(mask_function, local_size)
    if pattern is None:
        return NotImplemented
    causal, window = pattern
    wanted = not allow_is_causal_skip and q_length > 1 if causal else not allow_is_bidirectional_skip
    unclear = attention_mask is not None and (attention_mask.dim() != 2 or attention_mask.dtype != torch.bool)
    if wanted or unclear or not isinstance(kv_offset, int):
        return NotImplemented
    kept = None if attention_mask is None else _kept(attention_mask, kv_offset, kv_length)
    if q_length == 1:
        return _of_one_query(batch_size, kv_length, q_offset - kv_offset, causal, window, kept, device)
    return _of_queries(batch_size, q_length, kv_length, int(q_offset) - kv_offset, causal, window, kept, device)


def _of_one_query(
    B: int, N: int, place: Any, causal: bool, window: int, padded: torch.Tensor | None, device: Any
) -> Any:
    """Describe the mask of a single query. Causality and the window are part of the row numbers too, because only the
    device knows where the keys in a cache of fixed size end."""
    if not causal and window != EVERYTHING:
        return NotImplemented
    fixed, kept = isinstance(place, torch.Tensor), padded
    if causal and (fixed or place + 1 != N or (window != EVERYTHING and window < place)):
        keys = torch.arange(N, device=device)
        seen = keys <= place
        if window != EVERYTHING:
            seen = seen & (keys >= place - window)
        kept = (seen if kept is None else kept & seen).expand(B, -1)
    if kept is None:
        return None
    runs = _runs(kept, tight=padded is None, told=not fixed)
    if runs is None or runs is ALL:
        return NotImplemented if runs is None else None
    begin, end = runs
    return Described(False, rows=_rows(torch.zeros_like(begin), torch.ones_like(begin), begin, end)).as_tensor(device)


def _of_queries(
    B: int, M: int, N: int, place: int, causal: bool, window: int, kept: torch.Tensor | None, device: Any
) -> Any:
    written = place + M if causal else N  # keys written so far; a cache of fixed size has room for more
    if not 0 <= place <= N - M and (causal or window != EVERYTHING):
        return NotImplemented
    window = EVERYTHING if window >= written - 1 else window
    runs: Any = ALL if kept is None else _runs(kept[:, :written])
    if runs is None:
        return NotImplemented
    aligned = place + M == N or (not causal and window == EVERYTHING)
    if runs is ALL:
        if causal and place == 0 and window == EVERYTHING:
            return None
        if aligned:
            return Described(causal, window).as_tensor(device)
        begin = torch.zeros(B, dtype=torch.int64, device=device)
        runs = begin, begin + written
    begin, end = runs
    first, last = torch.zeros_like(begin), torch.full_like(begin, M)
    if causal or window != EVERYTHING:
        first, last = (begin - place).clamp(0, M), (end - place).clamp(0, M)
    return Described(causal, window, _rows(first, last, begin, end)).as_tensor(device)


ALL = "all"
"""No key is masked in any row."""


def _runs(kept: torch.Tensor, *, tight: bool = False, told: bool = True) -> Any:
    """Return where the kept keys of each row begin and end; ALL if nothing is masked and `told` is set; or None if
    there are holes between the kept keys. `tight`: the caller knows that there are no holes. The host waits for the
    device at most once."""
    numbers = torch.arange(kept.shape[1], device=kept.device)
    count = kept.sum(1)
    end = torch.where(kept, numbers + 1, 0).amax(1) if kept.shape[1] else count
    begin = torch.where(kept, numbers, kept.shape[1]).amin(1).minimum(end) if kept.shape[1] else count
    if told or not tight:
        whole, tight = torch.stack([(count == kept.shape[1]).all(), (end - begin == count).all()]).tolist()
        if whole and told:
            return ALL
    return (begin, end) if tight else None


def _rows(*numbers: torch.Tensor) -> torch.Tensor:
    return torch.stack(numbers, dim=1).to(torch.int32)


def _kept(attention_mask: torch.Tensor, begin: int, length: int) -> torch.Tensor:
    """Return which of the keys of a layer the padding mask keeps; keys that are not written yet are not kept."""
    part = attention_mask[:, begin : begin + length]
    return torch.nn.functional.pad(part, (0, length - part.shape[1]), value=False)


def _pattern(function: Any, local_size: int | None) -> tuple[bool, int] | None:
    """Return whether a mask function is causal, and its window; None if it masks anything else. Functions are
    recognized by the code that created them, so whatever is new in a later Transformers is not recognized."""
    causal, full = (getattr(masking_utils, f"{kind}_mask_function", None) for kind in ("causal", "bidirectional"))
    if function in (causal, full):
        return function is causal, EVERYTHING
    both = None if local_size is None else _inside(function, "and_masks").get("mask_functions")
    if not isinstance(both, tuple) or len(both) != 2 or both[1] not in (causal, full):
        return None
    overlay, base = both
    maker = "sliding_window_overlay" if base is causal else "sliding_window_bidirectional_overlay"
    if _inside(overlay, maker).get("sliding_window") != local_size or local_size is None:
        return None
    return (True, local_size - 1) if base is causal else (False, local_size)


def _inside(function: Any, maker: str) -> dict[str, Any]:
    """Return the closure variables of a function that was created inside the Transformers function `maker`; an empty
    dict for any other function."""
    made_by = getattr(masking_utils, maker, None)
    if not isinstance(function, FunctionType) or not isinstance(made_by, FunctionType):
        return {}
    if function.__code__ not in made_by.__code__.co_consts:
        return {}
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    return dict(zip(function.__code__.co_freevars, cells, strict=True))
