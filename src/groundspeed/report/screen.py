"""What `run` and `show` put on the screen: title, table, notes, claims, and where the evidence lies."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from groundspeed.judge.judgement import Judgement
from groundspeed.report import table


def show(console: Console, judgement: Judgement, path: Path, short: str, *, every_claim: bool = False) -> None:
    console.print(Text(table.title(judgement), style="bold"))
    console.print(table.run_table(judgement, console))
    for note in table.notes(judgement):
        console.print(note)
    console.print()
    for supported, sentence in table.claim_lines(judgement):
        console.print(Text(sentence, style="bold" if supported else ""))
    if every_claim:
        for sentence in table.case_claims(judgement):
            console.print(Text(f"  {sentence}"))
    console.print()
    console.print(Text(f"evidence  {path}", style="dim"), soft_wrap=True)
    console.print(
        Text(f"          groundspeed verify {short}   groundspeed report {short} --md report.md", style="dim")
    )
