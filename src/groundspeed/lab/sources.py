"""The files that contenders come from: whether what was measured is what is here now."""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from groundspeed.case import Contender
from groundspeed.errors import GroundspeedError
from groundspeed.evidence.record import Record
from groundspeed.suites import registry

OURS = "ours-"
"""How the names of our own kernels begin."""
CODE = "code_sha256"
"""In the environment of a record: by contender the hash of its code."""


def source_hash(contender: Contender) -> str | None:
    if contender.source is None:
        return None
    return hashlib.sha256(Path(contender.source).read_bytes()).hexdigest()


def code_hash(contender: Contender) -> str | None:
    """The same of what Python runs: without comments, docstrings and empty lines. Made from the text and not from the
    syntax tree, whose form changes with the version of Python. None where the file is no Python."""
    if contender.source is None:
        return None
    try:
        with tokenize.open(contender.source) as file:
            return hashlib.sha256(_code(file.read()).encode()).hexdigest()
    except (SyntaxError, ValueError, tokenize.TokenError, RecursionError):
        return None


def _code(source: str) -> str:
    lines = [line.rstrip("\r\n") for line in io.StringIO(source)]
    columns = [line.encode() for line in lines]  # where ast counts in bytes
    for node in ast.walk(ast.parse(source)):
        holder = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if holder and node.body and _is_text(node.body[0]):  # type: ignore[attr-defined]
            text = node.body[0].value  # type: ignore[attr-defined]
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


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def code_hashes(contenders: Mapping[str, Contender], names: list[str]) -> dict[str, str]:
    return {name: found for name in names if (found := code_hash(contenders[name]))}


def changed(record: Record) -> Iterator[str]:
    """For each of our kernels whose source is not the one that this record measured, one sentence."""
    here = {contender.name: contender for contender in registry.suite_module(record.run.suite).contenders()}
    code: Any = record.environment.get(CODE)
    for facts in record.measured:
        if not facts.name.startswith(OURS) or facts.source_sha256 is None:
            continue
        now = here.get(facts.name)
        if now is None or now.source is None:
            yield f"{facts.name} is no longer here"
            continue
        try:
            plain, bare = source_hash(now), code_hash(now)
        except OSError as error:
            raise GroundspeedError(f"cannot read {now.source}: {error.strerror}; install groundspeed again") from None
        measured = code.get(facts.name) if isinstance(code, dict) else None
        if plain == facts.source_sha256 or (measured is not None and measured == bare):
            continue
        if measured is None:
            yield f"cannot tell whether {facts.name} is the kernel that was measured: its source changed"
        else:
            yield f"{facts.name} is not the kernel that was measured: its code changed"
