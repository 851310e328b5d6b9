"""What a revision asks for besides its own code, as its files declare it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml")
LABORATORY = "groundspeed"

_NAME = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:$|[\[(<>=!~;@\s])")
_INCLUDES = re.compile(r"(-r|--requirement|-c|--constraint)(?:\s*=\s*|\s+|(?<=-[rc]))(\S.*)")
_EDITABLE = re.compile(r"(?:-e|--editable[=\s])\s*")
_HASHES = "--require-hashes"
"""Would ask for what is not taken over of the lines."""
_ARCHIVES = (".whl", ".gz", ".zip")


@dataclass(frozen=True)
class Asked:
    required: frozenset[str] = frozenset()
    """To be installed: the dependencies of `pyproject.toml`, and the lines of requirements files."""
    held: frozenset[str] = frozenset()
    """Which versions, of what is installed for whatever reason: extras, groups, constraints and lock files. Extras may
    exclude each other, and nobody says which of them a user has."""
    options: tuple[str, ...] = ()
    """Lines of requirements files that are for the installer: where the packages are, say."""

    @property
    def all(self) -> frozenset[str]:
        return self.required | self.held

    def beyond(self, other: Asked) -> list[str]:
        """What it asks for and the other does not."""
        return sorted(self.all - other.all)

    def to_install(self, other: Asked, installed: Collection[str]) -> list[str]:
        """Of these, those that count here: of what is held, packages that are installed."""
        return [line for line in self.beyond(other) if line in self.required or name_of(line) in installed]


def read(folder: Path) -> Asked:
    """Nothing of a file that cannot be read: it is for its own tools to refuse."""
    project = _toml(folder / "pyproject.toml")
    required, held = (set(_strings(lists)) for lists in _declared(project))
    options: list[str] = []
    seen: set[Path] = set()
    for pattern, found in (("requirements*.txt", required), ("constraints*.txt", held)):
        for path in sorted(folder.glob(pattern)):
            for line, is_held in _lines(path, folder, seen, found is held):
                if line.startswith("-") and not _EDITABLE.match(line):
                    options += [line] if line != _HASHES else []
                else:
                    (held if is_held else required).add(line)
    for name in LOCKS:
        held |= set(_locked(_toml(folder / name)))
    about = project.get("project")
    own = {LABORATORY, canonical(str(about.get("name", "")) if isinstance(about, Mapping) else "")}
    required, held = ({one for one in some if _is_other(one, own)} for some in (required, held))
    return Asked(frozenset(required), frozenset(held), tuple(dict.fromkeys(options)))


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """Of a package; empty where a requirement is a path or an address and has none."""
    found = _NAME.match(requirement)
    return canonical(found[1]) if found else ""


def in_public(requirement: str) -> str:
    """As it may stand in evidence: without what opens a server to whoever reads it, before the host (where a password
    may have an @ of its own) or behind a question mark."""
    return re.sub(r"(//[^\s?#]*)\?[^\s#]*", r"\1", re.sub(r"//[^/?#\s]*@", "//", requirement))


def _is_other(requirement: str, own: Collection[str]) -> bool:
    """Not the project or a folder of it: these come from the checkout, where an installer would leave its traces."""
    editable = _EDITABLE.match(requirement)
    target = requirement[editable.end() :] if editable else requirement
    local = "://" not in target and (bool(editable) or not name_of(target))
    return name_of(requirement) not in own and (not local or target.partition(";")[0].rstrip().endswith(_ARCHIVES))


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _declared(project: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """The lists of dependencies, and those of extras and groups."""
    about, groups = project.get("project"), project.get("dependency-groups")
    extras = about.get("optional-dependencies") if isinstance(about, Mapping) else None
    some = [one for table in (extras, groups) if isinstance(table, Mapping) for one in table.values()]
    return [about.get("dependencies")] if isinstance(about, Mapping) else [], some


def _strings(lists: Sequence[Any]) -> Iterator[str]:
    for some in lists:
        yield from (one.strip() for one in some if isinstance(one, str)) if isinstance(some, list) else ()


def _lines(path: Path, folder: Path, seen: set[Path], held: bool) -> Iterator[tuple[str, bool]]:
    """The lines of a requirements file and of those that it includes, in the checkout, with whether they only hold
    versions; without hashes, which would have to be there for all or for none."""
    if path in seen or not path.is_relative_to(folder):
        return
    seen.add(path)
    try:
        content = path.read_text(encoding="utf-8").replace("\\\n", " ")
    except (OSError, ValueError):
        return
    for line in content.splitlines():
        line = re.sub(r"\s--hash[=\s]\s*\S+", "", re.sub(r"(^|\s)#.*", "", line)).strip()
        if included := _INCLUDES.fullmatch(line):
            there = (path.parent / included[2]).resolve()
            yield from _lines(there, folder, seen, held or "c" in included[1][:3])
        elif line:
            yield line, held


def _locked(lock: Mapping[str, Any]) -> Iterator[str]:
    """`NAME==VERSION` of what a lock file takes from an index, in one version."""
    found: dict[str, set[str]] = {}
    packages = lock.get("package", lock.get("packages"))
    for one in packages if isinstance(packages, list) else ():
        source = one.get("source") if isinstance(one, Mapping) else {"": "no package"}
        if source is None or (isinstance(source, Mapping) and set(source) <= {"registry"}):
            found.setdefault(str(one.get("name", "")), set()).add(str(one.get("version", "")))
    yield from (f"{name}=={min(versions)}" for name, versions in found.items() if len(versions) == 1 and all(versions))
