"""The contenders of attention: each is what its name says, and one that cannot run here says why (A2)."""

from __future__ import annotations

import importlib.util
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from groundspeed.lab import session
from groundspeed.lab.check import verify
from groundspeed.lab.request import Request
from groundspeed.measure import gate
from groundspeed.suites import registry
from groundspeed.suites.attention import contenders as module_contenders
from groundspeed.suites.attention import preset_contenders, shape_cases

CONTENDERS = registry.load("attention").contenders
ON_A_GPU = {
    "ours-portable": None,
    "ours-hopper": None,
    "sdpa-mem-efficient": None,
    "sdpa-cudnn": None,
    "xformers": "xformers",
    "flash-attn-2": "flash_attn",
    "flash-attn-3": "flash_attn_interface",
    "flash-attn-4": "flash_attn.cute",
}
UNWRITTEN = ("cutlass",)


def test_a2_every_contender_is_listed() -> None:
    on_a_cpu = {"sdpa-math", "sdpa-flash", "naive", "naive-compiled", "flex"}
    assert set(CONTENDERS) == on_a_cpu | set(ON_A_GPU) | set(UNWRITTEN)
    assert all(c.description for c in CONTENDERS.values())
    assert [c.name for c in module_contenders()] == list(CONTENDERS)


@pytest.mark.parametrize("name", ON_A_GPU)
def test_a2_what_needs_a_gpu_says_so_on_a_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ON_A_GPU[name]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    missing = f"; {package} is not installed" if package else ""
    assert CONTENDERS[name].absent("cpu") == f"needs an NVIDIA GPU{missing}"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "found")
    assert CONTENDERS[name].absent("cpu") == "needs an NVIDIA GPU"


@pytest.mark.parametrize("name", UNWRITTEN)
def test_a2_what_is_nowhere_says_so_everywhere(name: str) -> None:
    why = CONTENDERS[name].absent("cuda")
    assert why
    assert CONTENDERS[name].absent("cpu") == f"needs an NVIDIA GPU; {why}"


@pytest.mark.parametrize("name", UNWRITTEN)
def test_what_is_absent_cannot_be_built(name: str) -> None:
    """It raises; it never takes another's place."""
    with pytest.raises(RuntimeError):
        CONTENDERS[name].build(shape_cases("S=16", ("fp32",))[0])


def test_a2_a_package_whose_parent_is_missing_is_not_installed() -> None:
    """`find_spec` raises for it."""
    reason = CONTENDERS["flash-attn-4"].absent("cpu") or ""
    assert reason.startswith("needs an NVIDIA GPU")


