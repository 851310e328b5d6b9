"""`groundspeed run`: its exit codes, what it leaves behind, and what it says, with scripted workers."""

from __future__ import annotations

import importlib
import os
import random
import re
import shlex
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
from invocation import QUICK, Cli, Script, printed_commands

from fakes import Fault, Silence
from groundspeed.evidence import bundle, store
from groundspeed.lab import check, declare, progress
from groundspeed.measure.lineup import LINE_UP
from groundspeed.measure.runner import Progress
from groundspeed.report import page

SAME = {"sdpa-math": 1e-3, "sdpa-flash": 1e-3}
FASTER = {"sdpa-math": 2e-3, "sdpa-flash": 1e-3}
SLOWER = {"sdpa-math": 1e-3, "sdpa-flash": 2e-3}


def bundles(folder: Path) -> list[Path]:
    return store.finished(folder / store.RUNS)


def test_a_run_ends_with_table_verdict_claim_and_a_bundle_that_verifies(
    cli: Cli, script: Script, tmp_path: Path
) -> None:
    script(FASTER)
    done = cli(*QUICK)
    assert done.code == 0
    (left,) = (tmp_path / store.RUNS).iterdir()
    assert [left] == bundles(tmp_path), "the journal is gone once the bundle is there"
    check.verify(left)
    assert "FASTER" in done.out
    assert re.search(r"^sdpa-flash is faster: \d\.\d\d+× \(95% CI .+\) vs sdpa-math, B=1 H=8 S=64 ", done.out, re.M)
    assert str(left.relative_to(tmp_path)) in done.out
    assert "process 4 of 4 done\n" in done.err


def test_without_a_terminal_it_says_at_the_start_what_will_be_measured(cli: Cli, script: Script) -> None:
    script(FASTER)
    said = cli(*QUICK, "--only", "sdpa-math,sdpa-flash", "--processes", 2).err.splitlines()
    assert said[0] == "measuring attention: 1 case, 2 contenders (sdpa-math, sdpa-flash), 2 processes"
    assert said[1].startswith("process 1 of 2 done")


def test_the_exit_code_of_a_complete_run_is_0_whatever_the_verdict(cli: Cli, script: Script) -> None:
    script(SLOWER)
    done = cli(*QUICK)
    assert (done.code, "SLOWER" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("out", "extra", "written", "start"),
    [
        (None, True, "report.html", "<!doctype html>"),
        ("elsewhere", False, "report.md", "# attention on "),
        ("with space", True, "report.html", "<!doctype html>"),
    ],
)
def test_the_commands_it_ends_with_work(
    cli: Cli, script: Script, monkeypatch: pytest.MonkeyPatch, out: str | None, extra: bool, written: str, start: str
) -> None:
    """And name the page only where the extra that makes it is installed."""
    monkeypatch.setattr(page, "find_spec", find_spec if extra else lambda name: None)
    script(FASTER)
    done = cli(*QUICK, *(["--out", out] if out else []))
    for label in ("check it", "report"):
        (line,) = (line for line in done.out.splitlines() if line.startswith(label))
        assert cli(*shlex.split(line.removeprefix(label))[1:]).code == 0
    assert Path(written).read_text().lower().startswith(start)


def test_the_commands_in_its_report_work(cli: Cli, script: Script) -> None:
    """A10: check it, measure it again, write the report."""
    script(FASTER)
    cli(*QUICK)
    (first,) = store.finished(store.RUNS)
    assert [cli(*command).code for command in printed_commands(cli("report", "latest").out)] == [0, 0, 0]
    again = bundle.read(store.finished(store.RUNS)[-1])
    assert again.record.run.reproduces == bundle.read(first).identity


@pytest.mark.parametrize(
    ("means", "noise", "faster", "not_slower"),
    [(FASTER, 0.005, 0, 0), (SLOWER, 0.005, 1, 1), (SAME, 0.005, 1, 0), (SAME, 0.4, 3, 3)],
)
def test_require_turns_verdicts_into_exit_codes(
    cli: Cli, script: Script, means: dict[str, float], noise: float, faster: int, not_slower: int
) -> None:
    for require, code in (("faster", faster), ("not-slower", not_slower)):
        script(means, noise=noise)
        done = cli(*QUICK, "--require", require)
        assert done.code == code
        why = [line for line in done.err.splitlines() if line.startswith("groundspeed: ")]
        assert bool(why) == bool(code), "and a sentence says which verdict it was"
        assert all(f"--require {require}" in line and "sdpa-flash" in line for line in why)


