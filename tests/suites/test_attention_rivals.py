"""The rival libraries: called without a copy, in their layout and through their public function (A2)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from groundspeed.measure import gate
from groundspeed.suites.attention import shape_cases
from groundspeed.suites.attention.rivals import RIVALS

FLASH = """
import torch
calls = []
def sdpa(q, k, v, causal, scale):
    q, k, v = (x.transpose(-3, -2) for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    return out.transpose(-3, -2)
def flash_attn_func(q, k, v, *, softmax_scale, causal):
    calls.append((q, k, v))
    out = sdpa(q, k, v, causal, softmax_scale)
    return RESULT
def flash_attn_varlen_func(
    q, k, v, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale, causal
):
    calls.append((q, k, v))
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    assert type(max_seqlen_q) is int and max_seqlen_q == max_seqlen_k == max(cu_seqlens_q.diff().tolist())
    lengths = cu_seqlens_k.diff().tolist()
    parts = zip(*(x.split(lengths) for x in (q, k, v)))
    out = torch.cat([sdpa(*part, causal, softmax_scale) for part in parts])
    return RESULT
"""
WITHOUT_LSE, WITH_LSE = (FLASH.replace("RESULT", result) for result in ("out", "(out, None)"))
XFORMERS = """
import importlib.util
import torch
kernels = "PyTorch"
if importlib.util.find_spec("flash_attn"):
    from flash_attn.flash_attn_interface import kernels
calls = []
class LowerTriangularMask: ...
def memory_efficient_attention(q, k, v, *, attn_bias, scale):
    calls.append((q, k, v))
    if hasattr(attn_bias, "lengths"):
        return attn_bias.attention(q, k, v, scale)
    causal = isinstance(attn_bias, LowerTriangularMask)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    return out.transpose(1, 2)
"""
MASKS = """
import torch
class BlockDiagonalMask:
    causal = False
    @classmethod
    def from_seqlens(cls, q_seqlen, kv_seqlen=None, *, device=None):
        mask = cls()
        mask.lengths, mask.device = list(q_seqlen), device
        return mask
    def make_causal(self):
        mask = BlockDiagonalMask.from_seqlens(self.lengths, device=self.device)
        mask.causal = True
        return mask
    def attention(self, q, k, v, scale):
        assert q.device == self.device
        parts = zip(*((y.transpose(1, 2) for y in x.split(self.lengths, dim=1)) for x in (q, k, v)))
        sdpa = torch.nn.functional.scaled_dot_product_attention
        return torch.cat([sdpa(*part, is_causal=self.causal, scale=scale).transpose(1, 2) for part in parts], dim=1)
"""
LIBRARIES = {
    "xformers": {
        "xformers/__init__.py": "",
        "xformers/ops/__init__.py": XFORMERS,
        "xformers/ops/fmha/__init__.py": "",
        "xformers/ops/fmha/attn_bias.py": MASKS,
    },
    "flash-attn-2": {
        "flash_attn/__init__.py": WITHOUT_LSE,
        "flash_attn/flash_attn_interface.py": "kernels = 'FlashAttention 2'",
        "flash_attn_2_cuda.py": "",
    },
    "flash-attn-3": {"flash_attn_interface.py": WITHOUT_LSE},
    "flash-attn-4": {"flash_attn/cute/__init__.py": WITH_LSE},
}
"""Libraries of the same modules, signatures and results as the real ones: what is under test is how they are called."""
MODULES = {
    "xformers": "xformers.ops",
    "flash-attn-2": "flash_attn",
    "flash-attn-3": "flash_attn_interface",
    "flash-attn-4": "flash_attn.cute",
}
TOPS = {path.split("/")[0].removesuffix(".py") for files in LIBRARIES.values() for path in files}
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put libraries on the path; one that is installed here is not seen, and none is left in memory."""

    def imported() -> list[str]:
        return [name for name in sys.modules if name.split(".")[0] in TOPS]

    def put(*rivals: str) -> None:
        for path, text in (item for rival in rivals for item in LIBRARIES[rival].items()):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        importlib.invalidate_caches()

    for name in imported():
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    yield put
    for name in imported():
        del sys.modules[name]


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("name", RIVALS)
def test_a2_a_rival_gets_views_in_its_layout_and_gives_one_back(name: str, causal: int, install: Install) -> None:
    install(name)
    (case,) = shape_cases(f"B=2,H=3,S=33,D=16,causal={causal}", ("fp32",))
    inputs = case.inputs(0, "cpu")
    with torch.no_grad():
        out = RIVALS[name].build(case)(*inputs, **case.arguments)
    assert isinstance(out, torch.Tensor)  # the log-sum-exp is dropped
    (seen,) = sys.modules[MODULES[name]].calls
    assert [x.shape for x in seen] == [(2, 33, 3, 16)] * 3
    assert [x.data_ptr() for x in seen] == [x.data_ptr() for x in inputs]
    gate.check(case, inputs, out, gate.ask(case, inputs, 1000))


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("name", RIVALS)
def test_a2_a_rival_gets_packed_sequences_as_they_are(name: str, causal: int, install: Install) -> None:
    install(name)
    (case,) = shape_cases(f"H=3,D=16,lengths=33+1+2x8,causal={causal}", ("fp32",))
    inputs = case.inputs(0, "cpu")
    call = RIVALS[name].build(case)
    with torch.no_grad():
        out = [call(*inputs, **case.arguments) for _ in range(2)][1]
    seen = sys.modules[MODULES[name]].calls[-1]
    assert [x.data_ptr() for x in seen] == [x.data_ptr() for x in inputs[:3]]
    gate.check(case, inputs, out, gate.ask(case, inputs, 1000))


def test_an_early_flash_attn_3_also_returns_the_log_sum_exp(install: Install, tmp_path: Path) -> None:
    install("flash-attn-3")
    (tmp_path / "flash_attn_interface.py").write_text(WITH_LSE)
    (case,) = shape_cases("H=2,S=16,D=16,causal=0", ("fp32",))
    inputs = case.inputs(0, "cpu")
    gate.check(
        case, inputs, RIVALS["flash-attn-3"].build(case)(*inputs, **case.arguments), gate.ask(case, inputs, 1000)
    )


@pytest.mark.parametrize(("queries", "splits"), [(1, 0), (16, 0), (64, 0), (65, 1), (1024, 1)])
def test_flash_attn_3_splits_the_keys_of_few_queries(
    install: Install, tmp_path: Path, queries: int, splits: int
) -> None:
    """As its function for decoding does by itself; the one for everything else has to be asked."""
    install("flash-attn-3")
    code = "def flash_attn_func(q, k, v, softmax_scale=None, causal=False, num_splits=1):\n"
    code += "    asked.append(num_splits)\n    return q\nasked = []\n"
    (tmp_path / "flash_attn_interface.py").write_text(code)
    (case,) = shape_cases(f"H=2,S={queries},N=2048,D=16,causal=0", ("fp32",))
    RIVALS["flash-attn-3"].build(case)(*case.inputs(0, "cpu"), **case.arguments)
    assert sys.modules["flash_attn_interface"].asked == [splits]


@pytest.mark.parametrize("name", RIVALS)
def test_a2_what_is_not_installed_says_so(name: str, install: Install) -> None:
    if RIVALS[name].missing() is None:
        pytest.skip("it is installed here")
    assert RIVALS[name].missing() == f"{RIVALS[name].package} is not installed"
    install(name)
    assert RIVALS[name].missing() is None


def test_a2_flash_attn_4_alone_is_not_flash_attn_2(install: Install) -> None:
    """They share the folder."""
    install("flash-attn-4")
    assert RIVALS["flash-attn-4"].missing() is None
    assert RIVALS["flash-attn-2"].missing() == "flash_attn is not installed"


def test_a_package_that_does_not_load_says_why(install: Install, tmp_path: Path) -> None:
    install("flash-attn-2", "flash-attn-4")
    (tmp_path / "flash_attn" / "__init__.py").write_text("raise ImportError('undefined symbol')")
    assert RIVALS["flash-attn-4"].missing() == "flash_attn.cute cannot be imported: undefined symbol"


@pytest.mark.parametrize("first", ["xformers", "flash-attn-4"])
def test_xformers_and_flash_attn_4_can_be_measured_together(first: str, install: Install) -> None:
    install("xformers", "flash-attn-4")
    (case,) = shape_cases("H=2,S=16,D=16,causal=0", ("fp32",))
    inputs = case.inputs(0, "cpu")
    parents = []
    for name in (first, "flash-attn-4", "xformers", "flash-attn-4"):
        gate.check(case, inputs, RIVALS[name].build(case)(*inputs, **case.arguments), gate.ask(case, inputs, 1000))
        parents.append(sys.modules.get("flash_attn"))
    assert sys.modules["xformers.ops"].kernels == "PyTorch"
    assert parents[1] is parents[2] is parents[3] is not None  # as it was before xFormers came


def test_xformers_keeps_its_choice_of_flash_attn_2(install: Install) -> None:
    install("xformers", "flash-attn-2")
    RIVALS["xformers"].build(shape_cases("S=16,causal=0", ("fp32",))[0])
    assert sys.modules["xformers.ops"].kernels == "FlashAttention 2"


@pytest.mark.parametrize(
    ("name", "dtype", "D", "reason"),
    [
        *((name, dtype, D, None) for name in RIVALS for dtype in ("fp16", "bf16") for D in (8, 64, 96, 128, 256)),
        ("xformers", "fp32", 36, None),
        ("xformers", "fp32", 33, "only head dimensions that are multiples of 4"),
        ("xformers", "bf16", 36, "only head dimensions that are multiples of 8"),
        ("xformers", "bf16", 512, None),
        ("flash-attn-2", "bf16", 33, None),  # it pads
        ("flash-attn-3", "bf16", 33, "only head dimensions that are multiples of 8"),
        ("flash-attn-4", "fp16", 36, "only head dimensions that are multiples of 8"),
        *((f"flash-attn-{n}", "fp32", 64, "FP16 and BF16 only") for n in (2, 3, 4)),
        *((f"flash-attn-{n}", "fp16", 264, "head dimensions up to 256 only") for n in (2, 3, 4)),
    ],
)
def test_a2_a_case_that_a_rival_cannot_do_has_a_reason(name: str, dtype: str, D: int, reason: str | None) -> None:
    (case,) = shape_cases(f"S=16,D={D},causal=0", (dtype,))
    assert RIVALS[name].supports(case, "cuda") == reason


def test_a2_groups_of_heads_in_packed_sequences() -> None:
    case = shape_cases("H=8,G=2,lengths=33+8", ("bf16",))[0]
    assert {name: rival.supports(case, "cuda") for name, rival in RIVALS.items()} == {
        "xformers": "needs as many key heads as query heads",
        "flash-attn-2": None,
        "flash-attn-3": None,
        "flash-attn-4": None,
    }


def test_d9_the_versions_of_what_ran_are_known(install: Install, tmp_path: Path) -> None:
    for name, version in (("flash_attn_4", "4.0.0b1"), ("nvidia_cutlass_dsl", "4.8.1")):
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    versions = RIVALS["flash-attn-4"].version().split(", ")
    assert versions[:2] == ["flash-attn-4 4.0.0b1", "nvidia-cutlass-dsl 4.8.1"]
    assert versions[-1] == f"torch {torch.__version__}"
    assert "flash_attn" not in sys.modules


def test_d9_a_library_that_was_never_installed_has_no_version(install: Install) -> None:
    install("flash-attn-3")
    assert RIVALS["flash-attn-3"].version() == f"flash-attn-3 of unknown version, torch {torch.__version__}"
