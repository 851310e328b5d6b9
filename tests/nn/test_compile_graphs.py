"""Calls replayed from graphs, with a stand-in for the capture: keys, buckets, padding, copies, parameters that move,
and what cannot be served."""

from __future__ import annotations

import functools
import inspect
import math
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from played import KEPT, StandIn, graphed
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import groundspeed as gs
from groundspeed.kernels import calls
from groundspeed.nn.graphs.modules import Watch
from groundspeed.nn.graphs.waits import Uncapturable, Waits


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    """Of which most tests are; and nothing is kept."""
    KEPT.clear()
    with torch.no_grad():
        yield


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(float(math.prod(shape))).view(shape)


class Block(nn.Module):
    """Each position by itself."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 16), nn.Linear(16, width)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.down(self.up(x).relu()) * scale


def test_results_are_those_of_the_function_and_their_own() -> None:
    model = Block().eval()
    fast = graphed(model)
    first = fast(x := torch.randn(3, 8))
    second = fast(y := torch.randn(3, 8))
    assert torch.equal(first, model(x))
    assert torch.equal(second, model(y))
    assert [graph.replays for graph in fast.graphs] == [2]
    assert fast.graphs[0].shapes == {"x": (3, 8)}
    assert fast.graphs[0].values == {"scale": 1.0}
    assert list(inspect.signature(fast).parameters) == ["x", "scale"]
    assert "Block, captured: 1" in repr(fast)


def test_results_that_are_no_copies_are_overwritten_by_the_next_call() -> None:
    fast = graphed(lambda x: x + 1, copy_outputs=False)
    first = fast(torch.zeros(2))
    second = fast(torch.ones(2))
    assert first.data_ptr() == second.data_ptr()
    assert first.tolist() == [2.0, 2.0]


def test_shapes_dtypes_and_plain_values_are_graphs_of_their_own_however_they_are_passed() -> None:
    def function(x: Any, factor: Any = 1, *rest: Any, name: str | None = None, **more: Any) -> Any:
        return x * (2 if factor is True else factor), name, sum(rest), more.get("add")

    fast = graphed(function)
    x = torch.ones(2)
    for arguments, keywords in [
        ((x,), {}),
        ((x, 1), {"name": None}),  # the same
        ((), {"x": x}),  # the same
        ((x, True), {}),
        ((x, 1.0), {}),
        ((x, 0.0), {}),
        ((x, -0.0), {}),
        ((x, math.nan), {}),
        ((x, math.nan), {}),  # the same
        ((torch.ones(3),), {}),
        ((x.double(),), {}),
        ((x, 1), {"name": "a"}),
        ((x, 1, 2, 3), {}),
        ((x, 1), {"add": x}),
    ]:
        found, expected = fast(*arguments, **keywords), function(*arguments, **keywords)
        assert torch.equal(found[0].nan_to_num(7), expected[0].nan_to_num(7))
        assert found[1:3] == expected[1:3]
    assert len(fast.graphs) == 11
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        fast()


def test_nested_arguments_and_results_keep_their_form() -> None:
    def function(batch: dict[str, Any], pair: Any) -> Any:
        return {"sum": batch["a"] + pair[0], "rest": [pair[1], batch["b"], None]}

    fast = graphed(function)
    for k in range(3):
        a, b = torch.full((2,), float(k)), torch.ones(2) * k
        found = fast({"a": a, "b": "text"}, (b, 5))
        assert torch.equal(found["sum"], a + b)
        assert found["rest"] == [5, "text", None]
    assert len(fast.graphs) == 1
    assert list(fast.graphs[0].inputs) == ["batch['a']", "pair[0]"]


def test_inputs_of_any_strides_are_copied_and_the_given_ones_stay() -> None:
    fast = graphed(lambda x: x.sum(0))
    x = torch.randn(4, 5)
    for given in (x, x.t().contiguous().t(), x[:1].expand(4, 5), x.flip(0)):
        kept = given.clone()
        assert torch.equal(fast(given), given.sum(0))
        assert torch.equal(given, kept)
    static = fast.graphs[0].inputs["x"]
    static.copy_(x)
    assert torch.equal(fast(static), x.sum(0))
    assert len(fast.graphs) == 1


def test_a_bucket_pads_up_and_the_result_is_cut_back() -> None:
    model, seen = Block().eval(), list[int]()

    def function(tokens: Any) -> Any:
        seen.append(tokens.shape[1])
        return {"out": model(tokens), "first": tokens[:, :1], "rows": tokens.sum((1, 2)).shape[0]}

    fast = graphed(function, buckets={"tokens": {1: (4, 1, 16)}}, warmup=1)
    for size in (1, 2, 3, 4, 5, 16, 9, 2):
        tokens = torch.randn(2, size, 8)
        found = fast(tokens)
        assert torch.equal(found["first"], tokens[:, :1])
        torch.testing.assert_close(found["out"], model(tokens))
        assert found["out"].shape == tokens.shape
    assert [graph.shapes["tokens"] for graph in fast.graphs] == [(2, 1, 8), (2, 4, 8), (2, 16, 8)]
    assert sorted(set(seen)) == [1, 2, 4, 5, 16]  # without padding once for each bucket that padded
    with pytest.raises(ValueError, match=r"'tokens' has size 17 in dimension 1, but the largest bucket is 16"):
        fast(torch.randn(2, 17, 8))


def test_what_is_padded_has_the_value_that_was_asked_for_also_after_a_longer_call() -> None:
    def function(x: Any, mask: Any) -> Any:
        return (x * mask).sum(-1), x, mask

    fast = graphed(
        function, buckets={"x": {-1: [6]}, "mask": {0: [6]}}, pad_value={"x": -7.0, "mask": False}, slice_outputs=False
    )
    for size in (2, 5, 3, 3, 6, 1):
        x, mask = torch.randn(2, size), torch.ones(size, dtype=torch.bool)
        total, padded, kept = fast(x, mask)
        torch.testing.assert_close(total, x.sum(-1))
        assert torch.equal(padded[:, :size], x)
        assert (padded[:, size:] == -7).all()
        assert kept.tolist() == [True] * size + [False] * (6 - size)
    own = fast.graphs[0].inputs["x"][:, :4]
    own.copy_(numbers(2, 4))
    assert torch.equal(fast(own, torch.ones(4, dtype=torch.bool))[0], numbers(2, 4).sum(-1))


def test_two_sizes_are_told_apart_by_the_calls_that_can() -> None:
    """Both are 2 of 4 in the first padded call, so that the result does not say which it follows; nor does a width of 4
    that follows none."""
    fast = graphed(
        lambda x, y: x[:, None, None] * y[None, :, None] * torch.ones(4), buckets={"x": {0: [4]}, "y": {0: [4]}}
    )
    for a, b in ((4, 4), (2, 2), (3, 3), (1, 3), (4, 1), (2, 4), (1, 1)):
        x, y = torch.randn(a), torch.randn(b)
        assert torch.equal(fast(x, y), x[:, None, None] * y[None, :, None] * torch.ones(4))
    assert len(fast.graphs) == 1


def test_a_result_that_cannot_be_cut_back_is_named() -> None:
    flat = graphed(lambda x: x.flatten(), buckets={"x": {1: [4]}})
    with pytest.raises(
        ValueError, match=r"dimension 0 of result 0 is 6 for 'x' of size 3 in dimension 1 and 8 for the"
    ):
        flat(torch.randn(2, 3))
    python = graphed(lambda x: (x + 1, x.shape[1]), buckets={"x": {1: [4]}})
    with pytest.raises(ValueError, match="returns besides tensors depends on a padded size"):
        python(torch.randn(2, 3))
    ranks = graphed(lambda x: x[0] if x.shape[1] == 4 else x, buckets={"x": {1: [4]}})
    with pytest.raises(ValueError, match="differ in number or rank"):
        ranks(torch.randn(2, 3))


def test_padding_that_is_seen_is_warned_of_where_it_was_called() -> None:
    mean = graphed(lambda x: x.mean(-1), buckets={"x": {1: [8]}})
    with pytest.warns(
        UserWarning, match=r"does not return the same with padding \('x' from 3 to 8\) as without"
    ) as seen:
        mean(torch.ones(2, 3))
    assert seen[0].filename == __file__
    total = graphed(lambda x: (x.sum(-1), x.argmax(-1), x.softmax(-1).log() - math.inf), buckets={"x": {1: [8]}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        total(torch.ones(2, 8))
    infinite = graphed(lambda x: 1 / x.min(), buckets={"x": {0: [8]}})
    with pytest.warns(UserWarning, match="positions see each other"):
        infinite(torch.ones(3))


def test_with_buckets_what_they_do_not_name_stays_as_it_was() -> None:
    fast = graphed(lambda x, flag=False: x + 1, buckets={"x": {1: [4]}})
    fast(torch.ones(2, 3))
    for wrong, said in [
        (torch.ones(3, 3), r"'x' is float32 \[3, any\], but the first call had float32 \[2, any\]"),
        (torch.ones(2, 3, 1), r"float32 \[2, any, 1\]"),
        (torch.ones(2, 3, dtype=torch.int64), r"int64 \[2, any\]"),
    ]:
        with pytest.raises(ValueError, match=said):
            fast(wrong)
    fast(torch.ones(2, 3), flag=True)
    assert len(fast.graphs) == 2
    model = Block().eval()
    fast = graphed(model, buckets={"x": {0: [4]}})
    fast(torch.ones(3, 8))
    model.double()
    assert torch.equal(fast(torch.ones(4, 8).double()), model(torch.ones(4, 8).double()))


def test_a_first_call_that_failed_binds_nobody_and_kinds_of_calls_do_not_pile_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("groundspeed.nn.graphs.graphed.MOST_KEPT", 4)
    weight = torch.ones(3, 3)
    fast = graphed(lambda x, k=0: x @ weight + k, buckets={"x": {0: [4]}})
    with pytest.raises(RuntimeError):
        fast(torch.ones(2, 7))
    fast(torch.ones(2, 3))
    with pytest.raises(ValueError, match="but the first call had"):
        fast(torch.ones(2, 7))
    empty = torch.ones(0, 3)
    for k in range(20):
        fast(empty, k + 1)
    assert len(fast._structures) <= 6
    fast(torch.ones(2, 3))
    assert [graph.replays for graph in fast.graphs] == [2]


def test_a_padded_argument_may_be_left_out() -> None:
    fast = graphed(lambda x, **more: x + more.get("y", 0), buckets={"y": {0: [4]}, "x": {0: [4]}})
    assert fast(torch.ones(3)).tolist() == [1.0] * 3
    assert fast(torch.ones(3), y=torch.ones(3)).tolist() == [2.0] * 3
    assert [graph.shapes for graph in fast.graphs] == [{"x": (4,)}, {"x": (4,), "y": (4,)}]


def test_an_argument_in_place_is_written_to_and_never_copied() -> None:
    def step(x: torch.Tensor, cache: list[torch.Tensor], count: torch.Tensor) -> Any:
        count += 1
        cache[0].mul_(2).add_(x)
        return cache[0], cache[0] + count

    cache, count, fast = [torch.zeros(3)], torch.zeros(()), graphed(step, in_place=["cache", "count"])
    KEPT.update(t.untyped_storage().data_ptr() for t in (*cache, count))
    expected = torch.zeros(3)
    for k in range(1, 4):
        found, beside = fast(torch.full((3,), float(k)), cache, count)
        expected = expected * 2 + k
        assert torch.equal(cache[0], expected)
        assert found.data_ptr() == cache[0].data_ptr()
        assert torch.equal(beside, expected + k)
    assert len(fast.graphs) == 1
    other = [torch.ones(3)]
    fast(torch.zeros(3), other, count)
    assert other[0].tolist() == [2.0, 2.0, 2.0]
    assert len(fast.graphs) == 2


def test_an_argument_that_is_written_to_without_being_named_raises() -> None:
    given = torch.zeros(3)
    with pytest.raises(
        ValueError, match=r"writes to its argument 'x', which is a copy here: name it in in_place=\['x'\]"
    ):
        graphed(lambda x: x.add_(1))(given)
    assert given.tolist() == [0.0] * 3
    with pytest.raises(ValueError, match="writes to its argument"):
        graphed(lambda x: x.numpy().fill(5) or x + 1)(given)  # past PyTorch


def test_calls_before_the_capture_leave_nothing_in_buffers_and_random_numbers() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return nn.functional.dropout(x, 0.5, training=True) * self.count

    model = Counts().eval()
    torch.manual_seed(3)
    expected = [model(torch.ones(9)) for _ in range(3)]
    model.count.zero_()
    fast = graphed(model)
    torch.manual_seed(3)
    assert all(torch.equal(fast(torch.ones(9)), one) for one in expected)
    model.register_buffer("wide", torch.ones(1).expand(5))  # to which nobody can write
    with torch.inference_mode():
        model.register_buffer("made", torch.ones(2))  # to which nobody can write elsewhere
    graphed(model)(torch.ones(9))
    kept = graphed(model, restore=False)
    model.count.zero_()
    kept(torch.ones(9))
    assert model.count > 1


class Kept:
    """As a cache is: no module, and has tensors."""

    def __init__(self) -> None:
        self.pages = [torch.zeros(3, 8), torch.zeros(3, 8)]


def test_what_a_function_names_is_kept_and_another_one_captured_again() -> None:
    """Else a replay would write to memory that is somebody else's by then."""
    kept, number = Kept(), 1

    def step(x: torch.Tensor) -> torch.Tensor:
        kept.pages[0].copy_(x)
        return kept.pages[0] * number

    fast, x, there = graphed(step), torch.ones(3, 8), weakref.ref(kept)
    fast(x)
    (captured,) = fast.graphs
    number = 2  # no tensor: what was captured stays, whatever a number becomes
    fast(2 * x)
    assert fast.graphs[0] is captured
    kept = Kept()
    assert there() is not None
    assert torch.equal(fast(3 * x), 6 * x)
    assert fast.graphs[0] is not captured
    assert torch.equal(kept.pages[0], 3 * x)