def wrong(who: str) -> Fault:
    fault = {"status": "INCORRECT", "reason": "max_rel 1 is over 1e-5"}
    return lambda contender, case, block: fault if contender == who and block is None else None


def test_require_is_not_met_by_a_wrong_contender_and_not_decided_by_a_wrong_baseline(cli: Cli, script: Script) -> None:
    script(FASTER, wrong("sdpa-flash"))
    assert cli(*QUICK, "--require", "faster").code == 1
    script(FASTER, wrong("sdpa-math"))
    assert cli(*QUICK, "--require", "faster").code == 3


def test_require_is_not_decided_by_one_process_or_by_an_absent_contender(cli: Cli, script: Script) -> None:
    script(FASTER)
    done = cli(*QUICK, "--processes", 1, "--require", "faster")
    assert done.code == 3
    assert "this ratio comes from a single process" in done.out
    done = cli(*QUICK, "--judge", "flash-attn-3", "--require", "faster")
    assert done.code == 4
    assert "flash-attn-3 of --judge cannot run here" in done.err
    done = cli(*QUICK, "--only", "sdpa-math", "--require", "faster")
    assert done.code == 3
    assert "nothing was judged" in done.err


def test_require_looks_at_every_case(cli: Cli, script: Script) -> None:
    """One slower case fails it, however good the mean."""
    noise = random.Random(1)
    flash = {"b1-s64": 1.2e-3, "b1-s128": 0.1e-3}

    def seconds(contender: str, case: str, block: int) -> float:
        return (flash[case] if contender == "sdpa-flash" else 1e-3) * noise.lognormvariate(0, 0.005)

    script(seconds)
    done = cli(*QUICK, "--shape", "S=128,causal=0", "--require", "not-slower")
    assert done.code == 1
    assert "b1-h8-s64-d64-full-fp32, sdpa-flash: SLOWER" in done.err


def test_a_no_is_a_no_whatever_else_is_unclear(cli: Cli, script: Script) -> None:
    noise = random.Random(1)

    def seconds(contender: str, case: str, block: int) -> float:
        return (2e-3 if contender == "naive" else 1e-3) * noise.lognormvariate(0, 0.4 if contender != "naive" else 0.01)

    script(seconds)
    done = cli(*QUICK, "--judge", "sdpa-flash,naive", "--require", "faster")
    assert "UNCLEAR" in done.out
    assert done.code == 1
    assert "naive: SLOWER" in done.err


def test_require_is_refused_where_the_exit_code_has_another_meaning(cli: Cli, script: Script) -> None:
    script(FASTER)
    assert cli(*QUICK).code == 0
    done = cli("run", "--reproduce", "latest", "--require", "faster")
    assert (done.code, done.sentence.partition(",")[0]) == (2, "--reproduce repeats the run of a bundle")

    def interrupt(contender: str, case: str, block: int | None) -> None:
        if block == 5:
            raise KeyboardInterrupt

    script(FASTER, interrupt)
    assert cli("run", "--reproduce", "latest").code == 3
    done = cli("run", "--resume", "latest", "--require", "faster")
    assert (done.code, done.sentence.rpartition("; ")[2]) == (2, "leave out --require")
    script(FASTER)
    assert cli("run", "--resume", "latest").code == 0


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_an_interrupted_run_leaves_a_valid_bundle_and_goes_on(
    cli: Cli, script: Script, tmp_path: Path, how: str
) -> None:
    calls = 0

    def interrupt(contender: str, case: str, block: int | None) -> None:
        nonlocal calls
        calls += 1
        if calls == 50 and how == "Ctrl-C":
            raise KeyboardInterrupt
        if calls == 50:
            os.kill(os.getpid(), signal.SIGTERM)

    script(FASTER, interrupt)
    done = cli(*QUICK)
    assert done.code == 3
    (left,) = bundles(tmp_path)
    record = check.verify(left)[0].record
    assert not record.complete
    assert "No claim about sdpa-flash" in done.out
    (hint,) = (line for line in done.err.splitlines() if "--resume" in line)
    script(FASTER)
    done = cli("run", *shlex.split(hint.partition("groundspeed run ")[2]))
    assert done.code == 0
    assert "is faster" in done.out
    assert "1 of 4 processes was restarted after an interruption, once" in done.out
    (said,) = re.findall(r"^evidence  (.+)$", done.out, re.M)
    assert Path(said).parent == store.RUNS, "where it is from here, as after any run"
    assert check.verify(bundles(tmp_path)[-1])[0].record.complete


