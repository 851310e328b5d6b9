"""A profile as Markdown, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from groundspeed.judge.profile import Look, Picture
from groundspeed.report.environment import environment_lines
from groundspeed.report.escape import code, escape, markdown_table, paragraph
from groundspeed.report.page import Table
from groundspeed.report.plain_json import dump
from groundspeed.report.profile import counted, views


def to_markdown(picture: Picture, identity: str) -> str:
    return "\n".join(_lines(picture, identity)) + "\n"


def _lines(picture: Picture, identity: str) -> Iterator[str]:
    yield f"# {escape(views.title(picture))}"
    yield from ("", f"{paragraph(views.lead(picture))}. Evidence: bundle {code(identity)}.", "")
    yield from (f"- {escape(sentence)}." for sentence in views.which(picture))
    yield from ("", views.NO_CLAIM, "", "## Calls", "")
    yield from _table(views.summary(picture))
    if picture.counted:
        yield from ("", "## Counters", "", *_table(counted.side_by_side(picture)))
    for look in picture.looks:
        if look.tops:
            what = "Kernels and copies" if picture.profile.device == "cuda" else "Operators"
            yield from ("", f"## {what} of {escape(look.contender)}", "")
            yield from _table(views.tops(picture, look))
            if names := views.full_names(look):
                yield from ("", f"In full: {', '.join(map(code, names))}.")
        if (every := counted.kernels(look)).rows:
            yield from ("", f"## Counters of {escape(look.contender)}", "", *_table(every))
    if notes := [f"- **{escape(word)}**: {escape(sentence)}" for word, sentence in views.notes(picture)]:
        yield from ("", "## Notes", "", *notes)
    yield from ("", "## Environment", "", *environment_lines(picture.profile.environment))
    yield from ("", "## Check it again", "", "```", f"groundspeed verify {identity[:12]}", "```")


def _table(table: Table) -> Iterator[str]:
    left = [i for i, column in enumerate(table.columns) if not column.number]
    yield from markdown_table([escape(column.title) for column in table.columns], table.rows, left)
    yield from ("", table.note) if table.note else ()


def to_json(picture: Picture, identity: str) -> str:
    return dump(plain(picture, identity), indent=1)


def plain(picture: Picture, identity: str) -> dict[str, Any]:
    """Return a profile as data, in seconds, shares from 0 to 1 and bytes; None means unknown."""
    profile = picture.profile
    return {
        "bundle": identity,
        "kind": "profile",
        "claim": None,
        "suite": profile.suite,
        "case": asdict(profile.case),
        "device": picture.device_name,
        "counters_by": profile.counters_by if picture.counted else None,
        "contenders": [_look(look) for look in picture.looks],
    }


def _look(look: Look) -> dict[str, Any]:
    facts = asdict(look)
    facts["status"], facts["reason"] = look.seen.status, look.seen.reason
    facts["no_counters"], facts["errors"] = look.seen.no_counters, look.seen.errors
    del facts["seen"]
    for top in facts["tops"]:
        launch = top.pop("launch")
        top |= {key: launch[key] for key in ("grid", "block", "registers", "shared_bytes")}
    return facts
