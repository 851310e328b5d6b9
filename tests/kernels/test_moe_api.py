"""B1 on a CPU: a mixture of experts by PyTorch's path, said once; with gradients; what cannot be served is named."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from groundspeed.kernels import calls
from groundspeed.kernels.moe import api, grouped_gemm, layer, reference
from groundspeed.kernels.moe.form import ACTIVATIONS, Routing
from groundspeed.kernels.moe.grouping import Choices
from groundspeed.kernels.moe.hopper.choice import EXCHANGED, Launch, Transposed, choose_pair
from groundspeed.nn import MoE

ROUTINGS = {
    "softmax": Routing(2),
    "all of them": Routing(6, renormalize=False),
    "sigmoid": Routing(3, "sigmoid", scale=2.5),
    "one": Routing(1, "sigmoid", renormalize=False),
}


def weights(E: int = 6, H: int = 24, inner: int = 16, wide: int = 1, dtype: Any = torch.float32) -> list[Any]:
    made = torch.randn(E, H), torch.randn(E, wide * inner, H) / H**0.5, torch.randn(E, H, inner) / inner**0.5
    return [weight.to(dtype) for weight in made]


def asked(routing: Routing) -> dict[str, Any]:
    return vars(routing).copy()


@pytest.mark.parametrize("activation", ["gelu", "swiglu", "relu2"])
@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=ROUTINGS)
def test_pytorchs_path_agrees_with_the_oracle(routing: Routing, activation: str) -> None:
    x, three = torch.randn(3, 7, 24), weights(wide=2 if activation == "swiglu" else 1)
    bias, shared = torch.randn(6) if routing.score == "sigmoid" else None, torch.randn(3, 7, 24)
    out = api.moe(x, *three, activation=activation, bias=bias, shared=shared, impl="torch", **asked(routing))
    expected = reference.moe(x.view(-1, 24), *three, routing, activation=activation, bias=bias).view(x.shape) + shared
    assert (out.double() - expected).abs().max() < 1e-5


def test_auto_takes_pytorchs_path_on_a_cpu_and_says_so_once() -> None:
    calls._said.clear()
    x, three = torch.randn(5, 24), weights()
    with pytest.warns(UserWarning, match=r"groundspeed.moe falls back to PyTorch: our kernels run on NVIDIA GPUs"):
        api.moe(x, *three, top_k=2, activation="gelu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        api.moe(x, *three, top_k=2, activation="gelu")
    for impl in ("triton", "hopper"):
        with pytest.raises(NotImplementedError, match="tensors are on cpu; impl='torch' or 'auto' can"):
            api.moe(x, *three, top_k=2, activation="gelu", impl=impl)


@pytest.mark.parametrize("inside", [False, True])
def test_the_warning_is_about_the_line_that_called_the_module(inside: bool) -> None:
    calls._said.clear()
    module = MoE(24, 16, 6, 2)
    called = torch.nn.Sequential(module) if inside else module
    with pytest.warns(UserWarning, match=r"falls back to PyTorch") as seen:
        called(torch.randn(5, 24))
    assert seen[0].filename == __file__


def test_gradients_are_those_of_every_expert_done_by_hand() -> None:
    torch.manual_seed(0)
    x, router, up, down = (t.double().requires_grad_() for t in (torch.randn(9, 24), *weights()))

    def by_hand() -> Any:
        scores = (x.float() @ router.float().T).softmax(1)
        chosen = torch.zeros_like(scores).scatter(1, scores.topk(2).indices, 1.0)
        kept = scores * chosen
        shares = (kept / kept.sum(1, keepdim=True)).double()
        every = torch.einsum("ehi,eti->teh", down, torch.nn.functional.gelu(torch.einsum("efh,th->etf", up, x)))
        return (every * shares[..., None]).sum(1)

    ours = api.moe(x, router, up, down, top_k=2, activation="gelu", impl="torch")
    found = torch.autograd.grad(ours.square().sum(), (x, router, up, down))
    expected = torch.autograd.grad(by_hand().square().sum(), (x, router, up, down))
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()


def test_losses_and_counts() -> None:
    torch.manual_seed(1)
    x, three = torch.randn(50, 24), weights()
    _, routed = api.moe(x, *three, top_k=2, activation="gelu", return_routing=True, impl="torch")
    logits = x @ three[0].T
    counts = torch.stack([(routed.experts == e).sum() for e in range(6)])
    assert torch.equal(routed.counts, counts)
    assert int(counts.sum()) == 100
    balance = 6 * (counts / 100 * logits.softmax(1).mean(0)).sum()
    assert routed.balance_loss.item() == pytest.approx(balance.item(), rel=1e-5)
    assert routed.z_loss.item() == pytest.approx(logits.logsumexp(1).square().mean().item(), rel=1e-5)


def test_equal_scores_go_to_the_lower_index_and_nan_stays_with_its_token() -> None:
    x, three = torch.randn(4, 24), weights()
    three[0].zero_()
    _, routed = api.moe(x, *three, top_k=3, activation="gelu", return_routing=True, impl="torch")
    assert torch.equal(routed.experts, torch.arange(3).expand(4, 3))
    x[2, 5] = float("nan")
    out = api.moe(x, *weights(), top_k=2, activation="gelu", impl="torch")
    assert torch.equal(out.isnan().all(1), torch.tensor([False, False, True, False]))
    assert not out[[0, 1, 3]].isnan().any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_k": 7}, "top_k must be from 1 to the number of experts, 6, not 7"),
        ({"top_k": 0}, "top_k must be at least 1, not 0"),
        ({"activation": "tanh"}, "activation='tanh' is unknown; choose from swiglu, gelu, relu2"),
        ({"activation": "swiglu"}, r"up \[E, 2·I, H\] with swiglu"),
        ({"score": "softmin"}, "score='softmin' is unknown; choose from softmax, sigmoid"),
        ({"impl": "cuda"}, "impl='cuda' is unknown; choose from auto, hopper, triton, torch"),
        ({"x": torch.randn(5, 23)}, r"\[5, 23\]"),
        ({"router": torch.randn(6)}, r"router \[E, H\]"),
        ({"up": torch.randn(5, 16, 24)}, r"\[5, 16, 24\]"),
        ({"down": torch.randn(6, 16, 24)}, r"\[6, 16, 24\]"),
        ({"down": torch.randn(6, 24, 16).half()}, "must share their dtype"),
        ({"router": torch.randn(6, 24, device="meta")}, "all tensors their device"),
        ({"bias": torch.randn(5)}, "bias must be one for each of the 6 experts"),
        ({"shared": torch.randn(4, 24)}, r"shared must match x: \[5, 24\], \[4, 24\]"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    names = dict(zip(("router", "up", "down"), weights(), strict=True))
    told = {"x": torch.randn(5, 24), **names, "top_k": 2, "activation": "gelu", **change}
    with pytest.raises(ValueError, match=message):
        api.moe(**told)


def test_no_tokens() -> None:
    out, routed = api.moe(
        torch.randn(2, 0, 24), *weights(), top_k=2, activation="gelu", return_routing=True, impl="torch"
    )
    assert out.shape == (2, 0, 24)
    assert (routed.balance_loss.item(), routed.z_loss.item(), int(routed.counts.sum())) == (0.0, 0.0, 0)


def test_a_compiler_sees_one_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what a GPU would be given, since there is none here."""
    monkeypatch.setattr(calls, "capability", lambda device: (9, 0))
    with FakeTensorMode():
        x = torch.empty(2, 40, 64, dtype=torch.bfloat16, device="cuda")
        three = [torch.empty(size, dtype=torch.bfloat16, device="cuda") for size in ((8, 64), (8, 96, 64), (8, 64, 48))]
        out = api.moe(x, *three, top_k=2)
        assert (out.shape, out.dtype, out.device.type) == (x.shape, x.dtype, "cuda")
    meta = [torch.empty(tensor.shape, dtype=torch.bfloat16, device="meta") for tensor in three]
    odd = torch.empty(8, 64, 52, dtype=torch.bfloat16, device="meta")[:, :, :48]
    assert api._why_not_hopper(x, meta[1], meta[2]) is None
    assert "TMA needs rows with adjacent elements" in str(api._why_not_hopper(x, meta[1], odd))


