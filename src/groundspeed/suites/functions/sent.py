"""Functions sent by value to fresh processes: a folder with a pickle of each, and what is needed to read the pickles.

What a script or notebook defines is in its pickle; what a module defines is imported again, by the sender's path. A
process has one copy of such a module for the timed functions, and another for the input maker and the reference, so
that neither side can change what the other does. Only the processes of the run that wrote such a folder read it: a
pickle can run anything."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import linecache
import pickle
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial, wraps
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from groundspeed.case import Case, Contender
from groundspeed.suites import registry
from groundspeed.suites.functions.form import Form, form_of
from groundspeed.suites.functions.suite import SUITE, Functions, Given, called
from groundspeed.suites.functions.written import written_in
from groundspeed.suites.signature import signature_of

ABOUT, GIVEN, PICKLE = "about.json", "given.pickle", ".pickle"
LOADER = f"{__name__}:load"
WHOEVER = "inputs= or reference="
_INSTALLED = {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
_asked: dict[str, tuple[object, bool]] = {}
_CACHED = type(cache(lambda: None))
_copied: dict[str, ModuleType] = {}
"""The copies of modules that the input maker and the reference have for themselves."""
_KERNEL = ("version", "do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline", "launch_metadata")
"""What a Triton kernel was made with, besides its function."""


class CannotSend(Exception):
    """Functions cannot be sent to a fresh process; the message says why."""


def write(folder: Path, functions: Mapping[str, Callable[..., Any]], given: Given, form: Form) -> None:
    """Write the folder. CannotSend if a function cannot be pickled."""
    try:
        import cloudpickle  # noqa: F401
    except ImportError:
        raise CannotSend(
            "cloudpickle, which sends functions by value, is not installed: pip install cloudpickle"
        ) from None
    cells = {name: entry[2] for name, entry in [*linecache.cache.items()] if len(entry) > 2 and not _exists(name)}
    about = {
        "path": [
            str(Path(entry).resolve()) if _exists(entry) else entry for entry in (str(e) or "." for e in sys.path)
        ],
        "params": form.params,
        "names": [*functions],
        "lines": cells,
        "parts": [],
    }
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    (folder / GIVEN).write_bytes(_pickled(WHOEVER, (given.make, given.reference)))
    for number, (name, function) in enumerate(functions.items()):
        (folder / f"{number}{PICKLE}").write_bytes(_pickled(name, function))


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # a cell's name may be any text
        return False


def note_parts(folder: Path, files: Sequence[str]) -> None:
    """Record the files that were imported when the functions were read for the first time, so that no other code is
    measured later."""
    about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    (folder / ABOUT).write_text(json.dumps({**about, "parts": [str(folder / GIVEN), *files]}), encoding="utf-8")


def _pickled(what: str, value: Any) -> bytes:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, thing: Any) -> Any:
            if isinstance(thing, FunctionType) and hasattr(thing, "_torchdynamo_orig_callable"):
                return _compiled, (_compiler_of(thing, what), thing._torchdynamo_orig_callable)
            if type(thing) is _CACHED and not _is_found(thing):
                return _cached, (thing.cache_parameters(), thing.__wrapped__)
            if type(thing).__name__ == "pybind11_type" and (place := _place_of(thing)):
                return getattr, place
            if isinstance(thing, ModuleType) and type(thing) is not ModuleType and (way := _module_place(thing)):
                return way
            if _is_kernel(thing):
                made_with = {key: getattr(thing, key) for key in _KERNEL} | {"repr": thing._repr}
                return _kernel, (type(thing), thing.fn, made_with, thing.src)
            return super().reducer_override(thing)

    content = io.BytesIO()
    try:
        Pickler(content).dump(value)
    except CannotSend:
        raise
    except Exception as error:
        raise CannotSend(f"{what} cannot be pickled ({first_line(error)})") from None
    return content.getvalue()


def _is_found(thing: Any) -> bool:
    """Return whether a fresh process can find it by its name."""
    module = sys.modules.get(thing.__module__)
    return thing.__module__ != "__main__" and getattr(module, thing.__qualname__, None) is thing


def _cached(parameters: dict[str, Any], function: Callable[..., Any]) -> Any:
    return lru_cache(**parameters)(function)


def _module_place(thing: ModuleType) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """Return how a fresh process gets a module of a class of its own (`torch.backends.cudnn`, `torch.ops.aten`)."""
    if sys.modules.get(thing.__name__) is thing:
        return importlib.import_module, (thing.__name__,)
    parent, _, name = thing.__name__.rpartition(".")
    return (getattr, (sys.modules[parent], name)) if parent in sys.modules else None


def _place_of(thing: Any) -> tuple[ModuleType, str] | None:
    """Return the module of a C++ class and its name there, which may not be the name that the class itself states."""
    module = sys.modules.get(getattr(thing, "__module__", ""))
    name = next((key for key, value in vars(module).items() if value is thing), None) if module else None
    return (module, name) if module and name else None


def _compiler_of(function: FunctionType, what: str) -> Any:
    """Return what `torch.compile` made it with: backend, mode and options. CannotSend with `dynamic=`, which is set
    elsewhere."""
    enclosed = (cell.cell_contents for cell in function.__closure__ or ())
    context = next((one for one in enclosed if type(one).__name__ == "OptimizeContext"), None)
    if context is None or getattr(context, "_dynamic", getattr(context, "dynamic", None)) is not None:
        raise CannotSend(
            f"{what} is compiled by torch.compile with more than backend, mode and options, which cannot be sent: "
            "give a function that compiles it in its first call"
        )
    return context


def _compiled(compiler: Any, function: Callable[..., Any]) -> Any:
    return compiler(function)


def _is_kernel(thing: Any) -> bool:
    """Return whether Triton compiles it. Such an object also holds locks and compiled code, which are not sent."""
    jit = sys.modules.get("triton.runtime.jit")
    return jit is not None and isinstance(thing, jit.JITFunction)


def _kernel(kind: Any, function: Any, made_with: dict[str, Any], src: str) -> Any:
    """Return the kernel with its source as it was when it was defined: Triton reads the file, which may have
    changed."""
    made = kind(function, **made_with)
    if made.src != src:
        getattr(made, "_unsafe_update_src", partial(setattr, made, "src"))(src)
    return made


def suite_of(folder: Path, module: Functions, functions: Mapping[str, Callable[..., Any]]) -> registry.Suite:
    assert module.form is not None
    form, about = module.form, json.loads((folder / ABOUT).read_text(encoding="utf-8"))

    def building(function: Callable[..., Any]) -> Callable[[Case], Callable[..., Any]]:
        ready = called(function, form)
        return lambda case: ready

    files = {name: str(folder / f"{number}{PICKLE}") for number, name in enumerate(about["names"])}
    contenders = {
        name: Contender(
            SUITE,
            name,
            (inspect.getdoc(function) or "").split("\n")[0] if inspect.isfunction(function) else "",
            building(function),
            source=files[name],
            written=written_in(function),
            parts=tuple(about["parts"]),
            signature=signature_of(function),
        )
        for name, function in functions.items()
    }
    return registry.Suite(SUITE, module, contenders, {name: files[name] for name in functions}, loader=LOADER)


def load(name: str, with_files: Sequence[str] = ()) -> registry.Suite:
    """As `registry.load`, from pickles."""
    if not with_files:
        return registry.Suite(name, registry.suite_module(name), {})
    folder = Path(with_files[0]).parent
    names = json.loads((folder / ABOUT).read_text(encoding="utf-8"))["names"]
    functions = {names[int(Path(file).stem)]: read(Path(file)) for file in with_files}
    return suite_of(folder, module_of(folder), functions)


@cache
def module_of(folder: Path) -> Functions:
    about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    make, reference = read(folder / GIVEN)
    return Functions(form_of(about["params"]), Given(_by_copies(make), _by_copies(reference)))


@cache
def read(file: Path) -> Any:
    about = json.loads((file.parent / ABOUT).read_text(encoding="utf-8"))
    sys.path[:] = about["path"]  # in that order: of two modules with one name, the sender's is meant
    for name, lines in about["lines"].items():
        linecache.cache.setdefault(name, (sum(map(len, lines)), None, lines, name))
    with file.open("rb") as content:
        if file.name != GIVEN:
            return pickle.load(content)
        with _copies():
            return pickle.load(content)


def is_somebodys(name: str, module: object) -> bool:
    """Return whether it is a Python module that is not installed: a user's own, on which the user may be working."""
    if not isinstance(module, ModuleType) or name.partition(".")[0] in ("groundspeed", "__main__", "__mp_main__"):
        return False
    file = Path(str(getattr(module, "__file__", None) or ""))
    if file.suffix != ".py" or not file.is_file() or {"site-packages", "dist-packages"} & {*file.parts}:
        return False
    root = file.parents[min(len(file.parents) - 1, name.count(".") + (file.stem == "__init__"))]
    if file.relative_to(root).as_posix() in _recorded(root):
        return False
    return not _INSTALLED & {*file.resolve().parents}