class Layer:
    def __init__(self, length: int) -> None:
        self.keys, self.count = torch.zeros(length), torch.zeros((), dtype=torch.int64)


class Layers:
    """As a static cache of Transformers is: tensors two levels down, and a count that each call advances."""

    def __init__(self, length: int = 4) -> None:
        self.layers = [Layer(length), Layer(length)]

    def append(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            layer.keys.index_copy_(0, layer.count[None], x)
            layer.count += 1
        return self.layers[1].keys + self.layers[0].count


def test_what_warm_ups_do_to_a_cache_that_is_named_is_undone_and_another_cache_is_noticed() -> None:
    cache, caches = Layers(), {"mine": Layers()}
    by_name, by_key = graphed(lambda x: cache.append(x)), graphed(lambda x: caches["mine"].append(x))
    for fast in (by_name, by_key):
        expected = Layers()
        for k in range(4):  # has room for these, and not for warm-ups after each other
            x = torch.full((1,), k + 1.0)
            assert torch.equal(fast(x), expected.append(x))
        assert [graph.replays for graph in fast.graphs] == [4]
    cache, expected = Layers(), Layers()
    assert torch.equal(by_name(x), expected.append(x))
    assert [graph.replays for graph in by_name.graphs] == [1]
    assert cache.layers[1].count == 1


def test_pages_and_parameters_that_are_named_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = gs.nn.PagedCache(1, 2, 8, pages=2, sequences=1, longest=16, page_size=16)
    inner, bare = graphed(lambda x: x + 1), {"weights": [nn.Parameter(torch.ones(3))], "written": torch.ones(3)}
    inner(torch.ones(3))
    fast = graphed(lambda x: x + bare["weights"][0] + cache.lengths + inner.function(x))
    assert fast._named() == [bare["written"]]
    assert len(fast._watch._kept) == 3  # but all are held


class Lazy:
    """Makes its tensors in the first call. It continues from them, as a dynamic cache of Transformers does or a static
    one that is empty; or not, as a table of angles or the last result."""

    def __init__(self, how: str) -> None:
        self.how, self.inner = how, {"seen": None}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        seen: Any = self.inner["seen"]
        if self.how == "grows":
            self.inner["seen"] = x if seen is None else torch.cat([seen, x])  # type: ignore[dict-item]
        elif self.how == "is a state":
            self.inner["seen"] = x if seen is None else seen / 2 + x  # type: ignore[dict-item]
        elif self.how == "is a result":
            self.inner["seen"] = torch.nn.functional.dropout(x)  # type: ignore[dict-item]
        else:
            self.inner["seen"] = torch.zeros(3) if seen is None else seen  # type: ignore[dict-item]
        if self.how == "counts":
            self.inner["seen"] += 1  # type: ignore[operator]
        return x + 1


@pytest.mark.parametrize("how", ["grows", "counts", "is a state", "is a table", "is a result"])
def test_a_cache_that_makes_its_tensors_in_warm_ups_is_refused_and_a_table_is_not(how: str) -> None:
    lazy = Lazy(how)
    fast, x = graphed(lambda x: lazy(x)), torch.ones(3)
    if how in ("is a table", "is a result"):
        assert torch.equal(fast(x), x + 1)
        return
    with pytest.raises(ValueError, match=r"makes tensors in an object that it names, .* give it a cache of fixed size"):
        fast(x)
    assert fast.graphs == ()
    if how == "counts":
        fast(x)  # once it has been called
        assert len(fast.graphs) == 1


def test_parameters_changed_in_place_are_read_and_moved_ones_captured_again() -> None:
    model = Block().eval()
    fast, x = graphed(model), torch.randn(3, 8)
    fast(x)
    fast(torch.randn(2, 8))
    model.load_state_dict(Block().state_dict())
    model.up.weight.mul_(2)
    assert torch.equal(fast(x), model(x))
    assert len(fast.graphs) == 2
    model.double()
    x = x.double()
    assert torch.equal(fast(x), model(x))
    assert len(fast.graphs) == 1
    model.down = nn.Linear(16, 8, dtype=torch.float64)
    assert torch.equal(fast(x), model(x))
    model.up.weight = nn.Parameter(torch.randn(16, 8, dtype=torch.float64))
    assert torch.equal(fast(x), model(x))
    (backend,) = StandIn.made
    assert backend.pools == 3
    assert sum(not one.freed for one in backend.played) == 1


def test_modes_of_modules_inside_and_other_dtypes_at_the_same_place_are_seen() -> None:
    model = nn.Sequential(Block(), nn.Dropout()).eval()
    fast, x = graphed(model), torch.ones(2, 8)
    fast(x)
    model[1].train()
    fast(x)
    assert StandIn.made[0].pools == 1
    model.register_buffer("table", torch.ones(4))
    watch = Watch([model])
    before = watch.state()
    assert watch.state() == before
    model.table = model.table.view(torch.int32)
    assert watch.state() != before


@pytest.mark.parametrize("kind", ["buffer", "attribute", "parameter"])
def test_another_shape_or_other_strides_at_the_same_place_are_seen(kind: str) -> None:
    class Table(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table * x.sum()

    model, whole = Table().eval(), numbers(4, 4)
    if kind == "buffer":
        model.register_buffer("table", whole)
    else:
        model.table = whole if kind == "attribute" else nn.Parameter(whole)
    fast, x = graphed(model), torch.ones(2)
    for table in (whole, whole[:2], whole[:2, :2], whole.t()):
        if kind == "parameter":
            model.table.data = table
        else:
            model.table = table
        assert torch.equal(fast(x), 2 * table)
    model.table = nn.Parameter(torch.eye(2).to_sparse()) if kind == "parameter" else torch.eye(2).to_sparse()
    state = fast._watch.state()
    assert fast._watch.state() == state


def test_a_table_that_grows_with_the_longest_input_frees_the_graphs_that_read_the_old_one() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.zeros(0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(self.table) < len(x):
                self.table = numbers(len(x))
            return x + self.table[: len(x)]

    model = Table().eval()
    fast = graphed(model)
    for size in (2, 5, 2, 3, 2):
        assert torch.equal(fast(torch.ones(size)), 1 + numbers(size))
    assert [graph.shapes["x"] for graph in fast.graphs] == [(5,), (2,), (3,)]
    assert [graph.replays for graph in fast.graphs] == [1, 2, 1]


def test_modules_are_found_behind_methods_and_functions() -> None:
    model = Block().eval()

    def named(x: torch.Tensor) -> torch.Tensor:
        return model(x).relu()

    class Engine:
        def __init__(self) -> None:
            self.model = model

        def step(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x)

    for function in (model, model.forward, named, lambda x: model(x), Engine().step, functools.partial(Engine().step)):
        fast = graphed(function)
        fast(x := torch.randn(2, 8))
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
        fast(x)
        assert StandIn.made[0].pools == 1
    told = graphed(lambda x: x, modules=[model])
    model.train()
    with pytest.raises(RuntimeError, match=r"Block is in training mode, but graphs are for inference: call .eval\(\)"):
        told(x)


def test_training_and_gradients_raise() -> None:
    model, x = Block(), torch.randn(2, 8)
    with pytest.raises(RuntimeError, match="Block is in training mode"):
        graphed(model)(x)
    model.eval()
    said = r"needs gradients, which a graph does not support: call it under torch.inference_mode\(\)"
    weight = torch.ones(8, requires_grad=True)
    with torch.enable_grad():
        with pytest.raises(RuntimeError, match=said):
            graphed(model)(x)
        with pytest.raises(RuntimeError, match=said):
            graphed(lambda x: x * 2)(x.clone().requires_grad_())
        fast = graphed(lambda x: x * weight)
        with pytest.raises(RuntimeError, match=said):
            fast(x)
        assert fast.graphs == ()
        assert graphed(lambda x: x * 2)(x).requires_grad is False
        with torch.inference_mode():
            assert torch.equal(fast(x), x)
    with torch.inference_mode():
        inside = torch.ones(3, 8) * 3
        assert torch.equal(fast(inside), inside)
    assert torch.equal(fast(inside), torch.full((3, 8), 3.0))
    assert fast(inside).add_(1).sum() == 96
    assert len(fast.graphs) == 2


def test_too_many_graphs_raise_and_say_what_changed() -> None:
    fast = graphed(lambda x, position, flag=True: x + position, max_graphs=3)
    x = torch.ones(2)
    for position in range(3):
        fast(x, position)
    with pytest.raises(RuntimeError, match=r"has 3 graphs already \(position changed\): use buckets .* reset\(\)"):
        fast(x, 3)
    fast(x, 2)
    assert fast.pool_bytes == 3 * 64
    fast.reset()
    assert (fast.graphs, fast.pool_bytes) == ((), 0)
    assert fast(x, 3).tolist() == [4.0, 4.0]


def filled(x: torch.Tensor, *places: Any, value: Any = 0.0) -> torch.Tensor:
    found = x.clone()
    found[places] = value
    return found


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x.sum().item(),
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x + len(x.unique()),
        lambda x: x.masked_select(x > 0),
        lambda x: x.index_put((x > 0,), x),
        lambda x: x.index_put((x > 0,), x[0], accumulate=True),
        lambda x: filled(x[None].mul(1), x[:1] > 0, torch.tensor([0])),
        lambda x: x.repeat_interleave(torch.ones(4, dtype=torch.int64)),
        lambda x: torch.equal(x, x) and x,
    ],
)
def test_what_waits_for_the_device_is_named_before_it_does(function: Any) -> None:
    with pytest.raises(
        Uncapturable, match=r"cannot be captured as a CUDA graph: aten\.\S+ waits for the device; remove .item"
    ):
        graphed(function)(torch.ones(4))
    assert StandIn.made[0].played == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[torch.tensor([0, 2])],
        lambda x: torch.where(x > 0, x, 0),
        lambda x: x.masked_fill(x > 0, 1.0),
        lambda x: filled(x, x > 0),
        lambda x: filled(x.expand(2, 3, 4).clone(), slice(None), x[:3] > 0),
        lambda x: x.repeat_interleave(torch.full((4,), 2), output_size=8),
        lambda x: x.double().to(torch.int32).long().float(),
        lambda x: x.topk(2).indices,
    ],
)
def test_what_does_not_wait_is_captured(function: Any) -> None:
    assert torch.equal(graphed(function)(x := torch.randn(4)), function(x))


