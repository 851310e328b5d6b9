"""A suite whose contenders are those of one revision of a project, in a process that serves only this revision.

The laboratory is the one that is running: cases, inputs, oracles and clocks come from this package. What the contenders
import comes from the revision: folders of the repository on Python's path are replaced by those of its checkout. In the
repository of groundspeed itself, `groundspeed.kernels` and `groundspeed.nn` are taken from there, too, after the suite
has imported its oracle from the laboratory's own (docs/decisions/0016)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import groundspeed
from groundspeed.case import Contender
from groundspeed.errors import BadInput
from groundspeed.suites import registry

PACKAGES = ("kernels", "nn")
"""The packages of groundspeed that are measured; the others do the measuring."""
OURS = "ours-"
LOADER = f"{__name__}:load"

_entered: set[str] = set()
_environments = [sys.prefix, sys.base_prefix]
"""Folders whose content does not belong to the project, wherever they lie."""


def load(
    name: str,
    with_files: Sequence[str] = (),
    *,
    repository: str,
    folder: str,
    suffix: str,
    imported: str = "",
    environment: str = "",
) -> registry.Suite:
    """As `registry.load`, but only with the contenders of a revision: those whose code is in `folder`, its checkout,
    and those of `with_files`. Each has `suffix` appended to its name. `imported` is the file to which to write what was
    imported from the checkout, besides `with_files`, up to the first calls of contenders. `environment` is the Python
    environment that the laboratory was started in; the revision's own environment only adds to it."""
    module = registry.suite_module(name)  # before anything of the revision, so that the oracle is the laboratory's
    enter(Path(repository), Path(folder), environment)
    whole = registry.load(name, with_files)
    _refuse_strangers(Path(repository), Path(folder))
    found = {c.name: _of_revision(c, Path(folder), whole.files.get(c.name)) for c in whole.contenders.values()}
    suite = registry.Suite(name, module, {})
    if imported:
        suite.look = partial(
            _write_imported, Path(imported), Path(folder), [Path(file).resolve() for file in with_files]
        )
    for old, contender in found.items():
        if contender is not None:
            suite.contenders[old + suffix] = replace(contender, name=old + suffix)
            if old in whole.files:
                suite.files[old + suffix] = whole.files[old]
    return suite


def enter(repository: Path, folder: Path, environment: str = "") -> None:
    """Make this process import the project from `folder`. This cannot be undone, so a process has one revision only."""
    if str(folder) in _entered:
        return
    if _entered:
        raise RuntimeError("a process can import only one revision")
    _entered.add(str(folder))
    _environments[:] = [sys.prefix, sys.base_prefix, *filter(None, [environment])]
    sys.path[:] = paths(sys.path, repository, folder, _environments)
    importlib.invalidate_caches()
    for package in PACKAGES:
        _take(package, folder / "src" / "groundspeed" / package)


def paths(before: Iterable[str], repository: Path, folder: Path, kept: Iterable[str]) -> list[str]:
    """Return Python's path with every folder of the repository replaced by that of its checkout, or dropped if the
    checkout has none, and with the checkout itself in front. Environments that lie in the repository are not part of
    it: entries in one of `kept` stay."""
    top, stay = repository.resolve(), [Path(one).resolve() for one in kept]
    found = [str(path) for path in (folder / "src", folder) if path.is_dir()]
    for entry in before:
        here = Path(entry or ".").resolve()
        if not here.is_relative_to(top) or any(here.is_relative_to(one) and one != top for one in stay):
            found.append(entry)
        elif (there := folder / here.relative_to(top)).exists():
            found.append(str(there))
    return list(dict.fromkeys(found))


def _take(package: str, source: Path) -> None:
    """Replace `groundspeed.PACKAGE` by the one in `source`. Modules that imported from the laboratory's own package
    before keep what they have."""
    if not (source / "__init__.py").is_file():
        return
    name = f"groundspeed.{package}"
    for known in [known for known in sys.modules if known == name or known.startswith(f"{name}.")]:
        del sys.modules[known]
    spec = importlib.util.spec_from_file_location(
        name, source / "__init__.py", submodule_search_locations=[str(source)]
    )
    assert spec is not None
    assert spec.loader is not None, "an __init__.py has one"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    setattr(groundspeed, package, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadInput(f"{name} of this revision cannot be imported: {type(error).__name__}: {error}") from None


def _modules(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of the project's modules that were imported from `folder`, without those of the laboratory or
    of an environment that lies in it."""
    top = folder.resolve()
    apart = [Path(one).resolve() for one in (*_environments, str(Path(groundspeed.__file__).parent))]
    apart = [one for one in apart if not top.is_relative_to(one)]
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)  # PyTorch has one that is not a path
        path = Path(file).resolve() if isinstance(file, str) and Path(file).is_absolute() else None
        if path and path.is_relative_to(top) and not any(path.is_relative_to(one) for one in apart):
            yield name, path


def _write_imported(file: Path, folder: Path, with_files: Sequence[Path]) -> None:
    """Append the imported modules to `file`. Each process of the revision adds a line per module, and an empty line
    that shows that it looked."""
    found = [name for name, path in _modules(folder) if path not in with_files]
    with suppress(OSError), file.open("a", encoding="utf-8") as out:  # on failure the modules stay unknown
        out.write("".join(f"{name}\n" for name in ("", *found)))


def _refuse_strangers(repository: Path, folder: Path) -> None:
    """Refuse modules imported from the working tree: an installed finder may have its own path for the project, and
    what it finds belongs to no revision."""
    top = repository.resolve()
    if top == folder.resolve():
        return
    for name, path in _modules(top):
        if not path.is_relative_to(folder.resolve()):
            raise BadInput(
                f"{name} was imported from the working tree ({path.relative_to(top)}), not from the revision; "
                "uninstall the project from this environment, or put its folder on Python's path"
            )


def _of_revision(contender: Contender, folder: Path, file: str | None) -> Contender | None:
    """Return the contender with the files that its code is in, or None if it does not belong to the revision."""
    kernels = [folder / "src" / "groundspeed" / package for package in PACKAGES]
    if contender.name.startswith(OURS) and contender.source and file is None:
        own = [path for source in kernels for path in sorted(source.rglob("*.py"))]
        return _with_files(contender, own) if own else None
    source = Path(contender.source).resolve() if contender.source else None
    if file is None and (source is None or not source.is_relative_to(folder.resolve())):
        return None
    imported = {path for _, path in _modules(folder) if not any(path.is_relative_to(k.resolve()) for k in kernels)}
    own = sorted({*imported, *filter(None, [source, Path(file).resolve() if file else None])})
    return _with_files(contender, own)


def _with_files(contender: Contender, files: Sequence[Path]) -> Contender:
    return replace(contender, source=str(files[0]), parts=tuple(map(str, files[1:])))