@pytest.mark.parametrize("name", ["naive-compiled", "flex"])
def test_a2_compiling_needs_a_compiler(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/c++" if name == "c++" else None)
    assert CONTENDERS[name].absent("cpu") is None
    monkeypatch.setattr(shutil, "which", lambda name: None)
    reason = "torch.compile needs a C++ compiler, but neither g++ nor clang++ is on the PATH"
    assert CONTENDERS[name].absent("cpu") == reason


@pytest.mark.parametrize("name", ["sdpa-math", "sdpa-flash", "naive", "naive-compiled", "flex"])
def test_a2_without_torch_all_are_absent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert CONTENDERS[name].absent("cpu") == "torch is not installed: pip install 'groundspeed[torch]'"


@pytest.mark.parametrize("name", ["sdpa-math", "sdpa-flash", "naive"])
def test_d9_the_version_of_what_ran_is_known(name: str) -> None:
    assert CONTENDERS[name].version() == f"torch {torch.__version__}"


class Watch(TorchDispatchMode):
    """The operators that really run."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        self.seen.add(function.overloadpacket.__name__)
        return function(*arguments, **(options or {}))


FLASH = "_scaled_dot_product_flash_attention_for_cpu"


@pytest.mark.parametrize(("name", "flash"), [("sdpa-flash", True), ("sdpa-math", False), ("naive", False)])
@pytest.mark.parametrize("causal", [0, 1])
def test_a2_each_backend_is_forced(name: str, flash: bool, causal: int) -> None:
    (case,) = shape_cases(f"H=2,S=33,D=16,causal={causal}", ("fp32",))
    inputs = case.inputs(0, "cpu")
    watch = Watch()
    with torch.no_grad(), CONTENDERS[name].around(), watch:
        out = CONTENDERS[name].build(case)(*inputs, **case.arguments)
    assert (FLASH in watch.seen) is flash
    assert flash or any("bmm" in op or "matmul" in op for op in watch.seen)
    gate.check(case, inputs, out, gate.ask(case, inputs, 1000))


@pytest.mark.parametrize("problem", ["head dimensions differ", "three dimensions", "strides"])
def test_a2_a_backend_that_cannot_serve_raises_and_never_falls_back(problem: str) -> None:
    (case,) = shape_cases("H=2,S=16,D=16,causal=0", ("fp32",))
    q, k, v = case.inputs(0, "cpu")
    if problem == "head dimensions differ":
        v = torch.randn(1, 2, 16, 32)
    elif problem == "three dimensions":
        q, k, v = q[0], k[0], v[0]
    else:
        q, k, v = q.mT, k.mT, v.mT
    call = CONTENDERS["sdpa-flash"].build(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, on why it cannot
        with CONTENDERS["sdpa-flash"].around(), pytest.raises(RuntimeError, match="No available kernel"):
            call(q, k, v, **case.arguments)
        with CONTENDERS["sdpa-math"].around():
            call(q, k, v, **case.arguments)


def test_forcing_ends_with_the_interval() -> None:
    (case,) = shape_cases("H=2,S=16,D=16,causal=0", ("fp32",))
    inputs = case.inputs(0, "cpu")
    with CONTENDERS["sdpa-math"].around():
        pass
    watch = Watch()
    with torch.no_grad(), watch:
        CONTENDERS["sdpa-math"].build(case)(*inputs, **case.arguments)
    assert FLASH in watch.seen  # PyTorch's own choice again


def test_quick_on_a_cpu_measures_the_two_backends() -> None:
    """statistics.md 15."""
    assert preset_contenders("quick", "cpu") == ("sdpa-math", "sdpa-flash")
    assert "sdpa-cudnn" in (preset_contenders("quick", "cuda") or ())
    assert "naive" not in (preset_contenders("standard", "cuda") or ())
    assert preset_contenders("standard", "cpu") is None


@pytest.mark.slow
def test_a2_what_is_compiled_really_runs_here_and_passes_the_gate(tmp_path: Path) -> None:
    """FlexAttention with a mask and the compiled naive one, in a real worker."""
    if reason := CONTENDERS["flex"].absent("cpu"):
        pytest.skip(reason)
    request = Request(
        "attention",
        "quick",
        shape=("S=32,D=16,H=1,causal=1",),
        only=("flex", "naive-compiled"),
        processes=1,
        warmup_s=0.01,
        timeout_s=60.0,
        out=tmp_path,
    )
    made = session.run(request)
    verify(made.path)
    outcomes = {o.contender: o for o in made.record.outcomes}
    assert {name: (o.status, o.reason) for name, o in outcomes.items()} == {
        "sdpa-math": ("PASSED", None),
        "naive-compiled": ("PASSED", None),
        "flex": ("PASSED", None),
    }
    case = made.record.cases[0].name
    assert all(len(made.record.seconds[0, case, name]) >= 10 for name in outcomes)


@pytest.mark.parametrize("name", ["sdpa-math", "sdpa-flash", "naive"])
@pytest.mark.parametrize("text", ["B=2,H=4,G=2,S=7,N=33,D=16", "H=4,G=1,S=1,N=50,D=16", "H=4,G=2,S=12,D=16"])
def test_groups_of_heads_and_more_keys_than_queries(name: str, text: str) -> None:
    for case in shape_cases(text, ("fp32",)):
        contender = CONTENDERS[name]
        assert contender.supports(case, "cpu") is None
        q, k, v = case.inputs(1, "cpu")
        with contender.around():
            out = contender.build(case)(q, k, v, **case.arguments)
        torch.testing.assert_close(out.reshape(-1, 16).double(), case.oracle(q, k, v), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["sdpa-math", "sdpa-flash"])
def test_a_mask_for_more_keys_than_queries_is_made_once(name: str) -> None:
    """PyTorch's own makes it anew in every call for a backend that takes none but tensors."""
    case = shape_cases("H=2,S=7,N=33,D=16,causal=1", ("fp32",))[0]
    contender, inputs = CONTENDERS[name], case.inputs(1, "cpu")
    call = contender.build(case)
    seen: list[set[str]] = []
    for _ in range(2):
        with contender.around(), torch.profiler.profile() as profile:
            call(*inputs, **case.arguments)
        seen.append({event.key for event in profile.key_averages()})
    assert "aten::triu" in seen[0]
    assert not {"aten::triu", "aten::tril", "aten::ones", "aten::masked_fill_"} & seen[1]


@pytest.mark.parametrize("name", ["sdpa-math", "sdpa-flash", "sdpa-cudnn", "naive"])
def test_who_gives_nan_where_a_row_sees_no_key_says_so(name: str) -> None:
    full, causal = shape_cases("S=9,N=5", ("bf16",))
    assert CONTENDERS[name].supports(full, "cuda") is None
    assert "NaN" in str(CONTENDERS[name].supports(causal, "cuda"))


def test_who_has_no_groups_says_so() -> None:
    case = shape_cases("H=8,G=2", ("bf16",))[0]
    for name in ("sdpa-mem-efficient", "xformers"):
        assert "as many key heads as query heads" in str(CONTENDERS[name].supports(case, "cuda"))
