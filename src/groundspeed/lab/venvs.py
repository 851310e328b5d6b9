"""A virtual environment for a revision whose dependencies differ from the other's: what it asks for, on top of what is
installed here. It is built beside the checkouts and removed with them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import threading
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import metadata, util
from pathlib import Path
from typing import Literal

import groundspeed
from groundspeed.evidence.names import MAX_TEXT
from groundspeed.evidence.revision import Installed, Side
from groundspeed.lab.dependencies import Asked, canonical, in_public, read
from groundspeed.lab.revisions import Checkout, Pair

LIMIT_S = 1800.0
"""The time limit of an installation: PyTorch with its CUDA libraries is gigabytes."""
LOOK_LIMIT_S = 300.0
MOST_NAMED = 4
"""The most requirements that a sentence names: a new lock file has dozens."""
_PLANNED = re.compile(r" \+ ([^\s=]+)(?:==(\S+)(?: \(from (\S+)\))?| @ (\S+))")
"""A line in which uv says what it would install. For a package from a URL that uv has not downloaded yet, the line has
no version."""
_FAILED = re.compile(r"\s*(?:ERROR|error|cause|fatal):\s*(.*)")
_ELSEWHERE = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
"""Variables that would make pip install into a folder of the user's."""
_LOOK = """
import json, torch, groundspeed.measure.worker
from importlib import metadata
print(json.dumps([groundspeed.__file__, [(one.metadata["Name"], one.version) for one in metadata.distributions()]]))
"""

Say = Callable[[str, str], None]
"""Called with what is being done, and how far it is."""


class CannotBuild(Exception):
    """A virtual environment cannot be built; the message says why."""


@dataclass(frozen=True)
class Place:
    """Where the code of one revision runs."""

    asked: tuple[str, ...]
    """Requirements that the other revision does not have."""
    met: Literal["here", "venv", "unknown"]
    packages: Mapping[str, str]
    """All packages that can be imported there, with their versions."""
    python: str = ""
    """The interpreter of the virtual environment; empty for the one that runs here."""
    own: frozenset[str] = field(default_factory=frozenset)
    """Packages that were installed for it."""
    why: str = ""
    """Why there is no virtual environment, if one was wanted."""


def places(pair: Pair, build: bool, say: Say) -> dict[Side, Place]:
    """Return the places of both revisions; none if they ask for the same packages."""
    asked = {one.side: read(one.folder) for one in pair.sides}
    if asked["base"].all == asked["head"].all:
        return {}
    here = _packages((one.metadata["Name"], one.version) for one in metadata.distributions())
    found: dict[Side, Place] = {}
    for one, other in ((pair.base, pair.head), (pair.head, pair.base)):
        mine, others = asked[one.side], asked[other.side]
        lines, wanted = tuple(mine.beyond(others)), mine.to_install(others, here)
        place = Place(lines, "here" if build else "unknown", here)
        if build and wanted:
            say(f"environment of {one.side}", _some(wanted))
            try:
                place = _built(place, pair, one, mine, wanted, say)
            except (CannotBuild, OSError) as error:
                why = in_public(_printable(str(error).replace(f"{one.folder}{os.sep}", "")))[:300]
                place = Place(lines, "unknown", here, why=why)
                say(f"no separate environment for {one.side}", f"{why}; continuing with what is installed here")
        found[one.side] = place
    return found


def installed(found: Mapping[Side, Place], contender: str) -> dict[str, Installed]:
    """Return for the record, by contender, which versions it had of all that was installed for either revision."""
    own = sorted({name for place in found.values() for name in place.own})
    return {
        f"{contender}@{side}": Installed(
            tuple(_printable(in_public(line))[:MAX_TEXT] for line in place.asked),
            place.met,
            {name: place.packages[name] for name in own if name in place.packages},
        )
        for side, place in found.items()
    }


def notes(found: Mapping[Side, Place]) -> Iterator[str]:
    """Yield what a reader of the comparison must know."""
    if not found:
        return
    said = "; ".join(f"{side} {_some(place.asked)}" for side, place in found.items() if place.asked)
    met = [place.met for place in found.values()]
    if met == ["here", "here"]:
        how = "what is installed here satisfies both"
    elif met == ["venv", "venv"]:
        how = "each was measured in its own virtual environment"
    elif "venv" in met:
        own, here = "in its own virtual environment", "with what is installed here"
        base, head = (own if one == "venv" else here for one in met)
        how = f"base was measured {base}, head {head}"
    else:
        how = "both were measured with what is installed here"
    yield f"the dependencies differ ({said}): {how}"
    yield from lacking(found)


def lacking(found: Mapping[Side, Place]) -> Iterator[str]:
    for side, place in found.items():
        if place.why:
            why = f"no virtual environment could be built: {place.why}"
            yield f"{side} lacks the dependencies that it asks for, because {why}"