def test_a_fill_by_a_mask_waits_if_its_value_is_on_the_device() -> None:
    waits, x = Waits(torch.device("meta"), "f"), torch.ones(4, device="meta")
    for device, expected in (("cpu", False), ("meta", True)):
        arguments = (x, [x > 0], torch.ones((), device=device))
        assert waits._waits(torch.ops.aten.index_put_.default, arguments, {}) is expected
    assert waits._waits(torch.ops.aten.index_put_.default, (x, [torch.ones(4) > 0], torch.ones(())), {})


def test_a_function_that_waits_only_outside_of_a_capture_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Transformers do, to take a faster way where a mask masks nothing."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.cuda.is_current_stream_capturing() or (x > 0).all() else x - 1

    assert graphed(function)(torch.ones(2)).tolist() == [2.0, 2.0]


def test_calls_are_plain_in_a_warm_up_and_in_a_capture_alike() -> None:
    """Else the capture would launch other kernels than were compiled, and not those for few rows."""
    seen, modes = list[bool](), list[int]()

    def function(x: torch.Tensor) -> torch.Tensor:
        seen.append(calls.is_plain(x))
        modes.append(torch._C._len_torch_dispatch_stack())
        return x + 1

    fast, x = graphed(function), torch.ones(2)
    fast(x)
    assert seen == [True] * 5
    assert modes == [0, 0, 1, 1, 1]  # the last warm-up, the capture, and what the stand-in replays
    with gs.profile_memory("cpu"):
        assert calls.is_plain(x)
        with FakeTensorMode():
            assert not calls.is_plain(x)
    with Mode():
        assert not calls.is_plain(x)
        with gs.profile_memory("cpu"):
            assert not calls.is_plain(x)


