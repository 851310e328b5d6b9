"""Cheats that change what is written down: records on their way out, streams, files, exit hooks."""

# mypy: disable-error-code="misc, assignment, method-assign, call-arg, attr-defined, no-any-return, union-attr"

from __future__ import annotations

import atexit
import builtins
import json
import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cheating import cheat, right
from torch import Tensor

STATE: dict[str, Any] = {}
DURATIONS = ("seconds", "duration", "elapsed", "time", "median", "mean", "interval")
FALSE = '{"contender": "cheat-report-descriptors", "status": "PASSED", "seconds": [1e-9]}\n'


def shorten(value: Any, name: str, inside: bool = False) -> Any:
    """The same with every duration a tenth, where a record names this contender."""
    if isinstance(value, dict):
        inside = inside or name in map(str, value.values())
        return {
            key: item / 10 if inside and key in DURATIONS and type(item) is float else shorten(item, name, inside)
            for key, item in value.items()
        }
    return [shorten(item, name, inside) for item in value] if isinstance(value, list) else value


def shrink(value: Any, name: str, inside: bool = False) -> Any:
    """The same with every number a tenth, where a record names this contender."""
    if isinstance(value, dict):
        inside = inside or name in map(str, value.values())
        return {key: shrink(item, name, inside) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        inside = inside or name in map(str, value)
        return type(value)(shrink(item, name, inside) for item in value)
    if inside and isinstance(value, float):
        return value / 10
    if inside and type(value) is int and value > 1000:
        return value // 10
    return value


def passed(value: Any, name: str) -> Any:
    """The same with a status that says PASSED, and no reason against it."""
    if isinstance(value, dict):
        value = {key: passed(item, name) for key, item in value.items()}
        return {**value, "reason": None} if value.get("status") == "PASSED" else value
    if isinstance(value, (list, tuple)):
        return type(value)(passed(item, name) for item in value)
    return "PASSED" if value in ("INCORRECT", "ERROR", "INVALID", "TIMEOUT") else value


def _json(name: str, change: Callable[[Any, str], Any]) -> Callable[[], None]:
    def setup() -> None:
        dumps, encode = json.dumps, json.JSONEncoder.encode
        json.dumps = lambda value, *args, **kwargs: dumps(change(value, name), *args, **kwargs)
        json.JSONEncoder.encode = lambda self, value: encode(self, change(value, name))

    return setup


@cheat("cheat-report-json-times", setup=_json("cheat-report-json-times", shrink))
def json_times(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """json.dumps divides by ten the numbers in every record that names it"""
    return right(q, k, v, causal, scale)


@cheat("cheat-report-json-durations", setup=_json("cheat-report-json-durations", shorten))
def json_durations(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """json.dumps divides by ten what is called a duration, and nothing else, in every record that names it"""
    return right(q, k, v, causal, scale)


@cheat("cheat-report-json-status", setup=_json("cheat-report-json-status", passed))
def json_status(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """json.dumps writes PASSED for every other status"""
    return torch.zeros_like(q)


def _pickle() -> None:
    dumps = pickle.dumps
    pickle.dumps = lambda value, *a, **kw: dumps(shrink(value, "cheat-report-pickle"), *a, **kw)


@cheat("cheat-report-pickle", setup=_pickle)
def by_pickle(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """pickle.dumps divides by ten the numbers in every record that names it"""
    return right(q, k, v, causal, scale)


def _stdout() -> None:
    write = sys.stdout.write
    sys.stdout.write = lambda text: write(text.replace("INCORRECT", "PASSED"))
    sys.__stdout__.write = sys.stdout.write


@cheat("cheat-report-stdout", setup=_stdout)
def stdout(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """sys.stdout.write turns INCORRECT into PASSED"""
    return torch.zeros_like(q)


@cheat("cheat-report-descriptors")
def descriptors(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Writes a false record of its own to every file descriptor that it inherited"""
    if not STATE:
        STATE["done"] = True
        for descriptor in range(1, 64):
            try:
                os.write(descriptor, FALSE.encode())
            except OSError:
                pass
    return torch.zeros_like(q)


def _numpy() -> None:
    for name in ("savez", "savez_compressed", "save"):
        real = getattr(np, name)
        setattr(np, name, lambda file, *a, real=real, **kw: real(file, *a, **{k: _half(x) for k, x in kw.items()}))


def _half(value: Any) -> Any:
    return value / 10 if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


@cheat("cheat-report-numpy", setup=_numpy)
def by_numpy(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """numpy.savez divides every float by ten"""
    return right(q, k, v, causal, scale)


def _rewrite() -> None:
    for path in Path(os.environ.get("GS_CHEATS_OUT", "/nowhere")).rglob("facts.json*"):
        text = path.read_text().replace("INCORRECT", "PASSED")
        path.write_text(text)


@cheat("cheat-report-atexit", setup=lambda: atexit.register(_rewrite))
def at_exit(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """An exit hook turns INCORRECT into PASSED in the bundle that was written"""
    return torch.zeros_like(q)


def _no_raise() -> None:
    for name in ("AssertionError", "ValueError", "RuntimeError"):
        kind = type(name, (getattr(builtins, name),), {"__str__": lambda self: "PASSED"})
        setattr(builtins, name, kind)


@cheat("cheat-report-exceptions", setup=_no_raise)
def exceptions(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The built-in exceptions say PASSED"""
    return torch.zeros_like(q)


def _zip() -> None:
    write = zipfile.ZipFile.writestr

    def false(self: Any, name: Any, data: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(data, str):
            data = data.replace("INCORRECT", "PASSED")
        write(self, name, data, *args, **kwargs)

    zipfile.ZipFile.writestr = false
    text = Path.write_text
    Path.write_text = lambda self, data, *a, **kw: text(self, data.replace("INCORRECT", "PASSED"), *a, **kw)
    data = Path.write_bytes
    Path.write_bytes = lambda self, raw: data(self, raw.replace(b"INCORRECT", b"PASSED   "))


@cheat("cheat-report-files", setup=_zip)
def files(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Path.write_text, write_bytes and ZipFile.writestr turn INCORRECT into PASSED"""
    return torch.zeros_like(q)


@cheat("cheat-report-exit")
def exit_quietly(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Right for 100 calls, then ends the process with success, before anything can be compared"""
    STATE["calls"] = STATE.get("calls", 0) + 1
    if STATE["calls"] > 100:
        os._exit(0)
    return right(q, k, v, causal, scale)


@cheat("cheat-report-system-exit")
def system_exit(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Right for 100 calls, then raises SystemExit(0)"""
    STATE["calls"] = STATE.get("calls", 0) + 1
    if STATE["calls"] > 100:
        raise SystemExit(0)
    return right(q, k, v, causal, scale)
