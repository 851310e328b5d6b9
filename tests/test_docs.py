"""The documents say what is there: every command and flag, real output, links that lead somewhere."""

from __future__ import annotations

import functools
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from groundspeed.cli import app
from groundspeed.evidence import store
from groundspeed.lab import check, profile
from groundspeed.report import export, formats

ROOT = Path(__file__).parent.parent
COMMANDS = (ROOT / "docs" / "commands.md").read_text()
README = (ROOT / "README.md").read_text()
DOCUMENTS = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

TREE = typer.main.get_command(app)
NAMES = sorted(TREE.commands)  # type: ignore[attr-defined]


def section(name: str) -> str:
    found = re.search(rf"^## groundspeed {name}\n(.*?)(?=^## |\Z)", COMMANDS, re.MULTILINE | re.DOTALL)
    assert found, f"docs/commands.md has no section on groundspeed {name}"
    return found[1]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_stands_in_the_docs(name: str) -> None:
    assert section(name).strip()
    assert f"`groundspeed {name}" in README


@pytest.mark.parametrize("name", NAMES)
def test_every_flag_stands_in_the_docs(name: str) -> None:
    command = TREE.commands[name]  # type: ignore[attr-defined]
    inside = getattr(command, "commands", {})
    assert {part for part in inside if f"groundspeed {name} {part}" not in section(name)} == set()
    params = [parameter for each in (command, *inside.values()) for parameter in each.params]
    flags = {flag for parameter in params for flag in parameter.opts if flag.startswith("--")} - {"--help"}
    assert {flag for flag in flags if f"`{flag}" not in section(name) and f"{flag} " not in section(name)} == set()


def test_the_docs_name_no_command_that_does_not_exist() -> None:
    blocks = [block for d in DOCUMENTS for block in re.findall(r"```sh\n(.*?)```", d.read_text(), re.DOTALL)]
    named = {name for block in blocks for name in re.findall(r"^groundspeed (\w+)", block, re.MULTILINE)}
    assert named
    assert named - set(NAMES) == set()


def test_every_speed_number_is_tied_to_a_bundle_and_every_block_is_what_the_code_makes() -> None:
    """D4: what `make release` asks for, but that a kernel may have changed since."""
    call = [sys.executable, "-c", "from groundspeed.cli import main; main()", "claims", "check", *DOCUMENTS]
    done = subprocess.run(call, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("what", ["chart: docs/attention-h200.svg evidence/", "standing: ", "claims: evidence/"])
def test_the_readme_quotes_bundles(what: str) -> None:
    assert f"<!-- {what}" in README


BUNDLES = sorted((ROOT / "evidence").glob("*/*"))


@pytest.mark.parametrize(
    "bundle", [path for path in BUNDLES if not path.name.startswith("profile-")], ids=lambda path: path.name[-12:]
)
def test_committed_evidence_verifies(bundle: Path) -> None:
    found, replay = check.verify(bundle)
    listed = (ROOT / "evidence" / "README.md").read_text()
    row = next(line for line in listed.splitlines() if f"`{found.identity[:8]}`" in line)
    assert found.record.complete != ("interrupted" in row), row
    assert replay.figures > 0
    assert json.loads(export.to_json(replay.judgement, found.identity))["bundle"] == found.identity
    for make in (formats.to_pytest_benchmark, formats.to_bencher):
        assert json.loads(make(replay.judgement, found.identity))


def test_the_list_of_bundles_has_each_of_them() -> None:
    text = (ROOT / "evidence" / "README.md").read_text()
    listed = re.findall(r"`([0-9a-f]{8})`", text.partition("| bundle |")[2])
    assert sorted(listed) == sorted(path.name.rpartition("-")[2][:8] for path in BUNDLES)


def test_committed_profiles_verify() -> None:
    profiles = [profile.verify(path) for path in BUNDLES if path.name.startswith("profile-")]
    assert profiles
    for found, picture, reports in profiles:
        assert found.path.name.endswith(found.identity)
        assert [look.seen.status for look in picture.looks] == ["PASSED"] * len(picture.looks)
        assert (len(picture.counted), reports) == (len(picture.looks), 0)


@functools.cache
def anchors(path: Path) -> set[str]:
    """Return what a link into a document may name: its headings, written as GitHub does."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    heads = [re.sub(r"[`*]", "", head).lower() for head in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for name, _, heading in re.findall(r"\]\((?!https?:)([^)#]*)(#([^)]+))?\)", document.read_text()):
        target = document.parent / name if name else document
        assert target.exists(), name
        assert not heading or heading in anchors(target), f"{name}#{heading}"


def _expanded(word: str) -> list[str]:
    """Files of the repository; of many bundles two."""
    is_file = word.startswith(("examples/", "evidence/")) or word == "README.md"
    return [str(path) for path in sorted(ROOT.glob(word))[:2]] if is_file else [word]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line],
)
def test_every_command_of_the_readme_works(command: str, tmp_path: Path) -> None:
    """The two make targets are tried dry; what they do is what this test run and CI do. A run is made short."""
    words = shlex.split(command, comments=True)
    if words[0] == "make":
        done = subprocess.run([*words, "-n"], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return
    if words == [".", ".venv/bin/activate"]:  # where the Makefile puts it
        assert "VENV   ?= .venv" in (ROOT / "Makefile").read_text()
        return
    if words[:2] == ["pip", "install"]:  # of the extras that there are
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        (asked,) = words[2:]
        assert {*asked.removeprefix(".[").removesuffix("]").split(",")} <= extras.keys()
        return
    assert words[0] == "groundspeed"
    words = [one for word in words[1:] for one in _expanded(word)]
    if words[0] == "run":
        if "--case" in words:  # a sweep for a GPU
            words[words.index("--case") :] = []
        words += [
            "--processes",
            "1",
            "--warmup",
            "0.001",
            *([] if "--shape" in words else ["--case", "small-full-fp32"]),
        ]
    else:
        (tmp_path / store.RUNS).mkdir(parents=True)
        bundle = next((ROOT / "evidence").glob("*/*"))
        (tmp_path / store.RUNS / bundle.name).symlink_to(bundle)
    call = [sys.executable, "-c", "from groundspeed.cli import main; main()", *words]
    done = subprocess.run(call, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
