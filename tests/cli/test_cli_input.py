"""Bad input (issue 2): exit 2, one sentence that names it and the way out; nothing is written, nothing is torn."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from invocation import QUICK, Cli, Script

from groundspeed.errors import unknown


@pytest.mark.parametrize(
    ("arguments", "given", "offered"),
    [
        (["run", "atention"], "atention", "attention"),
        (["run", "attention", "--preset", "qick"], "qick", "quick"),
        (["run", "attention", "--case", "smal"], "smal", "small-full"),
        (["run", "attention", "--case", "sweep-d46-*"], "sweep-d46-*", "sweep-d64-s"),
        (["run", "attention", "--only", "sdpa-flsh"], "sdpa-flsh", "sdpa-flash"),
        (["run", "attention", "--only", "naive,flx"], "flx", "flex"),
        (["run", "attention", "--judge", "sdpa-flash,nave"], "nave", "naive"),
        (["run", "attention", "--baseline", "sdpa-maht"], "sdpa-maht", "sdpa-math"),
        (["run", "attention", "--dtype", "FP61"], "FP61", "fp16"),
        (["run", "attention", "--device", "gpu"], "gpu", "cuda"),
        (["run", "attention", "--shape", "Z=3"], "Z", "B, H, S, D"),
        (["run", "attention", "--require", "fastest"], "fastest", "faster"),
        (["list", "atention"], "atention", "attention"),
        (["list", "attention", "--device", "cdua"], "cdua", "cuda"),
        (["list", "--device", "cdua"], "cdua", "cuda"),
    ],
)
def test_an_unknown_name_gets_the_nearest_ones(
    cli: Cli, tmp_path: Path, arguments: list[str], given: str, offered: str
) -> None:
    done = cli(*arguments)
    assert done.code == 2
    assert f"unknown {'' if given != 'Z' else 'key'}" in done.sentence
    assert repr(given) in done.sentence
    assert offered in done.sentence
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run"], "name a suite"),
        (["run", "attention", "--resume", "latest"], "leave out the suite"),
        (["run", "--resume", "latest"], "there is no bundle in .groundspeed/runs yet"),
        (["run", "--resume", "latest", "--only", "naive"], "leave out --only"),
        (["run", "--resume", "latest", "--preset", "quick"], "leave out --preset"),
        (["run", "--resume", "latest", "--with", "x.py"], "leave out --with"),
        (["run", "attention", "--shape", "S"], "S needs a whole number"),
        (["run", "attention", "--shape", "S=-1"], "S needs a whole number"),
        (["run", "attention", "--shape", "S=1e3"], "S needs a whole number"),
        (["run", "attention", "--shape", "S=64,S=65"], "S is given twice"),
        (["run", "attention", "--shape", "causal=2"], "causal must be 0 or 1"),
        (["run", "attention", "--timeout", "inf"], "--timeout inf"),
        (["run", "attention", "--timeout", "nan"], "--timeout nan"),
        (["run", "attention", "--timeout", "0"], "--timeout 0"),
        (["run", "attention", "--warmup", "-1"], "--warmup -1"),
        (["run", "attention", "--processes", "0"], "--processes 0"),
        (["run", "attention", "--processes", "100000"], "--processes 100000"),
        (["run", "attention", "--processes", "two"], "'two' is not a valid int"),
        (["calibrate", "--processes", "1"], "--processes 1: give a whole number from 2 to 1000"),
        (
            ["run", "calibration", "--processes", "1"],
            "--processes 1: a calibration measures the noise between processes; give 2",
        ),
        (["run", "attention", "--seed", str(2**63)], f"--seed {2**63}"),
        (["run", "attention", "--shepe", "S=1"], "--shepe"),
        (["rum"], "no such command 'rum'"),
        (["show"], "argument 'bundle'"),
        (["show", "nosuch"], "nosuch is not a bundle"),
        (["show", "latest"], "there is no bundle in .groundspeed/runs yet"),
        (["report", "nosuch"], "nosuch is not a bundle"),
        (["verify"], "argument 'bundles"),
        (["verify", "nosuch"], "nosuch is not a bundle"),
        (["verify", "\x1b[31mred"], "�[31mred is not a bundle"),
        (["report", "nosuch", "--md", "a", "--csv", "a"], "cannot both go to a"),
        (["report", "nosuch", "--md", "-", "--json", "-"], "cannot both go to -"),
    ],
)
def test_wrong_usage_is_one_sentence_with_the_way_out(
    cli: Cli, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    done = cli(*arguments)
    assert done.code == 2
    assert sentence.lower() in done.sentence.lower()
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import os\n\nraise ValueError('first\\nsecond')\n", "line 3: ValueError: first second"),
        ("import os\nimport no_such_module\n", "line 2: ModuleNotFoundError: No module named 'no_such_module'"),
        ("import os\n\n\ndef f(:\n", "line 4: SyntaxError"),
        ("x = 1\n", "registers no contender of attention"),
        ('import groundspeed as gs\n@gs.contender("atention")\ndef f(): ...\n', "did you mean attention"),
        (
            'import groundspeed as gs\n@gs.contender("attention", name="naive")\ndef f(): ...\n',
            "contender 'naive' already exists",
        ),
    ],
)
def test_a_file_that_does_not_import_is_told_with_its_own_error_and_line(
    cli: Cli, tmp_path: Path, source: str, said: str, absolute: bool
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(source)
    done = cli("run", "attention", "--preset", "quick", "--with", file if absolute else file.name)
    assert done.code == 2
    assert "mine.py" in done.sentence
    assert said in done.sentence
    assert not (tmp_path / ".groundspeed").exists()


KERNEL = 'import groundspeed as gs\n@gs.contender("attention", name="mine")\n{}: ...\n'
CALL = "mine.py: f() cannot be called as attention calls its contenders, f(q, k, v, causal=…, scale=…): "


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("def f(q, k, v, *, scale)", "got an unexpected keyword argument 'causal'"),
        ("def f(q, k, v, bias, *, causal, scale)", "missing a required argument: 'bias'"),
        ("def f(q, k, *, causal, scale)", "too many positional arguments"),
        ("@__import__('torch').compile\ndef f(q, k, v, *, scale)", "got an unexpected keyword argument 'causal'"),
    ],
)
def test_a_function_that_the_suite_cannot_call_is_told_before_anything_is_measured(
    cli: Cli, tmp_path: Path, function: str, said: str
) -> None:
    (tmp_path / "mine.py").write_text(KERNEL.format(function))
    for command in (("run", "attention", "--preset", "quick"), ("profile", "attention", "tiny-full-fp32")):
        done = cli(*command, "--with", "mine.py")
        assert (done.code, done.sentence) == (2, f"--with {CALL}{said}")
    assert not (tmp_path / ".groundspeed").exists()


def test_a_file_that_is_not_there(cli: Cli) -> None:
    done = cli("run", "attention", "--with", "nosuch.py")
    assert (done.code, done.sentence) == (2, "--with nosuch.py: there is no such file")


def test_a_complete_run_cannot_be_resumed(cli: Cli, script: Script) -> None:
    script({"sdpa-math": 1e-3, "sdpa-flash": 1e-3})
    assert cli(*QUICK).code == 0
    done = cli("run", "--resume", "latest")
    assert done.code == 2
    assert "complete; there is nothing to resume" in done.sentence


def test_unknown_offers_what_was_meant_else_what_there_is() -> None:
    few, many = ["cpu", "cuda"], [f"sweep-d64-s{2**i}" for i in range(5, 15)]
    assert str(unknown("device", "CPU", few)) == "unknown device 'CPU'; did you mean cpu?"
    assert str(unknown("device", "xyz", few)) == "unknown device 'xyz'; choose cpu or cuda."
    assert "did you mean sweep-d64-s32" in str(unknown("case", "sweep-d64-s3", many))
    assert "the closest are sweep-d64-s" in str(unknown("case", "zzz-2", many))
    assert str(unknown("case", "z", ["a"], see="See below.")) == "unknown case 'z'; choose a. See below."
    assert len(str(unknown("case", "x" * 100_000, many))) < 300


@pytest.mark.parametrize("arguments", [QUICK, ("calibrate",), ("profile", "attention", "tiny-full-fp32")])
def test_without_torch_the_way_out_is_to_install_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """And not to choose another contender, since each of them needs it."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else found(name))
    done = cli(*arguments)
    assert done.code == 4
    assert done.sentence.endswith("pip install 'groundspeed[torch]'")
