"""The cases of attention: the table of requirement A3, shapes in a user's words, and inputs that are never the same."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest
import torch

import groundspeed as gs
from groundspeed.case import Case
from groundspeed.errors import BadInput
from groundspeed.kernels.attention import reference
from groundspeed.kernels.attention.reference import TOLERANCE
from groundspeed.suites import attention
from groundspeed.suites.attention.cases import DTYPES, preset_cases, shape_cases
from groundspeed.suites.attention.shapes import DECODE, FORMS, RAGGED, SHAPES, Shape
from groundspeed.suites.inputs import random_tensors

TABLE_A3 = {
    "tiny": (1, 1, 32, 64),
    "small": (1, 1, 64, 64),
    "medium": (1, 1, 128, 64),
    "large": (1, 1, 256, 64),
    "xlarge": (1, 1, 512, 64),
    "multi-head": (2, 4, 128, 64),
    "t1": (1, 1, 128, 64),
    "t2": (8, 4, 128, 64),
    "t3": (32, 8, 128, 64),
    "t4": (32, 8, 256, 64),
    "ref-64": (16, 16, 2048, 64),
    "ref-128": (32, 32, 4096, 128),
    "claim": (16, 16, 1024, 128),
    **{
        f"sweep-d{D}-s{S}": (16384 // S, 2048 // D, S, D)
        for S in (512, 1024, 2048, 4096, 8192, 16384)
        for D in (64, 128, 256)
    },
}


def by_name() -> dict[str, Case]:
    return {name: case for case in attention.all_cases() for name in case.names}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", ["full", "causal"])
def test_a3_every_case_of_the_table_is_there_with_its_shape(dtype: str, mask: str) -> None:
    cases = by_name()
    for name, shape in TABLE_A3.items():
        case = cases[f"{name}-{mask}-{dtype}"]
        assert tuple(case.params[key] for key in "BHSD") == shape, name
        assert case.params["dtype"] == dtype
        assert case.params["causal"] is (mask == "causal")
        assert case.output_shape == shape
        assert case.arguments == {"causal": mask == "causal", "scale": shape[3] ** -0.5}
        B, H, S, _ = shape
        assert case.counts == {"tokens": B * S, "queries": B * H * S, "samples": B}


def test_a3_there_is_no_other_case() -> None:
    table = {f"{n}-{m}-{d}" for n in TABLE_A3 for m in ("full", "causal") for d in DTYPES}
    forms = {f"{n}-{m}-{d}" for n in (*FORMS, *RAGGED) for m in ("full", "causal") for d in DTYPES}
    assert set(by_name()) == table | forms | {f"{n}-full-{d}" for n in DECODE for d in DTYPES}


def test_a3_16_bit_floats_are_among_the_dtypes() -> None:
    assert {"fp16", "bf16"} <= set(DTYPES) == set(TOLERANCE)


@pytest.mark.parametrize(("name", "alias"), [("medium", "t1"), ("claim", "sweep-d128-s1024")])
@pytest.mark.parametrize("mask", ["full", "causal"])
def test_equal_shapes_under_two_names_are_measured_once(name: str, alias: str, mask: str) -> None:
    cases = by_name()
    case = cases[f"{name}-{mask}-bf16"]
    assert case is cases[f"{alias}-{mask}-bf16"]
    assert case.name == f"{name}-{mask}-bf16"
    assert case.aliases == (f"{alias}-{mask}-bf16",)


def test_no_work_is_measured_twice() -> None:
    work = [tuple(case.params.items()) for case in attention.all_cases()]
    assert (
        len(work) == len(set(work)) == ((len(TABLE_A3) - 2 + len(FORMS) + len(RAGGED)) * 2 + len(DECODE)) * len(DTYPES)
    )


def names(cases: list[Case]) -> list[str]:
    return [case.name for case in cases]


def test_quick_on_a_cpu_measures_what_was_declared() -> None:
    """statistics.md 15."""
    expected = {
        f"{shape}-{mask}-fp32"
        for shape in ("small", "medium", "large", "xlarge", "multi-head")
        for mask in ("full", "causal")
    }
    assert set(names(preset_cases("quick", "cpu"))) == expected
    assert len(preset_cases("quick", "cpu")) == 10


def test_quick_on_a_gpu_has_one_shape_of_each_kind() -> None:
    kinds = {name.rsplit("-", 2)[0] for name in names(preset_cases("quick", "cuda"))}
    assert kinds == {"xlarge", "t4", "claim", "ref-64"}


@pytest.mark.parametrize("preset", ["standard", "paper"])
def test_larger_presets_measure_all_on_a_gpu_and_the_smaller_shapes_on_a_cpu(preset: str) -> None:
    assert {c.name for c in preset_cases(preset, "cuda")} == {
        c.name
        for c in attention.all_cases()
        if c.params["dtype"] != "fp32" and not c.name.startswith(("form-", "decode-", "ragged-", "whole-"))
    }
    cpu = preset_cases(preset, "cpu")
    assert {c.params["dtype"] for c in cpu} == {"fp32"}
    named = {name.rsplit("-", 2)[0] for case in cpu for name in case.names}
    assert named == {"tiny", "small", "medium", "large", "xlarge", "multi-head", "t1", "t2", "t3", "t4"}


def test_a_shape_of_ones_own_works_like_a_named_case() -> None:
    (case,) = shape_cases("B=2,H=3,S=777,D=96,causal=1", ("bf16",))
    assert case.name == "b2-h3-s777-d96-causal-bf16"
    assert dict(case.params) == {"B": 2, "H": 3, "S": 777, "D": 96, "dtype": "bf16", "causal": True}
    assert case.work.flops == 4 * 2 * 3 * (777 * 778 // 2) * 96


def test_what_a_shape_does_not_say_has_a_value() -> None:
    cases = shape_cases("S=777", ("fp16", "fp32"))
    assert [c.name for c in cases] == [
        f"b1-h8-s777-d64-{mask}-{dtype}" for dtype in ("fp16", "fp32") for mask in ("full", "causal")
    ]
    assert shape_cases(" S=5 , D=16 ,causal=0", ("fp32",))[0].output_shape == (1, 8, 5, 16)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unknown key in --shape ''"),
        ("S=16,", "unknown key in --shape ''"),
        ("s=16", "unknown key in --shape 's'; did you mean"),
        ("SS=16", "unknown key in --shape 'SS'; did you mean S or sinks?"),
        (
            "casual=1",
            "did you mean causal? The keys are B, H, S, D, G, N, V, W, cap, sinks, lengths, causal.",
        ),
        ("S", "--shape S: S needs a whole number of at least 1, as in --shape S=777,D=96"),
        ("S=", "--shape S=: S needs a whole number"),
        ("S=x", "--shape S=x: S needs a whole number"),
        ("S=1.5", "--shape S=1.5: S needs a whole number"),
        ("S=-4", "--shape S=-4: S needs a whole number"),
        ("S=0", "--shape S=0: S needs a whole number"),
        ("S=1e3", "--shape S=1e3: S needs a whole number"),
        ("S=٣", "--shape S=٣: S needs a whole number"),
        ("S=²", "--shape S=²: S needs a whole number"),
        ("D=64,S=1,D=32", "--shape D=64,S=1,D=32: D is given twice"),
        ("causal=2", "--shape causal=2: causal must be 0 or 1"),
        ("sinks=2", "--shape sinks=2: sinks must be 0 or 1"),
        ("causal=yes", "--shape causal=yes: causal needs a whole number"),
        ("S=99999999999999999999", "--shape S=99999999999999999999: S is out of range"),
        ("B=100000,H=100000,S=100000", "--shape B=100000,H=100000,S=100000: that is more work"),
        ("S=" + "9" * 5000, "S is out of range"),
    ],
)
def test_every_error_in_a_shape_is_one_sentence_with_the_way_out(text: str, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        shape_cases(text, ("fp32",))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"B": 1, "H": 1, "S": 1, "D": 1, "dtype": "fp32"},
        {"B": 0, "H": 1, "S": 1, "D": 1, "dtype": "fp32", "causal": False},
        {"B": "x", "H": 1, "S": 1, "D": 1, "dtype": "fp32", "causal": False},
        {"B": 1, "H": 1, "S": 1, "D": 1, "dtype": "fp8", "causal": False},
        {"B": 1, "H": 4, "S": 1, "D": 1, "G": 3, "dtype": "fp32", "causal": False},
        {"B": 1, "H": 4, "S": 1, "D": 1, "G": 4, "dtype": "fp32", "causal": False},
        {"B": 1, "H": 4, "S": 1, "D": 1, "N": 0, "dtype": "fp32", "causal": False},
        {"B": 1, "H": 4, "S": 1, "D": 1, "N": -5, "dtype": "fp32", "causal": False},
        {"B": 1, "H": 4, "S": 1, "D": 1, "W": -5, "dtype": "fp32", "causal": False},
        {"B": 1, "H": 4, "S": 1, "D": 1, "cap": 0, "dtype": "fp32", "causal": False},
        {"B": 1, "H": 4, "S": 1, "D": 1, "sinks": 2, "dtype": "fp32", "causal": False},
    ],
)
def test_parameters_that_are_no_case_are_refused(params: dict[str, str | int | float | bool]) -> None:
    with pytest.raises(BadInput, match="not the parameters of an attention case"):
        attention.case_of_params(params)


def test_a_form_in_the_users_words() -> None:
    full, causal = shape_cases("B=1,H=4,G=2,S=40,D=16,W=7,cap=3,sinks=1", ("bf16",))
    assert full.name == "b1-h4-g2-s40-d16-w7-cap3-sinks-full-bf16"
    assert full.input_names == ("q", "k", "v", "sinks")
    assert [tuple(tensor.shape) for tensor in full.inputs(1, "cpu")][2:] == [(1, 2, 40, 16), (4,)]
    assert [case.arguments["window_size"] for case in (full, causal)] == [(7, 7), (7, 0)]
    assert causal.arguments["softcap"] == 3.0
    assert causal.work.flops == 4 * 4 * (8 * 40 - 28) * 16


@pytest.mark.parametrize("text", ["W=7", "W=7,cap=2", "cap=2", "sinks=1", "G=2,W=5,sinks=1,N=60", "W=500"])
def test_who_serves_a_form_agrees_with_its_oracle(text: str) -> None:
    by_name = {contender.name: contender for contender in attention.contenders()}
    for case in shape_cases(f"B=2,H=4,S=40,D=16,{text}", ("fp32",)):
        inputs = case.inputs(3, "cpu")
        case.refresh(inputs, case.inputs(4, "cpu"))
        expected = case.oracle(*inputs)
        built = partial(gs.attention, impl="torch")
        out = built(*inputs[:3], **case.arguments, **({"sinks": inputs[3]} if len(inputs) > 3 else {}))
        assert (out.reshape(-1, 16).double() - expected).abs().max() < 1e-4
        for name in ("sdpa-math", "sdpa-cudnn", "naive", "xformers"):
            assert str(by_name[name].supports(case, "cuda")).startswith("does not support ")
        in_16_bits = dataclasses.replace(case, params={**case.params, "dtype": "bf16"})
        assert by_name["flash-attn-4"].supports(in_16_bits, "cuda") is None
        assert (by_name["flex"].supports(case, "cuda") is None) == ("sinks" not in case.params)
        for name in ("ours-portable", "ours-hopper"):
            assert callable(by_name[name].build(case))


def test_every_file_of_our_kernels_is_part_of_who_is_made_of_them() -> None:
    """A record tells by their hashes whether a kernel is still the one that was measured."""
    home = Path(reference.__file__).parents[1]
    elsewhere = {"work.py", "tolerance.py", "rows.py", "activations.py"}
    elsewhere |= {f"attention/{name}.py" for name in ("reference", "pytorch", "paged", "paged_api")}
    elsewhere |= {f"attention/{name}.py" for name in ("append", "append_api")}
    files = (*home.glob("*.py"), *(home / "attention").rglob("*.py"))
    here = {str(file.relative_to(home)) for file in files if file.name != "__init__.py"} - elsewhere
    ours = [contender for contender in attention.contenders() if contender.name.startswith("ours-")]
    assert here == {str(Path(file).relative_to(home)) for contender in ours for file in contender.files}


def test_a_case_is_found_again_by_its_parameters() -> None:
    for case in attention.all_cases():
        again = attention.case_of_params(dict(case.params))
        assert (again.params, again.work, again.tolerance) == (case.params, case.work, case.tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a5_inputs_are_random_and_those_of_their_seed(dtype: str) -> None:
    shape = Shape(2, 3, 64, 32).query
    first, again, other = (random_tensors((shape,) * 3, dtype, seed, "cpu") for seed in (1, 1, 2))
    for a, b, c in zip(first, again, other, strict=True):
        assert torch.equal(a, b)
        assert a.data_ptr() != b.data_ptr()
        assert not torch.equal(a, c)
        assert tuple(a.shape) == shape
        assert a.is_contiguous()
        assert a.dtype == getattr(torch, {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[dtype])
    q, k, v = first
    assert not torch.equal(q, k)
    assert not torch.equal(k, v)


def test_a5_inputs_are_standard_normal() -> None:
    q, k, v = random_tensors(((4, 4, 128, 64),) * 3, "fp32", 3, "cpu")
    for tensor in (q, k, v):
        assert abs(float(tensor.mean())) < 0.02
        assert abs(float(tensor.std()) - 1) < 0.02
        assert int((tensor == 0).sum()) < 5
    assert abs(float((q * k).mean())) < 0.02


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_lie_elsewhere_in_memory_from_seed_to_seed_and_stay_aligned(dtype: str) -> None:
    offsets = []
    for seed in range(30):
        for tensor in random_tensors(((1, 1, 8, 16),) * 3, dtype, seed, "cpu"):
            assert tensor.data_ptr() % 64 == 0
            offsets.append(tensor.storage_offset() * tensor.element_size() // 64)
            assert tensor.untyped_storage().nbytes() >= tensor.storage_offset() * tensor.element_size() + tensor.nbytes
    assert min(offsets) < 8
    assert max(offsets) > 56
    assert len(set(offsets)) > 30


def test_the_tables_of_shapes_and_of_the_requirement_have_the_same_names() -> None:
    assert {name: shape.query for name, shape in SHAPES.items()} == TABLE_A3
    assert all(shape.key == shape.query for shape in SHAPES.values())


@pytest.mark.parametrize(
    ("text", "name", "key"),
    [
        ("B=2,H=8,S=7,D=16,G=2,N=33", "b2-h8-g2-s7-n33-d16", (2, 2, 33, 16)),
        ("H=8,S=7,D=16,G=2", "b1-h8-g2-s7-d16", (1, 2, 7, 16)),
        ("H=8,S=7,D=16,N=5", "b1-h8-s7-n5-d16", (1, 8, 5, 16)),
        ("H=8,S=7,D=16,G=8,N=7", "b1-h8-s7-d16", (1, 8, 7, 16)),
    ],
)
def test_groups_of_heads_and_other_keys_than_queries(text: str, name: str, key: tuple[int, ...]) -> None:
    for case in shape_cases(text, ("fp32",)):
        q, k, v = case.inputs(1, "cpu")
        assert case.name.startswith(f"{name}-")
        assert tuple(q.shape) == case.output_shape
        assert tuple(k.shape) == tuple(v.shape) == key
        assert attention.case_of_params(dict(case.params)).params == case.params
        group = q.shape[1] // k.shape[1]
        scores = q.double() @ k.repeat_interleave(group, 1).double().mT * case.arguments["scale"]
        if case.params["causal"]:
            M, N = scores.shape[-2:]
            scores = scores.masked_fill(torch.arange(N)[None] > torch.arange(M)[:, None] + N - M, float("-inf"))
        expected = scores.softmax(-1).nan_to_num() @ v.repeat_interleave(group, 1).double()
        torch.testing.assert_close(case.oracle(q, k, v), expected.reshape(-1, 16))
        rows = torch.tensor([0, 3, case.output_shape[2]])
        torch.testing.assert_close(case.oracle(q, k, v, rows=rows), expected.reshape(-1, 16)[rows])


def test_heads_that_are_no_multiple_are_refused() -> None:
    with pytest.raises(BadInput, match="H=8 is not a multiple of G=3"):
        shape_cases("H=8,G=3", ("fp32",))
