"""The timeline of one call: a bar for everything that ran, in rows by stream or, on a CPU, by depth of the calls."""

from __future__ import annotations

from collections.abc import Sequence

from groundspeed.evidence.profile import Event
from groundspeed.judge.profile import Look, Picture
from groundspeed.report import text
from groundspeed.report.charts.frame import Spec
from groundspeed.report.html.figure import PAGE, Figure, Key, Panel, colour_class, framed, shown
from groundspeed.report.profile.views import short_name

ROW = 30
MOST = 2_000
"""The most bars in one timeline; the longest are drawn, because more could not be told apart."""
NAMED = len(PAGE.rivals)
OTHER = "other"


def figures(picture: Picture) -> list[Figure]:
    """Return a figure for each contender that has a timeline, all over the same range of time."""
    drawn = [(i, look) for i, look in enumerate(picture.looks) if look.timeline]
    ends = [event.start_s + event.seconds for _, look in drawn for event in look.timeline]
    if not ends:
        return []
    size, unit = text.time_unit(max(ends))
    on_gpu = picture.profile.device == "cuda"
    return [_figure(f"timeline-{i}", look, size, unit, max(ends) / size, on_gpu) for i, look in drawn]


def legend(look: Look) -> list[Key]:
    keys = [
        Key(text.safe(short_name(top)), "■", colour_class(PAGE.rivals[i])) for i, top in enumerate(look.tops[:NAMED])
    ]
    return [*keys, Key(OTHER, "■", "c-line")] if len(look.tops) > NAMED else keys


def _figure(name: str, look: Look, size: float, unit: str, end: float, on_gpu: bool) -> Figure:
    colours = {top.name: f"{i}" for i, top in enumerate(look.tops[:NAMED])}
    events = sorted(look.timeline, key=lambda event: -event.seconds)[:MOST]
    depth = {} if on_gpu else depths(look.timeline)
    values = [
        {
            "row": f"stream {event.lane}" if on_gpu else f"depth {depth[event]}",
            "begin": event.start_s / size,
            "end": (event.start_s + event.seconds) / size,
            "what": colours.get(event.name, OTHER),
            "name": text.safe(event.name[:200]),
            "said": text.seconds(event.seconds),
        }
        for event in events
    ]
    says = f"timeline of one call of {look.contender}"
    return Figure(name, says, _spec(unit, end), [Panel("", values)], row_height=ROW)


def depths(events: Sequence[Event]) -> dict[Event, int]:
    """Return the number of operators of the same thread that enclose each event."""
    found: dict[Event, int] = {}
    around: dict[int, list[Event]] = {}
    for event in sorted(events, key=lambda event: (event.start_s, -event.seconds)):
        stack = around.setdefault(event.lane, [])
        while stack and stack[-1].start_s + stack[-1].seconds <= event.start_s:
            stack.pop()
        found[event] = len(stack)
        stack.append(event)
    return found


def _spec(unit: str, end: float) -> Spec:
    colours = {str(i): colour for i, colour in enumerate(PAGE.rivals)} | {OTHER: PAGE.grid}
    time = {"title": f"since the call began, {unit}"}
    scale = {"domain": [0, end], "nice": False}
    bars = {
        "mark": {"type": "bar", "height": {"band": 0.8}, "minBandSize": 2},
        "encoding": {
            "x": {"field": "begin", "type": "quantitative", "scale": scale, "axis": time},
            "x2": {"field": "end"},
            "y": {"field": "row", "type": "nominal", "sort": "ascending", "axis": {"title": None}},
            "color": {
                "field": "what",
                "type": "nominal",
                "scale": {"domain": list(colours), "range": list(colours.values())},
                "legend": None,
            },
            **shown("name", "said"),
        },
    }
    return framed(ROW, [bars])