@pytest.mark.parametrize(
    ("T", "E", "top_k", "hopper"), [(1, 32, 2, False), (1024, 32, 2, False), (1040, 32, 2, True), (80, 1, 1, True)]
)
def test_auto_takes_products_for_hopper_where_groups_have_rows_enough(
    T: int, E: int, top_k: int, hopper: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "capability", lambda device: (9, 0))
    taken = []

    def prepared(*_: Any, hopper: bool, **__: Any) -> Any:
        taken.append(hopper)
        return lambda x, *_: (x, Choices(x, x, x, None), x)

    monkeypatch.setattr(layer, "prepared", prepared)
    sizes = (T, 64), (E, 64), (E, 96, 64), (E, 64, 48)
    told = [torch.empty(size, dtype=torch.bfloat16, device="meta") for size in sizes]
    for impl in ("auto", "hopper", "triton"):
        api._launch(*told, None, None, top_k, "softmax", True, 1.0, "swiglu", False, impl)
    assert taken == [hopper, True, False]


def test_both_products_for_hopper_have_tiles_of_as_many_rows() -> None:
    """They read one list of tiles. Where only one of them had columns enough for wide tiles, each had its own."""
    differ = exchanged = 0
    for E, H, inner in itertools.product((1, 2, 8, 16, 32, 128), (1024, 2048, 4096, 8192), (768, 1024, 4096, 14336)):
        for choices, activation in itertools.product(
            (1, 64, 65 * E, 100 * E, 136 * E, 137 * E, 160 * E, 161 * E, 2048 * E), ACTIVATIONS
        ):
            products = (inner, activation), (H, None)
            groups = min(E, choices)
            up, down = choose_pair(choices, groups, *products)
            assert up.rows == down.rows
            if up == EXCHANGED:
                assert down == EXCHANGED
                assert 64 < choices / groups <= 136
                exchanged += 1
                continue
            alone = [Launch.choose(choices, groups, *product) for product in products]
            differ += alone[0].rows != alone[1].rows
            if alone[0].rows == alone[1].rows:
                assert [up, down] == alone
    assert differ > 50
    assert exchanged > 50
    mixtral = choose_pair(1200, 8, (14336, "swiglu"), (4096, None))
    assert mixtral == (Launch(), Launch()), "128 tiles keep an H200 busy"
    assert {one.consumers for one in choose_pair(1200, 8, (14336, "swiglu"), (1024, None))} == {1}
    assert choose_pair(1000, 8, (14336, "swiglu"), (4096, None)) == (EXCHANGED, EXCHANGED)
    assert {one.consumers for one in choose_pair(1000, 8, (14336, "swiglu"), (1024, None))} == {1}, "too few tiles"


