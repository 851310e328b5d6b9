"""Layout of text on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

LEAST_WIDTH = 20


def hanging(console: Console, label: Text, sentence: Text) -> Text:
    """Return the sentence beside its label, with its further lines indented under the first."""
    indent = len(label.plain) + 1
    lines = sentence.wrap(console, max(LEAST_WIDTH, console.width - indent))
    return Text(" ").join([label, Text("\n" + " " * indent).join(lines)])
