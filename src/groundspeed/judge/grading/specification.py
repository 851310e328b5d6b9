"""A specification read from TOML: its columns, gates, grades and targets. `targets.toml` beside this file comes with
the package; a user's file has the same form. An unknown key is an error."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from groundspeed.errors import BadInput, unknown
from groundspeed.judge.limits import GIGA, TERA

PACKAGED = Path(__file__).with_name("targets.toml")

Unit = Literal["ms", "TFLOP/s", "GB"]
GOALS = ("target", "excellent", "reference")
BASELINE, SPEC = "baseline", "spec"
MAX_BYTES = 1 << 20

_PARTS = ("columns", "gates", "grades", "numerical", "utilisation", "target")
_TARGET = ("suite", "case", "params", "unit", "flops", "bytes", "launches")


@dataclass(frozen=True)
class Target:
    """One case of a specification in one of its columns."""

    suite: str
    case: str
    gpu: str
    """The column."""
    params: Mapping[str, Any]
    """Parameters that a case of this name must have, for example its dtype."""
    unit: Unit
    goals: Mapping[str, float]
    """target, excellent or reference, each if given → seconds (a rate is converted to the time of the work), or
    bytes."""
    flops: int = 0
    bytes: int = 0
    launches: int = 1
    """The least number of launches that must follow one another."""

    @property
    def target_s(self) -> float | None:
        return self.goals.get("target") if self.unit != "GB" else None

    @property
    def reference_s(self) -> float | None:
        return self.goals.get("reference") if self.unit != "GB" else None


@dataclass(frozen=True)
class Gate:
    """The speed that a suite asks for on every case, where 1 is the speed of the reference."""

    suite: str
    speed: float
    reference: str = BASELINE
    """The baseline of each bundle, the times of the specification, or a contender by name."""


@dataclass(frozen=True)
class Specification:
    source: str
    """The path of the file, or `the specification` for the packaged one."""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    gates: tuple[Gate, ...] = ()
    graded: tuple[str, ...] = ()
    """The suites that the letter covers."""
    letters: tuple[tuple[str, float], ...] = ()
    """From the best down, each with the speed that must be exceeded."""
    excellent: float | None = None
    """The share of a tolerance below which errors are excellent."""
    utilisation: Mapping[str, float] = field(default_factory=dict)

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites that have gates or targets."""
        return tuple(dict.fromkeys([*(gate.suite for gate in self.gates), *(target.suite for target in self.targets)]))

    def column(self, device_name: str) -> str | None:
        """Return the column of a device by the words of its name, or None if the specification does not know it."""
        words = device_name.replace("-", " ").split()
        return next((column for column, names in self.columns.items() if any(n in words for n in names)), None)

    def of_column(self, column: str | None) -> tuple[Target, ...]:
        return tuple(target for target in self.targets if target.gpu == column)


@cache
def packaged() -> Specification:
    return _parse(tomllib.loads(PACKAGED.read_text(encoding="utf-8")), PACKAGED.name, "the specification")