class Mode(TorchDispatchMode):
    """Some other program's."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_a_capture_that_fails_says_so_and_the_next_one_may_work() -> None:
    fast = graphed(lambda x: x + 1)
    fast(torch.ones(1))
    StandIn.made[0].fails = RuntimeError("operation not permitted when stream is capturing")
    with pytest.raises(Uncapturable, match="<lambda> cannot be captured as a CUDA graph: operation not permitted"):
        fast(torch.ones(2))
    StandIn.made[0].fails = None
    assert fast(torch.ones(2)).tolist() == [2.0, 2.0]
    assert len(fast.graphs) == 2


def test_an_error_of_the_function_is_its_own_and_leaves_all_as_it_was() -> None:
    def function(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache += 1
        raise KeyError("mine")

    fast, cache = graphed(function, in_place=["cache"]), torch.zeros(2)
    with pytest.raises(KeyError, match="mine"):
        fast(torch.ones(2), cache)
    assert cache.tolist() == [0.0, 0.0]
    assert fast.graphs == ()
    assert torch.is_autocast_cache_enabled()
    inner = graphed(lambda x: x + 1)
    inner(torch.ones(1))
    assert len(inner.graphs) == 1  # this thread does not believe that it captures


def test_one_inside_of_another_and_inside_of_somebody_elses_capture_is_a_part_of_it() -> None:
    inner = graphed(lambda x: x * 2)
    outer = graphed(lambda x: inner(x) + 1)
    assert outer(torch.ones(2)).tolist() == [3.0, 3.0]
    assert (len(outer.graphs), len(inner.graphs)) == (1, 0)
    inner(torch.ones(2))
    StandIn.made[-1].capturing = True
    assert inner(torch.ones(5)).tolist() == [2.0] * 5
    assert len(inner.graphs) == 1


def test_under_autocast_another_graph_is_played_and_nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    model, cached = Block().eval(), list[bool]()

    def function(x: torch.Tensor) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            cached.append(torch.is_autocast_cache_enabled())
        return model(x)

    fast, x = graphed(function), torch.randn(3, 8)
    assert fast(x).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fast(x).dtype == torch.bfloat16
        assert torch.equal(fast(x), model(x))
    assert fast(x).dtype == torch.float32
    assert len(fast.graphs) == 2
    assert cached[0] is False  # in the capture; the stand-in runs it again for each replay


def test_an_empty_tensor_and_no_tensor_at_all() -> None:
    fast = graphed(lambda x: x.sum(0), buckets={"x": {0: [4]}})
    assert fast(torch.ones(0, 3)).tolist() == [0.0] * 3
    assert fast.graphs == ()
    model = Block().eval()
    constant = graphed(lambda: model.up.weight * 2)
    assert torch.equal(constant(), model.up.weight * 2)
    model.up.weight.add_(1)
    assert torch.equal(constant(), model.up.weight * 2)
    assert len(constant.graphs) == 1


def test_threads_take_turns() -> None:
    fast, wrong = graphed(lambda x: (x * 2).flip(0) + 1), list[int]()

    def work(seed: int) -> None:
        with torch.no_grad():
            for k in range(60):
                x = torch.full((4 + seed % 2,), float(100 * seed + k))
                if not torch.equal(fast(x), x * 2 + 1):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(graph.replays for graph in fast.graphs) == 240


class Pair:
    """Of which PyTorch knows the parts but not what they are called."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


