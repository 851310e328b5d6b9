"""C9: a few rows times a matrix, with what comes before and behind it, in the interpreter."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rows_values import apart, poisoned, random, tables  # noqa: F401

from groundspeed.kernels import calls
from groundspeed.kernels.activations import ACTIVATIONS
from groundspeed.kernels.linear import api, reference
from groundspeed.kernels.linear.form import Norm
from groundspeed.kernels.rotary import reference as rotary_reference
from groundspeed.nn import PagedCache, Transformer, TransformerConfig, few_rows

CUT_OFF = {"fp16": 1, "bf16": 2}
"""By how much the errors of BF16 may be greater here: the interpreter cuts it off where a GPU rounds."""


def assert_close(out: Any, expected: Any, dtype: str, slack: float = 1.0) -> None:
    error = (out.double() - expected.reshape(out.shape)).square().mean().sqrt()
    assert error <= slack * CUT_OFF[dtype] * reference.ERROR[dtype] * expected.square().mean().sqrt()


def norm_of(kind: str, K: int, dtype: str) -> Norm | None:
    if kind == "none":
        return None
    scale, shift = random(K, dtype=dtype, seed=5) + 1, random(K, dtype=dtype, seed=6)
    return Norm(scale, shift if kind == "layer" else None, 1e-5, kind == "layer")


def launch_of(linear: ModuleType, rows: int, parts: int) -> Any:
    return linear.Launch(min(64, max(16, 1 << (rows - 1).bit_length())), 16, 64 if parts > 1 else 32, 4, 2, parts)


def check(
    linear: ModuleType, x: Any, N: int, kind: str, activation: str | None, dtype: str, all_of_it: bool, parts: int = 4
) -> None:
    K, wide = x.shape[1], 2 * N if activation == "swiglu" else N
    weight = random(wide, K, dtype=dtype, seed=1) / K**0.5
    asked: dict[str, Any] = {"norm": norm_of(kind, K, dtype), "activation": activation}
    bias = random(wide, dtype=dtype, seed=2) if all_of_it else None
    if all_of_it:
        asked["residual"] = apart(random(len(x), N, dtype=dtype, seed=3))
    out = linear.forward(x, weight, bias, **asked, launch=launch_of(linear, len(x), parts))
    assert_close(out, reference.linear(x, weight, bias, **asked), dtype)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("kind", ["none", "rms", "layer"])
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_products(linear: ModuleType, activation: str | None, parts: int, kind: str, dtype: str) -> None:
    """Of whole blocks and of a rest, with K in parts or not."""
    check(linear, random(3, 100, dtype=dtype), 24, kind, activation, dtype, activation != "relu2", parts)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("kind", ["none", "rms"])
def test_a_gate_of_its_own(linear: ModuleType, kind: str, parts: int) -> None:
    x, weight, gate = (random(*size, dtype="fp16", seed=i) for i, size in enumerate(((3, 100), (24, 100), (24, 100))))
    asked: dict[str, Any] = {"gate": gate / 10, "norm": norm_of(kind, 100, "fp16"), "activation": "swiglu"}
    out = linear.forward(x, weight / 10, **asked, launch=launch_of(linear, 3, parts))
    assert_close(out, reference.linear(x, weight / 10, **asked), "fp16")


@settings(max_examples=25)
@given(st.data())
def test_any_sizes(linear: ModuleType, data: st.DataObject) -> None:
    """Of rows, columns and what is summed over; rows apart from each other and misaligned."""
    M, N, K = (data.draw(st.integers(1, most), name) for most, name in ((130, "M"), (70, "N"), (200, "K")))
    parts = data.draw(st.sampled_from([1, 2, 4]))
    kind = data.draw(st.sampled_from(["none", "rms", "layer"])) if M <= 16 and K >= 16 else "none"
    x = random(M, K, dtype="fp16")
    x = apart(x) if data.draw(st.booleans()) else x
    activation = data.draw(st.sampled_from([None, "swiglu", "gelu"]))
    check(linear, x, N, kind, activation, "fp16", data.draw(st.booleans()), parts)


@pytest.mark.parametrize("rows", [2, 20, 100, 128])
@pytest.mark.parametrize("roomy", [False, True])
def test_the_launch_that_is_chosen(linear: ModuleType, roomy: bool, rows: int) -> None:
    x, weight, bias = random(rows, 300, dtype="fp16"), random(90, 300, dtype="fp16", seed=1) / 17, random(90, seed=2)
    for activation, N in ((None, 90), ("swiglu", 45)):
        asked: dict[str, Any] = {"activation": activation, "residual": random(rows, N, dtype="fp16", seed=3)}
        out = linear.forward(x, weight, bias.half(), **asked, roomy=roomy)
        assert_close(out, reference.linear(x, weight, bias.half(), **asked), "fp16")
    assert linear.forward(x[:0], weight, roomy=roomy).shape == (0, 90)


@pytest.mark.parametrize("columns", [768, 4096, 6144, 8192, 12288, 16384, 20000])
@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_launches_of_other_widths(linear: ModuleType, activation: str, columns: int) -> None:
    """With a norm, as they are chosen for wider matrices."""
    tiles = 2 if activation == "swiglu" else 1
    launch = linear.Launch.choose(5, columns // tiles, 1200, tiles, roomy=True)
    x, weight = random(5, 1200, dtype="fp16"), random(150, 1200, dtype="fp16", seed=1) / 35
    norm = norm_of("layer", 1200, "fp16")
    out = linear.forward(x, weight, norm=norm, activation=activation, launch=launch)
    assert_close(out, reference.linear(x, weight, norm=norm, activation=activation), "fp16")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN
def test_nan_stays_in_its_row_and_column(linear: ModuleType) -> None:
    x, weight = random(5, 64, dtype="fp16"), random(20, 64, dtype="fp16", seed=1)
    x[1, 7], weight[13, 3] = float("nan"), float("nan")
    out = linear.forward(x, weight, norm=norm_of("layer", 64, "fp16"))
    assert out[1].isnan().all()
    assert out[:, 13].isnan().all()
    assert not out[[0, 2, 3, 4]][:, [*range(13), *range(14, 20)]].isnan().any()


def test_a_mean_far_away_from_zero_takes_no_digits_of_the_variance(linear: ModuleType) -> None:
    x, weight = random(2, 256, dtype="fp16") + 100, random(16, 256, dtype="fp16", seed=1) / 16
    norm = Norm(torch.ones(256, dtype=torch.float16), None, 1e-6, True)
    assert_close(linear.forward(x, weight, norm=norm), reference.linear(x, weight, norm=norm), "fp16")


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize(
    ("B", "S", "H", "G", "D", "kind"),
    [(3, 1, 4, 2, 16, "rms"), (2, 3, 3, 1, 24, "layer"), (1, 1, 2, 2, 6, "none"), (9, 2, 1, 1, 32, "none")],
)
def test_queries_keys_and_values(
    qkv: ModuleType, B: int, S: int, H: int, G: int, D: int, kind: str, turned: bool, dtype: str
) -> None:
    """Every token where append_paged puts it, and nothing else is written; tokens without a place are left out."""
    K, page = 50, 16
    x, weight = random(B * S, K, dtype=dtype), random((H + 2 * G) * D, K, dtype=dtype, seed=1) / K**0.5
    bias, norm = random(len(weight), dtype=dtype, seed=2), norm_of(kind, K, dtype)
    angles = tables(B if S > 1 else 1, S, D // 2) if turned else None
    table = torch.randperm(2 * B + 1, generator=torch.Generator().manual_seed(0))[: 2 * B].view(B, 2).int()
    lengths = torch.arange(B, dtype=torch.int32) * 7 + 1  # the first has fewer than three tokens, others cross a page
    if B > 1:
        lengths[-1] = 33  # one behind the last entry
    table[0, 1] = -1
    pages = qkv.Pages(*(torch.full((2 * B + 1, G, page, D), float("nan"), dtype=x.dtype) for _ in "kv"), table, lengths)
    launch = qkv.Launch(16, 16, 64, 4, 2, 4) if turned else qkv.Launch(16, 16, 32, 4, 2)
    q = qkv.prepared(x, weight, norm, angles, pages, H, launch=launch)(x, weight, bias, norm, angles, pages)
    made = reference.linear(x, weight, bias, norm=norm).view(B, S, H + 2 * G, D).transpose(1, 2)
    right_q, right_k, right_v = made.split((H, G, G), dim=1)
    if angles is not None:
        right_q, right_k = rotary_reference.rotary(right_q, right_k, *angles)
    assert_close(q.view(B, S, H, D), right_q.transpose(1, 2), dtype, 1.5)
    for found, right in ((pages.k_pages, right_k), (pages.v_pages, right_v)):
        expected = torch.full(found.shape, float("nan"), dtype=torch.float64)
        for b in range(B):
            for s in range(S):
                at = int(lengths[b]) - S + s
                if 0 <= at < 2 * page and table[b, at // page] >= 0:
                    expected[table[b, at // page], :, at % page] = right[b, :, s]
        assert torch.equal(found.isnan(), expected.isnan())
        written = ~expected.isnan()
        assert_close(found[written], expected[written], dtype, 1.5)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks whether our kernels can serve is told that they can."""
    monkeypatch.setattr(api, "why_not_ours", lambda *told, **asked: None)
    monkeypatch.setattr(few_rows, "serve", lambda block, x, cache: len(x.flatten(0, 1)) <= 16)
    monkeypatch.setattr(calls, "capability", lambda device: (8, 0))