def read(path: Path) -> Specification:
    """Read a user's specification. Raise BadInput that names the file, and the key if one is wrong."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}; --targets takes a TOML file") from None
    if len(content) > MAX_BYTES:
        raise BadInput(f"{path} is larger than 1 MiB, the most that a table of targets may have")
    try:
        parsed = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise BadInput(f"{path} is not valid TOML: it is nested too deeply") from None
    return _parse(parsed, str(path), str(path))


def _parse(data: Mapping[str, Any], file: str, source: str) -> Specification:
    _known(data, _PARTS, file, "the file")
    columns = {
        name: _words(words, f"columns.{name}", file)
        for name, words in _table(data.get("columns", {}), "columns", file).items()
    }
    if clash := sorted(set(columns) & {*_TARGET}):
        raise BadInput(f"{file}: columns.{clash[0]} has the name of a key of [[target]]; rename the column")
    grades = _table(data.get("grades", {}), "grades", file)
    _known(grades, ("suites", "letters"), file, "[grades]")
    letters = _table(grades.get("letters", {}), "grades.letters", file)
    steps = [(name, _number(value, f"grades.letters.{name}", file)) for name, value in letters.items()]
    numerical = _table(data.get("numerical", {}), "numerical", file)
    _known(numerical, ("excellent",), file, "[numerical]")
    excellent = numerical.get("excellent")
    rows = data.get("target", [])
    if not isinstance(rows, list):
        raise BadInput(f"{file}: target must be a list of tables, each headed [[target]]")
    used = _table(data.get("utilisation", {}), "utilisation", file)
    return Specification(
        source=source,
        columns=columns,
        targets=tuple(t for i, row in enumerate(rows, 1) for t in _targets(row, f"[[target]] {i}", columns, file)),
        gates=tuple(_gate(suite, g, file) for suite, g in _table(data.get("gates", {}), "gates", file).items()),
        graded=_words(grades.get("suites", []), "grades.suites", file),
        letters=tuple(sorted(steps, key=lambda step: -step[1])),
        excellent=None if excellent is None else _number(excellent, "numerical.excellent", file),
        utilisation={name: _number(value, f"utilisation.{name}", file) for name, value in used.items()},
    )


def _gate(suite: str, value: Any, file: str) -> Gate:
    where = f"gates.{suite}"
    table = _table(value, where, file)
    _known(table, ("speed", "reference"), file, f"[{where}]")
    if "speed" not in table:
        raise BadInput(f"{file}: {where} has no speed")
    return Gate(
        suite,
        _number(table["speed"], f"{where}.speed", file),
        _text(table.get("reference", BASELINE), f"{where}.reference", file),
    )


def _targets(row: Any, where: str, columns: Iterable[str], file: str) -> list[Target]:
    """Return one target for each column in which a row has a cell."""
    table = _table(row, where, file)
    columns = tuple(columns)
    _known(table, (*_TARGET, *columns), file, where)
    for key in ("suite", "case", "unit"):
        if key not in table:
            raise BadInput(f"{file}: {where} has no {key}")
    unit = table["unit"]
    if unit not in ("ms", "TFLOP/s", "GB"):
        raise BadInput(f"{file}: {where}.unit is {unit!r:.80}; it must be ms, TFLOP/s or GB")
    flops, moved, launches = (
        int(_number(table.get(key, least), f"{where}.{key}", file, least))
        for key, least in (("flops", 0), ("bytes", 0), ("launches", 1))
    )
    if unit == "TFLOP/s" and not flops:
        raise BadInput(f"{file}: {where} has no flops, which a rate needs")
    found = []
    for column in columns:
        if column in table:
            cell = _table(table[column], f"{where}.{column}", file)
            _known(cell, GOALS, file, f"{where}.{column}")
            goals = {
                name: _si(_number(cell[name], f"{where}.{column}.{name}", file), unit, flops)
                for name in GOALS
                if name in cell
            }
            suite, case = (_text(table[key], f"{where}.{key}", file) for key in ("suite", "case"))
            params = dict(_table(table.get("params", {}), f"{where}.params", file))
            found.append(Target(suite, case, column, params, unit, goals, flops, moved, launches))
    return found


def _si(value: float, unit: Unit, flops: int) -> float:
    if unit == "TFLOP/s":
        return flops / (value * TERA)
    return value / 1e3 if unit == "ms" else value * GIGA


def _known(table: Mapping[str, Any], keys: Iterable[str], file: str, where: str) -> None:
    if strange := [key for key in table if key not in {*keys}]:
        raise unknown(f"key in {where} of {file}:", strange[0], keys)


def _table(value: Any, where: str, file: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{file}: {where} is not a table")
    return value


def _text(value: Any, where: str, file: str) -> str:
    if not isinstance(value, str) or not value:
        raise BadInput(f"{file}: {where} is {value!r:.80}, which is not a name")
    return value


def _words(value: Any, where: str, file: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise BadInput(f"{file}: {where} is not a list of names")
    return tuple(_text(word, where, file) for word in value)


def _number(value: Any, where: str, file: str, least: float = 1e-12) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
        raise BadInput(
            f"{file}: {where} is {value!r:.80}; it must be a number "
            f"{f'of at least {least:g}' if least in (0, 1) else 'above 0'}"
        )
    return float(value)
