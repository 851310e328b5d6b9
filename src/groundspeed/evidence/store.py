"""Where bundles live, and how a user names one: by folder, by the start of its identity, or `latest`."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import bundle, journal
from groundspeed.evidence.integrity import FACTS, MANIFEST, MAX_BYTES, read_plain_file
from groundspeed.evidence.record import Record

OWN = Path(".groundspeed")
"""The folder that runs leave in a project, with a .gitignore that keeps it out of git."""
RUNS, PROFILES = OWN / "runs", OWN / "profiles"
"""Separate folders, because `latest` and a history refer to runs."""
PARTIAL = ".partial"
COMMITTED = "evidence"
"""The folder of the bundles that a repository's texts rest on, with subfolders by device."""

_REPEATS = re.compile(rb'"reproduces":\s*"([0-9a-f]{64})"')
_NAME = re.compile(r"(?P<stem>[A-Za-z0-9._-]+)-(?P<identity>[0-9a-f]{64})")


def calibrations() -> Path:
    """Return the folder of this machine's calibrations, which belong to the machine and not to a project."""
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "groundspeed" / "calibration"


def finished(runs: Path) -> list[Path]:
    """Return the bundle folders in `runs`, oldest first by modification time, then by name."""
    if not runs.is_dir():
        return []
    found = [path for path in runs.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))


def unfinished(runs: Path) -> list[Path]:
    """Return the folders in which a killed run left its journal, oldest first."""
    if not runs.is_dir():
        return []
    found = [path for path in runs.iterdir() if path.name.endswith(PARTIAL) and (path / journal.FILE).is_file()]
    return sorted(found, key=lambda path: ((path / journal.FILE).stat().st_mtime_ns, path.name))


def find_to_resume(name: str, runs: Path = RUNS) -> Path:
    """Return the folder that `name` means to `--resume`. Besides what `find` finds, it may be the journal folder of a
    killed run, by its name; `latest` is the newest of both kinds."""
    left = unfinished(runs)
    if named := [path for path in left if path.name == name]:
        return named[0]
    if name == "latest" and left:
        newest = finished(runs)[-1:]
        if not newest or (left[-1] / journal.FILE).stat().st_mtime_ns > newest[0].stat().st_mtime_ns:
            return left[-1]
    return find(name, runs)


def find(name: str, runs: Path = RUNS) -> Path:
    """Return the folder that `name` means."""
    path = Path(name)
    try:
        if path.exists():
            _refuse_many(path)
            return path
    except OSError as error:
        raise BadInput(f"{name:.80} is not a bundle: {error.strerror}") from None
    bundles = finished(runs)
    if name == "latest":
        if not bundles:
            raise BadInput(f"there is no bundle in {runs} yet; make one with: groundspeed run attention --preset quick")
        return bundles[-1]
    matches: dict[str, Path] = {}
    for path in (*bundles, *_elsewhere()):
        if len(name) >= 4 and (identity_of(path).startswith(name.lower()) or name.lower() == _tag_of(path)):
            matches.setdefault(identity_of(path), path)  # a copy, as in evidence/, is the same bundle
    if len(matches) > 1:
        raise BadInput(f"{name!r} matches {len(matches)} bundles; give more digits of the identity")
    if not matches:
        raise BadInput(
            f"{name} is not a bundle: neither a folder nor the first four or more digits of the identity of one in "
            f"{runs}, {COMMITTED} or the calibrations of this machine; `latest` is the newest in {runs}"
        )
    return next(iter(matches.values()))


def _refuse_many(path: Path) -> None:
    """Raise BadInput for a folder that holds bundles and is none itself."""
    inside = gathered(path) if path.is_dir() and not (path / MANIFEST).exists() else []
    if inside and not (path / journal.FILE).exists():
        all_of_them = f"{path}{'/*' * len(inside[0].relative_to(path).parts)}"
        raise BadInput(
            f"{path} is not a bundle but holds {len(inside)}; name one, as {inside[-1]}, or where several can be given "
            f"all, as {all_of_them}"
        )


def _tag_of(path: Path) -> str:
    """Return `cb2c` of `attention-standard-20261117T140012-cb2c-f58bab93…`, the first digits that a reader sees."""
    return path.name.split("-")[-2] if path.name.count("-") >= 2 else ""


def _elsewhere() -> list[Path]:
    """Return the bundles that can be found by their identity although they are not among the runs."""
    return [*finished(PROFILES), *committed(Path()), *finished(calibrations())]


def root_of(document: Path) -> Path:
    """Return the folder whose `evidence/` the numbers of a document rest on: the nearest one above the document, else
    the current folder."""
    above = document.resolve().parents
    return next((folder for folder in above if (folder / COMMITTED).is_dir()), Path.cwd())


def committed(root: Path) -> list[Path]:
    """Return the bundles under `evidence/` of this folder, directly in it or in its subfolders by device."""
    top = root / COMMITTED
    try:
        folders = [path for path in sorted(top.iterdir()) if path.is_dir()]
        inside = [path for folder in folders if not folder.is_symlink() for path in sorted(folder.iterdir())]
    except OSError:
        return []
    return [path for path in (*folders, *inside) if _NAME.fullmatch(path.name) and path.is_dir()]


