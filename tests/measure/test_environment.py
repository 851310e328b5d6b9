"""The environment manifest: what a result depends on, and nothing about a person, a host or a folder (A7)."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from groundspeed.measure import environment

ASK = """
import json
from groundspeed.measure.environment import host_environment, source_commit, torch_environment
print(json.dumps([host_environment(), torch_environment(), source_commit()]))
"""


@pytest.fixture(scope="module")
def told() -> str:
    """All that a bundle will say, asked for by somebody who has a name, a home and secrets."""
    private = {
        "HOME": "/home/sentinel-person",
        "USER": "sentinel-person",
        "LOGNAME": "sentinel-person",
        "HOSTNAME": "sentinel-host",
        "AWS_SECRET_ACCESS_KEY": "sentinel-secret",
        "PYTHONPATH": os.pathsep.join(["/home/sentinel-person/lib", *sys.path]),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, env={**os.environ, **private}, check=True
    )
    return done.stdout


def test_a7_nothing_names_a_person_a_host_or_a_folder(told: str) -> None:
    assert "sentinel" not in told
    assert str(Path.cwd()) not in told
    assert sys.prefix not in told
    host = platform.node()
    assert len(host) < 4 or not re.search(rf"\b{re.escape(host)}\b", told)
    assert not re.search(r'"/|[ =:]/[a-z]+/', told), "a path"


def test_a7_what_a_result_depends_on_is_there(told: str) -> None:
    host, worker, commit = json.loads(told)
    assert host["os"]["name"]
    assert host["os"]["kernel"] == platform.release()
    assert host["python"]["version"] == platform.python_version()
    assert host["cpu"]["name"]
    assert host["cpu"]["cores"] >= 1
    assert host["memory"]["total_bytes"] > host["memory"]["available_bytes"] > 0
    assert set(host["packages"]) >= {"torch", "numpy", "scipy"}
    assert host["variables"]["OMP_NUM_THREADS"] == "1"
    assert "gpu" in host
    assert worker["torch"].startswith(host["packages"]["torch"].split("+")[0])
    assert worker["threads"] == 1
    assert any("GCC" in line or "clang" in line.lower() for line in worker["build"])
    assert "-O" in worker["compiler_flags"]["CXX_FLAGS"]
    assert commit is None or re.fullmatch(r"[0-9a-f]{40}(\+changes)?", commit)


def test_a7_compiler_flags_that_hold_a_path_are_left_out() -> None:
    build = (
        " - Build settings: BUILD_TYPE=Release, CXX_FLAGS= -O2 -I/home/me/include -isystem /usr/x -DNDEBUG, USE_MKL=ON"
    )
    assert environment._compiler_flags(build) == {"CXX_FLAGS": "-O2 -isystem -DNDEBUG"}


def test_only_variables_that_matter_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("MY_TOKEN", "secret")
    variables = environment.host_environment()["variables"]
    assert variables["CUDA_VISIBLE_DEVICES"] == "3"
    assert set(variables) <= set(environment.VARIABLES)


def test_the_commit_is_unknown_outside_a_checkout_and_without_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "groundspeed" / "measure" / "environment.py"))
    assert environment.source_commit() is None
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.source_commit() is None


def test_a_commit_with_changes_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "groundspeed"
    (package / "measure").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(environment, "__file__", str(package / "measure" / "environment.py"))
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True, capture_output=True)
    commit = environment.source_commit()
    assert commit is not None
    assert re.fullmatch(r"[0-9a-f]{40}", commit)
    (package / "__init__.py").write_text("x = 1\n")
    assert environment.source_commit() == f"{commit}+changes"


def test_names_are_found_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object) -> Any:
        raise OSError

    monkeypatch.setattr(platform, "freedesktop_os_release", missing)
    monkeypatch.setattr(environment, "_read", lambda path: None)
    host = environment.host_environment()
    assert platform.system() in host["os"]["name"]
    assert host["cpu"]["name"]
    assert host["cpu"]["governor"] is None


def test_a_load_is_told_with_how_busy_our_own_cores_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, the others may be idle."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3})
    monkeypatch.setattr("psutil.cpu_percent", lambda *_, **__: [0.0, 90.0, 0.0, 100.0, 0.0])
    monkeypatch.setattr(os, "getloadavg", lambda: (3.0, 0.0, 0.0))
    assert environment._load() == {"load_1min": 3.0, "busy_share": 0.95}
    monkeypatch.setattr(os, "getloadavg", lambda: (0.3, 0.0, 0.0))
    assert environment._load() == {"load_1min": 0.3}
