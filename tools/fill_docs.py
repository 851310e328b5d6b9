"""Fill the output blocks of README and docs with what the commands above them print now.

    python tools/fill_docs.py          rewrite the blocks
    python tools/fill_docs.py --check  exit 1 if one is out of date

A block is a fenced code block under `<!-- output: groundspeed … -->`. The commands read committed bundles only, so they
print the same everywhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = ("README.md", "docs/commands.md")
BLOCK = re.compile(r"(<!-- output: groundspeed (?P<command>.+?) -->\n```[a-z]*\n)(?P<output>.*?)(```\n)", re.DOTALL)


def printed(command: str) -> str:
    call = [sys.executable, "-c", "from groundspeed.cli import main; main()", *shlex.split(command)]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "140"}
    done = subprocess.run(call, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def filled(text: str) -> str:
    return BLOCK.sub(lambda block: block[1] + printed(block["command"]) + block[4], text)


def main() -> None:
    stale = []
    for name in FILES:
        path = ROOT / name
        before = path.read_text()
        after = filled(before)
        if after != before:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(after)
    if stale and "--check" in sys.argv:
        sys.exit(f"out of date: {', '.join(stale)}; run python tools/fill_docs.py")


if __name__ == "__main__":
    main()
