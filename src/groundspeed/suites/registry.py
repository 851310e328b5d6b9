"""Finds suites and contenders: ours by name, the user's by decorator, file or entry point."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from groundspeed.case import Case, Contender, Scalar
from groundspeed.errors import BadInput, unknown
from groundspeed.suites.signature import signature_of

_SUITES = {
    name: f"groundspeed.suites.{name}"
    for name in ("attention", "calibration", "gemm", "huggingface", "inference", "moe")
}
_ELSEWHERE = {"functions": "groundspeed.suites.functions"}
"""Suites that cannot be asked for by name but occur in bundles."""
ENTRY_POINTS = "groundspeed.contenders"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")

F = TypeVar("F", bound=Callable[..., Any])


class SuiteModule(Protocol):
    """What the module of a suite provides."""

    SUMMARY: str
    BASELINE: dict[str, str]
    DTYPES: tuple[str, ...]
    SHAPE_KEYS: dict[str, str]
    COMPILED_BY: tuple[str, ...]
    """Parameters that roughly decide what a contender compiles; empty if no contender compiles for long."""

    def all_cases(self) -> Sequence[Case]: ...
    def preset_cases(self, preset: str, device: str) -> Sequence[Case]: ...
    def default_dtypes(self, device: str) -> tuple[str, ...]: ...
    def case_of_params(self, params: dict[str, Scalar]) -> Case: ...
    def shape_cases(self, text: str, dtypes: Sequence[str]) -> Sequence[Case]: ...
    def contenders(self) -> Sequence[Contender]: ...
    def preset_contenders(self, preset: str, device: str) -> Sequence[str] | None: ...
    def preset_skips(self, preset: str, cases: Mapping[str, Case], baseline: str) -> dict[tuple[str, str], str]: ...


@dataclass
class Suite:
    """A suite as this run sees it: its module, and all contenders including the user's own."""

    name: str
    module: SuiteModule
    contenders: dict[str, Contender]
    files: dict[str, str] = field(default_factory=dict)
    """Contender from `--with` → its file, in the order of the files."""
    told: dict[str, dict[str, str]] = field(default_factory=dict)
    """Contender of a revision → the keyword arguments of `suites.revision.load` in its worker."""
    pythons: dict[str, str] = field(default_factory=dict)
    """Contender of a revision → the interpreter of its worker, if that is not the one that runs here."""
    loader: str = "groundspeed.suites:load"
    """The function by which a worker loads the suite."""
    look: Callable[[], None] = lambda: None
    """Called in a worker each time that its contenders have been called on a case for the first time."""

    @property
    def own(self) -> list[str]:
        return list(self.files)

    @property
    def brought(self) -> list[str]:
        """Contenders that do not ship with groundspeed: those of files, of installed packages and of revisions."""
        shipped = {contender.name for contender in self.module.contenders()}
        return [name for name in self.contenders if name not in shipped]


_registered: list[Contender] = []
"""Contenders that the decorator has seen in the file or package that is being imported."""
_known: dict[str, list[Contender]] = {}
"""Contenders that files and packages have registered. They are kept because Python imports their modules only once."""


def suite_names() -> list[str]:
    return sorted(_SUITES)


def contender(
    suite: str,
    *,
    name: str | None = None,
    description: str = "",
    tuning: str = "",
    supports: Callable[[Case, str], str | None] | None = None,
) -> Callable[[F], F]:
    """Register a function as a contender of a suite, in a file for `--with` or in a package with an entry point.

    The function gets the inputs of a case and its keyword arguments; for attention `f(q, k, v, *, causal, scale)`.
    `tuning` tells readers of a report how it was fitted to the work."""

    def register(function: F) -> F:
        if (chosen := name or getattr(function, "__name__", "").replace("_", "-")) == "":
            raise TypeError(f"a {type(function).__name__} has no name; give it one with name=")
        _registered.append(
            Contender(
                suite=suite,
                name=chosen,
                description=description or (inspect.getdoc(function) or "").split("\n")[0],
                build=lambda case: function,
                tuning=tuning,
                supports=supports or (lambda case, device: None),
                source=_source(function),
                signature=signature_of(function),
            )
        )
        return function

    return register