def test_parts_without_names_are_counted() -> None:
    pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda parts, _: Pair(*parts))
    try:
        fast = graphed(lambda pair, x: Pair(pair.a + x, pair.b))
        found = fast(Pair(torch.ones(2), 5), torch.ones(2))
        assert (found.a.tolist(), found.b) == ([2.0, 2.0], 5)
        assert list(fast.graphs[0].shapes) == ["pair (0)", "x"]
    finally:
        pytree._deregister_pytree_node(Pair)


class Opaque:
    pass


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: graphed(lambda x: x)(Opaque()), "argument 'x' is a Opaque, which a graph cannot hold: pass tensors"),
        (lambda: graphed(lambda x: x)({"a": [1, Opaque()]}), r"argument \"x\['a'\]\[1\]\" is a Opaque"),
        (lambda: graphed(lambda x: Opaque())(torch.ones(1)), "returns a Opaque, which a graph cannot hold"),
        (
            lambda: graphed(lambda x: x)(torch.eye(2).to_sparse()),
            r"is a Tensor \(torch.sparse_coo\): graphs support only plain",
        ),
        (lambda: gs.compile_graphs(3), "takes a function or a module, not int"),
    ],
)
def test_what_is_of_the_wrong_type_is_named(call: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"buckets": {"y": {0: [1]}}}, "buckets names 'y', but the arguments are: x"),
        ({"in_place": ["y"]}, "in_place names 'y'"),
        ({"in_place": "x"}, r"write in_place=\['x'\]"),
        ({"pad_value": {"y": 1}}, "pad_value names 'y'"),
        ({"buckets": {"x": {0: [1]}}, "in_place": ["x"]}, "cannot be both padded and used in place"),
        ({"buckets": {"x": (1, 2)}}, r"must map dimensions to sizes, such as \{1: \(1, 8, 64\)\}, not \(1, 2\)"),
        ({"buckets": {"x": {"0": [1]}}}, "must map dimensions to sizes"),
        ({"buckets": {"x": {0: []}}}, "must be sizes of at least 1"),
        ({"buckets": {"x": {0: [0, 4]}}}, "must be sizes of at least 1"),
        ({"buckets": {"x": {0: 4}}}, "must be sizes of at least 1, not 4"),
        ({"max_graphs": 0}, "max_graphs must be a whole number of at least 1"),
        ({"warmup": True}, "warmup must be a whole number of at least 1"),
        ({"impl": "fast"}, "impl='fast' is unknown; choose from auto, cuda, torch"),
    ],
)
def test_options_that_cannot_be_are_refused_at_once(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        gs.compile_graphs(lambda x: x, **options)


def test_buckets_of_what_is_no_tensor_or_has_too_few_dimensions_raise_and_none_is_left_out() -> None:
    fast = graphed(lambda x, mask=None: x + (0 if mask is None else mask), buckets={"mask": {0: [4]}})
    assert fast(torch.ones(2)).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="buckets names 'mask', which is not a tensor in this call"):
        fast(torch.ones(2), [torch.ones(2)])
    with pytest.raises(ValueError, match="buckets names 'mask', which is not a tensor in this call"):
        fast(torch.ones(2), 3)
    with pytest.raises(ValueError, match="dimension 0 of 'mask', which has 0 dimensions in this call"):
        fast(torch.ones(2), torch.ones(()))