def test_resuming_where_out_was_elsewhere(cli: Cli, script: Script) -> None:
    def interrupt(contender: str, case: str, block: int | None) -> None:
        if block == 5:
            raise KeyboardInterrupt

    script(FASTER, interrupt)
    done = cli(*QUICK, "--out", "else where")
    assert done.code == 3
    assert "interrupted after 0 of" in done.out
    assert "SKIPPED" not in done.out, "no table of nothing"
    script(FASTER)
    (hint,) = (line for line in done.err.splitlines() if "--resume" in line)
    assert cli("run", *shlex.split(hint.partition("groundspeed run ")[2])).code == 0
    assert cli("run", "--resume", "latest", "--out", "else where").code == 2, "and then it is complete"


def test_the_commands_at_the_end_of_a_report_do_what_it_says(cli: Cli, script: Script) -> None:
    """A10: how to check it, measure it again and write it again."""
    script(FASTER)
    assert cli(*QUICK).code == 0
    fence = cli("report", "latest", "--md", "-").out.rpartition("\n```\n")[0].rpartition("```\n")[2]
    commands = [shlex.split(line) for line in fence.splitlines()]
    assert [(name, cli(*arguments).code) for name, *arguments in commands] == [("groundspeed", 0)] * 3
    assert len(store.finished(store.RUNS)) == 2, "one of them measured again"


def test_a_contender_that_hangs_costs_only_itself(cli: Cli, script: Script) -> None:
    def hangs(contender: str, case: str, block: int | None) -> Exception | None:
        return Silence() if contender == "naive" and block == 2 else None

    script({**FASTER, "naive": 1e-3}, hangs)
    done = cli(*QUICK, "--only", "sdpa-flash,naive", "--timeout", "7")
    assert done.code == 0
    assert "TIMEOUT" in done.out
    assert "no answer within 7 s" in done.out
    assert "sdpa-flash is faster" in done.out


def test_cuda_without_a_gpu_says_what_was_looked_for(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(declare, "visible_uuid", lambda: None)
    done = cli("run", "attention", "--device", "cuda")
    assert done.code == 4
    assert "NVML" in done.sentence
    assert "--device cpu" in done.sentence
    assert list(tmp_path.iterdir()) == []


def test_without_torch_the_way_to_install_it_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    available = importlib.import_module("groundspeed.suites.available")
    monkeypatch.setattr(available, "installed", lambda package: False)
    done = cli(*QUICK)
    assert done.code == 4
    assert "pip install 'groundspeed[torch]'" in done.sentence


def test_a_progress_line_tells_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([100.0, 105.0, 110.0, 110.0, 120.0, 120.0])
    tell = progress.lines(lambda: next(times))
    for done in (0.0, 0.5, 1.0, 2.0, 2.0):
        tell(Progress(int(done), 2, done * 5, 10, ""))
    assert capsys.readouterr().err == "process 1 of 2 done, about 0:10 left\nprocess 2 of 2 done\n"


def test_nobody_waits_longer_than_a_minute_for_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    clock = [0.0]
    tell = progress.lines(lambda: clock[0])
    for seconds in range(0, 400, 10):
        clock[0] = float(seconds)
        tell(Progress(seconds // 200, 2, seconds / 40, 10, ""))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "process 1 of 2, 15% of the run done, about 5:40 left"
    assert "process 1 of 2 done, about 3:20 left" in said
    assert len(said) == 7


def test_a_line_up_is_said_once_and_no_part_of_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([100.0, 110.0, 110.0])
    tell = progress.lines(lambda: next(times))
    for contender in ("one", "other"):
        tell(Progress(0, 2, 0, 10, f"case, {contender}", LINE_UP))
    for done in (0.0, 5.0):
        tell(Progress(int(done), 2, done, 10, "case"))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("line-up")
    assert second == "process 1 of 2 done, about 0:10 left"


@pytest.mark.parametrize(("seconds", "said"), [(0.2, "0:00"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03")])
def test_the_clock_of_the_progress_bar(seconds: float, said: str) -> None:
    assert progress.clock(seconds) == said
