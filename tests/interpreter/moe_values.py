"""B1: the portable kernels of a mixture of experts, in the interpreter: who is chosen, and what comes out."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groundspeed.kernels.moe import reference
from groundspeed.kernels.moe.form import Routing

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
RMS_REL = {"fp16": 1e-3, "bf16": 1.3e-2}
"""The interpreter cuts BF16 off where a GPU rounds."""


@pytest.fixture(scope="session")
def layer(bf16_as_numbers: None) -> ModuleType:
    return importlib.import_module("groundspeed.kernels.moe.layer")


def tensors(T: int, H: int, inner: int, E: int, activation: str, dtype: str, seed: int = 0) -> list[Any]:
    random = torch.Generator().manual_seed(seed)
    wide = 2 if activation == "swiglu" else 1
    sizes = (T, H), (E, H), (E, wide * inner, H), (E, H, inner)
    made = [torch.randn(size, generator=random) * (1.0 if i == 0 else size[-1] ** -0.5) for i, size in enumerate(sizes)]
    return [tensor.to(DTYPES[dtype]) for tensor in made]


def served(
    layer: ModuleType,
    told: list[Any],
    routing: Routing,
    activation: str,
    bias: Any = None,
    shared: Any = None,
    losses: bool = False,
) -> Any:
    forward = layer.prepared(
        *told,
        routing,
        activation,
        capability=(8, 0),
        hopper=False,
        bias=bias,
        sharing=shared is not None,
        losses=losses,
    )
    return forward(*told, bias, shared)


def assert_right(
    layer: ModuleType, told: list[Any], routing: Routing, activation: str, dtype: str, bias: Any = None
) -> Any:
    out, chosen, counts = served(layer, told, routing, activation, bias)
    right = reference.route(*told[:2], routing, bias)
    clear = right.margin > 1e-5
    assert torch.equal(chosen.experts[clear].long(), right.experts[clear])
    assert (chosen.weights[clear] - right.weights[clear]).abs().max() < 1e-5 * routing.scale
    expected = reference.moe(*told, routing, activation=activation, bias=bias)[clear]
    error = (out[clear].double() - expected).square().mean().sqrt()
    assert error <= RMS_REL[dtype] * expected.square().mean().sqrt()
    assert torch.equal(counts.long(), chosen.experts.flatten().bincount(minlength=len(told[1])))
    return out


@pytest.mark.parametrize(
    ("T", "H", "inner", "E", "routing", "activation", "dtype"),
    [
        (1, 64, 32, 4, Routing(1), "relu2", "bf16"),
        (3, 300, 32, 70, Routing(4, "sigmoid"), "gelu", "fp16"),
        (16, 5000, 32, 4, Routing(2), "gelu", "bf16"),
        (37, 64, 96, 8, Routing(2), "gelu", "fp16"),
        (130, 72, 40, 5, Routing(3, "sigmoid", scale=2.5), "swiglu", "bf16"),
        (50, 40, 24, 20, Routing(8, renormalize=False), "swiglu", "fp16"),
        (70, 33, 17, 3, Routing(3, "sigmoid", renormalize=False), "gelu", "bf16"),
    ],
)
def test_matches_fp64(
    layer: ModuleType, T: int, H: int, inner: int, E: int, routing: Routing, activation: str, dtype: str
) -> None:
    told = tensors(T, H, inner, E, activation, dtype)
    bias = torch.linspace(-0.2, 0.2, E) if routing.score == "sigmoid" else None
    assert_right(layer, told, routing, activation, dtype, bias)


def test_a_router_in_fp32_and_rows_that_lie_apart(layer: ModuleType) -> None:
    x, router, up, down = tensors(21, 48, 32, 6, "gelu", "fp16")
    router = torch.randn(6, 48, generator=torch.Generator().manual_seed(1)) * 48**-0.5
    apart = torch.full((21, 60), float("nan"), dtype=x.dtype)
    apart[:, :48] = x
    assert_right(layer, [apart[:, :48], router, up, down], Routing(2), "gelu", "fp16")


def test_what_is_shared_is_added_and_losses_are_those_of_the_choices(layer: ModuleType) -> None:
    told, shared = tensors(33, 32, 16, 5, "gelu", "fp16"), torch.randn(33, 32).half()
    without, _, _ = served(layer, told, Routing(2), "gelu")
    out, chosen, _ = served(layer, told, Routing(2), "gelu", shared=shared, losses=True)
    assert (out.float() - without.float() - shared.float()).abs().max() < 1e-2
    logits = told[0].float() @ told[1].float().T
    sums = chosen.sums.sum(0)
    assert (sums[:5] - logits.softmax(1).sum(0)).abs().max() < 1e-4
    assert sums[5].item() == pytest.approx(logits.logsumexp(1).square().sum().item(), rel=1e-4)


def test_all_tokens_on_one_expert_and_experts_without_any(layer: ModuleType) -> None:
    told = tensors(140, 32, 24, 7, "swiglu", "fp16")
    told[1].zero_()
    told[0][:, 0] = 1.0
    told[1][5, 0], told[1][2, 0] = 30.0, 20.0
    _, chosen, counts = served(layer, told, Routing(2), "swiglu")
    assert counts.tolist() == [0, 0, 140, 0, 0, 140, 0]
    assert torch.equal(chosen.experts, torch.tensor([[5, 2]], dtype=torch.int32).expand(140, 2))
    assert_right(layer, told, Routing(2), "swiglu", "fp16")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN
def test_ties_nan_and_infinity(layer: ModuleType) -> None:
    """Of equal scores the lower index; NaN and what overflows stay with their token, which has experts all the same."""
    told = tensors(40, 32, 16, 9, "gelu", "fp16")
    told[1].zero_()
    _, chosen, _ = served(layer, told, Routing(4), "gelu")
    assert torch.equal(chosen.experts, torch.arange(4, dtype=torch.int32).expand(40, 4))
    told = tensors(40, 32, 16, 9, "gelu", "fp16")
    told[0][3, 7], told[0][8, :], told[0][20, 1] = float("nan"), float("inf"), float("-inf")
    out, chosen, counts = served(layer, told, Routing(4), "gelu")
    spoilt = torch.zeros(40, dtype=torch.bool)
    spoilt[[3, 8, 20]] = True
    assert torch.equal(out.isnan().all(1), spoilt)
    assert not out[~spoilt].isnan().any()
    assert all(len(set(row)) == 4 and set(row) <= set(range(9)) for row in chosen.experts.tolist())
    assert int(counts.sum()) == 160
    told[0].fill_(0.0)
    told[1].fill_(float("-inf"))  # 0·inf: no expert has a number
    out, chosen, _ = served(layer, told, Routing(4), "gelu")
    assert out.isnan().all()
    assert torch.equal(chosen.experts, torch.arange(4, dtype=torch.int32).expand(40, 4))


@pytest.mark.parametrize(
    ("T", "E", "top_k", "align", "block_m", "long"),
    [
        (1, 4, 2, 64, 64, 0),
        (16, 5, 3, 1, 16, 0),
        (17, 9, 1, 64, 64, 0),
        (90, 20, 4, 1, 16, 0),
        (90, 20, 4, 1, 20, 12),
        (100, 3, 2, 64, 128, 0),
        (100, 3, 2, 64, 24, 16),
    ],
)
def test_rows_lie_in_the_groups_of_their_experts(
    layer: ModuleType, T: int, E: int, top_k: int, align: int, block_m: int, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether who chooses places them too, or kernels of their own, one of which may go over more blocks than at once;
    and tokens are copied there."""
    if T == 100:
        monkeypatch.setattr(layer.grouping, "SCANNED", 4)
    x, of_router, _, _ = tensors(T, 24, 8, E, "gelu", "fp16")
    plan = layer.Plan(T, E, top_k, align, block_m, long)
    route = layer._routes(x, of_router, Routing(top_k), plan, biased=False, losses=False, chained=False)
    rows = torch.full((plan.rows, 24), float("nan"), dtype=x.dtype)
    chosen, groups = route(x, of_router, None)
    assert (chosen.counts is None) == (T <= 16)
    layer.exchange.prepared_scatter(x, top_k)(x, groups.places, rows)
    counts = chosen.experts.flatten().bincount(minlength=E)
    assert torch.equal(groups.totals[:E].long(), counts)
    room = -(-counts // align) * align
    begin = room.cumsum(0) - room
    expected = [
        [int(begin[e]) + i, e, min(int(counts[e]) - i, block_m)] for e in range(E) for i in range(0, counts[e], block_m)
    ]
    expected.sort(key=lambda tile: tile[2] <= long)  # stable
    assert groups.totals[E] == len(expected) <= len(groups.tiles)
    assert groups.tiles[: len(expected), :3].tolist() == expected
    order = chosen.experts.flatten().long().argsort(stable=True)  # by expert, and in it by token
    places = torch.empty(T * top_k, dtype=torch.long)
    within = torch.arange(T * top_k) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    places[order] = begin.repeat_interleave(counts) + within
    assert torch.equal(groups.places.long(), places.view(T, top_k))
    of_rows = torch.arange(T).repeat_interleave(top_k)
    assert torch.equal(groups.tokens[places].long(), of_rows)
    assert torch.equal(rows[places], x[of_rows])
    assert rows.isnan().all(1).sum() == len(rows) - len(places)


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 60), st.integers(1, 12), st.data())
def test_order_of_tokens_and_names_of_experts_do_not_matter(
    layer: ModuleType, T: int, E: int, data: st.DataObject
) -> None:
    top_k, seed = data.draw(st.integers(1, E)), data.draw(st.integers(0, 1 << 20))
    x, router, up, down = tensors(T, 32, 16, E, "gelu", "fp16", seed)
    out, chosen, _ = served(layer, [x, router, up, down], Routing(top_k), "gelu")
    tokens = torch.randperm(T, generator=torch.Generator().manual_seed(seed))
    moved, _, _ = served(layer, [x[tokens], router, up, down], Routing(top_k), "gelu")
    torch.testing.assert_close(moved, out[tokens])  # NumPy's products depend a little on where a row lies
    names = torch.randperm(E, generator=torch.Generator().manual_seed(seed))
    other, renamed, _ = served(layer, [x, router[names], up[names], down[names]], Routing(top_k), "gelu")
    assert torch.equal(names[renamed.experts.long()], chosen.experts.long())
    torch.testing.assert_close(other, out)  # scores are added up in another order


@pytest.mark.parametrize(("M", "N", "K"), [(1, 24, 40), (130, 200, 96), (64, 128, 64)])
def test_b3_a_plain_product_is_one_group(bf16_as_numbers: None, M: int, N: int, K: int) -> None:
    dense = importlib.import_module("groundspeed.kernels.moe.dense")
    random = torch.Generator().manual_seed(M)
    a, b = (torch.randn(size, generator=random).half() for size in ((M, K), (N, K)))
    out = dense.prepared(a, b, capability=(8, 0), hopper=False)(a, b)
    expected = a.double() @ b.double().T
    assert (out.double() - expected).square().mean() <= (RMS_REL["fp16"] ** 2) * expected.square().mean()
