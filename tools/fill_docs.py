"""Fill what README and docs quote from committed bundles, so that it is what the code makes of them now.

    python tools/fill_docs.py          rewrite
    python tools/fill_docs.py --check  exit 1 if something is out of date

A fenced block under `<!-- output: groundspeed … -->` holds what that command prints. Between `<!-- overview: … -->`,
`<!-- glance: … -->` or `<!-- claims: … -->` and `<!-- end -->` stands what the report says about the bundles named,
and `<!-- chart: FILE.svg … -->` draws FILE.svg and FILE-dark.svg. A bundle is named by the start of its path."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from groundspeed.evidence.bundle import Bundle
from groundspeed.judge.judgement import Judgement
from groundspeed.lab import check
from groundspeed.report import charts, words
from groundspeed.report.escape import escape
from groundspeed.report.overview import overview
from groundspeed.report.pivot import pivot

ROOT = Path(__file__).parent.parent
FILES = ("README.md", "docs/commands.md", "docs/results.md")
OUTPUT = re.compile(r"(<!-- output: groundspeed (?P<command>.+?) -->\n```[a-z]*\n)(?P<output>.*?)(```\n)", re.DOTALL)
QUOTED = re.compile(
    r"(<!-- (?P<what>overview|glance|claims): (?P<of>.+?) -->\n)(?P<text>.*?)(<!-- end -->\n)", re.DOTALL
)
CHART = re.compile(r"<!-- chart: (?P<file>\S+\.svg) (?P<of>\S+) -->")


def printed(command: str) -> str:
    call = [sys.executable, "-c", "from groundspeed.cli import main; main()", *shlex.split(command)]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "140"}
    done = subprocess.run(call, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


@functools.cache
def bundle(start: str) -> tuple[Bundle, Judgement]:
    (path,) = ROOT.glob(f"{start}*")
    found, replay = check.verify(path)
    return found, replay.judgement


def quoted(what: str, of: str, document: Path) -> Iterator[str]:
    """`of` are the starts of bundles, in an overview each after its name: `sweep = evidence/…; small work = …`."""
    if what == "overview":
        named = dict(part.split(" = ") for part in of.split("; "))
        yield from overview({name.strip(): bundle(start.strip())[1] for name, start in named.items()})
    elif what == "glance":
        yield from pivot(bundle(of)[1])
    else:
        for start in of.split():
            found, judgement = bundle(start)
            where = os.path.relpath(found.path, document.parent)
            for _, sentence in words.claim_lines(judgement):
                yield f"- {escape(sentence)} ([evidence]({where}))"


def filled(text: str, document: Path) -> str:
    text = OUTPUT.sub(lambda block: block[1] + printed(block["command"]) + block[4], text)
    return QUOTED.sub(
        lambda block: block[1] + "".join(f"{s}\n" for s in quoted(block["what"], block["of"], document)) + block[5],
        text,
    )


def drawn(text: str, document: Path) -> Iterator[tuple[Path, str]]:
    for chart in CHART.finditer(text):
        found, judgement = bundle(chart["of"])
        light = document.parent / chart["file"]
        yield light, charts.to_svg(judgement, found.identity)
        yield light.with_name(f"{light.stem}-dark.svg"), charts.to_svg(judgement, found.identity, dark=True)


def main() -> None:
    stale = []
    for name in FILES:
        document = ROOT / name
        before = document.read_text()
        for path, content in ((document, filled(before, document)), *drawn(before, document)):
            if not path.exists() or path.read_text() != content:
                stale.append(str(path.relative_to(ROOT)))
                if "--check" not in sys.argv:
                    path.write_text(content)
    if stale and "--check" in sys.argv:
        sys.exit(f"out of date: {', '.join(stale)}; run python tools/fill_docs.py")


if __name__ == "__main__":
    main()
