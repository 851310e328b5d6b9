"""A kernel that is launched again is launched straight, with what Triton would have given it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from triton import knobs
from triton.backends.nvidia import driver as nvidia
from triton.experimental.gluon import language as gl
from triton.runtime import driver

from groundspeed.kernels import launch as launching
from groundspeed.kernels.launch import Box, Launcher, maker, maker_like

CPU = torch.device("cpu")


class Compiled:
    function, packed_metadata = "function", "metadata"

    def __init__(self, log: list[Any]) -> None:
        self.run = lambda *arguments: log.append(("straight", arguments))


class Kernel:
    """As Triton's: asked with a grid, it launches and returns what it compiled."""

    def __init__(self, log: list[Any], *, interpreted: bool = False) -> None:
        self.log, self.interpreted = log, interpreted

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, **named: Any) -> Any:
            self.log.append(("asked", grid, arguments, named))
            return None if self.interpreted else Compiled(self.log)

        return launch


class Driver:
    def __init__(self, encoded: list[Any] | None = None) -> None:
        self.encoded = encoded if encoded is not None else []

    @property
    def utils(self) -> Driver:
        return self

    def fill_tma_descriptor(self, *told: Any) -> str:
        self.encoded.append(told)
        return f"box {told[0]}"

    fill_tma_descriptor_tiled = fill_tma_descriptor

    def get_current_device(self) -> int:
        return 3

    def get_current_stream(self, device: int) -> str:
        return f"stream of {device}"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(type(driver), "active", property(lambda self: Driver()))
    return []


def launcher(kernel: Kernel) -> Launcher:
    return Launcher(kernel, (7, 1, 1), {"CAUSAL": True, "BLOCK": 64}, {"num_warps": 4}, CPU)


def test_the_first_time_triton_is_asked_and_then_no_more(log: list[Any]) -> None:
    launch = launcher(Kernel(log))
    launch("q", 1.0)
    launch("k", 2.0)
    asked = ("asked", (7, 1, 1), ("q", 1.0), {"CAUSAL": True, "BLOCK": 64, "num_warps": 4})
    told = (7, 1, 1, "stream of 3", "function", "metadata", None, None, None)
    assert log == [asked, ("straight", (*told, "k", 2.0, True, 64))]


def test_where_somebody_watches_launches_triton_is_asked(log: list[Any]) -> None:
    launch = launcher(Kernel(log))
    launch("q")
    seen = lambda metadata: None  # noqa: E731
    knobs.runtime.launch_enter_hook.add(seen)
    try:
        launch("q")
    finally:
        knobs.runtime.launch_enter_hook.remove(seen)
    launch("q")
    assert [entry[0] for entry in log] == ["asked", "asked", "straight"]


def test_what_is_interpreted_is_never_launched_straight(log: list[Any]) -> None:
    launch = launcher(Kernel(log, interpreted=True))
    for _ in range(3):
        launch("q")
    assert [entry[0] for entry in log] == ["asked"] * 3


def real(log: list[Any], signature: dict[int, str], forms: Any) -> Any:
    """What Triton compiled, with its own launcher in front of something that only notes what it is given."""
    run = object.__new__(nvidia.CudaLauncher)
    for name in ("global_scratch_size", "global_scratch_align", "profile_scratch_size", "profile_scratch_align"):
        setattr(run, name, 0)
    run.num_ctas, run.launch_cooperative_grid, run.launch_pdl = 1, False, False
    run.arg_annotations, run.kernel_signature = "annotations", "signature"
    flat = lambda told: [x for one in told for x in (one if isinstance(one, list | tuple) else [one])]  # noqa: E731
    run.launch = nvidia.wrap_handle_tensordesc(lambda *told: log.append(flat(told)), signature, forms)
    return SimpleNamespace(run=run, function="function", packed_metadata="metadata")


