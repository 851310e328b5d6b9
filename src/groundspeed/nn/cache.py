"""A paged cache for the keys and values of sequences that grow token by token: a sequence takes as many pages as it
needs."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from groundspeed.kernels.attention.append_api import append_paged
from groundspeed.kernels.attention.paged_api import PAGE_SIZES, attention_paged


class OutOfPages(RuntimeError):
    """A call needs more pages than are free. The call has changed nothing."""

    def __init__(self, needed: int, free: int) -> None:
        super().__init__(needed, free)
        self.needed, self.free = needed, free

    def __str__(self) -> str:
        return (
            f"{self.needed} more pages are needed, but only {self.free} are free: free some sequences, or make a cache "
            "with more pages"
        )


class PagedCache:
    """Keys and values of up to `sequences` sequences at a time, each of up to `longest` positions, in `pages` pages of
    `page_size` positions for every layer. A batch has one row for each of the `sequences`. A row without a sequence has
    no positions, so the shape of the batch stays the same as sequences come and go.

        cache = PagedCache(layers, key_heads, head_dim, pages=4096, sequences=len(prompts), longest=32768)
        cache.allocate([len(prompt) for prompt in prompts])
        for layer in range(layers):                                    # k, v [B, G, M, D], q [B, H, M, D]
            cache.append(layer, k, v)                                  # prompts are padded at their beginning
            out = cache.attend(layer, q)
        cache.grow(1)                                                  # then repeat for each token, with M = 1

    The host assigns pages to sequences, in `allocate`, `grow`, `shrink`, `free` and `reorder`. These calls do not wait
    for the device: they copy changes to `table` and `lengths` in the order of the current stream. So a step with
    `append` and `attend` can be captured in a CUDA graph, if `grow` is called before each replay, outside the graph.
    Make all calls on one stream, or on streams that wait for each other: otherwise a page may be given to a new
    sequence while the old one is still being read.

    `k_pages` and `v_pages` hold one tensor [pages, key_heads, page_size, head_dim] for each layer. `table` [sequences,
    entries] and `lengths` [sequences] have the form that `groundspeed.attention_paged` takes."""

    _groundspeed_repeatable = True
    """A repeated step writes the same values to the same positions, so `compile_graphs` need not copy the pages to
    restore them after its warm-up."""

    def __init__(
        self,
        layers: int,
        key_heads: int,
        head_dim: int,
        *,
        pages: int,
        sequences: int,
        longest: int,
        page_size: int = 64,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if page_size not in PAGE_SIZES:
            raise ValueError(f"page_size must be one of {', '.join(map(str, PAGE_SIZES))}, not {page_size}")
        if min(layers, key_heads, head_dim, pages, sequences, longest) < 1:
            raise ValueError("layers, key_heads, head_dim, pages, sequences and longest must be at least 1")
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise ValueError(f"dtype must be a floating-point dtype, such as torch.bfloat16, not {dtype!r:.80}")
        self.page_size, self.longest = page_size, longest
        kind: Any = {"device": device, "dtype": dtype}
        with torch.inference_mode(False):  # an inference tensor could not be written to outside inference mode
            shape = pages, key_heads, page_size, head_dim
            self.k_pages = [torch.empty(shape, **kind) for _ in range(layers)]
            self.v_pages = [torch.empty(shape, **kind) for _ in range(layers)]
            entries = self._pages_of(longest)
            self.table = torch.full((sequences, entries), -1, device=device, dtype=torch.int32)
            self.lengths = torch.zeros(sequences, device=device, dtype=torch.int32)
        self._free = list(reversed(range(pages)))
        """Free pages; the last one is taken next."""
        self._rows: list[_Sequence | None] = [None] * sequences

    def __repr__(self) -> str:
        (pages, heads, page, dim), kind = self.k_pages[0].shape, f"{self.table.device}, {self.k_pages[0].dtype}"
        sizes = f"{len(self.k_pages)} layers, {heads} key heads of {dim}, {self.free_pages} of {pages} pages free"
        return f"PagedCache({sizes}, {page} positions per page, tokens={self.tokens}, {kind})"

    @property
    def rows(self) -> list[int]:
        """The rows that have a sequence."""
        return [row for row, sequence in enumerate(self._rows) if sequence is not None]

    @property
    def tokens(self) -> list[int]:
        """The length of each row as the host knows it; the device has it once the queued copies are done."""
        return [0 if sequence is None else sequence.tokens for sequence in self._rows]

    @property
    def free_pages(self) -> int:
        return len(self._free)

    def allocate(self, lengths: Sequence[int]) -> list[int]:
        """Start sequences of these lengths, whose keys and values are still to be appended, and return their rows: the
        first ones without a sequence."""
        empty = [row for row, sequence in enumerate(self._rows) if sequence is None]
        if len(empty) < len(lengths):
            raise ValueError(
                f"{len(lengths)} new sequences need as many rows, but {len(empty)} of {len(self._rows)} are empty: "
                "free some, or make a cache with more sequences"
            )
        self._lengthen(dict(zip(empty, map(operator.index, lengths), strict=False)))
        return empty[: len(lengths)]

    def grow(self, tokens: int, rows: Iterable[int] | None = None) -> None:
        """Add `tokens` positions to each sequence, or to those of the given rows."""
        tokens, named = operator.index(tokens), self.rows if rows is None else self._distinct(rows)
        self._lengthen({row: self._at(row).tokens + tokens for row in named})

    def shrink(self, tokens: int, rows: Iterable[int] | None = None) -> None:
        """Remove the last `tokens` positions of each sequence, or of those of the given rows, such as guessed tokens
        that were rejected. Pages left without a position become free."""
        _refuse_capture(self.table)
        tokens, named = operator.index(tokens), self.rows if rows is None else self._distinct(rows)
        for row in named:
            there = self._at(row).tokens
            if not 0 <= tokens <= there:
                raise ValueError(f"row {row} has {there} positions and cannot shrink by {tokens}")
        for row in named:
            sequence = self._at(row)
            sequence.tokens -= tokens
            kept = self._pages_of(sequence.tokens)
            self._free.extend(reversed(sequence.pages[kept:]))
            del sequence.pages[kept:]
        self._send({})

    def free(self, rows: Iterable[int]) -> None:
        """End the sequences of these rows; their pages become free."""
        _refuse_capture(self.table)
        for row in self._distinct(rows):
            self._free.extend(reversed(self._at(row).pages))
            self._rows[row] = None
        self._send({})

    def reorder(self, rows: Sequence[int]) -> None:
        """Give row i the sequence that row rows[i] had. Sequences of rows that are not named end."""
        kept = [self._at(row) for row in self._distinct(rows)]
        self.free([row for row in self.rows if row not in rows])
        self._rows = [*kept, *[None] * (len(self._rows) - len(kept))]
        self._send({(row, i): page for row, one in enumerate(kept) for i, page in enumerate(one.pages)})

    def append(self, layer: int, k: torch.Tensor, v: torch.Tensor, rows: slice | None = None) -> None:
        """Append the last tokens of all rows, or of a slice of them, by `groundspeed.append_paged`."""
        append_paged(k, v, *self._pages_at(layer), *self._told(rows))

    def attend(self, layer: int, q: torch.Tensor, rows: slice | None = None, **asked: Any) -> Any:
        """Return the attention of the last positions of all rows, or of a slice of them, by
        `groundspeed.attention_paged`."""
        return attention_paged(q, *self._pages_at(layer), *self._told(rows), **asked)

    def _pages_at(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not 0 <= layer < len(self.k_pages):
            raise IndexError(f"the cache has layers 0 to {len(self.k_pages) - 1}, not {layer}")
        return self.k_pages[layer], self.v_pages[layer]

    def _told(self, rows: slice | None) -> tuple[torch.Tensor, torch.Tensor]:
        return (self.table, self.lengths) if rows is None else (self.table[rows], self.lengths[rows])

    def _pages_of(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def _at(self, row: int) -> _Sequence:
        sequence = self._rows[row] if 0 <= row < len(self._rows) else None
        if sequence is None:
            raise ValueError(f"row {row} has no sequence; rows {self.rows} have one")
        return sequence

    def _distinct(self, rows: Iterable[int]) -> list[int]:
        listed = list(rows)
        if len({*listed}) < len(listed):
            raise ValueError(f"a row is named twice: {listed}")
        for row in listed:
            self._at(row)
        return listed

    def _lengthen(self, lengths: Mapping[int, int]) -> None:
        """Set rows to these lengths, and start a sequence in each of them that has none. If this raises, nothing has
        changed."""
        _refuse_capture(self.table)
        needed = 0
        for row, length in lengths.items():
            sequence = self._rows[row] or _Sequence()
            if not sequence.tokens <= length <= self.longest:
                raise ValueError(
                    f"row {row} has {sequence.tokens} positions and cannot get {length}: longest= allows "
                    f"at most {self.longest}, and only shrink removes positions"
                )
            needed += self._pages_of(length) - len(sequence.pages)
        if needed > len(self._free):
            raise OutOfPages(needed, len(self._free))
        changed = {}
        for row, length in lengths.items():
            sequence = self._rows[row] = self._rows[row] or _Sequence()
            sequence.tokens = length
            while len(sequence.pages) < self._pages_of(length):
                changed[row, len(sequence.pages)] = self._free[-1]
                sequence.pages.append(self._free.pop())
        self._send(changed)

    def _send(self, changed: Mapping[tuple[int, int], int]) -> None:
        """Copy all lengths and the changed entries of the table to the device. Each call copies from new host memory
        that is never written to again, so a copy that is still queued transfers the values of its own call."""
        on_gpu = self.table.device.type == "cuda"
        lengths = torch.tensor(self.tokens, dtype=torch.int32, device="cpu", pin_memory=on_gpu)
        self.lengths.copy_(lengths, non_blocking=True)
        if changed:
            entries = self.table.shape[1]
            numbers = [[row * entries + i for row, i in changed], [*changed.values()]]
            there = torch.tensor(numbers, device="cpu", pin_memory=on_gpu).to(self.table.device, non_blocking=True)
            self.table.view(-1).index_copy_(0, there[0], there[1].int())


class _Sequence:
    """What the host knows about one sequence."""

    def __init__(self) -> None:
        self.tokens = 0
        self.pages: list[int] = []


def _refuse_capture(table: torch.Tensor) -> None:
    if table.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "change the cache before a CUDA graph is replayed, not inside it, or each replay repeats the copies"
        )
