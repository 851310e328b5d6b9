"""`tools/renew.py`: what it would run exists, and a step that fails, hangs or outlasts the time costs no other, in the
next call neither."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from groundspeed.lab.cases import choose_cases
from groundspeed.lab.request import Request
from groundspeed.suites import registry

ROOT = Path(__file__).parents[2]
FAKE = """
import sys, time
from pathlib import Path
told = sys.argv[1:]
bundles = Path(told[told.index("--out") + 1])
Path("calls").open("a").write(" ".join(told[: told.index("--out")]) + chr(10))
found = bundles / f"moe-{len(list(bundles.glob('*'))) if bundles.exists() else 0}"
found.mkdir(parents=True)
if "--resume" not in told:
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(3)
"""
"""In place of groundspeed: its first run lasts too long, and leaves a bundle when it is ended."""
MODELS = {"inference", "huggingface"}


@pytest.fixture
def renew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("renew", ROOT / "tools" / "renew.py")
    assert spec
    assert spec.loader
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "renew", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def called(renew: Any, monkeypatch: pytest.MonkeyPatch, out: Path, *more: str) -> int:
    monkeypatch.setattr(sys, "argv", ["renew", "--out", str(out), *more])
    with pytest.raises(SystemExit) as ended:
        renew.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def runs(renew: Any) -> dict[str, tuple[str, dict[str, str]]]:
    """Of the steps that are runs, the suite and what is asked for."""
    told = {name: shlex.split(step.command) for name, step in renew.STEPS.items() if step.is_run}
    return {name: (words[3], dict(zip(words[4::2], words[5::2], strict=True))) for name, words in told.items()}


def split(asked: dict[str, str], key: str) -> tuple[str, ...]:
    return tuple(asked[key].split(",")) if key in asked else ()


def cases(suite: str, asked: dict[str, str]) -> set[str]:
    request = Request(
        suite, "standard", case=split(asked, "--case"), dtype=split(asked, "--dtype"), clock=split(asked, "--clock")
    )
    return {case.name for case in choose_cases(registry.load(suite), request, "cuda")}


def test_all_that_steps_name_exists(renew: Any) -> None:
    for step in renew.STEPS.values():
        for word in shlex.split(step.command):
            if word.endswith(".py"):
                assert (ROOT / word).is_file(), word
    for suite, asked in runs(renew).values():
        assert {*asked} <= {"--out", "--case", "--dtype", "--clock", "--only", "--judge", "--baseline"}
        known = registry.load(suite).contenders
        assert {*split(asked, "--only"), *split(asked, "--judge"), *split(asked, "--baseline")} <= {*known}
        assert cases(suite, asked)


@pytest.mark.parametrize(("suite", "besides"), [("inference", {"run-memory"}), ("huggingface", set[str]())])
def test_the_pieces_of_a_suite_are_its_preset(renew: Any, suite: str, besides: set[str]) -> None:
    pieces = [cases(*told) for name, told in runs(renew).items() if told[0] == suite and name not in besides]
    assert set().union(*pieces) == cases(suite, {})


def test_a_step_of_whole_models_takes_no_longer_than_a_call_may(renew: Any) -> None:
    assert all(renew.STEPS[name].seconds <= 480 for name, told in runs(renew).items() if told[0] in MODELS)


def test_a_test_comes_before_the_runs_that_it_protects(renew: Any) -> None:
    order = [*renew.STEPS]
    suites = {name: suite for name, (suite, _) in runs(renew).items()}
    assert {"moe", "gemm", "attention", *MODELS} == {*suites.values()}
    for test in ("test-kernels", "test-attention", "test-suites", "test-laboratory"):
        assert order.index(test) < min(order.index(name) for name in suites)


@pytest.mark.slow
def test_what_steps_select_of_the_tests_is_there(renew: Any) -> None:
    """Each word of an expression is in the name of a test in its files."""
    command = [sys.executable, "-m", "pytest", "tests/gpu", "--collect-only", "-q"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name, step in renew.STEPS.items():
        words = shlex.split(step.command)
        if words[:2] == ["-m", "pytest"]:
            files = {word for word in words if word.endswith(".py")}
            known = [line for line in listed if line.partition("::")[0] in files]
            assert {line.partition("::")[0] for line in known} == files, name
            for word in re.findall(r"\S+", words[words.index("-k") + 1] if "-k" in words else ""):
                assert word in ("or", "not") or any(word in line for line in known), (name, word)


def test_a_hang_is_told_before_patience_ends(renew: Any) -> None:
    tests = [step for name, step in renew.STEPS.items() if name.startswith("test-")]
    assert len(tests) == 5
    assert all(step.hangs_s < renew.PATIENCE * step.seconds for step in tests)


def test_what_fails_or_hangs_costs_no_other_step(
    renew: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {
        "fails": renew.Step(9, "-c 'raise SystemExit(7)'"),
        "hangs": renew.Step(
            0.4, "-c 'import signal,time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)'"
        ),
        "works": renew.Step(9, "-c 'print(1 + 2)'"),
        "long": renew.Step(1000, "-c pass"),
    }
    monkeypatch.setattr(renew, "STEPS", steps)
    monkeypatch.setattr(renew, "ENDING_S", 0.3)
    assert called(renew, monkeypatch, tmp_path / "out", "--seconds", "60") == 1
    said = capsys.readouterr().out
    for line in ("fails: failed with 7", "hangs: ended when its time was up", "works: done", "long +left"):
        assert re.search(line, said)
    assert [*json.loads((tmp_path / "out" / "done.json").read_text())] == ["works"]
    with tarfile.open(tmp_path / "out" / "renewed.tar.gz") as packed:
        assert {"works.log", "done.json", "fails.log"} <= {*packed.getnames()}
    assert called(renew, monkeypatch, tmp_path / "out", "--steps", "works") == 0
    assert "already done" in capsys.readouterr().out


def test_what_failed_is_repeated_only_if_asked(
    renew: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {
        "fails": renew.Step(9, f'-c \'open("{tmp_path}/fails", "a").write("."); raise SystemExit(1)\''),
        "slow": renew.Step(0.2, f'-c \'import time; open("{tmp_path}/slow", "a").write("."); time.sleep(60)\''),
    }
    monkeypatch.setattr(renew, "STEPS", steps)
    monkeypatch.setattr(renew, "PATIENCE", 10.0)

    def tried() -> list[int]:
        return [len((tmp_path / name).read_text()) for name in steps]

    assert called(renew, monkeypatch, tmp_path / "out") == 1
    assert tried() == [1, 1]
    for more in ([], ["--steps", "f*,slo?"]):
        capsys.readouterr()
        assert called(renew, monkeypatch, tmp_path / "out", *more) == 1
        assert "in an earlier call failed with 1; --again repeats it" in capsys.readouterr().out
    assert tried() == [1, 1]
    assert called(renew, monkeypatch, tmp_path / "out", "--steps", "fails") == 1
    assert called(renew, monkeypatch, tmp_path / "out", "--again") == 1
    assert tried() == [3, 2]
    monkeypatch.setattr(renew, "STEPS", {name: renew.Step(9, "-c pass") for name in steps})
    assert called(renew, monkeypatch, tmp_path / "out", "--again") == 0
    assert json.loads((tmp_path / "out" / "failed.json").read_text()) == {}


def test_a_step_that_the_caller_interrupts_has_not_failed(
    renew: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(renew, "STEPS", {"slow": renew.Step(9, "-c 'import time; time.sleep(60)'")})
    monkeypatch.setattr(renew, "taken", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "slow.log").touch()
    monkeypatch.setattr(sys, "argv", ["renew", "--out", str(tmp_path / "out")])
    usual = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(KeyboardInterrupt):
            renew.main()
    finally:
        signal.signal(signal.SIGTERM, usual)
    assert json.loads((tmp_path / "out" / "failed.json").read_text()) == {}


def test_many_tests_wait_for_a_machine_that_runs_them_in_parallel(
    renew: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(renew, "STEPS", {"test-all": renew.Step(9, "-c pass", many=True)})
    monkeypatch.setattr(renew, "XDIST", False)
    assert called(renew, monkeypatch, tmp_path / "out") == 3
    assert "left: without pytest-xdist it takes too long" in capsys.readouterr().out
    monkeypatch.setattr(renew, "XDIST", True)
    assert called(renew, monkeypatch, tmp_path / "out") == 0


def test_a_step_says_how_long_a_test_may_take(renew: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asks = '-c \'import os; raise SystemExit(os.environ["GS_HANGS_S"] != "7")\''
    monkeypatch.setattr(renew, "STEPS", {"a": renew.Step(9, asks, hangs_s=7), "b": renew.Step(9, asks)})
    assert called(renew, monkeypatch, tmp_path / "out", "--steps", "a") == 0
    assert called(renew, monkeypatch, tmp_path / "out", "--steps", "b") == 1


@pytest.mark.parametrize("ended_by", [None, signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_ended_is_gone_on_with(
    renew: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    ended_by: signal.Signals | None,
) -> None:
    package = tmp_path / "src" / "groundspeed"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text(FAKE)
    (package / "__init__.py").touch()
    monkeypatch.setattr(renew, "STEPS", {"run-moe": renew.run(1000, "moe", "--dtype bf16", piece_s=1)})
    out = tmp_path / "a folder"
    usual = signal.getsignal(signal.SIGTERM)
    try:
        if ended_by is None:
            assert called(renew, monkeypatch, out, "--seconds", "2") == 3
        else:
            threading.Timer(2, os.kill, (os.getpid(), ended_by)).start()
            monkeypatch.setattr(sys, "argv", ["renew", "--out", str(out), "--seconds", "50"])
            with pytest.raises(KeyboardInterrupt):
                renew.main()
    finally:
        signal.signal(signal.SIGTERM, usual)
    assert json.loads((out / "begun.json").read_text())["run-moe"][1] == "moe-0"
    assert called(renew, monkeypatch, out, "--seconds", "9") == 0
    assert (tmp_path / "calls").read_text().splitlines() == ["run moe", f"run --resume {out}/bundles/moe-0"]
    assert json.loads((out / "begun.json").read_text()) == {}
    assert "run-moe" in json.loads((out / "done.json").read_text())