class TestStraight:
    """Past the Python of Triton's launcher, with what that would have handed on."""

    TOLD = (7, 1, 1, "stream of 3", "function", "metadata", None, None, None)

    def launched(self, compiled: Any) -> tuple[Launcher, Any]:
        kernel = {(7, 1, 1): lambda *arguments, **named: compiled}
        return Launcher(kernel, (7, 1, 1), {"CAUSAL": True}, {}, CPU), torch.empty(3)

    def test_addresses_instead_of_tensors(self, log: list[Any]) -> None:
        compiled = real(log, {0: "*fp32", 1: "i32", 2: "*fp32", 3: "constexpr"}, None)
        launch, x = self.launched(compiled)
        y = torch.empty(4)
        launch(x, 5, y)
        assert log == []  # that was Triton's own
        launch(y, 6, x)
        compiled.run(*self.TOLD, y, 6, x, True)
        as_triton = [one.data_ptr() if isinstance(one, torch.Tensor) else one for one in log[1]]
        assert log[0] == as_triton
        assert log[0][-4:] == [y.data_ptr(), 6, x.data_ptr(), True]

    def test_not_where_memory_is_made_for_each_launch(self, log: list[Any]) -> None:
        compiled = real(log, {0: "*fp32", 1: "constexpr"}, None)
        launch, x = self.launched(compiled)
        compiled.run.global_scratch_size = 16
        launch(x)
        compiled.run.global_scratch_size = 0
        launch(x)
        assert any(one is x for one in log[0]), "Triton's launcher was asked"

    def test_not_past_a_launcher_that_tells_otherwise(self, log: list[Any]) -> None:
        class Other:
            global_scratch_size = profile_scratch_size = 0

            def __call__(self, *told: Any) -> None:
                self.launch("first", *told)

        compiled = SimpleNamespace(run=Other(), function="function", packed_metadata="metadata")
        compiled.run.launch = lambda *told: log.append(told)
        launch, x = self.launched(compiled)
        for _ in range(2):
            launch(x)
        assert log == [("first", *self.TOLD, x, True)]

    def test_not_past_one_that_tells_nobody(self, log: list[Any]) -> None:
        class Silent:
            global_scratch_size = profile_scratch_size = 0
            launch = None

            def __call__(self, *told: Any) -> None:
                log.append(told)

        compiled = SimpleNamespace(run=Silent(), function="function", packed_metadata="metadata")
        launch, x = self.launched(compiled)
        launch(x)
        log.clear()
        launch(x)
        assert log == [(*self.TOLD, x, True)]


def test_what_is_made_again_and_again_is_contiguous() -> None:
    make = maker(CPU, ((2, 3, 4), torch.float16), ((2, 3), torch.float32), ((0, 5), torch.float32))
    for _ in range(2):
        made = make()
        assert [(tuple(x.shape), x.dtype, x.is_contiguous()) for x in made] == [
            ((2, 3, 4), torch.float16, True), ((2, 3), torch.float32, True), ((0, 5), torch.float32, True),
        ]  # fmt: skip


def test_what_is_made_like_others_lies_as_pytorch_has_it() -> None:
    turned = torch.empty(2, 5, 3, 8).transpose(1, 2)
    sliced, spread = torch.empty(4, 20, dtype=torch.float16)[:, :7], torch.empty(3, 1).expand(3, 4)
    for _ in range(2):
        for made, like in zip(maker_like(turned, sliced, spread)(), (turned, sliced, spread), strict=True):
            expected = torch.empty_like(like)
            assert (made.shape, made.stride(), made.dtype) == (expected.shape, expected.stride(), expected.dtype)


def test_on_a_gpu_as_pytorchs_compiler_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(launching, "_empty_strided_cuda", lambda *told: asked.append(told) or "fast")
    monkeypatch.setattr(launching, "_current_device", lambda: 1)
    assert maker(torch.device("cuda:1"), ((2, 3, 4), torch.float16), ((2,), torch.float32))() == ["fast", "fast"]
    assert asked == [((2, 3, 4), (12, 4, 1), torch.float16), ((2,), (1,), torch.float32)]
    make = maker(torch.device("cuda:1"), ((2, 3, 4), torch.float16))
    monkeypatch.setattr(launching, "_current_device", lambda: 0)
    monkeypatch.setattr(torch, "empty_strided", lambda shape, strides, dtype, device: device)
    assert make() == [torch.device("cuda:1")], "fast, it would be on the wrong one"


