"""The entry point: help, version, pipes, terminals without Unicode, and what happens when we are wrong ourselves."""

from __future__ import annotations

import fnmatch
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from invocation import COMMAND, BundleOf, Cli, Script, process

from groundspeed import __version__
from groundspeed.cli import run
from groundspeed.lab import check
from groundspeed.suites.registry import suite_module

COMMANDS = ("run", "list", "show", "verify", "compare", "report", "grade", "profile", "history", "doctor")


def test_help_names_every_command_and_the_exit_codes(cli: Cli) -> None:
    done = cli("--help")
    assert done.code == 0
    for command in COMMANDS:
        assert re.search(rf"^│ {command} +\w", done.out, re.M)
    assert "3 inconclusive" in re.sub(r"\s+", " ", done.out)
    assert cli("-h").out == done.out


def test_without_a_command_help_is_shown_and_it_is_wrong_usage(cli: Cli) -> None:
    done = cli()
    assert done.code == 2
    assert "Usage: groundspeed" in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_an_example(cli: Cli, command: str) -> None:
    done = cli(command, "--help")
    assert done.code == 0
    assert re.search(rf"Example: groundspeed {command}\b", done.out)


@pytest.mark.parametrize(
    "command", ["run attention --preset quick", "list attention", "show latest", "verify latest", "report latest"]
)
def test_the_examples_are_of_things_that_exist(cli: Cli, command: str) -> None:
    assert command in re.sub(r"\s+", " ", cli(command.split()[0], "--help").out)


def test_the_example_of_run_can_be_run_as_it_stands(cli: Cli, script: Script) -> None:
    example = run.EXAMPLE.partition("groundspeed ")[2]
    script({"sdpa-math": 2e-3, "sdpa-flash": 1e-3})
    assert cli(*shlex.split(example)).code == 0


def test_no_pattern_in_the_help_of_run_keeps_a_cpu_busy_for_hours(cli: Cli) -> None:
    patterns = set(re.findall(r"'(\S+\*)'", cli("run", "--help").out))
    known = {name for case in suite_module("attention").all_cases() for name in case.names}
    a_cpus = {name for case in suite_module("attention").preset_cases("quick", "cpu") for name in case.names}
    assert patterns
    for pattern in patterns:
        shapes = {name.rsplit("-", 2)[0] for name in fnmatch.filter(known, pattern)}
        assert shapes
        assert shapes <= {name.rsplit("-", 2)[0] for name in a_cpus}


def test_every_flag_of_run_is_explained(cli: Cli) -> None:
    """Text in brackets would be eaten as markup: nothing that the help says is."""
    said = re.sub(r"[\s│]+", " ", cli("run", "--help").out)
    names = inspect.signature(run.command).parameters
    flags = {name.strip("_").replace("_", "-") for name in names} - {"suite"}
    assert len(flags) == 23
    for flag in flags:
        value = "" if flag in ("sequential", "extend", "isolate") else r"(<[\w ]+>|[A-Z]+) "
        assert re.search(rf"--{flag} {value}[A-Za-z]", said), flag
    assert "(default .groundspeed/runs)" in said
    assert "(default 30)" in said


def test_version(cli: Cli) -> None:
    assert cli("--version") == (0, f"groundspeed {__version__}\n", "")


def test_a_bug_of_ours_is_one_sentence_unless_asked(
    cli: Cli, bundle_of: BundleOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle_of()

    def broken(path: Path) -> None:
        raise ZeroDivisionError("float division\nby zero")

    monkeypatch.setattr(check, "verify", broken)
    done = cli("show", "latest")
    assert done.code == 4
    assert done.err == (
        "groundspeed: a bug in groundspeed: ZeroDivisionError: float division by zero "
        "(GROUNDSPEED_DEBUG=1 shows where)\n"
    )
    monkeypatch.setenv("GROUNDSPEED_DEBUG", "1")
    assert "Traceback" in cli("show", "latest").err


def test_what_the_system_refuses_is_no_bug_of_ours(
    cli: Cli, bundle_of: BundleOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle_of()

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", "x/manifest.json")

    monkeypatch.setattr(check, "verify", refuse)
    assert cli("show", "latest") == (
        4,
        "",
        "groundspeed: operating system error: Permission denied (x/manifest.json)\n",
    )


def test_ctrl_c_is_not_an_answer(cli: Cli, bundle_of: BundleOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither 0 nor 1: whoever waits for yes or no must not take it for one."""
    bundle_of()

    def interrupt(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "verify", interrupt)
    assert cli("verify", "latest") == (3, "", "groundspeed: interrupted\n")


def piped_to_nobody(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command with a stdout that nobody reads any more, as after `| head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [str(COMMAND), *arguments], cwd=cwd, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60
        )
    finally:
        os.close(writer)


def test_a_reader_that_has_gone_changes_no_exit_code(bundle_of: BundleOf, tmp_path: Path) -> None:
    made = bundle_of()
    for arguments in (["list", "attention"], ["report", "latest"], ["show", "latest"], ["verify", "latest"]):
        done = piped_to_nobody(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    with (made.path / "facts.json").open("ab") as file:
        file.write(b" ")
    assert piped_to_nobody("verify", "latest", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_still_tells_micro_from_milli(
    bundle_of: BundleOf, tmp_path: Path, encoding: str
) -> None:
    bundle_of()
    done = process("show", "latest", cwd=tmp_path, env={"PYTHONIOENCODING": encoding}, errors="replace")
    assert done.code == 0
    assert done.err == ""
    if encoding == "ascii":
        assert done.out.isascii()
        assert re.search(r"(29[89]|30[0-2]) us", done.out)
        assert re.search(r"\d\.\d\dx \(95% CI \d\.\d\d-\d\.\d\d\)", done.out)
    assert "?" not in done.out
    written = process("report", "latest", "--md", "a.md", cwd=tmp_path, env={"PYTHONIOENCODING": encoding})
    assert written.code == 0
    assert " µs" in (tmp_path / "a.md").read_text(encoding="utf-8"), "a file is UTF-8 wherever it is written"


LOOK = """
import contextlib, io, sys
from groundspeed.cli import main
for line in {lines!r}:
    sys.argv = ["groundspeed", *line.split()]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    print(line, code, sorted({{"torch", "triton", "scipy.stats", "pandas"}} & set(sys.modules)))
"""


def test_no_command_but_run_imports_torch(bundle_of: BundleOf, tmp_path: Path) -> None:
    bundle_of()
    lines = [
        "--help",
        "run --help",
        "list",
        "list attention",
        "show latest",
        "verify latest",
        "report latest",
        "report latest --csv a --json b --jsonl c",
        "history --out e",
        "doctor --write d",
    ]
    source = LOOK.format(lines=lines)
    done = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [f"{line} 0 []" for line in lines]


def test_help_needs_neither_numpy_nor_scipy(tmp_path: Path) -> None:
    source = "import sys; sys.modules.update(dict.fromkeys(['numpy', 'scipy', 'torch', 'psutil', 'pynvml']))\n"
    source += "from groundspeed.cli import main; sys.argv = ['groundspeed', '--help']; main()"
    done = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_installed_command_answers(bundle_of: BundleOf, tmp_path: Path) -> None:
    bundle_of()
    assert process("--version", cwd=tmp_path) == (0, f"groundspeed {__version__}\n", "")
    assert process("verify", "latest", cwd=tmp_path).code == 0
    done = process("verify", "nosuch", cwd=tmp_path)
    assert done.code == 2
    assert done.sentence.startswith("nosuch is not a bundle")
    assert "\x1b" not in process("show", "latest", cwd=tmp_path).out
