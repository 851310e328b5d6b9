"""Functions that were sent, read for the first time: does a fresh process have the same ones?

`python -m groundspeed.lab.trial FOLDER` reads them, makes the inputs once, and says in JSON what it found: why it
cannot have them, what its settings are, and which modules it imported, from where and with what in them."""

from __future__ import annotations

import dis
import hashlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from groundspeed.errors import BadInput
from groundspeed.measure.setting import UNTOLD, Setting
from groundspeed.suites.functions import sent
from groundspeed.suites.functions.suite import Functions, drawn_as

SOON_S = 300
FREE = ("number of threads", "gradient mode", "current stream")
"""What a worker sets for itself."""
BY_ONE_CALL = "PyTorch's matmul precision"
"""It sets others too, and has the name that people know."""
CODE, AS_WRITTEN = "code ", " as written"
"""What a function is told as; and a module that nobody imported in a way of his own, as pytest does."""
PLAIN = (bool, int, float, str)
Told = dict[str, dict[str, str]]
"""Module → its file, functions and constants, each in a word."""


def try_reading(folder: Path, here: Told) -> list[str]:
    """The files that were imported there; `here` is what this process has of modules. CannotSend where a fresh process
    cannot have the functions, BadInput where what it has is something else than here."""
    command = [sys.executable, "-m", __name__, str(folder)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=SOON_S)
    except subprocess.TimeoutExpired:
        raise sent.CannotSend(f"a fresh process could not read them within {SOON_S} s") from None
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise sent.CannotSend(f"a fresh process that read them ended with exit code {done.returncode}") from None
    _refuse_settings(found["settings"])
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
    import torch

    values = {name: value for name, value in Setting.now().values.items() if name.startswith("PyTorch's ")}
    told = {name: str(value) for name, value in values.items() if not name.endswith(FREE) and value != UNTOLD}
    return told | {"PyTorch's default device": str(torch.get_default_device())}


def refuse_changed(here: Told, there: Told) -> None:
    """BadInput where a module is imported anew as something else than it is here."""
    for module in here.keys() & there.keys():
        then, now = here[module], {name: told for name, told in there[module].items() if name != AS_WRITTEN}
        if then["file"] != now["file"]:
            raise BadInput(f"module {module} is {then['file']} here and {now['file']} in a fresh process; rename one")
        for name in now:
            if then.get(name) == now[name] or (now[name].startswith(CODE) and AS_WRITTEN not in then):
                continue
            if not now[name].startswith(CODE):
                raise BadInput(
                    f"{module}.{name} is {then.get(name, 'something else')} here, and {now[name]} in a fresh process, "
                    f"which imports {then['file']} anew; write it there, or hand it to the functions"
                )
            raise BadInput(
                f"{module}.{name} is not what {then['file']} defines: it was replaced, or the file was changed since; "
                "write it there, and import it anew (restart, or importlib.reload)"
            )


def tell(modules: Mapping[str, ModuleType]) -> Told:
    return {name: _told(module) for name, module in modules.items()}


def _told(module: ModuleType) -> dict[str, str]:
    """Its file; its functions and classes; and its constants: what is in capitals, and what its functions use and none
    of them sets."""
    found = {"file": str(Path(str(module.__file__)).resolve())}
    if type(getattr(module.__spec__, "loader", None)) is SourceFileLoader:
        found[AS_WRITTEN] = "yes"
    functions = list(_functions(module))
    used = {name for code in functions for name in code.co_names}
    assigned = {one.argval for code in functions for one in dis.get_instructions(code) if one.opname == "STORE_GLOBAL"}
    for name, value in [*vars(module).items()]:
        if isinstance(value, PLAIN) and (name.isupper() or (name in used and name not in assigned)):
            found[name] = f"{value!r:.80}"
        elif name.isupper() and isinstance(value, (list, tuple, dict)) and _is_plain(value):
            found[name] = f"{value!r:.200}"
        elif codes := [*_codes_of(value, module.__name__)]:
            found[name] = CODE + hashlib.sha256("".join(map(_words, codes)).encode()).hexdigest()[:16]
    return found


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, PLAIN) and _is_plain(one) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, PLAIN)


def _functions(module: ModuleType) -> Iterator[CodeType]:
    """And those that are defined within these."""
    left = [code for value in [*vars(module).values()] for code in _codes_of(value, module.__name__)]
    while left:
        yield (code := left.pop())
        left += [one for one in code.co_consts if isinstance(one, CodeType)]


def _codes_of(value: object, module: str) -> Iterator[CodeType]:
    """Of a function that is defined there, or the functions of a class."""
    if isinstance(value, type) and value.__module__ == module:
        for one in [*vars(value).values()]:
            yield from _codes_of(getattr(one, "__func__", one), module) if not isinstance(one, type) else ()
    function = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else None
    if isinstance(function, FunctionType) and function.__module__ == module:
        yield function.__code__


def _words(code: CodeType) -> str:
    """What it does, wherever it stands."""
    constants = [
        _words(one) if isinstance(one, CodeType) else repr(sorted(one, key=repr) if isinstance(one, frozenset) else one)
        for one in code.co_consts
    ]
    return repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants))


def _wrong(module: Functions) -> str:
    assert module.form is not None
    assert module.given is not None
    import torch

    torch.set_grad_enabled(False)
    try:
        drawn_as(module.given.make, module.form, 1)
    except BadInput as error:
        return str(error)
    except Exception as error:
        return f"inputs() fails in a fresh process ({sent.first_line(error)})"
    return ""


def main() -> None:
    channel = os.dup(1)
    os.dup2(2, 1)
    folder, found = Path(sys.argv[1]), {"settings": _settings(), "cannot": "", "wrong": "", "modules": {}}
    names = json.loads((folder / sent.ABOUT).read_text(encoding="utf-8"))["names"]
    files = {sent.WHOEVER: sent.GIVEN} | {name: f"{i}{sent.PICKLE}" for i, name in enumerate(names)}
    for what, file in files.items():
        try:
            sent.read(folder / file)
        except BaseException as error:
            found["cannot"] = f"{what} cannot be read in a fresh process ({sent.first_line(error)})"
            break
    else:
        found |= {"modules": tell(sent.imported()), "wrong": _wrong(sent.module_of(folder))}
    with os.fdopen(channel, "w") as out:
        json.dump(found, out)
        out.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