class TestBoxes:
    """Tensors of TMA: what Triton's launcher is told is what Triton would have told it, encoded once a place."""

    FORM: ClassVar = {"swizzle": 3, "elem_size": 2, "elem_type": 7, "block_size": [1, 64, 64], "fp4_padded": False}

    def compiled(self, log: list[Any]) -> Any:
        signature = {0: "tensordesc<bf16[1, 64, 64]>", 1: "tensordesc<bf16[1, 64, 64]>", 2: "fp32", 3: "constexpr"}
        return real(log, signature, [self.FORM, self.FORM])

    @pytest.fixture
    def parts(self, monkeypatch: pytest.MonkeyPatch) -> tuple[Launcher, Any, list[Any], list[Any]]:
        log: list[Any] = []
        encoded: list[Any] = []
        monkeypatch.setattr(type(driver), "active", property(lambda self: Driver(encoded)))
        compiled = self.compiled(log)
        kernel = {(7, 1, 1): lambda *arguments, **named: compiled}
        layout = gl.NVMMASharedLayout.get_default_for([1, 64, 64], gl.bfloat16)
        box = Box([2, 100, 64], [6400, 64, 1], [1, 64, 64], layout)
        return Launcher(kernel, (7, 1, 1), {"CAUSAL": True}, {}, CPU, (box, box)), compiled, log, encoded

    def test_as_triton_tells_it(self, parts: tuple[Launcher, Any, list[Any], list[Any]]) -> None:
        launch, compiled, log, _ = parts
        x, y = (torch.empty(2, 100, 64, dtype=torch.bfloat16) for _ in range(2))
        launch(x, y, 0.5)
        assert log == []  # that was Triton's own
        launch(x, y, 0.5)
        box = launch._boxes[0]
        told = (7, 1, 1, "stream of 3", "function", "metadata", None, None, None)
        compiled.run(*told, box.of(x), box.of(y), 0.5, True)
        assert log[0] == log[1]
        assert f"box {x.data_ptr()}" in log[0]

    def test_encoded_once_a_place(self, parts: tuple[Launcher, Any, list[Any], list[Any]]) -> None:
        launch, _, log, encoded = parts
        x, y, z = (torch.empty(2, 100, 64, dtype=torch.bfloat16) for _ in range(3))
        launch(x, y, 0.5)
        for one, other in ((x, y), (x, y), (x, z), (y, x), (x, y)):
            launch(one, other, 0.5)
        assert len(log) == 5
        assert [told[0] for told in encoded] == [t.data_ptr() for t in (x, y, z, y, x)]

    def test_not_too_many_are_kept(
        self, parts: tuple[Launcher, Any, list[Any], list[Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("groundspeed.kernels.launch.MOST_KEPT", 3)
        launch, _, log, encoded = parts
        tensors = [torch.empty(2, 100, 64, dtype=torch.bfloat16) for _ in range(6)]
        for x in (tensors[0], *tensors, *tensors):
            launch(x, x, 0.5)
        assert len(encoded) == 24, "of twelve calls, each with two places: none was kept for so long"
        assert [told.count(f"box {x.data_ptr()}") for x, told in zip(2 * tensors, log, strict=True)] == [2] * 12

    def test_a_launcher_that_is_made_otherwise_is_told_by_triton(
        self, parts: tuple[Launcher, Any, list[Any], list[Any]]
    ) -> None:
        launch, compiled, _, _ = parts
        said: list[Any] = []
        compiled.run = lambda *told: said.append(told)
        x = torch.empty(2, 100, 64, dtype=torch.bfloat16)
        for _ in range(2):
            launch(x, x, 0.5)
        (told,) = said
        assert told[9].base is x

    def test_so_is_one_whose_boxes_are_encoded_otherwise(
        self, parts: tuple[Launcher, Any, list[Any], list[Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        launch, compiled, log, _ = parts
        x = torch.empty(2, 100, 64, dtype=torch.bfloat16)
        with monkeypatch.context() as patch:
            patch.setattr(nvidia, "make_tensordesc_arg", lambda box, form, more: [])
            launch(x, x, 0.5)
        asked: list[Any] = []
        compiled.run.launch = lambda *told: asked.append(told)
        launch(x, x, 0.5)
        assert (len(asked), log) == (1, [])

    def test_threads_may_share_it(self, parts: tuple[Launcher, Any, list[Any], list[Any]]) -> None:
        launch, _, log, _ = parts
        x = torch.empty(2, 100, 64, dtype=torch.bfloat16)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: launch(x, x, 0.5), range(200)))
        assert len(log) >= 200 - 8
        assert all(told == log[0] for told in log)