def gathered(folder: Path) -> list[Path]:
    """Return the bundles in a folder or in its subfolders (`evidence/` has them by device), including damaged ones.
    BadInput if there is no such folder."""
    try:
        top = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    except OSError as error:
        raise BadInput(f"{folder} holds no bundles: {error.strerror}") from None
    below = [path for path in top if not _looks_like_one(path) and not path.is_symlink()]
    return [path for path in (*top, *(p for b in below for p in _inside(b))) if _looks_like_one(path)]


def _inside(folder: Path) -> list[Path]:
    try:
        return [path for path in sorted(folder.iterdir()) if path.is_dir()]
    except OSError:
        return []


def _looks_like_one(path: Path) -> bool:
    return bool(_NAME.fullmatch(path.name)) or (path / MANIFEST).is_file()


def find_committed(name: str, root: Path) -> Path:
    """Return the bundle that a text means, by the start of its identity or of its path from `root`."""
    if name.startswith(("/", "~")) or ".." in Path(name).parts:
        raise BadInput(f"{name!r:.120} leads out of {COMMITTED}/; name a bundle in it by the start of its identity")
    bundles, start = committed(root), name
    by_identity = [path for path in bundles if len(start) >= 4 and identity_of(path).startswith(start.lower())]
    by_path = [path for path in bundles if f"{path.relative_to(root).as_posix()}/".startswith(start)]
    matches = by_identity or (by_path if start.startswith(f"{COMMITTED}/") else [])
    if len(matches) > 1:
        raise BadInput(f"{name!r:.120} matches {len(matches)} bundles in {COMMITTED}/; give more of the name")
    if not matches:
        raise BadInput(
            f"there is no bundle {name!r:.120} in {COMMITTED}/; put it there, or name another by four or more "
            "digits of its identity"
        )
    if not matches[0].resolve().is_relative_to((root / COMMITTED).resolve()):
        raise BadInput(f"{matches[0]} is a symbolic link that leads out of {COMMITTED}/; put the bundle itself there")
    return matches[0]


def that_repeat(found: bundle.Bundle) -> list[Path]:
    """Return the bundles beside this one that say that they repeat its run; nothing in them is verified."""
    return [path for path in finished(found.path.resolve().parent) if said_to_repeat(path) == found.identity]


def calibration_beside(found: bundle.Bundle) -> Path | None:
    """Return the bundle beside this one whose name is that of its calibration; nothing in it is verified."""
    kept = found.record.calibration
    around = finished(found.path.resolve().parent) if kept else []
    return next((path for path in around if kept and identity_of(path) == kept.identity), None)


def said_to_repeat(path: Path) -> str | None:
    """Return the identity of the bundle whose run this one says that it repeats; nothing is verified."""
    said = _REPEATS.search(_facts(path))
    return said[1].decode() if said else None


def _facts(path: Path) -> bytes:
    try:
        return read_plain_file(path / FACTS, MAX_BYTES[FACTS])
    except GroundspeedError:
        return b""


def identity_of(path: Path) -> str:
    """Return the identity that the name of a bundle's folder ends in; empty if it ends in none."""
    match = _NAME.fullmatch(path.name)
    return match["identity"] if match else ""


def begin(runs: Path, stem: str) -> Path:
    """Create and return a folder for the journal of a run."""
    folder = runs / f"{stem}{PARTIAL}"
    try:
        if runs == RUNS and not OWN.exists():
            OWN.mkdir()
            (OWN / ".gitignore").write_text("*\n")
        folder.mkdir(parents=True)
    except OSError as error:
        raise GroundspeedError(f"cannot write to {runs}: {error.strerror}; choose another folder with --out") from None
    return folder


def finish(folder: Path) -> bundle.Bundle:
    """Write and return the bundle of the journal in `folder`; then remove the folder."""
    stem = folder.name.removesuffix(PARTIAL)
    record = journal.to_record(journal.read_events(folder), str(folder / journal.FILE))
    made = bundle.write(record, folder.parent, stem)
    shutil.rmtree(folder, ignore_errors=True)
    return made


def left(path: Path) -> Record:
    """Return the record that an interrupted run left in its journal folder or its bundle, without touching either."""
    if (path / journal.FILE).exists():
        return journal.to_record(journal.read_events(path), str(path / journal.FILE))
    return bundle.read(path).record


def reopen(path: Path) -> Path:
    """Return the journal folder from which an interrupted run resumes: its own, or one made from the bundle it left."""
    if (path / journal.FILE).exists():
        return path
    left = bundle.read(path)
    if left.record.complete:
        raise BadInput(f"{path}: this run is complete; there is nothing to resume")
    real = path.resolve()
    match = _NAME.fullmatch(real.name)
    beside = path.parent if path.name == real.name and not path.is_symlink() else real.parent  # unless it is a link
    folder = beside / f"{match['stem'] if match else 'run'}{PARTIAL}"
    if (folder / journal.FILE).exists():
        return folder
    try:
        folder.mkdir(exist_ok=True)
        journal.restore(folder, left.record)
    except OSError as error:
        raise GroundspeedError(f"cannot write to {folder}: {error.strerror}") from None
    return folder
