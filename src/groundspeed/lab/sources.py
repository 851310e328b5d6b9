"""The source files of contenders: is what was measured still what is here now?"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from groundspeed.case import Contender, joint_hash
from groundspeed.errors import GroundspeedError
from groundspeed.evidence.names import CODE
from groundspeed.evidence.record import Record
from groundspeed.evidence.revision import revisions_of
from groundspeed.lab.rebuild import CannotTell, changed_cases
from groundspeed.suites import registry

OURS = "ours-"
"""The prefix of the names of our own kernels."""


def code_hash(contender: Contender) -> str | None:
    """Return a hash of what Python runs: the source without comments, docstrings (of attributes too) and empty lines.
    It is computed from the text and not from the syntax tree, whose form changes with the version of Python. None if a
    file is not Python."""
    try:
        return joint_hash(_code(_text(file)).encode() for file in contender.files)
    except (SyntaxError, ValueError, tokenize.TokenError, RecursionError):
        return None


def _text(path: str) -> str:
    with tokenize.open(path) as file:
        return file.read()


def _code(source: str) -> str:
    lines = [line.rstrip("\r\n") for line in io.StringIO(source)]
    columns = [line.encode() for line in lines]  # ast counts columns in bytes
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and _is_text(node.value):
            text: Any = node.value
            for row in range(text.lineno - 1, text.end_lineno):
                first = text.col_offset if row == text.lineno - 1 else 0
                last = text.end_col_offset if row == text.end_lineno - 1 else len(columns[row])
                columns[row] = columns[row][:first] + b" " * (last - first) + columns[row][last:]
    bare = [line.decode(errors="replace") for line in columns]
    for token in tokenize.generate_tokens(io.StringIO(f"{source}\n").readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            bare[row - 1] = bare[row - 1][:column]
    return "\n".join(line.rstrip() for line in bare if line.strip())


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def code_hashes(contenders: Mapping[str, Contender], names: list[str]) -> dict[str, str]:
    return {name: found for name in names if (found := code_hash(contenders[name]))}


class Change(NamedTuple):
    """One of our kernels is not the file that was measured: the sentence to say, and what follows from it."""

    sentence: str
    stale: bool
    """Whether its figures may no longer hold."""
    compared: bool = True
    """False if its machine code was to be compared and could not be."""


def changes(record: Record, rebuild: Collection[str] | None = None) -> Iterator[Change]:
    """Yield a change for each of our kernels whose code is not what this record measured. With cases to `rebuild`, the
    kernel is compiled for these, which takes seconds: if the machine code is the same, its figures still hold."""
    here = {contender.name: contender for contender in registry.suite_module(record.run.suite).contenders()}
    code: Any = record.environment.get(CODE)
    revisions = revisions_of(record.environment)  # a revision stays what it was, whatever is here now
    for facts in record.measured:
        if not facts.name.startswith(OURS) or facts.source_sha256 is None or facts.name in revisions:
            continue
        now = here.get(facts.name)
        if now is None or now.source is None:
            yield Change(f"{facts.name} was removed", True)
            continue
        measured = code.get(facts.name) if isinstance(code, dict) else None
        try:
            if now.source_hash() == facts.source_sha256 or (measured is not None and measured == code_hash(now)):
                continue
        except OSError as error:
            raise GroundspeedError(f"cannot read {now.source}: {error.strerror}; install groundspeed again") from None
        yield _change(record, now, measured is not None, rebuild)


def _change(record: Record, contender: Contender, code_is_known: bool, rebuild: Collection[str] | None) -> Change:
    name, not_compared = contender.name, ""
    if rebuild is not None:
        try:
            cases = changed_cases(record, contender, rebuild)
        except CannotTell as why:
            not_compared = f" ({why})"
        else:
            if not cases:
                return Change(f"{name} has the same machine code, although its code changed", False)
            more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
            where = f"its machine code on {cases[0]}{more} changed"
            return Change(f"{name} is not the kernel that was measured: {where}", True)
    said = f"{name} may not be the kernel that was measured{not_compared}: its code changed"
    if not code_is_known:
        said = f"cannot tell whether {name} is the kernel that was measured{not_compared}: its source changed"
    return Change(said, True, not not_compared)
