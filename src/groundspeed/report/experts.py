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
    "Who chooses whom is said by the inputs of the case, and is the same for every contender. Variation is the "
    "standard deviation of the tokens over their mean; 1 is the balance loss where all are alike. Under router "
    "stands the share of our kernels which choose and sort, of all that ran on the GPU in a call: a profile beside the "
    "run tells it."
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
        Column("router"),
        *numbers("most tokens", "least"),
        Column("each expert"),
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
