"""C2: what a revision asks for, as its files declare it, and which of that is installed for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundspeed.lab.dependencies import Asked, in_public, name_of, read
from repositories import write

PROJECT = """
[project]
name = "My.Project"
dependencies = ["torch>=2.11", "speedlib[fast]==1.0 ; python_version >= '3.11'", "groundspeed"]

[project.optional-dependencies]
dev = ["pytest>=8", "my-project[gpu]"]

[dependency-groups]
docs = ["sphinx", {include-group = "dev"}]
"""
REQUIREMENTS = """
# what it needs
--require-hashes
--extra-index-url https://name:secret@wheels.example/simple
-r more/base.txt
-c limits.txt
-e .[dev]
-e.
-e ./part
./part[fast]
part/inner
file:part
./wheels/kept-1.0-py3-none-any.whl
numpy==2.4.1 \\
    --hash=sha256:00 \\
    --hash=sha256:11
ours @ git+https://token@git.example/ours#egg=ours  # a branch
"""
LOCK = """
[[package]]
name = "triton"
version = "3.7.1"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "my-project"
version = "1"
source = { editable = "." }

[[package]]
name = "twice"
version = "1"

[[package]]
name = "twice"
version = "2"
"""


def test_every_file_that_declares_dependencies_is_read(tmp_path: Path) -> None:
    files = {
        "requirements.txt": REQUIREMENTS,
        "more/base.txt": "einops\n-r ../requirements.txt\n-r ../../outside.txt\n",
    }
    write(tmp_path / "top", {"pyproject.toml": PROJECT, **files, "limits.txt": "scipy<2\n", "uv.lock": LOCK})
    write(tmp_path, {"outside.txt": "stranger\n"})
    write(tmp_path / "top", {"constraints.txt": "psutil==7.0\n"})
    asked = read(tmp_path / "top")
    assert asked.required == {
        "torch>=2.11",
        "speedlib[fast]==1.0 ; python_version >= '3.11'",
        "einops",
        "numpy==2.4.1",
        "./wheels/kept-1.0-py3-none-any.whl",
        "ours @ git+https://token@git.example/ours#egg=ours",
    }
    assert asked.held == {"pytest>=8", "sphinx", "scipy<2", "psutil==7.0", "triton==3.7.1"}
    assert asked.options == ("--extra-index-url https://name:secret@wheels.example/simple",)


@pytest.mark.parametrize(
    "project",
    [
        *("[project", "project = 1", "[project]\ndependencies = 1", "[project]\noptional-dependencies = ['x']", "\x00"),
        f"x = {'[' * 5000}{']' * 5000}",
    ],
)
def test_what_cannot_be_read_asks_for_nothing(tmp_path: Path, project: str) -> None:
    (tmp_path / "requirements.txt").write_bytes(b"\xff\xfe")
    write(tmp_path, {"pyproject.toml": project, "uv.lock": "package = 1\n", "poetry.lock": "package = [1, 2]\n"})
    assert read(tmp_path) == Asked()


def test_what_only_holds_a_version_counts_for_what_is_installed() -> None:
    """Extras may exclude each other; and of a lock file everything else stays as it is."""
    before = Asked(frozenset({"numpy", "speedlib==1.0"}), frozenset({"torch==2.13.0", "Jax==1", "kept==1"}))
    after = Asked(frozenset({"numpy", "speedlib==2.0"}), frozenset({"torch==2.14.0", "Jax==2", "kept==1"}))
    assert after.beyond(before) == ["Jax==2", "speedlib==2.0", "torch==2.14.0"]
    assert after.to_install(before, {"torch", "numpy"}) == ["speedlib==2.0", "torch==2.14.0"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Flash_Attn[x]>=2", "flash-attn"),
        ("a.b ; python_version < '4'", "a-b"),
        ("numpy", "numpy"),
        ("./wheels/a.whl", ""),
        ("git+https://git.example/x", ""),
        ("-e git+https://git.example/x", ""),
    ],
)
def test_the_name_of_a_requirement(line: str, name: str) -> None:
    assert name_of(line) == name


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ours @ git+https://user:token@git.example/ours@main", "ours @ git+https://git.example/ours@main"),
        ("ours @ https://user:p@ss@git.example/ours.whl", "ours @ https://git.example/ours.whl"),
        ("https://git.example/a.whl?signature=x@y#sha256=1 ; a", "https://git.example/a.whl#sha256=1 ; a"),
    ],
)
def test_nothing_that_opens_a_server_gets_into_evidence(line: str, said: str) -> None:
    assert in_public(line) == said