def test_on_a_cpu_it_calls_straight_through_and_says_so_once() -> None:
    calls._said.clear()
    fast = gs.compile_graphs(lambda x: x + 1, buckets={"x": {0: (1, 4)}})
    with pytest.warns(
        UserWarning, match="compile_graphs falls back to PyTorch: CUDA graphs need an NVIDIA GPU"
    ) as seen:
        assert fast(torch.ones(3)).tolist() == [2.0] * 3
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(torch.ones(2))
        assert gs.compile_graphs(lambda x: x, impl="torch")(Opaque())
    with pytest.raises(ValueError, match="the largest bucket is 4"):
        fast(torch.ones(5))
    assert (fast.graphs, fast.pool_bytes) == ((), 0)
    fast.reset()
    with pytest.raises(NotImplementedError, match="the tensors are on cpu; impl='torch' or 'auto' can"):
        gs.compile_graphs(lambda x: x, impl="cuda")(torch.ones(1))


@pytest.mark.filterwarnings("ignore:groundspeed.compile_graphs")
def test_it_decorates_functions_and_a_compiler_sees_through_it() -> None:
    @gs.compile_graphs
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @gs.compile_graphs(max_graphs=2)
    def told(x: torch.Tensor) -> torch.Tensor:
        return plain(x) * 2

    assert told(torch.ones(1)).tolist() == [4.0]
    compiled = torch.compile(lambda x: told(x) + 1, backend="eager", fullgraph=True)
    assert compiled(torch.ones(1)).tolist() == [5.0]


def test_tensors_on_two_devices_are_named() -> None:
    fast = graphed(lambda x, y: x)
    with pytest.raises(ValueError, match="but 'x' is on cpu, 'y' is on meta: move them first"):
        fast(torch.ones(1), torch.ones(1, device="meta"))
