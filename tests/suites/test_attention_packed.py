"""Packed sequences as cases of attention: how their lengths are told, what is counted, and that nobody sees another."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groundspeed.case import Case
from groundspeed.errors import BadInput
from groundspeed.lab import session
from groundspeed.lab.check import verify
from groundspeed.lab.request import Request
from groundspeed.measure import exam, gate
from groundspeed.suites import attention, registry
from groundspeed.suites.attention import preset_skips, pytorch, pytorch_packed, shape_cases
from groundspeed.suites.attention.shapes import MAX_LENGTHS_TEXT, PACKED, lengths_of, lengths_text

CONTENDERS = registry.load("attention").contenders
CASES = {case.name: case for case in attention.all_cases()}
PLAIN = {"H": 4, "D": 16, "lengths": "5+1+2x9", "dtype": "fp32", "causal": False}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("mask", ["full", "causal"])
def test_packed_cases_have_as_many_tokens_as_the_sweep(name: str, mask: str) -> None:
    for dtype in attention.DTYPES:
        case = CASES[f"{name}-{mask}-{dtype}"]
        lengths = lengths_of(case.params["lengths"])
        assert case.counts["tokens"] == sum(lengths) == 16384
        assert case.counts["samples"] == len(lengths)
        assert case.arguments["max_seqlen"] == max(lengths)
        assert case.output_shape == (16384, case.params["H"], case.params["D"])
        assert not {"B", "S", "N"} & set(case.params)


@pytest.mark.parametrize("mask", ["full", "causal"])
def test_even_sequences_are_the_work_of_dense_ones(mask: str) -> None:
    packed, dense = (CASES[f"{name}-{mask}-bf16"] for name in ("form-packed-even-d128", "sweep-d128-s2048"))
    assert packed.work == dense.work
    assert packed.counts == dense.counts


def test_lengths_differ_and_are_odd_too() -> None:
    lengths = lengths_of(CASES["form-packed-d64-full-bf16"].params["lengths"])
    assert len(set(lengths)) == len(lengths) == 12
    assert max(lengths) > 100 * min(lengths)
    assert any(length % 2 for length in lengths)


@given(st.lists(st.sampled_from([1, 2, 7, 64, 4096, 10**9 - 1]), min_size=1, max_size=10))
def test_lengths_are_read_as_they_were_written(lengths: list[int]) -> None:
    assert lengths_of(lengths_text(lengths)) == tuple(lengths)


def test_lengths_are_told_in_one_way() -> None:
    (case,) = shape_cases("H=4,D=16,lengths=5+1+9+9,causal=0", ("fp32",))
    assert case.name == "packed-h4-d16-5+1+2x9-full-fp32"
    assert dict(case.params) == PLAIN
    again = attention.case_of_params(dict(case.params))
    assert (again.name, again.params, again.work, again.counts) == (case.name, case.params, case.work, case.counts)


@pytest.mark.parametrize(
    "change",
    [
        *({"lengths": text} for text in ("", "0", "5+", "+5", "5+0", "05", "1x5", "0x5", "x5", "5x", "2x2x5", "-5")),
        *({"lengths": text} for text in ("9+9", "2x9+9", " 5", "5 +1", "5,1", "5.0", "1e3", "٣", "²", "5\n", "1" * 10)),
        *({"lengths": text} for text in ("9999x1", "10000x1", "+".join(["12"] * 50), "1" * 10**6)),
        *({"lengths": value} for value in (5, 5.0, True, None, ["5"], ("5", "1"))),
        *({key: 1} for key in "BSN"),
        {"G": 3},
        {"G": 4},
        {"V": 16},
        {"H": 0},
        {"sinks": 2},
        {"dtype": "fp8"},
        {"clock": "default"},
    ],
    ids=lambda change: f"{change!r:.40}",
)
def test_parameters_that_are_no_packed_case_are_refused(change: dict[str, Any]) -> None:
    attention.case_of_params(dict(PLAIN))
    with pytest.raises(BadInput, match="not the parameters of an attention case") as caught:
        attention.case_of_params({**PLAIN, **change})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lengths", "--shape lengths: lengths must be whole numbers, as in 300+17+4x64"),
        ("lengths=5+x", "--shape lengths=5+x: lengths must be whole numbers, as in 300+17+4x64"),
        ("lengths=0", "lengths must be whole numbers"),
        ("lengths=5,lengths=5", "lengths is given twice"),
        ("lengths=5,B=2", "--shape lengths=5,B=2: packed sequences take lengths instead of B and S; leave out B"),
        ("S=9,lengths=5", "packed sequences take lengths instead of B and S; leave out S"),
        ("lengths=" + "5+" * 200 + "5", f"lengths must be text of up to {MAX_LENGTHS_TEXT} characters"),
        ("lengths=9999x9", "at most 4096 sequences"),
        ("lengths=4000x999999999", "that is more work than any machine can do"),
    ],
)
def test_every_error_in_lengths_is_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        shape_cases(text, ("fp32",))
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("dtype", attention.DTYPES)
def test_where_sequences_lie_stays_and_all_else_is_new(dtype: str) -> None:
    (case,) = shape_cases("H=4,G=2,D=16,lengths=50+3+2x20,sinks=1,causal=0", (dtype,))
    first, other = case.inputs(1, "cpu"), case.inputs(2, "cpu")
    before, changed = [tensor.clone() for tensor in first], set()
    for _ in range(30):  # one may stay now and then, by chance
        case.refresh(first, tuple(tensor.clone() for tensor in first))
        changed |= {i for i, (now, then) in enumerate(zip(first, before, strict=True)) if not torch.equal(now, then)}
    assert changed == {0, 1, 2, 3}
    assert case.input_names == ("q", "k", "v", "sinks", "cu_seqlens")
    assert [tuple(x.shape) for x in first] == [(93, 4, 16), (93, 2, 16), (93, 2, 16), (4,), (5,)]
    assert not any(torch.equal(a, b) for a, b in zip(first[:3], other[:3], strict=True))
    for cu in (first[-1], other[-1]):
        assert cu.dtype == torch.int32
        assert cu.tolist() == [0, 50, 53, 73, 93]
    assert torch.equal(first[0].flatten().sort().values, before[0].flatten().sort().values)


def alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: list[int], causal: bool) -> torch.Tensor:
    """All tokens at once, and a mask of those that are no pair."""
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    seen = sequence[:, None] == sequence
    seen = seen.tril() if causal else seen
    q, k, v = (x.transpose(0, 1).double() for x in (q, k, v))
    k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
    scores = (q @ k.mT * q.shape[2] ** -0.5).masked_fill(~seen, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(0, 1).reshape(-1, v.shape[2])


@pytest.mark.parametrize("heads", ["H=4", "H=4,G=2", "H=3,G=1,V=8"])
def test_the_oracle_answers_for_each_sequence_by_itself(heads: str) -> None:
    for case in shape_cases(f"{heads},D=16,lengths=30+1+2x7", ("fp32",)):
        q, k, v, cu = case.inputs(1, "cpu")
        expected = alone(q, k, v, [30, 1, 7, 7], bool(case.params["causal"]))
        torch.testing.assert_close(case.oracle(q, k, v, cu), expected)
        rows = torch.tensor([0, 91, 92, 100, len(expected) - 1])
        torch.testing.assert_close(case.oracle(q, k, v, cu, rows=rows), expected[rows])


def run(name: str, case: Case) -> tuple[tuple[Any, ...], Any]:
    inputs = case.inputs(3, "cpu")
    with torch.no_grad(), CONTENDERS[name].around():
        return inputs, CONTENDERS[name].build(case)(*inputs, **case.arguments)


@pytest.mark.parametrize("name", ["sdpa-math", "naive"])
@pytest.mark.parametrize("heads", ["H=4", "H=4,G=2"])
def test_who_runs_on_a_cpu_passes_the_gate(name: str, heads: str) -> None:
    for case in shape_cases(f"{heads},D=16,lengths=30+1+2x7", attention.DTYPES):
        assert CONTENDERS[name].supports(case, "cpu") is None
        inputs, out = run(name, case)
        gate.check(case, inputs, out, gate.ask(case, inputs, 10_000))


def test_who_sees_another_sequence_does_not_pass() -> None:
    (case,) = shape_cases("H=4,D=16,lengths=30+1+2x7,causal=0", ("fp32",))
    inputs = case.inputs(3, "cpu")
    out = pytorch.naive(*(x.transpose(0, 1)[None] for x in inputs[:3]), causal=False, scale=0.25)
    with pytest.raises(gate.Incorrect, match="over the tolerance"):
        gate.check(case, inputs, out[0].transpose(0, 1), gate.ask(case, inputs, 10_000))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_views_made_once() -> None:
    """On a CPU by the math backend, which takes them without a causal mask."""
    (case,) = shape_cases("H=4,D=16,lengths=30+1+2x7,causal=0", ("fp32",))
    call, sets = pytorch_packed.nested_sdpa(case), [case.inputs(seed, "cpu") for seed in (1, 2)]
    cu = sets[0][-1]
    for _ in range(2):
        for one, other in ((0, 0), (1, 1), (0, 1)):
            inputs = *sets[one][:2], sets[other][2], cu
            with torch.no_grad(), pytorch.forcing("MATH")():
                out = call(*inputs, **case.arguments)
            gate.check_plain(out)
            gate.check(case, inputs, out, gate.ask(case, inputs, 10_000))
        case.refresh(sets[1], tuple(tensor.clone() for tensor in sets[1]))


def test_who_cannot_serve_packed_sequences_says_so() -> None:
    plain, grouped = (shape_cases(f"{heads},lengths=30+7", ("bf16",))[1] for heads in ("H=4", "H=4,G=2"))
    nested = ("sdpa-flash", "sdpa-mem-efficient", "sdpa-cudnn")
    assert all(CONTENDERS[name].supports(plain, "cuda") is None for name in nested)
    assert all("as many key heads as query heads" in str(CONTENDERS[n].supports(grouped, "cuda")) for n in nested)
    assert "nested tensors" in str(CONTENDERS["sdpa-flash"].supports(plain, "cpu"))
    for name in ("ours-portable", "ours-hopper", "flex", "sdpa-math", "naive", "naive-compiled"):
        assert CONTENDERS[name].supports(grouped, "cuda") is None


@pytest.mark.parametrize("name", ["ours-portable", "ours-hopper"])
def test_ours_are_asked_for_what_the_case_asks_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from groundspeed.kernels.attention import varlen

    asked: dict[str, Any] = {}
    monkeypatch.setattr(varlen, "attention_varlen", lambda *given, **named: asked.update(given=given, named=named))
    case = shape_cases("H=4,D=16,lengths=30+7,W=5,sinks=1", ("bf16",))[1]
    q, k, v, sinks, cu = inputs = case.inputs(1, "cpu")
    CONTENDERS[name].build(case)(*inputs, **case.arguments)
    assert all(a is b for a, b in zip(asked["given"][:5], (q, k, v, cu, cu), strict=True))
    assert asked["given"][5:] == (30, 30)
    impl = {"ours-portable": "triton", "ours-hopper": "hopper"}[name]
    named = {"causal": True, "scale": 0.25, "window_size": (5, 0), "sinks": sinks, "impl": impl}
    assert asked["named"] == named


def test_long_sums_are_those_of_long_sequences() -> None:
    full, causal = shape_cases("H=2,D=16,lengths=100+600+3+1024", ("bf16",))
    for case in (full, causal):
        assert case.long_sums is not None
        inputs = case.inputs(1, "cpu")
        summed, rows = case.long_sums(inputs, 200)
        tokens = set((rows // 2).tolist())
        assert 100 < len(rows) <= 200
        assert tokens <= {*range(400, 700), *range(1215, 1727)}
        assert min(tokens) < 700 < max(tokens)
        assert torch.equal(summed[3], inputs[3])
        assert all(len(column.sign().unique()) == 1 for column in summed[2].flatten(0, 1).T)
    assert shape_cases("lengths=100+500", ("bf16",))[0].long_sums is None
    assert shape_cases("lengths=100+600,W=7", ("bf16",))[0].long_sums is None
    assert shape_cases("lengths=100+600", ("fp32",))[0].long_sums is None


def in_16_bits(q: Any, k: Any, v: Any, cu: Any, *, causal: bool, scale: float, **_: Any) -> torch.Tensor:
    """A sequence at a time, and its sum rounded to the dtype after every 32 terms."""
    outs = []
    for a, b in pairwise(cu.tolist()):
        one_q, one_k, one_v = (x[a:b].transpose(0, 1) for x in (q, k, v))
        weights = (one_q.float() @ one_k.float().mT * scale).softmax(-1)
        parts = zip(weights.split(32, -1), one_v.split(32, 1), strict=True)
        outs.append([*accumulate(((w @ x.float()).to(q.dtype) for w, x in parts), lambda x, y: x + y)][-1])
    return torch.cat([out.transpose(0, 1) for out in outs])


def test_who_adds_up_in_16_bits_is_found() -> None:
    (case,) = shape_cases("H=2,D=16,lengths=100+1024,causal=0", ("bf16",))
    sums = exam.ask_sums(case, case.inputs(1, "cpu"))
    assert sums is not None
    exam.check_sums(CONTENDERS["sdpa-math"].build(case)(*sums[0], **case.arguments), sums[1])
    with pytest.raises(gate.Incorrect, match="long sums"):
        exam.check_sums(in_16_bits(*sums[0], **case.arguments), sums[1])


def test_standard_leaves_out_of_packed_cases_what_it_does_of_others() -> None:
    names = ("form-packed-d128-full-bf16", "form-packed-even-d128-full-bf16")
    (short,) = shape_cases("lengths=1024+7,causal=0", ("bf16",))
    cases = {**{name: CASES[name] for name in names}, short.name: short}
    left_out = {*((name, "sdpa-math") for name in names), (names[1], "flex")}
    assert set(preset_skips("standard", cases, "sdpa-cudnn")) == left_out
    assert set(preset_skips("standard", cases, "flash-attn-4")) == left_out | {(name, "sdpa-cudnn") for name in cases}


@pytest.mark.slow
def test_packed_sequences_are_measured_here(tmp_path: Path) -> None:
    """In a real worker, with all that this does to inputs."""
    only = ("naive", "sdpa-flash", *(() if CONTENDERS["flex"].absent("cpu") else ("flex",)))
    request = Request(
        "attention",
        "quick",
        shape=("H=2,D=16,lengths=40+7+2x16,causal=1",),
        only=only,
        processes=1,
        warmup_s=0.01,
        timeout_s=60.0,
        out=tmp_path,
    )
    made = session.run(request)
    verify(made.path)
    outcomes = {o.contender: (o.status, o.reason) for o in made.record.outcomes}
    assert outcomes.pop("sdpa-flash") == (
        "SKIPPED",
        "it gets packed sequences as nested tensors, which it does not support on a CPU",
    )
    assert set(outcomes) == {"sdpa-math", *only} - {"sdpa-flash"}
    assert set(outcomes.values()) == {("PASSED", None)}
