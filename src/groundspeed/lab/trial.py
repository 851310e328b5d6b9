"""Reads the functions that were sent for the first time: does a fresh process have the same ones?

`main` runs in a process of its own and is given the folder. It reads the functions, makes the inputs once, and reports
in JSON why it cannot have the functions, what its settings are, and which modules it imported, from which files and
with what contents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import groundspeed
from groundspeed.errors import BadInput
from groundspeed.lab.first_call import check_call
from groundspeed.lab.modules import Told, refuse_changed, tell
from groundspeed.measure import gate
from groundspeed.measure.setting import UNTOLD, Setting
from groundspeed.suites import aside
from groundspeed.suites.functions import sent
from groundspeed.suites.functions.suite import Functions, called, drawn_as

SOON_S, USED = 600, "used.json"
FREE = ("number of threads", "gradient mode", "current stream")
"""The ends of the names of settings that a worker sets for itself."""
CUDNN = ("enabled", "benchmark", "deterministic", "benchmark_limit")
BY_ONE_CALL = "PyTorch's matmul precision"
"""Compared first: the call that sets it sets others too, and this is the name that people know."""


def try_reading(folder: Path, here: Told, used: Sequence[str], baseline: str) -> list[str]:
    """Return the files that a fresh process imported. `here` describes the modules of this process, and `used` holds
    the names that the functions use. If modules are imported there, the baseline is checked there too. CannotSend if a
    fresh process cannot have the functions, BadInput if what it has differs."""
    if sys.flags.optimize:
        raise BadInput("Python runs with -O, and functions are measured without it; start Python without -O")
    root = Path(groundspeed.__file__).parents[1]
    start = f"import sys; sys.path.insert(0, {str(root)!r}); from {__name__} import main; main()"
    (folder / USED).write_text(json.dumps({"used": used, "baseline": baseline}), encoding="utf-8")
    command = [sys.executable, "-P", "-c", start, str(folder)]  # -P: nothing from the working folder by default
    try:
        done = aside.ask(command, SOON_S)
    except subprocess.TimeoutExpired:
        raise sent.CannotSend(f"a fresh process could not read the functions within {SOON_S} s") from None
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise sent.CannotSend(
            f"a fresh process exited with code {done.returncode} while it read the functions"
        ) from None
    _refuse_settings(found["settings"])
    if found["sets"]:
        raise BadInput(
            f"a module that is imported with the functions sets {found['sets']}; remove that from the module"
        )
    if found["cannot"]:
        raise sent.CannotSend(found["cannot"])
    refuse_changed(here, found["modules"])
    if found["wrong"]:
        raise BadInput(found["wrong"])
    return sorted(module["file"] for module in found["modules"].values())


def _refuse_settings(there: Mapping[str, str]) -> None:
    here = _settings()
    for name in sorted(here, key=lambda name: name != BY_ONE_CALL):
        value = here[name]
        if value != there.get(name, value):
            raise BadInput(
                f"{name} is {value} here, and functions are measured with {there[name]}; set it back before comparing"
            )


def _settings() -> dict[str, str]:
    """Return the settings of PyTorch that docs/functions.md lists."""
    import torch

    values = {name: value for name, value in Setting.now().values.items() if name.startswith("PyTorch's ")}
    backends, tiny = torch.backends, torch.tensor([1e-310], dtype=torch.float64)
    values |= {
        "PyTorch's default device": torch.get_default_device(),
        "PyTorch's flash attention": backends.cuda.flash_sdp_enabled(),
        "PyTorch's memory-efficient attention": backends.cuda.mem_efficient_sdp_enabled(),
        "PyTorch's math attention": backends.cuda.math_sdp_enabled(),
        "PyTorch's cuDNN attention": backends.cuda.cudnn_sdp_enabled(),
        "PyTorch's fast path of transformer layers": backends.mha.get_fastpath_enabled(),
        "PyTorch's flushing of denormal numbers": bool(tiny.mul(0.5) == 0),
    }
    values |= {f"PyTorch's cudnn.{flag}": getattr(backends.cudnn, flag) for flag in CUDNN}
    return {name: str(value) for name, value in values.items() if not name.endswith(FREE) and value != UNTOLD}


def _wrong(module: Functions, function: Any, baseline: str) -> str:
    """Return why the inputs or the baseline are not what they are where gs.compare was called, or an empty string."""
    assert module.form is not None
    assert module.given is not None
    import torch

    torch.set_grad_enabled(False)
    try:
        drawn = drawn_as(module.given.make, module.form, 1)
    except BadInput as error:
        return str(error)
    except Exception as error:
        return f"inputs() fails in a fresh process ({sent.first_line(error)})"
    if not sent.imported():  # then nothing is made anew
        return ""
    (case,) = module.all_cases()
    with suppress(Exception):  # in a process that measures it fails as well, and is shown with its place
        inputs = case.inputs(1, drawn[0].device.type)
        answer = gate.Answer(None, case.oracle(*inputs).cpu())
        try:
            check_call(case, inputs, called(function, module.form), answer)
        except gate.Incorrect as error:
            return (
                f"{baseline} is right here, and not in a fresh process ({error}): a module may draw its weights when "
                "it is imported; seed them there, or draw them in the script"
            )
    return ""


def main() -> None:
    channel = os.dup(1)
    os.dup2(2, 1)
    folder = Path(sys.argv[1])
    found: dict[str, Any] = {"settings": _settings(), "cannot": "", "sets": "", "wrong": "", "modules": {}}
    names = json.loads((folder / sent.ABOUT).read_text(encoding="utf-8"))["names"]
    files = {sent.WHOEVER: sent.GIVEN} | {name: f"{i}{sent.PICKLE}" for i, name in enumerate(names)}
    asked = json.loads((folder / USED).read_text(encoding="utf-8"))
    functions = {}
    for what, file in files.items():
        try:
            functions[what] = sent.read(folder / file)
        except BaseException as error:
            found["cannot"] = f"{what} cannot be read in a fresh process ({sent.first_line(error)})"
            break
    else:
        found["sets"] = next((name for name, now in _settings().items() if now != found["settings"].get(name)), "")
        found |= {
            "modules": tell(sent.imported(), asked["used"]),
            "wrong": _wrong(sent.module_of(folder), functions[asked["baseline"]], asked["baseline"]),
        }
    with os.fdopen(channel, "w") as out:
        json.dump(found, out)
        out.flush()
        os._exit(0)