@cache
def _recorded(folder: Path) -> frozenset[str]:
    """Return the files that pip installed into a folder (`pip install --target`)."""
    records = (file.read_text(encoding="utf-8", errors="replace") for file in folder.glob("*.dist-info/RECORD"))
    return frozenset(line.partition(",")[0] for record in records for line in record.splitlines())


def _by_copies(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, made to import copies of its own while it is called, too."""

    @wraps(function)
    def call(*given: Any) -> Any:
        with _copies():
            return function(*given)

    return call


@contextmanager
def _copies() -> Iterator[None]:
    """Make imports of users' modules inside this context give copies that no code outside it has."""
    before = _taken_out()
    sys.modules.update(_copied)
    try:
        yield
    finally:
        _copied.update(_taken_out())
        sys.modules.update(before)


def _taken_out() -> dict[str, ModuleType]:
    found = somebodys()
    for name in found:
        del sys.modules[name]
    return found


def somebodys() -> dict[str, ModuleType]:
    """Return the users' own modules that this process has imported."""
    return {name: module for name, module in [*sys.modules.items()] if is_own(name, module)}


def is_own(name: str, module: object) -> bool:
    """As `is_somebodys`, cached for each module: there are thousands, and every check asks for all of them."""
    known = _asked.get(name)
    if known is None or known[0] is not module:
        known = _asked[name] = (module, is_somebodys(name, module))
    return known[1]


def imported() -> dict[str, ModuleType]:
    """Return the users' modules that reading the pickles has imported, including the copies."""
    return {**_copied, **somebodys()}


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:200]
