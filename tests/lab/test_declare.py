"""What a run declares before its first sample: cases, contenders, baseline, family, protocol (statistics.md 7, 15)."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence.protocol import NAME
from groundspeed.lab import declare as room
from groundspeed.lab.declare import PRESETS, declare
from groundspeed.lab.request import Request
from groundspeed.measure.environment import usable_cores
from groundspeed.suites import registry
from histories import record_of

MINE = "import groundspeed as gs\n\n@gs.contender('attention')\ndef mine(q, k, v, *, causal, scale): ...\n"


def facts(**changes: Any) -> dict[str, Any]:
    return declare(Request(**{"suite": "attention", "preset": "quick", **changes}))


def cases(**changes: Any) -> list[str]:
    return [case["name"] for case in facts(**changes)["cases"]]


def measured(**changes: Any) -> list[str]:
    return [c["name"] for c in facts(**changes)["contenders"] if c["status"] is None]


def refusal(kind: type[GroundspeedError] = BadInput, **changes: Any) -> str:
    with pytest.raises(kind) as caught:
        facts(**changes)
    assert caught.value.exit_code == kind.exit_code
    return str(caught.value)


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(MINE)
    return str(tmp_path / "mine.py")


def test_quick_on_a_cpu_is_what_the_statistics_say() -> None:
    """statistics.md 5, 8 and 15, word for word."""
    quick = facts()
    shapes = ("small", "medium", "large", "xlarge", "multi-head")
    assert {c["name"] for c in quick["cases"]} == {f"{s}-{m}-fp32" for s in shapes for m in ("full", "causal")}
    assert measured() == ["sdpa-math", "sdpa-flash"]
    protocol = quick["protocol"]
    assert protocol["name"] == NAME
    assert protocol["processes"] == 4
    assert protocol["looks"] == (10, 20, 40)
    assert protocol["half_width"] == 0.025
    assert protocol["budget_s"] == 60.0
    assert protocol["threads"] == max(1, usable_cores() - 1)
    assert protocol["timeout_s"] == 30.0
    assert protocol["input_sets"] > 1
    assert quick["run"]["baseline"] == "sdpa-math"
    assert quick["run"]["baseline_origin"] == "declared"
    assert quick["run"]["device"] == "cpu"


def test_presets_fix_processes_looks_and_width() -> None:
    table = {name: (p.processes, p.looks, p.half_width) for name, p in PRESETS.items()}
    assert table == {
        "quick": (4, (10, 20, 40), 0.025),
        "standard": (8, (10, 20, 40), 0.015),
        "paper": (12, (20, 40, 80), 0.010),
    }


def test_quick_adds_what_with_brings(mine: str) -> None:
    assert measured(with_files=(mine,)) == ["sdpa-math", "sdpa-flash", "mine"]
    found = facts(with_files=(mine,))
    assert found["run"]["with_files"] == [mine]
    (contender,) = [c for c in found["contenders"] if c["name"] == "mine"]
    assert contender["source_sha256"] == hashlib.sha256(MINE.encode()).hexdigest()


@pytest.mark.parametrize(
    "function",
    [
        "def f(*inputs, **arguments)",
        "def f(q, k, v, causal=False, scale=None, temperature=1.0)",
        "@functools.wraps(lambda q, k, v, workspace: q)\ndef f(*inputs, **arguments)",
        "@functools.partial(functools.partial, bias=None)\ndef f(q, k, v, *, bias, causal, scale)",
    ],
)
def test_what_the_suite_can_call_is_declared(tmp_path: Path, function: str) -> None:
    (tmp_path / "mine.py").write_text(
        f'import functools, groundspeed as gs\n@gs.contender("attention", name="mine")\n{function}: ...\n'
    )
    assert "mine" in measured(with_files=(str(tmp_path / "mine.py"),))


def test_a_function_that_fits_some_of_the_cases_is_measured_on_them(mine: str) -> None:
    shapes = ("S=64,causal=1", "S=64,causal=1,W=8")
    assert "mine" in measured(with_files=(mine,), shape=shapes)
    assert "unexpected keyword argument 'window_size'" in refusal(with_files=(mine,), shape=shapes[1:])


def test_what_nobody_can_do_is_refused_before_it_is_skipped_four_times() -> None:
    message = refusal(shape=("S=64,causal=1,W=8",))
    assert message.startswith("no contender here can do ")
    assert "sdpa-flash: does not support windows" in message
    assert "sdpa-flash" in measured(shape=("S=64,causal=1,W=8", "S=64,causal=1"))


def test_a2_those_not_measured_are_listed_with_the_reason() -> None:
    reasons = {c["name"]: (c["status"], c["reason"]) for c in facts()["contenders"]}
    assert reasons["sdpa-math"] == (None, None)
    assert reasons["naive"] == ("SKIPPED", "not in preset quick")
    assert reasons["sdpa-cudnn"] == ("ABSENT", "needs an NVIDIA GPU")
    assert reasons["ours-hopper"] == ("ABSENT", "needs an NVIDIA GPU")
    only = {c["name"]: (c["status"], c["reason"]) for c in facts(only=("naive",))["contenders"]}
    assert only["sdpa-flash"] == ("SKIPPED", "not in --only")


def test_a7_the_environment_is_declared() -> None:
    assert {"os", "python", "cpu", "memory", "gpu", "packages", "variables"} <= set(facts()["environment"])


def test_flags_change_the_protocol_and_are_recorded() -> None:
    protocol = facts(processes=2, warmup_s=0.5, timeout_s=3.0, seed=11)["protocol"]
    assert (protocol["processes"], protocol["warmup_s"], protocol["timeout_s"], protocol["seed"]) == (2, 0.5, 3.0, 11)
    assert facts(seed=0)["protocol"]["seed"] == 0


def test_a5_a_seed_is_drawn_where_none_is_given() -> None:
    seeds = {facts()["protocol"]["seed"] for _ in range(3)}
    assert len(seeds) == 3
    assert all(0 <= seed < 2**62 for seed in seeds)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("xlarge", ["xlarge-full-fp32", "xlarge-causal-fp32"]),
        ("xlarge-causal", ["xlarge-causal-fp32"]),
        ("xlarge-causal-fp32", ["xlarge-causal-fp32"]),
        ("xlarge-causal-fp16", ["xlarge-causal-fp16"]),
        ("t1", ["medium-full-fp32", "medium-causal-fp32"]),
        ("sweep-d128-s1024-full", ["claim-full-fp32"]),
        ("?large-full", ["xlarge-full-fp32"]),
        ("*large-full", ["large-full-fp32", "xlarge-full-fp32"]),
        ("med*-full-bf16", ["medium-full-bf16"]),
        ("multi-head-[fc]*l", ["multi-head-full-fp32", "multi-head-causal-fp32"]),
    ],
)
def test_a_case_is_named_with_or_without_its_dtype_and_mask_or_by_a_pattern(pattern: str, expected: list[str]) -> None:
    assert cases(case=(pattern,)) == expected


def test_a3_a_pattern_takes_the_whole_sweep() -> None:
    suite = registry.load("attention")
    for pattern, count in (
        ("sweep-d64-*", 6 * 2 * 2),
        ("form-packed-*", 4 * 2 * 2),
        ("ref-*-full-bf16", 2),
        ("*", (31 - 2 + 17 + 15) * 2 * 2 + 21 * 2),
    ):
        request = Request("attention", case=(pattern,), clock=("default",))
        assert len(room.choose_cases(suite, request, "cuda")) == count
    with pytest.raises(BadInput, match="matches only shapes for a GPU"):
        cases(case=("sweep-d64-*",))


def test_a_pattern_means_what_a_cpu_can_do_and_a_name_what_it_says() -> None:
    small = {"decode-x1-n1024", *(f"decode-{rows}n4096" for rows in ("x4-", "x8-", "16-x4-", "16-x8-"))}
    small |= {"decode-x4-n1024", "decode-x8-n1024"}
    every = cases(case=("*",))
    assert {name.removesuffix("-full-fp32") for name in every if name.startswith("decode")} == small
    assert len(every) == 9 * 2 + len(small), "those of the preset, and what is no more work than the largest of them"
    assert not [name for name in cases(case=("*-causal",)) if name.startswith(("sweep", "ref"))]
    assert cases(case=("ref-64-full",)) == ["ref-64-full-fp32"]


def test_several_cases_are_measured_once_each() -> None:
    assert cases(case=("small-full", "small", "medium-full", "t1-full")) == [
        "small-full-fp32",
        "small-causal-fp32",
        "medium-full-fp32",
    ]


def test_dtypes_are_chosen_with_a_flag() -> None:
    assert cases(case=("small-full",), dtype=("fp16", "bf16")) == ["small-full-fp16", "small-full-bf16"]
    quick = cases(dtype=("bf16",))
    assert len(quick) == 10
    assert all(name.endswith("-bf16") for name in quick)
    assert cases(shape=("S=16,causal=0",), dtype=("fp16",)) == ["b1-h8-s16-d64-full-fp16"]
    assert len(cases(preset="standard", dtype=("fp16", "fp32"))) == 2 * 9 * 2


def test_a_dtype_flag_that_contradicts_the_name_of_a_case_is_refused() -> None:
    message = refusal(case=("xlarge-full-fp16",), dtype=("bf16",))
    assert message == "no case matches --case xlarge-full-fp16 and --dtype bf16; drop one of them"


def test_shapes_and_cases_go_together() -> None:
    assert cases(shape=("S=16,causal=0",), case=("small-full",)) == ["b1-h8-s16-d64-full-fp32", "small-full-fp32"]
    assert cases(shape=("S=16,causal=0", "S=16,causal=0")) == ["b1-h8-s16-d64-full-fp32"]


def test_an_alias_is_kept_in_the_record() -> None:
    (case,) = facts(case=("t1-full",))["cases"]
    assert case["name"] == "medium-full-fp32"
    assert case["aliases"] == ("t1-full-fp32",)


def test_only_measures_those_and_the_baseline(mine: str) -> None:
    assert measured(only=("naive",)) == ["sdpa-math", "naive"]
    assert measured(only=("naive",), with_files=(mine,)) == ["sdpa-math", "naive", "mine"]
    assert measured(only=("sdpa-flash",), baseline="naive") == ["sdpa-flash", "naive"]


@pytest.fixture
def two(tmp_path: Path) -> str:
    """The second cannot be called on any case."""
    file = tmp_path / "two.py"
    file.write_text(f"{MINE.replace('mine', 'one')}\n@gs.contender('attention')\ndef misfit(): ...\n")
    return str(file)


def test_only_chooses_among_the_contenders_of_a_file(mine: str, two: str) -> None:
    """If it names none of them, all are meant."""
    chosen = facts(only=("one",), with_files=(two,))
    told = {c["name"]: (c["status"], c["reason"]) for c in chosen["contenders"]}
    assert told["misfit"] == told["naive"] == ("SKIPPED", "not in --only")
    assert chosen["run"]["judged"] == measured(only=("one",), with_files=(two,))[1:] == ["one"]
    assert measured(only=("naive", "one"), with_files=(two,)) == ["sdpa-math", "naive", "one"]
    assert measured(only=("one",), with_files=(mine, two)) == ["sdpa-math", "mine", "one"]
    assert "misfit() cannot be called" in refusal(only=("naive",), with_files=(two,))
    assert "misfit() cannot be called" in refusal(only=("one",), judge=("misfit",), with_files=(two,))


def test_an_unknown_contender_is_told_those_of_the_files(mine: str, two: str) -> None:
    said = refusal(only=("sdpa-flsh",), with_files=(mine, two))
    assert said.endswith("`groundspeed list attention` shows all; --with adds mine, one, misfit.")
    assert "did you mean mine" in refusal(only=("mien",), with_files=(mine,))


def test_standard_measures_all_that_can_run() -> None:
    assert {"sdpa-math", "sdpa-flash", "naive"} <= set(measured(preset="standard", case=("small",)))


def test_the_baseline_is_the_declared_one_or_the_one_asked_for() -> None:
    assert facts(baseline="naive")["run"]["baseline_origin"] == "asked"
    assert facts(baseline="naive")["run"]["baseline"] == "naive"
    assert "naive" in measured(baseline="naive")


def test_a_baseline_that_cannot_run_is_an_error_with_the_way_out() -> None:
    message = refusal(GroundspeedError, baseline="sdpa-cudnn")
    assert message == "the baseline sdpa-cudnn cannot run here (needs an NVIDIA GPU); choose another with --baseline"


@pytest.mark.parametrize("baseline", ["sdpa-math", "naive"])
def test_a_run_that_is_repeated_has_chosen_its_baseline_already(baseline: str) -> None:
    then = record_of(1, {baseline: 1e-3, "sdpa-flash": 1e-3})
    again = facts(again=then, baseline=baseline, device="cpu")
    assert again["run"]["baseline_origin"] == then.run.baseline_origin == ("asked", "declared")[baseline == "sdpa-math"]


def test_a_baseline_declared_on_another_device_is_not_declared_here() -> None:
    then = record_of(1, {"sdpa-flash": 1e-3, "naive": 1e-3}, run={"device": "cuda", "baseline_origin": "declared"})
    again = facts(again=then, baseline="sdpa-flash", device="cpu")
    assert again["run"]["baseline_origin"] == "asked"


@pytest.mark.parametrize(("device", "why"), [("cuda", "no usable GPU: NVML"), ("cpu", "needs an NVIDIA GPU)")])
def test_a_run_whose_baseline_needs_a_gpu_cannot_be_repeated_without_one(
    monkeypatch: pytest.MonkeyPatch, device: str, why: str
) -> None:
    """Neither --device nor --baseline can help."""
    monkeypatch.setattr(room, "visible_uuid", lambda: None)
    then = record_of(1, run={"device": "cuda"})
    message = refusal(GroundspeedError, again=then, baseline="sdpa-cudnn", device=device, only=("sdpa-cudnn", "naive"))
    assert message.startswith("this run can be repeated only where its baseline sdpa-cudnn runs")
    assert why in message
    assert "--" not in message


def test_the_family_is_ones_own_or_all_but_the_baseline(mine: str) -> None:
    """statistics.md 7."""
    assert facts()["run"]["judged"] == ["sdpa-flash"]
    assert facts(only=("naive", "sdpa-flash"))["run"]["judged"] == ["sdpa-flash", "naive"]
    assert facts(with_files=(mine,))["run"]["judged"] == ["mine"]
    assert facts(with_files=(mine,), baseline="mine")["run"]["judged"] == ["sdpa-math", "sdpa-flash"]


def test_who_can_do_none_of_the_cases_is_not_judged_unless_asked_for() -> None:
    """Or no gate of a run of layers could ever be determined."""
    layers: dict[str, Any] = {"suite": "moe", "case": ("one-swiglu",)}
    assert "plain-products" in measured(**layers)
    assert facts(**layers)["run"]["judged"] == [n for n in measured(**layers)[1:] if n != "plain-products"]
    assert facts(**layers, judge=("plain-products",))["run"]["judged"] == ["plain-products"]


def test_the_family_can_be_asked_for() -> None:
    judged = facts(judge=("naive", "sdpa-flash", "naive"))
    assert judged["run"]["judged"] == ["naive", "sdpa-flash"]
    assert "naive" in measured(judge=("naive",))
    assert facts(judge=("naive", "sdpa-math"))["run"]["judged"] == ["naive"]


def test_a_family_of_the_baseline_alone_is_refused() -> None:
    message = refusal(judge=("sdpa-math",))
    assert message == "--judge names only the baseline sdpa-math, which is not compared with itself; name another"


def test_a_family_that_cannot_run_is_refused() -> None:
    message = refusal(GroundspeedError, judge=("sdpa-cudnn",))
    assert message == "sdpa-cudnn of --judge cannot run here (needs an NVIDIA GPU)"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"suite": "atention"}, "unknown suite 'atention'; did you mean attention"),
        ({"preset": "quik"}, "unknown preset 'quik'; did you mean quick?"),
        ({"preset": "x"}, "paper, quick or standard"),
        ({"case": ("xlarg",)}, "unknown case 'xlarg'; did you mean "),
        ({"case": ("sweep-d65-s1024",)}, "sweep-d64-s1024"),
        ({"case": ("small", "nothing-like-it-*")}, "unknown case 'nothing-like-it-*'"),
        ({"dtype": ("fp61",)}, "unknown dtype 'fp61'; did you mean fp16"),
        ({"only": ("sdpa-flsh",)}, "unknown contender in --only: 'sdpa-flsh'; did you mean sdpa-flash"),
        ({"judge": ("sdpa-flsh",)}, "unknown contender in --judge: 'sdpa-flsh'; did you mean sdpa-flash"),
        ({"baseline": "niave"}, "unknown contender in --baseline: 'niave'; did you mean naive?"),
        ({"device": "gpu"}, "unknown device 'gpu'; did you mean cuda?"),
        ({"shape": ("Q=1",)}, "unknown key in --shape 'Q'"),
        ({"with_files": ("nowhere.py",)}, "--with nowhere.py: there is no such file"),
    ],
)
def test_a_wrong_name_offers_the_nearest(changes: dict[str, Any], sentence: str) -> None:
    message = refusal(**changes)
    assert sentence in message
    assert "\n" not in message


def test_an_unknown_case_says_where_all_are_listed() -> None:
    assert refusal(case=("nothing",)).endswith("`groundspeed list attention` shows all.")


def test_no_gpu_says_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "visible_uuid", lambda: None)
    message = refusal(GroundspeedError, device="cuda")
    assert "no usable GPU: NVML" in message
    assert "--device cpu" in message


def test_a_gpu_that_pytorch_cannot_use_is_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(room, "visible_uuid", lambda: "GPU-aaaa")
    monkeypatch.setattr(
        room.importlib.util, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=[tmp_path])
    )
    assert "built without CUDA" in refusal(GroundspeedError, device="cuda")
    assert room.choose_device(None) == "cpu"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_cuda.so").touch()
    assert (room.choose_device(None), room.choose_device("cuda"), room.choose_device("cpu")) == ("cuda", "cuda", "cpu")


def test_short_work_on_a_gpu_is_timed_by_three_clocks() -> None:
    suite = registry.load("attention")
    short = room.choose_cases(suite, Request("attention", case=("tiny-full-bf16",)), "cuda")
    assert [case.name for case in short] == ["tiny-full-bf16", "tiny-full-bf16@graph", "tiny-full-bf16@eager"]
    assert [case.clock for case in short] == ["default", "graph", "eager"]
    (long,) = room.choose_cases(suite, Request("attention", case=("claim-full-bf16",)), "cuda")
    assert long.clock == "default"
    (one,) = room.choose_cases(suite, Request("attention", case=("tiny-full-bf16@eager",)), "cuda")
    assert one.name == "tiny-full-bf16@eager"
    two = room.choose_cases(suite, Request("attention", case=("claim-full-bf16",), clock=("warm", "graph")), "cuda")
    assert [case.params["clock"] for case in two] == ["warm", "graph"]
    for case in (*short, *two):
        again = suite.module.case_of_params(dict(case.params))
        assert (again.params, again.clock) == (case.params, case.clock)


@pytest.mark.parametrize("case", ["tiny-full-fp32@eager", "tiny-full-fp32@default"])
def test_a_cpu_has_one_clock(case: str) -> None:
    assert "a CPU has one clock" in refusal(case=(case,), device="cpu")
    assert "a CPU has one clock" in refusal(clock=("graph",), device="cpu")


def test_an_unknown_clock() -> None:
    with pytest.raises(BadInput, match=r"grph.*graph"):
        room.choose_cases(registry.load("attention"), Request("attention", clock=("grph",)), "cuda")


def test_declaring_does_not_import_torch() -> None:
    """So that a wrong flag is answered at once."""
    code = (
        "import sys; from groundspeed.lab.declare import declare; from groundspeed.lab.request import Request\n"
        "declare(Request('attention', 'quick')); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_d3_the_code_of_a_contender_is_hashed_where_there_is_one(tmp_path: Path) -> None:
    """Of those that are measured and come out of a file; what PyTorch ships has none."""
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    hashes = facts(device="cpu", with_files=(str(file),))["environment"]["code_sha256"]
    assert set(hashes) == {"mine"}
    file.write_text(f"# Another comment.\n{MINE}")
    assert facts(device="cpu", with_files=(str(file),))["environment"]["code_sha256"] == hashes


def test_who_cannot_run_is_not_measured_alone() -> None:
    """Of `--only` nobody is left: the baseline by itself is no answer."""
    with pytest.raises(GroundspeedError, match="ours-portable of --only cannot run here"):
        declare(Request("attention", "quick", only=("ours-portable",), device="cpu"))
