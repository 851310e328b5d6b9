"""The packages that a revision asks for besides its own code, as its files declare them."""

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
"""This option is dropped: it would require hashes, which are removed from the lines."""
_ARCHIVES = (".whl", ".gz", ".zip")


@dataclass(frozen=True)
class Asked:
    required: frozenset[str] = frozenset()
    """Requirements to install: the dependencies of `pyproject.toml`, and the lines of requirements files."""
    held: frozenset[str] = frozenset()
    """Requirements that only fix the versions of packages that are installed anyway: extras, groups, constraints and
    lock files. Extras may exclude each other, and no file says which of them a user has."""
    options: tuple[str, ...] = ()
    """Lines of requirements files that are options for the installer, such as where the packages are."""

    @property
    def all(self) -> frozenset[str]:
        return self.required | self.held

    def beyond(self, other: Asked) -> list[str]:
        """Return what this revision asks for and the other does not."""
        return sorted(self.all - other.all)

    def to_install(self, other: Asked, installed: Collection[str]) -> list[str]:
        """Return the lines of `beyond` that apply here: all required ones, and held ones of installed packages."""
        return [line for line in self.beyond(other) if line in self.required or name_of(line) in installed]


def read(folder: Path) -> Asked:
    """Return what the files of a folder ask for. A file that cannot be read asks for nothing: its own tools will reject
    it."""
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
    """Return the name of the package, or an empty string for a path or a URL without a name."""
    found = _NAME.match(requirement)
    return canonical(found[1]) if found else ""


def in_public(requirement: str) -> str:
    """Return a requirement as it may be published in evidence: without credentials for a server, which can be before
    the host (a password may itself contain an @) or behind a question mark."""
    return re.sub(r"(//[^\s?#]*)\?[^\s#]*", r"\1", re.sub(r"//[^/?#\s]*@", "//", requirement))


def _is_other(requirement: str, own: Collection[str]) -> bool:
    """Whether a requirement is neither the project itself nor one of its folders. Those come from the checkout, in
    which an installer would leave files behind."""
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
    """Return the lists of dependencies, and the lists of extras and groups."""
    about, groups = project.get("project"), project.get("dependency-groups")
    extras = about.get("optional-dependencies") if isinstance(about, Mapping) else None
    some = [one for table in (extras, groups) if isinstance(table, Mapping) for one in table.values()]
    return [about.get("dependencies")] if isinstance(about, Mapping) else [], some


def _strings(lists: Sequence[Any]) -> Iterator[str]:
    for some in lists:
        yield from (one.strip() for one in some if isinstance(one, str)) if isinstance(some, list) else ()


def _lines(path: Path, folder: Path, seen: set[Path], held: bool) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a requirements file and of the files in the checkout that it includes, each with whether it
    only holds a version. Hashes are removed, because they would have to be present for all lines or for none."""
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
    """Yield `NAME==VERSION` for each package that a lock file takes from an index in a single version."""
    found: dict[str, set[str]] = {}
    packages = lock.get("package", lock.get("packages"))
    for one in packages if isinstance(packages, list) else ():
        source = one.get("source") if isinstance(one, Mapping) else {"": "no package"}
        if source is None or (isinstance(source, Mapping) and set(source) <= {"registry"}):
            found.setdefault(str(one.get("name", "")), set()).add(str(one.get("version", "")))
    yield from (f"{name}=={min(versions)}" for name, versions in found.items() if len(versions) == 1 and all(versions))
