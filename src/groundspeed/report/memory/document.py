"""The page of a memory profile."""

from __future__ import annotations

from groundspeed.evidence.memory import MemoryUse
from groundspeed.report import page
from groundspeed.report.html import library
from groundspeed.report.memory import chart, views


def to_html(use: MemoryUse) -> str:
    timeline = chart.on_page(use)
    return page.render(
        "memory.html",
        scripts=[library.javascript(), page.source("charts.js")],
        title=views.title(use),
        lead=list(views.lead(use)),
        timeline=timeline,
        legend=chart.legend(use),
        phases=views.phases(use),
        largest=views.largest(use),
        notes=use.notes,
        charts={timeline.name: timeline.data},
    )
