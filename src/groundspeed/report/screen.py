"""What `run` and `show` print on the screen: title, table, notes, claims, and where the evidence is."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Console
from rich.text import Text

from groundspeed.judge.cost import cost_of
from groundspeed.judge.judgement import Judgement
from groundspeed.report import page, rivals, table, text, words
from groundspeed.report.layout import hanging

QUIET = ("ABSENT", "SKIPPED")


def show(
    console: Console,
    judgement: Judgement,
    path: Path,
    name: str,
    *,
    every_claim: bool = False,
    price_per_hour: float | None = None,
) -> None:
    """Print a judgement. `name` is the name of the bundle on the command line."""
    console.print(Text(words.title(judgement), style="bold"))
    console.print()
    nothing = not judgement.record.finished_attempts
    if not nothing:
        console.print(table.run_table(judgement, console))
        console.print(Text(table.legend(judgement), style="dim"))
        console.print()
    notes = [note for note in words.notes(judgement, brief=True) if not (nothing and note.word in QUIET)]
    for note in notes:
        if note.word == words.SEE_IT:
            console.print(Text(f"{note.word:<9} {note.sentence}", style="dim"), soft_wrap=True)  # one line, to copy
            continue
        style = table.STYLES.get(note.word, "yellow" if note.word == "warning" else "dim")
        label, body = Text(f"{note.word:<9}", style=style), Text(note.sentence, "dim" if note.word in QUIET else "")
        console.print(hanging(console, label, body))
    if notes:
        console.print()
    said = set()
    for supported, sentence in words.claim_lines(judgement):
        console.print(Text(sentence, style="bold" if supported else ""))
        said.add(sentence)
    for line in rivals.lines(judgement):
        console.print(Text(line))
    if every_claim:
        for claim in words.case_claims(judgement):
            if claim not in said:
                console.print(hanging(console, Text(" "), Text(claim)))
    console.print()
    quoted = shlex.quote(text.safe(name))
    cost = cost_of(judgement, price_per_hour)
    if cost.gate_share is not None:
        console.print(Text(f"protocol  {words.gate(cost.gate_share)}", style="dim"))
    if price_per_hour is not None:
        console.print(Text(f"cost      {words.cost(cost)}", style="dim"))
    for what, line in (
        ("evidence", text.safe(path)),
        ("check it", f"groundspeed verify {quoted}"),
        ("report", page.advice(quoted, "report")),
    ):
        # Never wrapped, so that they can be copied.
        console.print(Text(f"{what:<9} {line}", style="dim"), soft_wrap=True)
