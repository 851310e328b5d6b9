"""Sequences in pages, for tests: what must not be read is NaN, and entries that must not be followed lead astray."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from attention_oracle import oracle

ASTRAY = (-1, 1 << 30, -(1 << 31))


class Paged(NamedTuple):
    k_pages: Any
    v_pages: Any
    pages: Any
    lengths: Any
    k: list[Any]
    """Of each sequence, [1, G, length, D]."""
    v: list[Any]

    @property
    def tensors(self) -> tuple[Any, Any, Any, Any]:
        return self.k_pages, self.v_pages, self.pages, self.lengths


def paged(
    lengths: list[int],
    G: int,
    D: int,
    page: int,
    *,
    entries: int | None = None,
    dtype: Any = torch.float32,
    numbers: Any = torch.int32,
    device: str = "cpu",
    seed: int = 0,
) -> Paged:
    """`entries` for each sequence, or as many as the longest needs."""
    generator = torch.Generator().manual_seed(seed)
    entries = -(-max(lengths) // page) if entries is None else entries
    P = sum(-(-n // page) for n in lengths) + 2
    free = torch.randperm(P, generator=generator).tolist()
    k_pages, v_pages = (torch.full((P, G, page, D), float("nan"), dtype=dtype) for _ in range(2))
    table = torch.tensor(ASTRAY, dtype=numbers).repeat(len(lengths) * entries)[: len(lengths) * entries]
    table = table.view(len(lengths), entries)
    k, v = ([torch.randn(1, G, n, D, generator=generator).to(dtype) for n in lengths] for _ in range(2))
    for b, n in enumerate(lengths):
        for i, begin in enumerate(range(0, n, page)):
            table[b, i] = free.pop()
            end = min(n, begin + page)
            k_pages[table[b, i], :, : end - begin] = k[b][0, :, begin:end]
            v_pages[table[b, i], :, : end - begin] = v[b][0, :, begin:end]
    made = Paged(k_pages, v_pages, table, torch.tensor(lengths, dtype=numbers), k, v)
    return Paged(*(x.to(device) for x in made[:4]), *([x.to(device) for x in some] for some in (k, v)))


def expected(q: Any, given: Paged, *, causal: bool = True, scale: float | None = None, **form: Any) -> tuple[Any, Any]:
    """Output and log-sum-exp in FP64."""
    scale = q.shape[3] ** -0.5 if scale is None else scale
    found = [
        oracle(q[b : b + 1], k, v, causal, scale, **form) for b, (k, v) in enumerate(zip(given.k, given.v, strict=True))
    ]
    return torch.cat([out for out, _ in found]), torch.cat([lse for _, lse in found])
