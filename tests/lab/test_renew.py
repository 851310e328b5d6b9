"""`tools/renew.py`: what it would run exists, and a step that fails, hangs or outlasts the time costs no other."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import signal
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
    for line in ("fails: failed with 7", "hangs: ended when its time was up", "works: done", "long             left"):
        assert line in said
    assert [*json.loads((tmp_path / "out" / "done.json").read_text())] == ["works"]
    with tarfile.open(tmp_path / "out" / "renewed.tar.gz") as packed:
        assert {"works.log", "done.json", "fails.log"} <= {*packed.getnames()}
    assert called(renew, monkeypatch, tmp_path / "out", "--steps", "works") == 0
    assert "already done" in capsys.readouterr().out


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
    monkeypatch.setattr(renew, "STEPS", {"run-moe": renew.Step(1000, renew.run("moe", "--dtype bf16"))})
    monkeypatch.setattr(renew, "PIECE_S", 1)
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
