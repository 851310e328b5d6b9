"""Lists what the files of `--with` register, in a subprocess, so that side effects of importing them stay there.

python -m groundspeed.suites.listing SUITE REVISION FILE… writes the list as one line of JSON; what the files print goes
to stderr. REVISION is a JSON object: the keyword arguments of `suites.revision.load`, or empty."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from groundspeed.case import Case, Contender, Signature
from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.suites import aside, registry, revision
from groundspeed.suites.signature import as_python_has_it

FIELDS = ("suite", "name", "description", "tuning", "source")
FILE, PARTS, SIGNATURE, VERSION = "file", "parts", "signature", "version"
SOON_S = 300


def load(name: str, with_files: Sequence[str] = ()) -> registry.Suite:
    """As `registry.load`, but contenders of `with_files` cannot be built here: they are only named and described."""
    suite = registry.load(name)
    if with_files:
        contents = tuple(registry.content_hash(file, Path(file)) for file in with_files)
        found = _ask(name, tuple(with_files), contents)
        registry.collect(suite, ", ".join(with_files), [contender for contender, _ in found])
        suite.files |= {contender.name: file for contender, file in found if contender.name in suite.contenders}
    return suite


def load_revision(name: str, with_files: Sequence[str], told: Mapping[str, str], python: str = "") -> registry.Suite:
    """As `revision.load`, but none of its contenders can be built here. Those of the suite itself still say where they
    are absent and what they launch. Each file is imported alone, as in the worker of its contender, so that imports of
    another file do not count as its code. `python` is the interpreter of the revision, if it has one of its own."""
    known, suffix = registry.load(name), told["suffix"]
    suite = registry.Suite(name, known.module, {})
    own = list(_ask(name, (), (), json.dumps(told), python))
    for one in with_files:
        content = registry.content_hash(one, Path(one))
        own += [(found, file) for found, file in _ask(name, (one,), (content,), json.dumps(told), python) if file]
    for found, file in own:
        old = found.name.removesuffix(suffix)
        if old == found.name:
            raise BadInput(f"the process that imported revision {suffix[1:]} did not list its contenders")
        if found.name in suite.contenders:
            raise BadInput(f"{file}: contender {old!r} already exists; give yours another name")
        if file == "" and old in known.contenders:
            changes = {key: getattr(found, key) for key in ("name", "source", "parts", "build", "version")}
            found = replace(known.contenders[old], **changes)
        suite.contenders[found.name] = found
        if file:
            suite.files[found.name] = file
    return suite


def _elsewhere(case: Case) -> Callable[..., Any]:
    raise RuntimeError("its file is imported only in the processes that measure")


def _named(told: dict[str, Any]) -> Contender:
    texts: dict[str, Any] = {key: str(told[key]) for key in FIELDS}
    parts, version, signature = tuple(map(str, told[PARTS])), str(told[VERSION]), _signature(told[SIGNATURE])
    return Contender(build=_elsewhere, parts=parts, version=lambda: version, signature=signature, **texts)


def _signature(told: dict[str, Any] | None) -> Signature | None:
    if told is None:
        return None
    parameters = [(str(name), int(kind), bool(optional)) for name, kind, optional in told["parameters"]]
    found = Signature(str(told["function"]), tuple(parameters))
    as_python_has_it(found)
    return found


def _version(contender: Contender) -> str:
    try:
        return contender.version()
    except ImportError:  # its package is not installed, so the contender is ABSENT
        return ""


@cache
def _ask(
    name: str, with_files: tuple[str, ...], contents: tuple[str, ...], told: str = "{}", python: str = ""
) -> tuple[tuple[Contender, str], ...]:
    """Return each contender that the files register, with its file. Cached as long as the contents stay the same."""
    command = [python or sys.executable, "-m", __name__, name, told, *with_files]
    what = f"--with {', '.join(with_files)}" if with_files else "the kernels"
    try:
        done = aside.ask(command, SOON_S)
    except subprocess.TimeoutExpired:
        raise BadInput(f"{what}: importing did not finish within {SOON_S} s") from None
    try:
        answer = json.loads(done.stdout)
        if "error" in answer:
            raise BadInput(str(answer["error"]))
        return tuple((_named(one), str(one[FILE])) for one in answer["own"])
    except (ValueError, TypeError, KeyError):
        ended = f"exited with code {done.returncode} without listing its contenders"
        raise BadInput(f"{what}: the process that imported this {ended}") from None


def main() -> None:
    channel = os.dup(1)
    os.dup2(2, 1)
    write, leave, dumps = os.write, os._exit, json.dumps  # the files may replace these functions
    try:
        name, told, files = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
        suite = revision.load(name, files, **told) if told else registry.load(name, files)
        named = {name: suite.files.get(name, "") for name in (suite.contenders if told else suite.files)}
        found = [(suite.contenders[name], file) for name, file in named.items()]
        own = [
            {
                **{key: getattr(one, key) for key in (*FIELDS, PARTS)},
                SIGNATURE: asdict(one.signature) if one.signature else None,
                VERSION: _version(one),
                FILE: file,
            }
            for one, file in found
        ]
        answer: dict[str, Any] = {"own": own}
    except GroundspeedError as error:
        answer = {"error": str(error)}
    write(channel, dumps(answer).encode())
    leave(0)


if __name__ == "__main__":
    main()