def _source(function: Callable[..., Any]) -> str | None:
    """Return the file that a function was written in, looking behind torch.compile and other wrappers; None if Python
    does not know it."""
    try:
        return inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        return None


def suite_module(name: str) -> SuiteModule:
    modules = {**_SUITES, **_ELSEWHERE}
    if name not in modules:
        raise unknown("suite", name, _SUITES, see="`groundspeed list` shows all.")
    return cast(SuiteModule, importlib.import_module(modules[name]))


def case_of(suite: str, **params: Scalar) -> Case:
    """Return the case with these parameters, to try a function on outside a run. `case.inputs(seed, device)` makes its
    inputs, `case.arguments` are its keyword arguments, and `case.oracle(*inputs)` is the right result, in FP64 and as
    [rows, last dimension]."""
    case = suite_module(suite).case_of_params(params)
    for name in params.keys() - case.params.keys():
        raise unknown(f"parameter of {suite}", name, case.params)
    return case


def load(name: str, with_files: Sequence[str] = ()) -> Suite:
    """Return a suite by name, with its own contenders, those of installed packages and those of `with_files`."""
    module = suite_module(name)
    suite = Suite(name, module, {c.name: c for c in module.contenders()})
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        where = f"entry point {entry.name}"
        collect(suite, where, _registered_by(f"{where} = {entry.value}", partial(_load_entry, where, entry)))
    for file in with_files:
        before = set(suite.contenders)
        path = Path(file)
        found = _registered_by(f"{path.resolve()} {content_hash(file, path)}", partial(_import_file, file, path))
        collect(suite, file, [replace(c, source=c.source or str(path)) for c in found])
        new = [n for n in suite.contenders if n not in before]
        if not new:
            raise BadInput(f'{file} registers no contender of {name}; decorate a function with @gs.contender("{name}")')
        suite.files |= dict.fromkeys(new, file)
    return suite


def _registered_by(key: str, load_it: Callable[[], Any]) -> list[Contender]:
    """Return what importing a file or package registers, now or when it was first imported."""
    if key not in _known:
        _registered.clear()
        load_it()
        _known[key] = [*_registered]
    return _known[key]


def collect(suite: Suite, where: str, contenders: Sequence[Contender]) -> None:
    """Add the contenders of this suite to it. BadInput if something is wrong with their names."""
    for found in contenders:
        if found.suite not in _SUITES:
            raise unknown(f"suite (of contender {found.name} in {where})", found.suite, _SUITES)
        if found.suite != suite.name:
            continue
        if found.name in suite.contenders:
            raise BadInput(f"{where}: contender {found.name!r} already exists; give yours another name")
        check_name(where, found.name)
        suite.contenders[found.name] = found


def check_name(where: str, name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(f"{where}: invalid contender name {name!r}; use letters, digits and dashes")


def _load_entry(where: str, entry: importlib.metadata.EntryPoint) -> None:
    try:
        entry.load()
    except Exception as error:
        raise BadInput(f"{where}: {type(error).__name__}: {error}; fix or uninstall its package") from None


def content_hash(file: str, path: Path) -> str:
    if path.is_dir():
        raise BadInput(f"--with {file}: this is a folder; name a Python file in it")
    if not path.is_file():
        raise BadInput(f"--with {file}: there is no such file")
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BadInput(f"--with {file}: {error.strerror}") from None


def _import_file(file: str, path: Path) -> None:
    module_name = f"groundspeed_with_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"--with {file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadInput(f"--with {file}: {_where(error, path)}{type(error).__name__}: {error}") from None
    finally:
        sys.path.pop(0)


def _where(error: BaseException, path: Path) -> str:
    """Return the line of the user's own file that the error comes from, as the start of a message; else empty."""
    own = path.resolve()
    if isinstance(error, SyntaxError) and error.lineno and Path(error.filename or "").resolve() == own:
        return f"line {error.lineno}: "
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == own]
    return f"line {lines[-1]}: " if lines else ""
