"""Functions sent by value to fresh processes: a folder with a pickle of each, and what these need to be read.

`python -m groundspeed.suites.functions.sent FOLDER` reads all of them, and says in JSON why that fails. Nobody reads
such a folder but the processes of the run that wrote it: a pickle can run anything."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from groundspeed.case import Case, Contender
from groundspeed.suites import registry
from groundspeed.suites.functions.form import Form, form_of
from groundspeed.suites.functions.suite import SUITE, Functions, Given, called
from groundspeed.suites.signature import signature_of

ABOUT, GIVEN, PICKLE = "about.json", "given.pkl", ".pickle"
SOON_S = 300
LOADER = f"{__name__}:load"


class CannotSend(Exception):
    """Why a fresh process cannot have them."""


def send(folder: Path, functions: Mapping[str, Callable[..., Any]], given: Given, form: Form) -> registry.Suite:
    """Write them there, and try in a process of its own whether they can be read; CannotSend where not."""
    try:
        import cloudpickle
    except ImportError:
        raise CannotSend(
            "cloudpickle, which sends functions by value, is not installed: pip install cloudpickle"
        ) from None
    about = {
        "path": [str(Path(entry or ".").resolve()) for entry in sys.path],
        "params": form.params,
        "parts": {name: _parts(function) for name, function in functions.items()},
    }
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    for file, what, value in (
        (GIVEN, "who makes the inputs, or the reference,", (given.make, given.reference)),
        *((f"{name}{PICKLE}", name, function) for name, function in functions.items()),
    ):
        try:
            content = cloudpickle.dumps(value)
        except Exception as error:
            raise CannotSend(f"{what} cannot be pickled ({_first_line(error)})") from None
        (folder / file).write_bytes(content)
    _try(folder)
    return _suite(folder, Functions(form, given), functions)


def _parts(function: Callable[..., Any]) -> list[str]:
    """The file that it is imported from, where it is: what is in `__main__` or a notebook is in the pickle."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        return []
    known = getattr(function, "__module__", None) not in (None, "__main__")
    return [str(Path(file).resolve())] if known and file and Path(file).is_file() else []


def _suite(folder: Path, module: Functions, functions: Mapping[str, Callable[..., Any]]) -> registry.Suite:
    assert module.form is not None
    form, parts = module.form, json.loads((folder / ABOUT).read_text(encoding="utf-8"))["parts"]

    def building(function: Callable[..., Any]) -> Callable[[Case], Callable[..., Any]]:
        ready = called(function, form)
        return lambda case: ready

    contenders = {
        name: Contender(
            SUITE,
            name,
            (inspect.getdoc(function) or "").split("\n")[0] if inspect.isfunction(function) else "",
            building(function),
            source=str(folder / f"{name}{PICKLE}"),
            parts=tuple(parts[name]),
            signature=signature_of(function),
        )
        for name, function in functions.items()
    }
    files = {name: str(folder / f"{name}{PICKLE}") for name in functions}
    return registry.Suite(SUITE, module, contenders, files, loader=LOADER)


def load(name: str, with_files: Sequence[str] = ()) -> registry.Suite:
    """As `registry.load`, of pickles."""
    if not with_files:
        return registry.Suite(name, registry.suite_module(name), {})
    folder = Path(with_files[0]).parent
    functions = {Path(file).name.removesuffix(PICKLE): _read(Path(file)) for file in with_files}
    return _suite(folder, _module(folder), functions)


@cache
def _module(folder: Path) -> Functions:
    about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    return Functions(form_of(about["params"]), Given(*_read(folder / GIVEN)))


@cache
def _read(file: Path) -> Any:
    path = json.loads((file.parent / ABOUT).read_text(encoding="utf-8"))["path"]
    sys.path += [entry for entry in path if entry not in sys.path]
    with file.open("rb") as content:
        return pickle.load(content)


def _try(folder: Path) -> None:
    command = [sys.executable, "-m", __name__, str(folder)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=SOON_S)
    except subprocess.TimeoutExpired:
        raise CannotSend(f"a fresh process could not read them within {SOON_S} s") from None
    try:
        why = json.loads(done.stdout)
    except ValueError:
        why = f"a fresh process that read them ended with exit code {done.returncode}"
    if why is not None:
        raise CannotSend(str(why))


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:200]


def main() -> None:
    channel = os.dup(1)
    os.dup2(2, 1)
    why: str | None = None
    folder = Path(sys.argv[1])
    for file in (folder / GIVEN, *sorted(folder.glob(f"*{PICKLE}"))):
        try:
            _read(file)
        except BaseException as error:
            what = "who makes the inputs, or the reference," if file.name == GIVEN else file.name.removesuffix(PICKLE)
            why = f"{what} cannot be read in a fresh process ({_first_line(error)})"
            break
    os.write(channel, json.dumps(why).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