def test_launches_whose_tiles_differ_are_refused() -> None:
    portable = grouped_gemm.Launch.choose(400, 8, None, (8, 0))
    pair = portable, replace(portable, block_m=2 * portable.block_m)
    told = [torch.empty(size, dtype=torch.bfloat16) for size in ((200, 64), (8, 64), (8, 96, 64), (8, 64, 48))]
    with pytest.raises(ValueError, match="one list of tiles"):
        layer.prepared(*told, Routing(2), "swiglu", capability=(8, 0), hopper=False, launches=pair)


class TestWhatTmaCannotRead:
    def why(self, E: int, H: int, inner: int, **change: Any) -> str | None:
        made = {"up": torch.empty(E, 2 * inner, H, device="meta"), "down": torch.empty(E, H, inner, device="meta")}
        made = {name: change.get(name, lambda matrix: matrix)(matrix) for name, matrix in made.items()}
        return api._why_not_hopper(torch.empty(1, H, device="meta"), made["up"], made["down"])

    @pytest.fixture(autouse=True)
    def hopper(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(calls, "capability", lambda device: (9, 0))

    def test_whole_matrices_are_read(self) -> None:
        assert self.why(8, 64, 48) is None
        assert self.why(1, 64, 48, up=lambda m: m[:, :, :].expand(1, 96, 64)) is None

    @pytest.mark.parametrize(("H", "inner"), [(64, 12), (12, 64)])
    def test_rows_between_the_kernels_count_too(self, H: int, inner: int) -> None:
        """Of 12 elements they would lie 24 bytes apart, however far apart those of a matrix lie."""
        pad = {"up": lambda m: torch.empty(*m.shape[:2], 64, device="meta")[:, :, : m.shape[2]]}
        assert "TMA needs" in str(self.why(8, H, inner, **pad, down=pad["up"]))

    def test_one_matrix_for_all_experts_is_not(self) -> None:
        assert "TMA needs" in str(self.why(8, 64, 48, up=lambda m: m[:1].expand(8, 96, 64)))

    def test_what_a_compiler_did_not_see_is_said_when_it_is_launched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(calls, "is_aligned", lambda tensor: False)
        told = [torch.empty(size, device="meta") for size in ((4, 64), (8, 64), (8, 96, 64), (8, 64, 48))]
        with pytest.raises(NotImplementedError, match="impl='hopper' cannot serve this call: TMA needs"):
            api._launch(*told, None, None, 2, "softmax", True, 1.0, "swiglu", False, "hopper")


def test_a_bias_is_read_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes it for contiguous. A column of a table is not."""
    monkeypatch.setattr(calls, "capability", lambda device: (8, 0))
    taken: list[Any] = []

    def prepared(*_: Any, **__: Any) -> Any:
        def forward(x: Any, router: Any, up: Any, down: Any, bias: Any, shared: Any) -> Any:
            taken.append(bias)
            return x, Choices(x, x, x, torch.ones(3, 9)), x

        return forward

    monkeypatch.setattr(layer, "prepared", prepared)
    told = [torch.zeros(size) for size in ((4, 64), (8, 64), (8, 96, 64), (8, 64, 48))]
    table = torch.arange(24.0).reshape(8, 3)
    sums = api._launch(*told, table[:, 1], None, 2, "sigmoid", True, 1.0, "swiglu", True, "triton")[4]
    assert taken[0].stride() == (1,)
    assert taken[0].tolist() == [1.0 + 3 * i for i in range(8)]
    assert sums.tolist() == [3.0] * 9, "over all blocks of tokens"
    assert sums.shape == api._fake(*told, None, None, 2)[4].shape, "as a compiler takes them to be"


def test_the_module() -> None:
    torch.manual_seed(2)
    layer = MoE(24, 16, 6, 2, shared_intermediate=8, score="sigmoid", balance_bias=True, impl="torch")
    assert repr(layer).startswith("MoE(hidden=24, intermediate=16, experts=6, top_k=2, swiglu")
    x = torch.randn(2, 9, 24)
    out, routed = layer(x, return_routing=True)
    gate, up = (x @ layer.shared_up.T).chunk(2, dim=-1)
    shared = torch.nn.functional.silu(gate) * up @ layer.shared_down.T
    expected = reference.moe(
        x.view(-1, 24), layer.router, layer.up, layer.down, layer.routing, activation="swiglu", bias=layer.bias
    )
    assert (out.double() - expected.view(x.shape) - shared).abs().max() < 1e-5
    out.sum().backward()
    assert all(weight.grad is not None for weight in layer.parameters())
    layer.rebalance(routed.counts, rate=0.5)
    busy, idle = routed.counts.argmax(), routed.counts.argmin()
    assert (layer.bias[busy].item(), layer.bias[idle].item()) == (-0.5, 0.5)
    with pytest.raises(ValueError, match="make the module with balance_bias=True"):
        MoE(24, 16, 6, 2).rebalance(routed.counts)
    with pytest.raises(ValueError, match="top_k must be from 1 to the number of experts, 6, not 7"):
        MoE(24, 16, 6, 7)
    with pytest.raises(TypeError, match="x must be a tensor, not list"):
        MoE(24, 16, 6, 2)([1.0])
    with pytest.raises(ValueError, match="impl='foo' is unknown; choose from auto, hopper, triton, torch"):
        MoE(24, 16, 6, 2, impl="foo")


@pytest.mark.parametrize("sizes", [(0, 16, 6), (24, 0, 6), (24, 16, 0), (-4, 16, 6), (24.0, 16, 6), (True, 16, 6)])
def test_sizes_of_a_layer_are_whole_numbers_from_1_on(sizes: tuple[Any, Any, Any]) -> None:
    with pytest.raises(ValueError, match="must be a whole number of at least 1, not"):
        MoE(*sizes, 1)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Launch(block_k=128, stages=2), "at most 64"),
        (lambda: Transposed(block_k=128, stages=2), "at most 64"),
        (lambda: Transposed(96, 32), "powers of two"),
        (lambda: Transposed(128, 16), "32 at a time"),
        (lambda: Transposed(stages=5), "bytes of shared memory"),
    ],
)
def test_launches_that_would_be_wrong_or_do_not_fit_are_refused(made: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        made()
