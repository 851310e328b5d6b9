"""The Hopper kernel against FP64: every head dimension and mask, odd and unequal lengths, groups, views, and the same
bits each time."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from exact import DTYPES, assert_right, random

import groundspeed as gs
from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.kernels.attention.hopper import launch
from groundspeed.kernels.attention.hopper.launch import prepared

LENGTHS = [(1, 1), (64, 64), (128, 512), (333, 333), (300, 100), (100, 300), (1000, 1000), (1024, 1024), (2048, 2048)]
WIDE = [(1, 8, 2, 4099, 4099), (40, 8, 8, 512, 512), (7, 16, 4, 1777, 1777)]
"""More tiles than a GPU has multiprocessors."""


def forward(q: Any, k: Any, v: Any, *, causal: bool, scale: float, sinks: Any = None, **form: Any) -> Any:
    return launch.forward(q, k, v, form=Form.of(causal, sinks=sinks, **form), scale=scale, sinks=sinks)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize(("M", "N"), LENGTHS, ids=lambda n: str(n))
def test_lengths(M: int, N: int, D: int, dtype: str, causal: bool) -> None:
    q = random(2, 4, M, D, dtype=dtype)
    k, v = (random(2, 2, N, D, dtype=dtype) for _ in range(2))
    assert_right(q, k, v, causal, dtype, forward=forward)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize(("B", "H", "G", "M", "N"), WIDE)
def test_several_tiles_for_a_program(B: int, H: int, G: int, M: int, N: int, D: int, causal: bool) -> None:
    q = random(B, H, M, D, dtype="bf16")
    k, v = (random(B, G, N, D, dtype="bf16") for _ in range(2))
    assert_right(q, k, v, causal, "bf16", forward=forward)


@pytest.mark.parametrize(("B", "H"), [(3, 16), (2, 32), (1, 45), (2, 15)], ids=str)
@pytest.mark.parametrize(
    ("S", "form"),
    [(4224, {}), (4099, {}), (2200, {"window_size": (600, 0)}), (4096, {"window_size": (1000, 1000)})],
    ids=str,
)
def test_balanced_programs(S: int, form: dict[str, Any], B: int, H: int) -> None:
    """An odd number of tiles, an even and an odd number of heads, pairs of heads of two batch entries; windows whose
    heads begin some tiles apart."""
    q, k, v = (random(B, H, S, 128, dtype="bf16") for _ in range(3))
    for causal in (True, False):
        assert_right(q, k, v, causal, "bf16", forward=forward, **form)


@pytest.mark.parametrize("D", [16, 40, 80, 96, 112, 192])
def test_other_head_dimensions(D: int) -> None:
    q, k, v = (random(2, 3, 333, D, dtype="bf16") for _ in range(3))
    assert_right(q, k, v, True, "bf16", forward=forward)


@pytest.mark.parametrize(("D", "V"), [(192, 128), (128, 64), (256, 40), (96, 80)])
@pytest.mark.parametrize("causal", [False, True])
def test_values_of_fewer_dimensions(causal: bool, D: int, V: int) -> None:
    for M, N in ((300, 500), (2048, 2048)):
        q, k = random(2, 4, M, D, dtype="bf16"), random(2, 2, N, D, dtype="bf16")
        assert_right(q, k, random(2, 2, N, V, dtype="bf16"), causal, "bf16", forward=forward)


@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize("lengths", [(500, 500), (100, 3000), (300, 100), (4096, 4096)], ids=str)
@pytest.mark.parametrize(
    "form",
    [{"window_size": (100, 0)}, {"window_size": (0, 0)}, {"window_size": (37, 80)}, {"window_size": (500, -1)},
     {"window_size": (-1, 5)}, {"window_size": (1000, 9000)}, {"softcap": 20.0}, {"sinks": True},
     {"window_size": (64, 0), "softcap": 1.5, "sinks": True}],
    ids=str,
)  # fmt: skip
def test_windows_soft_caps_and_sinks(form: dict[str, Any], lengths: tuple[int, int], D: int) -> None:
    M, N = lengths
    q = random(2, 4, M, D, dtype="bf16")
    k, v = (random(2, 2, N, D, dtype="bf16") for _ in range(2))
    form = {**form, "sinks": random(4, dtype="bf16")} if form.get("sinks") else form
    for causal in (False, True):
        assert_right(q, k, v, causal, "bf16", forward=forward, **form)


@pytest.mark.parametrize("D", [64, 128])
def test_views_are_read_where_they_lie(D: int) -> None:
    packed = random(2, 200, 3, 4, D, dtype="bf16")
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    assert_right(q, k, v, True, "bf16", forward=forward)
    assert forward(q, k, v, causal=True, scale=0.1)[0].transpose(1, 2).is_contiguous()
    assert_right(q[:, ::2, ::2], k[:, ::2, 8:], v[:, ::2, 8:], False, "bf16", forward=forward)


@pytest.mark.parametrize("scale", [1.0, 0.01, 30.0])
@pytest.mark.parametrize("D", [64, 128, 256])
def test_scores_of_any_size(D: int, scale: float) -> None:
    q, k, v = (random(1, 4, 1024, D, dtype="bf16") for _ in range(3))
    assert_right(q, k, v, True, "bf16", scale / D**0.5, forward=forward)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128, 256])
def test_the_same_bits_each_time(D: int, causal: bool) -> None:
    q, k, v = (torch.randn(4, 32, 2048, D, device="cuda", dtype=DTYPES["bf16"]) for _ in range(3))
    first, first_lse = forward(q, k, v, causal=causal, scale=D**-0.5)
    for _ in range(200):
        out, lse = forward(q, k, v, causal=causal, scale=D**-0.5)
        assert torch.equal(out, first)
        assert torch.equal(lse, first_lse)


@pytest.mark.parametrize("D", [64, 128, 256])
def test_queries_that_are_keys_and_values_too(D: int) -> None:
    x = random(2, 4, 777, D, dtype="bf16")
    assert_right(x, x, x, True, "bf16", forward=forward)


@pytest.mark.parametrize("D", [64, 128, 256])
def test_launched_again_with_other_tensors(D: int) -> None:
    """What TMA was told of a tensor is kept by its address, and told again when it comes back."""
    sets = [tuple(random(2, 4, 500, D, dtype="bf16") for _ in range(3)) for _ in range(4)]
    again = prepared(*sets[0], PLAIN[True])
    for number in (0, 0, 1, 2, 0, 3, 1, 1, 2):
        q, k, v = sets[number]
        assert_right(q, k, v, True, "bf16", forward=lambda q, k, v, causal, scale: again(q, k, v, scale))
    q, k, v = sets[0]
    assert_right(k, q, q, True, "bf16", forward=lambda q, k, v, causal, scale: again(q, k, v, scale))


@pytest.mark.parametrize("D", [64, 128, 256])
def test_replayed_from_a_graph(D: int) -> None:
    q, k, v = (random(2, 4, 500, D, dtype="bf16") for _ in range(3))
    again = prepared(q, k, v, PLAIN[True])
    for _ in range(2):
        again(q, k, v, D**-0.5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = again(q, k, v, D**-0.5)

    def replayed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **_: object) -> tuple[torch.Tensor, torch.Tensor]:
        graph.replay()
        return captured

    for _ in range(3):
        q.normal_()
        for output in captured:
            output.fill_(float("nan"))
        assert_right(q, k, v, True, "bf16", forward=replayed)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in its own code
def test_torch_compile_keeps_it_in_the_graph() -> None:
    def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return gs.attention(q * 2, k, v, causal=True, impl="hopper") + 1

    q, k, v = (random(2, 4, 300, 64, dtype="bf16") for _ in range(3))
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(q, k, v), model(q, k, v))


@pytest.mark.parametrize(
    ("B", "H", "M", "N", "D", "dtype", "taken"),
    [(4, 16, 512, 512, 128, "bf16", "hopper"), (1, 8, 128, 128, 128, "bf16", "triton"),
     (4, 16, 512, 512, 128, "fp32", "triton"), (4, 16, 1, 4096, 64, "fp16", "triton"),
     (4, 16, 512, 512, 36, "bf16", "triton")],
)  # fmt: skip
def test_auto_takes_it_where_there_is_work_enough(
    B: int, H: int, M: int, N: int, D: int, dtype: str, taken: str
) -> None:
    q, k, v = random(B, H, M, D, dtype=dtype), random(B, H, N, D, dtype=dtype), random(B, H, N, D, dtype=dtype)
    assert torch.equal(gs.attention(q, k, v, causal=True), gs.attention(q, k, v, causal=True, impl=taken))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in its own code
def test_auto_serves_what_tma_cannot_read() -> None:
    x = random(4 * 16 * 512 * 64 + 1, dtype="bf16")[1:].view(4, 16, 512, 64)
    for q in (x, x.clone(), x):
        assert_right(q, q, q, True, "bf16", forward=partial(gs.attention, return_lse=True))
    compiled = torch.compile(partial(gs.attention, return_lse=True), fullgraph=True)
    for q in (x.clone(), x):
        assert_right(q, q, q, True, "bf16", forward=compiled)


def test_negative_scales_are_served() -> None:
    q, k, v = (random(4, 16, 512, 64, dtype="bf16") for _ in range(3))
    for scale in (0.1, -0.1, 0.1):
        assert_right(q, k, v, True, "bf16", scale, forward=partial(gs.attention, return_lse=True))
