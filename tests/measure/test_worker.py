"""One measuring process, driven without its pipes: what it reports; one contender's doings are not another's."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from benches import CASE, PARAMS, Bench, Message, of, right
from torch import Tensor

from groundspeed.measure import exam, gate, worker
from groundspeed.measure.gate import Incorrect
from groundspeed.measure.inputs import SETS, Inputs
from groundspeed.measure.setting import Setting, one_assembler


def test_an_honest_contender_is_reported_from_gate_to_sample() -> None:
    bench = Bench({"a": right, "b": right})
    said = bench.prepare("b", "a")
    assert [m["kind"] for m in said if m["kind"] != "alive"] == [
        "at",
        "called",
        "ready",
        "at",
        "called",
        "ready",
        *("at", "called") * 2,
        "prepared",
    ]
    ready = of(said, "ready")[0]
    assert ready["contender"] == "b"
    assert all(ready["errors"][name] <= bound for name, bound in CASE.tolerance.items())
    assert ready["prepare_s"] > 0
    assert ready["warmup_stable"] in (True, False)
    assert len(ready["samples"]) >= 3
    said = bench.blocks(4, "b", "a")
    assert [(m["block"], m["contender"]) for m in of(said, "sample")] == [(i, n) for i in range(4) for n in "ba"]
    assert len(of(said, "block end")) == 4
    assert len(of(said, "checked")) == sum(m["check"] for m in of(said, "sample"))


def test_a5_short_work_is_batched_into_intervals_of_200_ticks() -> None:
    bench = Bench({"a": right})
    bench.prepare()
    samples = of(bench.blocks(5), "sample")
    assert all(m["launches"] > 1 for m in samples)
    assert all(m["seconds"] >= 200 * bench.session.clock.tick_s for m in samples)


def test_a5_inputs_rotate_between_calls() -> None:
    seen: list[int] = []

    def watching(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        seen.append(q.data_ptr())
        return right(q, k, v, **options)

    bench = Bench({"a": watching})
    bench.prepare()
    assert len(set(seen)) == SETS[0][1] + 1, "and once large ones"


def test_d6_a_timed_call_gets_inputs_that_it_has_not_seen_yet() -> None:
    seen: list[tuple[float, ...]] = []

    def watching(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        seen.append(tuple(float(tensor.sum()) for tensor in (q, k, v)))
        return right(q, k, v, **options)

    bench = Bench({"a": watching, "b": right})
    bench.prepare()
    bench.session.entrants["a"].launches = 50
    for block in range(2 * SETS[0][1]):
        seen.clear()
        bench.blocks(1, "a", "b", first=block)
        assert 50 <= len(seen) == len(set(seen))


def test_every_contender_is_checked_before_the_first_look() -> None:
    for _ in range(5):
        bench = Bench({"a": right, "b": right})
        bench.prepare()
        said = bench.blocks(5)
        assert {m["contender"] for m in of(said, "checked")} == {"a", "b"}


def test_the_first_call_is_not_timed() -> None:
    """Compilation belongs to it."""
    returned: list[float] = []

    def watching(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        out = right(q, k, v, **options)
        returned.append(time.perf_counter())
        return out

    bench = Bench({"a": watching})
    ready = of(bench.prepare(), "ready")[0]
    first_timed = bench.session.began + ready["samples"][0][0]
    # The gate's, that of the memory and, unless it comes later, that of large inputs.
    assert sum(moment < first_timed for moment in returned) in (2, 3)


def shrink(tensor: Tensor) -> None:
    tensor.resize_(1, 1, 1, 1)


def turn(tensor: Tensor) -> None:
    tensor.transpose_(2, 3)


@pytest.mark.parametrize("when", ["first", "warm", "timed"])
@pytest.mark.parametrize("harm", [Tensor.zero_, shrink, turn])
def test_d6_who_changes_the_inputs_is_refused_and_the_others_get_them_back(
    when: str, harm: Callable[[Tensor], Any]
) -> None:
    calls = 0

    def harmful(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        nonlocal calls
        calls += 1
        out = right(q, k, v, **options)
        if {"first": calls == 1, "warm": calls == 3, "timed": bench.timing}[when]:
            harm(k)
        return out

    class Timing(Bench):
        timing = False

    bench = Timing({"harmful": harmful, "honest": right})
    said = bench.prepare()
    if when == "timed":
        assert of(said, "fault") == []
        bench.timing = True
        bench.session.entrants["harmful"].launches = 1
        said = bench.blocks(1)
    (fault,) = of(said, "fault")
    assert fault["contender"] == "harmful"
    if (harm, when) == (shrink, "warm"):  # it trips over its own doing, in the next round of the inputs
        assert fault["status"] == "ERROR"
    else:
        assert (fault["status"], fault["reason"]) == ("INCORRECT", "changed its input k")
    bench.timing = False
    bench.session.entrants["honest"].checked = False  # so that it will be, by block 5
    said = bench.blocks(6, first=1)
    assert of(said, "fault") == []
    assert {m["contender"] for m in of(said, "sample")} == {"honest"}
    assert of(said, "checked")
    inputs = bench.session.inputs
    for one, before in zip(inputs.sets, inputs.pristine, strict=True):
        assert all(torch.equal(t, b) and t.stride() == b.stride() for t, b in zip(one, before, strict=True))


@pytest.mark.parametrize("copied", [False, True], ids=["itself", "a copy"])
def test_d6_cached_outputs_are_refused(copied: bool) -> None:
    """A contender that remembers its results by the address of its inputs."""
    kept: dict[int, Tensor] = {}

    def remembers(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        if q.data_ptr() not in kept:
            kept[q.data_ptr()] = right(q, k, v, **options)
        return kept[q.data_ptr()].clone() if copied else kept[q.data_ptr()]

    bench = Bench({"remembers": remembers, "honest": right})
    faults = [*of(bench.prepare(), "fault"), *of(bench.blocks(40), "fault")]
    assert [(m["contender"], m["status"]) for m in faults] == [("remembers", "INCORRECT")]


def test_d6_a_setting_left_changed_is_refused_and_put_back() -> None:
    def careless(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        torch.set_float32_matmul_precision("medium")
        return right(q, k, v, **options)

    before = torch.get_float32_matmul_precision()
    bench = Bench({"careless": careless, "honest": right})
    faults = of(bench.prepare(), "fault")
    assert [m["contender"] for m in faults] == ["careless"]
    assert "precision" in faults[0]["reason"]
    assert torch.get_float32_matmul_precision() == before
    assert of(bench.blocks(3), "fault") == []


def test_the_inputs_of_a_block_are_partly_new() -> None:
    seen: list[Tensor] = []

    def watches(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        seen.append(q.clone())
        return right(q, k, v, **options)

    bench = Bench({"watches": watches})
    bench.prepare()
    before = {tuple(q.flatten()[:4].tolist()) for q in seen}
    seen.clear()
    bench.blocks(10)
    assert len({tuple(q.flatten()[:4].tolist()) for q in seen} - before) >= 5


def test_nobody_can_count_to_the_last_call_of_a_sample() -> None:
    """D6: only the last output of a batch is compared, so its number must not be known."""
    bench = Bench({"honest": right})
    bench.prepare()
    assert len({m["launches"] for m in of(bench.blocks(20), "sample")}) > 3


def test_a_static_output_buffer_that_is_written_anew_passes() -> None:
    buffer = torch.empty(CASE.output_shape)

    def reuses(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return buffer.copy_(right(q, k, v, **options))

    bench = Bench({"reuses": reuses, "inference": torch.inference_mode()(right)})
    assert of(bench.prepare(), "fault") == []
    assert of(bench.blocks(20), "fault") == []


def test_what_is_wrong_only_when_timed_is_found_by_the_first_check() -> None:
    factor = 1.0

    def later(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return right(q, k, v, **options) * factor

    bench = Bench({"later": later, "honest": right})
    assert of(bench.prepare(), "fault") == []
    factor = 2.0
    said = bench.blocks(10)
    (fault,) = of(said, "fault")
    assert (fault["contender"], fault["status"]) == ("later", "INCORRECT")
    assert fault["errors"]["max_rel"] > 0.5
    assert of(said, "checked", "later") == []
    assert max(m["block"] for m in of(said, "sample", "later")) == fault["block"] < 5
    assert len(of(said, "sample", "honest")) == 10


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ValueError("first line\nsecond"), "ERROR", "ValueError: first line | second"),
        (ValueError("\n  \n told later"), "ERROR", "ValueError: | told later"),
        (ValueError("x" * 1000), "ERROR", "ValueError: " + "x" * 288),
        (ValueError(), "ERROR", "ValueError"),
        (ValueError("\udc80"), "ERROR", "ValueError: ?"),
        (KeyboardInterrupt(), "ERROR", "KeyboardInterrupt"),
        (SystemExit(3), "ERROR", "SystemExit: 3"),
        (RecursionError("deep"), "ERROR", "RecursionError: deep"),
        (MemoryError(), "OOM", "MemoryError"),
        (RuntimeError("[enforce] can't allocate memory: 8"), "OOM", "RuntimeError: [enforce] can't allocate memory: 8"),
        (RuntimeError("CUDA out of memory. Tried"), "OOM", "RuntimeError: CUDA out of memory. Tried"),
    ],
)
def test_what_a_contender_raises_is_reported_in_one_line_that_any_file_can_hold(
    error: BaseException, status: str, reason: str
) -> None:
    def raises(*inputs: Tensor, **options: Any) -> Tensor:
        raise error

    bench = Bench({"raises": raises, "honest": right})
    (fault,) = of(bench.prepare(), "fault")
    assert (fault["contender"], fault["status"], fault["reason"]) == ("raises", status, reason)
    fault["reason"].encode()
    assert {m["contender"] for m in of(bench.blocks(1), "sample")} == {"honest"}


def test_a_contender_that_cannot_do_a_case_is_skipped_with_its_reason() -> None:
    bench = Bench({"a": right}, supports=lambda case, device: f"not on {device}")
    (fault,) = of(bench.prepare(), "fault")
    assert (fault["status"], fault["reason"]) == ("SKIPPED", "not on cpu")


def test_inputs_that_cannot_be_made_are_everybodys_fault() -> None:
    def fails(seed: int, device: str) -> Any:
        raise MemoryError("too large")

    bench = Bench({"a": right, "b": right}, dataclasses.replace(CASE, inputs=fails))
    (fault,) = bench.prepare()
    assert fault["kind"] == "fault all"
    assert (fault["status"], fault["reason"]) == (
        "OOM",
        "could not make the inputs or the oracle's answer: MemoryError: too large",
    )
    assert [m["kind"] for m in bench.blocks(2)] == ["block end", "block end"]


def test_what_surrounds_a_contender_is_entered_and_left_around_its_calls_only() -> None:
    depth: list[int] = [0]
    seen: list[int] = []

    class Around:
        def __enter__(self) -> None:
            depth[0] += 1

        def __exit__(self, *exception: object) -> None:
            depth[0] -= 1

    def watching(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        seen.append(depth[0])
        return right(q, k, v, **options)

    def oracle(*inputs: Tensor, rows: Tensor | None = None) -> Tensor:
        assert depth[0] == 0
        return CASE.oracle(*inputs, rows=rows)

    bench = Bench({"a": watching}, dataclasses.replace(CASE, oracle=oracle), around=Around)
    assert of(bench.prepare(), "fault") == []
    assert of(bench.blocks(10), "checked")
    assert set(seen) == {1}
    assert depth == [0]


def test_who_got_it_right_is_asked_for_a_few_rows_by_the_next_clock_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    real = gate.ask
    monkeypatch.setattr(gate, "ask", lambda case, inputs, limit: asked.append(limit) or real(case, inputs, limit))
    bench = Bench({"a": right, "b": right})
    bench.prepare("a")
    bench.session.prepare({**PARAMS, "clock": CASE.clock}, ("a",), (4, 5, 6))
    bench.session.prepare({**PARAMS, "clock": CASE.clock}, ("a", "b"), (4, 5, 6))
    bench.session.prepare({**PARAMS, "S": 32}, ("a", "b"), (4, 5, 6))
    whole = gate.rows_before_timing(CASE)
    first = whole, exam.ROWS_ENLARGED
    assert asked == [*first, gate.ROWS_TIMED, *first, *first]
    asked.clear()
    brought = Bench({"a": right}, own=["a"])
    for _ in range(2):
        brought.prepare("a")
    brought.session.prepare(PARAMS, ("a",), (4, 5, 6), later=True)
    assert asked == [*first, *first, *first]


def test_a_later_process_asks_for_a_few_rows_and_finds_who_is_wrong_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    real = gate.ask
    monkeypatch.setattr(gate, "ask", lambda case, inputs, limit: asked.append(limit) or real(case, inputs, limit))
    monkeypatch.setattr(exam, "ask_sums", lambda *_: pytest.fail("long sums are for the first process"))
    bench = Bench({"a": right, "b": lambda q, k, v, **options: right(q, k, v, **options) * 1.1})
    bench.session.prepare(PARAMS, ("a", "b"), (4, 5, 6), later=True)
    assert asked == [gate.ROWS_TIMED]
    assert gate.rows_timed(dataclasses.replace(CASE, oracle_flops_per_row=10**9)) == 2
    assert [m["contender"] for m in of(bench.messages, "ready")] == ["a"]
    assert [m["status"] for m in of(bench.messages, "fault", "b")] == ["INCORRECT"]


def test_who_chooses_anew_in_each_process_is_asked_for_all_rows_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = gate.ask
    monkeypatch.setattr(gate, "ask", lambda case, inputs, limit: asked.append(limit) or real(case, inputs, limit))
    Bench({"a": right}, tries=True).session.prepare(PARAMS, ("a",), (4, 5, 6), later=True)
    assert asked == [gate.rows_before_timing(CASE), exam.ROWS_ENLARGED]


def test_what_is_asked_is_there_before_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of a contender's own do not wait for copies that were begun on another."""
    events: list[str] = []

    def logged(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *told: events.append(name) or real(*told)

    def wrong_if_large(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        events.append("call")
        return right(q, k, v, **options) * (0.5 if q.abs().max() > 60 else 1.0)

    monkeypatch.setattr(exam, "_own", logged("own", exam._own))
    monkeypatch.setattr(exam, "wait_for", logged("wait", exam.wait_for))
    monkeypatch.setattr(Inputs, "renew", logged("renew", Inputs.renew))
    said = Bench({"a": wrong_if_large}).prepare()
    assert "on large inputs" in of(said, "fault")[0]["reason"]
    begin = events.index("own")
    assert events[begin:] == ["own", "wait", "call", "renew", "wait", "call"]


def test_a_second_case_forgets_the_first() -> None:
    bench = Bench({"a": right, "b": right})
    bench.prepare("a", "b")
    bench.prepare("b", seeds=(7,))
    assert bench.session.inputs.sets[0][0].equal(CASE.inputs(7, "cpu")[0])
    said = bench.blocks(1, "a", "b")
    assert [m["contender"] for m in of(said, "sample")] == ["b"]


def test_a_worker_serves_what_it_is_asked_for_until_its_input_ends() -> None:
    said: list[Message] = []
    start = {
        "suite": "attention",
        "loader": "groundspeed.suites.registry:load",
        "with_files": [],
        "device": "cpu",
        "sources": {},
        "threads": 1,
        "warmup_s": 1e-3,
        "first_look": 10,
        "thorough": False,
        "check_one_in": [(10, 10)],
        "memory_limit_bytes": None,
    }
    names = ["sdpa-math", "sdpa-flash"]
    requests = [start, {"prepare": {"params": PARAMS, "contenders": names, "seeds": [1]}}, {"blocks": [[0, names]]}]
    grad, threads, cores = torch.is_grad_enabled(), torch.get_num_threads(), os.sched_getaffinity(0)
    try:
        lines = io.StringIO("".join(json.dumps(request) + "\n" for request in requests))
        worker.serve(lines, lambda kind, **message: said.append({"kind": kind, **message}))
    finally:
        assert len(os.sched_getaffinity(0)) == 1  # as many cores as threads were declared
        os.sched_setaffinity(0, cores)
        torch.set_grad_enabled(grad)
        torch.set_num_threads(threads)
        worker.gc.unfreeze()
    assert said[0]["kind"] == "hello"
    assert said[0]["environment"]["clock_tick_s"] > 0
    assert said[-1] == {"kind": "block end", "block": 0}
    assert {m["contender"] for m in of(said, "sample")} == set(names)


@pytest.mark.parametrize(
    "change",
    [
        lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
        lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
    ],
    ids=["by its new name", "by its old name", "for all", "of oneDNN"],
)
def test_d6_precision_is_put_back_by_whatever_name_it_was_changed(change: Callable[[], None]) -> None:
    """PyTorch refuses to tell a precision that was set by two names."""
    before = Setting.now()
    change()
    with pytest.raises(Incorrect, match=r"left PyTorch's .* instead of "):
        before.check()
    before.check()
    assert Setting.now() == before


def test_whoever_compiles_uses_one_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's compiler has Triton use its own from its first call on, unless one is named."""
    from triton import knobs

    for name in ("TRITON_PTXAS_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    version, cache = knobs.nvidia.ptxas.version, knobs.cache.dir
    one_assembler()
    assert (os.environ["TRITON_PTXAS_PATH"], knobs.nvidia.ptxas.version) == (knobs.nvidia.ptxas.path, version)
    assert Path(knobs.cache.dir).parent == Path(cache).parent
    assert knobs.cache.dir != cache, "where another may have left what another assembler made"
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent == Path(cache).parent
    for name in ("TRITON_PTXAS_PATH", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "mine")
    one_assembler()
    assert (os.environ["TRITON_PTXAS_PATH"], os.environ["TRITON_CACHE_DIR"]) == ("mine", "mine")
