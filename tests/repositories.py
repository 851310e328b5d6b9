"""Small git repositories with contenders in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

KERNEL = "src/project/kernel.py"
CONTENDER = """
import groundspeed as gs
from project.kernel import ROUNDS


@gs.contender("attention")
def mine(q, k, v, *, causal, scale):
    import torch

    for _ in range(ROUNDS):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    return out
"""


def git(folder: Path, *arguments: str) -> str:
    """As somebody, whatever the settings of this machine."""
    who = {f"GIT_{role}_{what}": "somebody" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**kept, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.strip()


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def commit(folder: Path, files: Mapping[str, str]) -> str:
    """The repository in `folder`, made if there is none, with these files; the commit."""
    if not (folder / ".git").exists():
        folder.mkdir(exist_ok=True)
        git(folder, "init", "-q", "-b", "main")
    write(folder, files)
    git(folder, "add", "-A", "--", ".", ":!.groundspeed")
    git(folder, "commit", "-q", "--allow-empty", "-m", "a change")
    return git(folder, "rev-parse", "HEAD")


def with_two_revisions(folder: Path, rounds: int = 2) -> tuple[str, str]:
    """A project whose kernel does its work `rounds` times in the second commit."""
    base = commit(folder, {"bench.py": CONTENDER, KERNEL: "ROUNDS = 1\n"})
    return base, commit(folder, {KERNEL: f"ROUNDS = {rounds}\n"})
