"""C3: a memory profile on the host: known allocations give known peaks, by phase, and results are those without it."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import groundspeed as gs
from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.report import page

KIB = 1024
FLOATS = KIB // 4


def block(kib: int) -> Any:
    return torch.empty(kib * FLOATS)


def test_known_allocations_have_a_known_peak_timeline_and_end() -> None:
    with gs.profile_memory("cpu") as memory:
        a = block(64)
        b = block(32)
        del b
        c = block(16)
        del a
    assert memory.peak_bytes == 96 * KIB
    assert [level for _, level in memory.timeline] == [n * KIB for n in (0, 64, 96, 64, 80, 16, 16)]
    assert [one.bytes for one in memory.largest] == [64 * KIB, 32 * KIB]
    assert (memory.use.before_bytes, memory.use.after_bytes) == (0, 16 * KIB)
    assert [at for at, _ in memory.timeline] == sorted(at for at, _ in memory.timeline)
    del c


def test_what_is_largest_is_told_with_shape_dtype_operator_and_place() -> None:
    with gs.profile_memory("cpu") as memory:
        kept = torch.zeros(3, 5, dtype=torch.float64)
    (one,) = memory.largest
    assert (one.bytes, one.shape, one.dtype, one.op) == (120, (3, 5), "float64", "aten.zeros")
    line = inspect.getsourcelines(test_what_is_largest_is_told_with_shape_dtype_operator_and_place)[1] + 2
    assert one.where is not None
    assert one.where.endswith(f"test_profile_memory.py:{line} {inspect.currentframe().f_code.co_name}")  # type: ignore[union-attr]
    assert kept.sum() == 0


def test_phases_have_their_own_peaks_and_what_they_leave() -> None:
    kept = []
    with gs.profile_memory("cpu") as memory:
        base = block(10)
        for kib in (5, 1, 3):
            with memory.phase("step"):
                kept.append(block(2))
                block(kib)
        with memory.phase("free"):
            del base
            with memory.phase("inner"):
                block(1)
    step, free, inner = (memory.phases[name] for name in ("step", "free", "free/inner"))
    assert list(memory.phases) == ["step", "free", "free/inner"]
    assert (step.times, step.peak_bytes, step.added_bytes, step.kept_bytes) == (3, 19 * KIB, 7 * KIB, 6 * KIB)
    assert [one.bytes for one in step.largest] == [n * KIB for n in (10, 3, 2, 2, 2)]
    assert (free.peak_bytes, free.added_bytes, free.kept_bytes) == (16 * KIB, 0, -10 * KIB)
    assert (inner.peak_bytes, inner.added_bytes, inner.kept_bytes) == (7 * KIB, KIB, 0)
    assert [span.name for span in memory.use.spans] == ["step"] * 3 + ["free/inner", "free"]


def test_views_operators_in_place_and_tensors_from_before_are_no_new_memory() -> None:
    before = block(64)
    with gs.profile_memory("cpu") as memory:
        before.view(4, -1).t().add_(1)
        before.detach().numpy()
        own = block(8)
        views = [own.view(2, -1), own[3:], own.t(), own.expand(7, -1)]
        own.add_(1).relu_()
        torch.add(own, 1, out=own)
        torch.from_numpy(before.numpy())
        del before
    assert memory.peak_bytes == memory.use.after_bytes == 8 * KIB
    assert len(memory.largest) == 1
    del views


def test_a_view_keeps_its_memory_alive_and_so_does_autograd() -> None:
    with gs.profile_memory("cpu") as memory:
        view = block(8)[:1]
        with memory.phase("saved"):
            x = torch.ones(FLOATS, requires_grad=True)
            y = (x * 2).exp().sum()  # the result of exp is saved
        with memory.phase("backward"):
            y.backward()
        with memory.phase("freed"):
            del y
    assert memory.phases["saved"].kept_bytes == 2 * KIB + 4
    assert memory.phases["backward"].kept_bytes == 0  # what was saved becomes free, the gradient stays
    assert memory.use.after_bytes == 8 * KIB + 2 * KIB
    assert view is not None


def test_constructors_loading_and_resizing_count(tmp_path: Path) -> None:
    torch.save(block(4), tmp_path / "x.pt")
    with gs.profile_memory("cpu") as memory:
        with memory.phase("constructor"):
            made = torch.tensor([1.0] * FLOATS)
        with memory.phase("load"):
            loaded = torch.load(tmp_path / "x.pt")
        with memory.phase("resize"):
            made.resize_(3 * FLOATS)
        with memory.phase("storage"):
            made.untyped_storage().resize_(0)
            torch.numel(made[:0])
        with memory.phase("met"):
            made.untyped_storage().resize_(5 * KIB)
            made.sum()
    assert [phase.kept_bytes // KIB for phase in memory.phases.values()] == [1, 4, 2, -3, 5]
    del loaded


def test_an_exception_passes_through_and_the_profile_still_reports() -> None:
    reported: list[Any] = []
    memory = gs.profile_memory("cpu", report=reported.append)

    def fail() -> None:
        with memory, memory.phase("outer"), memory.phase("inner"):
            block(3)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert reported == [memory]
    assert memory.phases["outer/inner"].peak_bytes == memory.peak_bytes == 3 * KIB
    assert "The profile was ended by ValueError." in str(memory)
    block(1)  # nobody looks any more
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_profile_that_cannot_be_made_hides_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("of the profile")

    monkeypatch.setattr("groundspeed.measure.memory_profile.MemoryUse", fail)
    with pytest.raises(KeyError, match="inside"), gs.profile_memory("cpu"):
        raise KeyError("inside")
    with pytest.raises(RuntimeError, match="of the profile"), gs.profile_memory("cpu"):
        pass


def test_profiles_lie_inside_of_each_other_and_one_begins_anew() -> None:
    with gs.profile_memory("cpu") as outer:
        a = block(4)
        inner = gs.profile_memory("cpu")
        with inner:
            block(2)
        first = inner.peak_bytes
        with inner:
            block(1)
        with inner, pytest.raises(RuntimeError, match="already open"):
            inner.__enter__()
        a.add_(1)
    assert (outer.peak_bytes, first, inner.peak_bytes) == (6 * KIB, 2 * KIB, 0)
    assert inner.use.resident_bytes is None
    assert outer.use.resident_bytes is None or outer.use.resident_bytes > 2**20


def test_the_decorator_keeps_name_signature_and_result_and_profiles_each_call() -> None:
    reports: list[int] = []

    @gs.profile_memory("cpu", report=lambda memory: reports.append(memory.peak_bytes))
    def work(kib: int, *, twice: bool = False) -> Any:
        """Made."""
        with work.memory.phase("make"):  # type: ignore[attr-defined]
            return block(2 * kib if twice else kib)

    assert (work.__name__, work.__doc__) == ("work", "Made.")
    assert list(inspect.signature(work).parameters) == ["kib", "twice"]
    assert work(3).shape == (3 * FLOATS,)
    work(3, twice=True)
    assert reports == [3 * KIB, 6 * KIB]
    assert work.memory.phases["make"].kept_bytes == 6 * KIB  # type: ignore[attr-defined]

    class Model(torch.nn.Module):
        @gs.profile_memory("cpu")
        def forward(self, x: Any) -> Any:
            return x + 1

    assert torch.equal(Model()(torch.ones(2)), torch.full((2,), 2.0))


def test_what_cannot_be_decorated_or_asked_says_so() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def coroutine() -> None: ...

    async def both() -> AsyncIterator[int]:
        yield 1

    class Called:
        async def __call__(self) -> None: ...

    for function in (generator, coroutine, both, functools.partial(generator), Called()):
        with pytest.raises(TypeError, match="is a generator or async: use `with"):
            gs.profile_memory("cpu")(function)
    with pytest.raises(TypeError, match=r"write @gs.profile_memory\(report=print\)"):
        gs.profile_memory(generator)
    with pytest.raises(TypeError, match="decorates functions, not int"):
        gs.profile_memory("cpu")(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the number of allocations"):
        gs.profile_memory(largest=-1)
    with pytest.raises(NotImplementedError, match="not on meta; try 'cpu'"), gs.profile_memory("meta"):
        pass
    for wrong in ("gpu", 1.5):
        with (
            pytest.raises(ValueError, match=r"is not a device; use 'cpu', 'cuda', or a number as in 'cuda:1'"),
            gs.profile_memory(wrong),
        ):
            pass
    memory = gs.profile_memory("cpu")
    with pytest.raises(RuntimeError, match="has not been entered yet"):
        memory.peak_bytes  # noqa: B018
    with pytest.raises(RuntimeError, match="needs an open profile"):
        memory.phase("x")
    assert str(memory) == "profile_memory, not entered"
    with memory:
        with pytest.raises(RuntimeError, match="still open"):
            memory.peak_bytes  # noqa: B018
        for name in ("", "x" * 201, "\udc80", None):
            with pytest.raises(ValueError, match="1 to 200 characters"):
                memory.phase(name)  # type: ignore[arg-type]
        failed: list[BaseException] = []

        def elsewhere() -> None:
            try:
                memory.phase("x")
            except RuntimeError as error:
                failed.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert "the thread that entered" in str(failed[0])
    with pytest.raises(ValueError, match=r"must end in .svg or .html"):
        memory.chart("memory.png")


def test_other_threads_are_not_counted() -> None:
    with gs.profile_memory("cpu") as memory:
        thread = threading.Thread(target=lambda: block(64))
        thread.start()
        thread.join()
        block(1)
    assert memory.peak_bytes == KIB


def test_results_and_gradients_are_those_without_it_and_a_compiled_function_stays_one() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    x = torch.randn(5, 16)

    def step() -> list[Any]:
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters())]

    expected = step()
    with gs.profile_memory("cpu") as memory:
        found = step()
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert memory.peak_bytes > 0
    graphs: list[int] = []

    def backend(graph: Any, example: Any) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    compiled = torch.compile(lambda x: x.sin().cos() + 1, backend=backend)
    with gs.profile_memory("cpu"):
        assert torch.equal(compiled(x), x.sin().cos() + 1)
    assert len(graphs) == 1


def test_a_sparse_tensor_is_named_as_not_counted() -> None:
    with gs.profile_memory("cpu") as memory:
        torch.eye(4).to_sparse()
    assert memory.peak_bytes == 64
    assert "such as sparse ones, are not counted; 1 were seen." in str(memory)


def test_saved_and_loaded_it_is_the_same_and_damage_is_named(tmp_path: Path) -> None:
    with gs.profile_memory("cpu") as memory, memory.phase("äöü\u202e</script>"):
        block(3)
    memory.save(tmp_path / "memory.json")
    loaded = gs.profile_memory.load(tmp_path / "memory.json")
    assert loaded.use == memory.use
    assert str(loaded) == str(memory)
    with loaded:
        pass
    assert loaded.peak_bytes == 0
    for content, said in (("[", "not readable as JSON"), ("{}", "is missing"), ('{"schema": 2}', "reads schema 1")):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(BadInput, match=said):
            gs.profile_memory.load(tmp_path / "bad.json")
    with pytest.raises(BadInput, match="cannot read "):
        gs.profile_memory.load(tmp_path / "none.json")


def test_without_the_extra_a_chart_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gs.profile_memory("cpu") as memory:
        block(1)
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    monkeypatch.setattr(page, "_environment", page._environment.__wrapped__)
    with pytest.raises(GroundspeedError, match=r"pip install 'groundspeed\[report\]'"):
        memory.chart(tmp_path / "memory.svg")
    memory.save(tmp_path / "memory.json")


@pytest.mark.parametrize("write", [gs.profile_memory.save, gs.profile_memory.chart])
def test_a_folder_that_is_not_there_is_one_sentence_with_the_way_out(tmp_path: Path, write: Any) -> None:
    with gs.profile_memory("cpu") as memory:
        block(1)
    folder = tmp_path / "nowhere"
    with pytest.raises(BadInput, match=f"there is no folder {folder}; make it, or choose another"):
        write(memory, folder / "memory.svg")
    assert not folder.exists()
