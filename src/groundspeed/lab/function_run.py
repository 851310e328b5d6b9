"""The result of `gs.compare`: printed, in a notebook, and as numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from groundspeed.errors import BadInput, GroundspeedError, unknown
from groundspeed.evidence import store
from groundspeed.judge.judgement import Judgement, Result
from groundspeed.report import text, words

WIDTH = 120


@dataclass(frozen=True)
class FunctionResult:
    """The result of one function by one clock."""

    name: str
    status: str
    """PASSED, or why it has no time: INCORRECT, ERROR, OOM, TIMEOUT, INVALID."""
    reason: str
    """The reason for the status if that is not PASSED, else for the verdict."""
    median_s: float | None
    """Seconds per call."""
    verdict: str | None
    """FASTER, SAME, SLOWER or UNCLEAR against the baseline; None for the baseline itself, or without a verdict."""
    ratio: float | None
    """How many times as fast as the baseline; `low` and `high` are the 95% interval of that."""
    low: float | None
    high: float | None


@dataclass(frozen=True, repr=False)
class FunctionRun:
    """The result of `gs.compare`. Printed, it shows the run's table and verdicts, or what this process alone measured.
    `run["mine"]` has the numbers."""

    judgement: Judgement | None
    path: Path | None
    """The bundle, which `groundspeed show`, `verify` and `report` take; None if no fresh process could be used."""
    here: Mapping[str, FunctionResult]
    """The results in this process if no fresh process could be used: a description, without a claim."""
    why: str = ""
    """Why no fresh process could be used."""

    def claim(self, name: str = "") -> str:
        """Return the claim that the evidence supports about a function, or without a name all claims, one per line.
        GroundspeedError with the reason if it supports none."""
        if self.judgement is None:
            raise GroundspeedError(f"no claim: {self.why}; one process proves nothing about others")
        judged = self.judgement.record.run.judged
        if name and name == self.judgement.record.run.baseline:
            raise BadInput(f"{name} is the baseline, which the others are compared with; name one of them")
        if name and name not in judged:
            raise unknown("function that was compared", name, judged)
        lines = [*words.claim_lines(self.judgement, [name] if name else judged)]
        if claims := [sentence for supported, sentence in lines if supported]:
            return "\n".join(claims)
        raise GroundspeedError(in_python(" ".join(sentence for _, sentence in lines)))

    def result(self, name: str, clock: str = "") -> FunctionResult:
        """Return the result of a function by the named clock, or by the first one."""
        if self.judgement is None:
            if name not in self.here:
                raise unknown("function", name, self.here)
            return self.here[name]
        clocks = [case.clock for case in self.judgement.cases]
        if (asked := clock or clocks[0]) not in clocks:
            raise unknown("clock of this run", clock, clocks)
        case = self.judgement.cases[clocks.index(asked)]
        if name not in (names := [one.contender for one in case.results]):
            raise unknown("function", name, names)
        return _result(case.result(name))

    def __getitem__(self, name: str) -> FunctionResult:
        return self.result(name)

    def __repr__(self) -> str:
        return self._shown() or self._described()

    def _repr_html_(self) -> str:
        return self._shown(html=True) or f"<p>{escape(self._described())}</p>"

    def _described(self) -> str:
        each = ", ".join(
            f"{one.name} {one.status if one.median_s is None else text.seconds(one.median_s)}"
            for one in self.here.values()
        )
        return f"Measured in this process only, without a claim ({self.why}). Medians: {each}."

    def _shown(self, *, html: bool = False) -> str:
        if self.judgement is None or self.path is None:
            return ""
        import io

        from rich.console import Console

        from groundspeed.report import screen

        quiet = Console(width=WIDTH, highlight=False, file=io.StringIO(), record=True)
        screen.show(quiet, self.judgement, self.path, self._called())
        if html:
            page = '<pre style="line-height:normal;overflow-x:auto">{code}</pre>'
            return quiet.export_html(inline_styles=True, code_format=page)
        return quiet.export_text()

    def _called(self) -> str:
        """Return the bundle's name for the command line: its hash if it is among the runs of this folder, else its
        path."""
        assert self.path is not None
        short = self.path.name.rpartition("-")[2][:12]
        return short if self.path.parent.resolve() == Path(store.RUNS).resolve() else str(self.path)


def in_python(said: str) -> str:
    """Rewrite the command line's flags as arguments of Python."""
    said = re.sub(r"(: make room, then) continue with --resume .*", r"\1 call gs.compare again", said)
    said = re.sub(r"--processes (\d+)", r"processes=\1", said)
    said = re.sub(r"--(calibration|preset|clock) ([^\s:;,]+)", r"\1='\2'", said)
    return re.sub(r"--(out|processes|calibration|preset|clock)\b", r"\1=", said)


def _result(found: Result) -> FunctionResult:
    c = found.comparison
    return FunctionResult(
        name=found.contender,
        status=found.status,
        reason=in_python(str(found.reason or "") if found.status != "PASSED" or c is None else c.reason),
        median_s=found.latency.median if found.latency else None,
        verdict=c.verdict if c else None,
        ratio=c.ratio if c else None,
        low=c.low if c and c.interval.n > 1 else None,
        high=c.high if c and c.interval.n > 1 else None,
    )