def _built(place: Place, pair: Pair, one: Checkout, asked: Asked, wanted: Sequence[str], say: Say) -> Place:
    """Return the place with a new virtual environment, or unchanged if all that is wanted is installed here already."""
    folder, temporary = pair.scratch / f"venv-{one.side}", pair.scratch / "tmp"
    temporary.mkdir(exist_ok=True)

    def run(*command: str) -> list[str]:
        return _run(command, one.folder, temporary, lambda line: say(f"environment of {one.side}", line))

    def listed(name: str, lines: Iterable[str]) -> str:
        (temporary / name).write_text("".join(f"{line}\n" for line in (*asked.options, *lines)), encoding="utf-8")
        return str(temporary / name)

    python, folders = _make(folder)
    asks = listed(f"{one.side}.txt", wanted)
    uv = shutil.which("uv") if len(_sites()) == 1 else None  # of several folders, uv would see only the first
    before: set[str] = set()
    if uv:
        plan = run(uv, "pip", "install", "--dry-run", "--break-system-packages", "--python", sys.executable, "-r", asks)
        if pins := list(planned(plan)):
            run(uv, "pip", "install", "--no-deps", "--python", python, "-r", listed(f"{one.side}-plan.txt", pins))
    else:
        if util.find_spec("pip") is None:
            run(python, "-P", "-m", "ensurepip")
            before = {*_own(folders)}
        run(python, "-P", "-m", "pip", "install", "--progress-bar", "off", "-r", asks)
    own = frozenset({*_own(folders)} - before)
    return replace(place, met="venv", packages=_look(python), python=python, own=own) if own else place


def planned(lines: Sequence[str]) -> Iterator[str]:
    """Yield what uv said that it would install, as requirements. CannotBuild for a line that is not understood: without
    it too little would be installed, unnoticed."""
    for line in lines:
        if found := _PLANNED.fullmatch(line.rstrip()):
            name, version, *where = found.groups()
            yield f"{name} @ {where[0] or where[1]}" if any(where) else f"{name}=={version}"
        elif line.startswith(" + "):
            raise CannotBuild(f"uv would install {line[3:]}, which groundspeed does not understand")


def _make(folder: Path) -> tuple[str, list[str]]:
    """Create an empty environment that sees all that is installed here, behind what will be installed into it. Return
    its interpreter and its package folders."""
    venv.create(folder, symlinks=True)
    where = {"base": str(folder), "platbase": str(folder)}
    python = Path(sysconfig.get_path("scripts", "venv", where)) / "python"
    folders = [sysconfig.get_path(kind, "venv", where) for kind in ("purelib", "platlib")]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in _sites()]  # includes what their .pth files add
    (Path(folders[0]) / "groundspeed-here.pth").write_text("".join(lines), encoding="utf-8")
    return str(python), list(dict.fromkeys(folders))


def _sites() -> list[str]:
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return [path for path in dict.fromkeys(folders) if Path(path).is_dir()]


def _own(folders: list[str]) -> Iterator[str]:
    for one in metadata.distributions(path=folders):
        yield canonical(one.metadata["Name"])


def _packages(found: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return versions by name. Of several packages of one name, the first is the one that is imported."""
    packages: dict[str, str] = {}
    for name, version in found:
        if name and version:
            packages.setdefault(canonical(name)[:MAX_TEXT], version[:MAX_TEXT])
    return packages


def _look(python: str) -> dict[str, str]:
    """Return the packages that an interpreter sees; CannotBuild if the laboratory does not run with them."""
    try:
        done = subprocess.run(
            [python, "-c", _LOOK], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LOOK_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise CannotBuild(f"PyTorch could not be imported in it within {LOOK_LIMIT_S:.0f} s") from None
    if done.returncode != 0:
        raise CannotBuild(f"groundspeed does not run with these packages: {_last(done.stderr.splitlines())}")
    try:
        file, found = json.loads(done.stdout.splitlines()[-1])
        packages = _packages((str(name), str(version)) for name, version in found)
    except (ValueError, TypeError, IndexError):
        raise CannotBuild("it did not report its packages") from None
    if Path(file).resolve() != Path(groundspeed.__file__).resolve():
        raise CannotBuild("it has a different groundspeed")
    return packages


def _run(command: Sequence[str], folder: Path, temporary: Path, say: Callable[[str], None]) -> list[str]:
    """Run an installer and return its output. It runs in a session of its own, because we handle Ctrl-C, and its
    temporary files are in a folder that is removed later."""
    settings = {
        "TMPDIR": str(temporary),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_USER": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "NO_COLOR": "1",
    }
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**{name: value for name, value in os.environ.items() if name not in _ELSEWHERE}, **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    late = threading.Event()

    def end() -> None:
        late.set()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    watch = threading.Timer(LIMIT_S, end)
    watch.daemon = True
    watch.start()
    lines: list[str] = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            say(_printable(line.strip()))
        process.wait()
    finally:
        watch.cancel()
        if process.returncode is None:
            end()
            process.wait()
        process.stdout.close()
    if late.is_set():
        raise CannotBuild(f"the installation took more than {LIMIT_S / 60:.0f} minutes")
    if process.returncode != 0:
        raise CannotBuild(_last(lines))
    return lines


def _last(lines: Sequence[str]) -> str:
    """Return the reason in a program's output: the last line that states one, or else the last line."""
    reasons = [found[1] for line in lines if (found := _FAILED.match(line))]
    said = [line.strip() for line in lines if line.strip()]
    return (reasons or said or ["no reason given"])[-1]


def _some(lines: Sequence[str]) -> str:
    more = f" and {len(lines) - MOST_NAMED} more" if len(lines) > MOST_NAMED else ""
    return ", ".join(map(in_public, lines[:MOST_NAMED])) + more


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
