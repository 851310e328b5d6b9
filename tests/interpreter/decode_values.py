"""Attention of a few queries to many keys is attention, however the keys are split, in the interpreter."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from attention_values import DTYPES, KINDS, assert_right, random
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st


class Split:
    """The module with a number of splits."""

    def __init__(self, module: ModuleType, splits: int) -> None:
        self.module, self.splits = module, splits

    def forward(self, q: Any, k: Any, v: Any, *, causal: bool, scale: float) -> Any:
        launch = self.module.Launch(self.splits, block_n=32)
        return self.module.forward(q, k, v, causal=causal, scale=scale, launch=launch)


@pytest.mark.parametrize(("causal", "dtype"), KINDS)
@pytest.mark.parametrize("splits", [1, 3, 8])
@pytest.mark.parametrize(
    ("B", "H", "G", "M", "N", "D"),
    [(1, 1, 1, 1, 1, 16), (2, 8, 2, 1, 333, 64), (1, 4, 1, 4, 200, 80), (1, 2, 2, 16, 130, 128), (1, 2, 1, 5, 3, 32)],
)
def test_fp64(
    decode: ModuleType, B: int, H: int, G: int, M: int, N: int, D: int, splits: int, dtype: str, causal: bool
) -> None:
    q = random(B, H, M, D, dtype=dtype, seed=1)
    k, v = (random(B, G, N, D, dtype=dtype, seed=seed) for seed in (2, 3))
    assert_right(Split(decode, splits), q, k, v, causal, D**-0.5, dtype)  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    H=st.sampled_from([(1, 1), (2, 1), (3, 3), (6, 2)]),
    M=st.integers(1, 16),
    N=st.integers(1, 300),
    D=st.integers(1, 100),
    splits=st.integers(1, 70),
    causal=st.booleans(),
    dtype=st.sampled_from(list(DTYPES)),
)
@example(H=(1, 1), M=1, N=17, D=1, splits=1, causal=False, dtype="fp16")  # one number, of terms that cancel out
def test_odd_shapes(
    decode: ModuleType, H: tuple[int, int], M: int, N: int, D: int, splits: int, causal: bool, dtype: str
) -> None:
    q = random(1, H[0], M, D, dtype=dtype, seed=M)
    k, v = (random(1, H[1], N, D, dtype=dtype, seed=N + i) for i in range(2))
    assert_right(Split(decode, splits), q, k, v, causal, D**-0.5, dtype)  # type: ignore[arg-type]


def test_views_are_read_where_they_lie(decode: ModuleType) -> None:
    q = random(2, 3, 6, 64, dtype="fp16").transpose(1, 2)
    k, v = (random(2, 100, 2, 128, dtype="fp16", seed=i)[..., ::2].transpose(1, 2) for i in (1, 2))
    assert_right(Split(decode, 2), q, k, v, True, 0.1, "fp16")  # type: ignore[arg-type]


class Relay(Split):
    """The module with a number of splits, and rows of a tile."""

    def __init__(self, module: ModuleType, splits: int, rows: int) -> None:
        super().__init__(module, splits)
        self.rows = rows

    def forward(self, q: Any, k: Any, v: Any, *, causal: bool, scale: float) -> Any:
        launch = self.module.Launch(self.splits, self.rows, block_n=32)
        return self.module.forward(q, k, v, causal=causal, scale=scale, launch=launch)


@pytest.mark.parametrize(("causal", "dtype"), KINDS)
@pytest.mark.parametrize(
    ("B", "H", "G", "M", "N", "D", "splits", "rows"),
    [
        (1, 8, 1, 8, 200, 64, 3, 32),
        (2, 4, 2, 7, 131, 80, 8, 16),
        (1, 2, 2, 1, 70, 16, 1, 16),
        (1, 4, 1, 9, 5, 32, 8, 32),
    ],
)
def test_fp64_of_what_is_handed_on(
    relay: ModuleType, B: int, H: int, G: int, M: int, N: int, D: int, splits: int, rows: int, dtype: str, causal: bool
) -> None:
    q = random(B, H, M, D, dtype=dtype, seed=1)
    k, v = (random(B, G, N, D, dtype=dtype, seed=seed) for seed in (2, 3))
    assert_right(Relay(relay, splits, rows), q, k, v, causal, D**-0.5, dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize("splits", [1, 3])
def test_what_is_handed_on_ends_as_the_queries_are_stored(relay: ModuleType, splits: int) -> None:
    q = random(2, 5, 6, 40, dtype="fp16", seed=1).transpose(1, 2)  # [B, M, H, D] in memory
    k, v = (random(2, 100, 3, 40, dtype="fp16", seed=seed).transpose(1, 2) for seed in (2, 3))
    out, _ = relay.forward(q, k, v, causal=True, scale=0.2, launch=relay.Launch(splits, 16, 16))
    assert out.stride() == q.stride()
    assert_right(Relay(relay, splits, 16), q, k, v, True, 0.2, "fp16")  # type: ignore[arg-type]


def test_fp64_whatever_the_memory_held_before(relay: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody clears what is handed on in; the last of a chain leaves zeros where others told that they were done."""
    import torch

    made: list[Any] = []
    original = relay.maker

    def maker(*asked: Any) -> Any:
        make = original(*asked)

        def dirty() -> Any:
            tensors = make()
            for tensor in tensors:
                tensor.fill_(float("nan") if tensor.is_floating_point() else 1 << 60)
            made.append(tensors[-1])
            return tensors

        return dirty

    monkeypatch.setattr(relay, "maker", maker)
    q = random(1, 8, 6, 32, dtype="fp16", seed=1)
    k, v = (random(1, 2, 100, 32, dtype="fp16", seed=seed) for seed in (2, 3))
    assert_right(Relay(relay, 3, 16), q, k, v, True, 0.2, "fp16")  # type: ignore[arg-type]
    assert made
    assert all(torch.equal(flags, torch.zeros_like(flags)) for flags in made)
    assert {flags.numel() for flags in made} == {4}  # two tiles for each head of keys


@pytest.mark.parametrize(
    ("key_heads", "keys", "rows"), [(1, 131072, 1), (8, 16384, 8), (1, 1000, 128), (512, 4096, 8), (1, 1, 1)]
)
def test_the_workspace_is_small(decode: ModuleType, key_heads: int, keys: int, rows: int) -> None:
    launch = decode.Launch.choose(key_heads, keys, rows, 256, decode.GPU.of((9, 0), 132))
    assert launch.splits >= 1
    if launch.splits > 1:
        assert launch.splits * rows * 4 <= 0.05 * keys * 2 * 2
        assert key_heads * launch.splits <= 2 * 132 + key_heads
