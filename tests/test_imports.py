"""What importing groundspeed costs and needs, proved in fresh processes."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import groundspeed

KERNELS = (
    "activate", "append_paged", "attention", "attention_paged", "attention_varlen", "compile_graphs", "hf",
    "layer_norm", "linear", "moe", "nn", "patch", "rms_norm", "rotary", "unpatch",
)  # fmt: skip
HEAVY = ("torch", "triton", "transformers", "numpy", "scipy", "typer", "rich", "psutil", "pynvml")


def fresh(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_groundspeed_imports_nothing_slow() -> None:
    assert fresh(f"import groundspeed, sys; print(sorted(set({HEAVY!r}) & set(sys.modules)))") == "[]"


def test_the_public_names_resolve_without_torch() -> None:
    """All but the kernels, which say what is missing."""
    source = "import sys; sys.modules['torch'] = None; import groundspeed as gs\n"
    source += f"names = [n for n in gs.__all__ if n not in {KERNELS!r}]\n"
    source += "print([n for n in names if getattr(gs, n, None) is None], set(gs.__all__) <= set(dir(gs)))"
    assert fresh(source) == "[] True"
    for name in KERNELS:
        source = "import sys; sys.modules['torch'] = None; import groundspeed as gs\n"
        source += f"try: gs.{name}\nexcept ImportError as error: print(error)"
        assert fresh(source) == f"groundspeed.{name} needs torch: pip install 'groundspeed[torch]'"


def test_a_star_import_gives_the_public_names() -> None:
    assert fresh("from groundspeed import *; print(callable(contender), callable(nn.MoE))") == "True True"


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nosuch"):
        groundspeed.nosuch  # noqa: B018


def modules(*rooms: str) -> list[str]:
    found = [info.name for info in pkgutil.walk_packages(groundspeed.__path__, "groundspeed.")]
    return [name for name in found if name.split(".")[1] in rooms]


def test_evidence_judge_and_report_work_on_a_laptop_without_torch() -> None:
    """Every module of them, and the command line with all its commands, where torch and triton cannot be imported."""
    names = modules("evidence", "judge", "report", "cli", "errors")
    assert len(names) > 25
    source = "import importlib, sys\nsys.modules['torch'] = sys.modules['triton'] = None\n"
    source += f"for name in {names!r}: importlib.import_module(name)\nprint('all')"
    assert fresh(source) == "all"


def test_suites_and_measure_can_be_asked_without_torch() -> None:
    """`list` and `doctor` say what is missing instead of failing on it."""
    source = "import sys; sys.modules['torch'] = sys.modules['triton'] = None\n"
    source += "from groundspeed.suites import registry\nfrom groundspeed.measure.environment import host_environment\n"
    source += "suite = registry.load('attention')\nhost_environment()\n"
    source += "print(len(suite.module.all_cases()) > 50, bool(suite.contenders))"
    assert fresh(source) == "True True"
