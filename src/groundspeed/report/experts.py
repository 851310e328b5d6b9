"""How evenly the experts of a run were used, and what share of the time was spent choosing them (requirement B2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groundspeed.judge.beside import Beside
from groundspeed.judge.experts import ExpertUse, expert_use, router_shares
from groundspeed.judge.judgement import Judgement
from groundspeed.report.page import Column, Table
from groundspeed.report.rows import CASE, numbers

TITLE = "Experts"
UNKNOWN = "not determined"
BARS, NONE = "▁▂▃▄▅▆▇█", "·"
DRAWN = 64
"""The most experts that are drawn, with a bar each; the JSON has them all."""
NOTE = (
    "The inputs of the case decide which tokens go to which expert, so this is the same for every contender. Variation "
    "is the standard deviation of the tokens per expert over their mean; the balance loss is 1 if all experts get the "
    "same number. Router is the share of the GPU time of a call that our kernels for choosing and sorting take; only a "
    "profile beside the run shows it."
)


def table(judgement: Judgement, profiles: Sequence[Beside] = ()) -> Table:
    """Return the table of experts, which is empty if no case has any."""
    body = [
        [
            one.case.name,
            f"{one.variation:.1%}",
            f"{round(one.over_ideal, 3) + 0.0:.3f}",
            ", ".join(f"{share:.1%} ({name})" for name, share in router_shares(one.case, profiles).items()) or UNKNOWN,
            f"{one.most:,}",
            f"{one.least:,}",
            _bars(one.usage.tokens),
        ]
        for one in expert_use(judgement.record)
    ]
    columns = (
        CASE,
        *numbers("variation", "balance loss − 1"),
        Column("router", word=True),
        *numbers("most tokens", "fewest tokens"),
        Column("tokens of each expert"),
    )
    return Table(TITLE, columns, body, NOTE)


def _bars(tokens: Sequence[int]) -> str:
    if len(tokens) > DRAWN:
        return "in the JSON"
    most = max(tokens)
    return "".join(BARS[(number * len(BARS) - 1) // most] if number else NONE for number in tokens)


def plain(judgement: Judgement, profiles: Sequence[Beside]) -> list[dict[str, Any]]:
    """Return the same as data, one row per case."""
    return [
        {
            "case": one.case.name,
            "tokens": list(one.usage.tokens),
            **columns(one),
            "balance_loss": one.usage.balance_loss,
            "router_share": router_shares(one.case, profiles),
        }
        for one in expert_use(judgement.record)
    ]


def columns(one: ExpertUse | None) -> dict[str, Any]:
    """Return the columns for a --csv row: the same for every contender, and None for a case without experts."""
    return {
        "experts": len(one.usage.tokens) if one else None,
        "expert_tokens_most": one.most if one else None,
        "expert_tokens_least": one.least if one else None,
        "expert_variation": one.variation if one else None,
        "balance_loss_over_ideal": one.over_ideal if one else None,
    }