@pytest.mark.usefixtures("as_on_a_gpu", "bf16_as_numbers")
@pytest.mark.filterwarnings("ignore:groundspeed:UserWarning")
@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig(2, 32, 4, key_heads=2, intermediate=48, vocabulary=50, max_positions=64),
        TransformerConfig(2, 32, 2, norm="layer", activation="gelu", bias=True, positions="learned", vocabulary=50),
        TransformerConfig(1, 32, 2, experts=4, intermediate=16, window=3, vocabulary=50, max_positions=64),
    ],
    ids=["llama", "gpt", "experts"],
)
def test_b4_a_model_that_writes_token_by_token(config: TransformerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tokens at a time through these kernels are what PyTorch makes of all at once; with and without a cache."""
    torch.manual_seed(0)
    model = Transformer(config).half().eval()
    tokens = torch.randint(0, 50, (2, 12))
    cache = PagedCache(
        config.layers, config.shared_by, config.columns, pages=4, sequences=2, longest=32, page_size=16,
        dtype=torch.float16,
    )  # fmt: skip
    seen: list[str] = []
    for name in ("_attended", "through"):
        original = getattr(few_rows, name)
        monkeypatch.setattr(few_rows, name, lambda *told, o=original, n=name: seen.append(n) or o(*told))
    with torch.inference_mode():
        expected = model(tokens).float()
        assert not seen
        assert_close(model(tokens[:, :8]), expected[:, :8].double(), "fp16", 3)
        assert seen == ["through", "_attended"] * config.layers
        cache.allocate([5, 5])
        found = [model(tokens[:, :5], cache)]
        for i in range(5, 12):
            cache.grow(1)
            found.append(model(tokens[:, i : i + 1], cache))
    assert_close(torch.cat(found, 1), expected.double(), "fp16", 3)
    assert len(seen) == 2 * 9 * config.layers
