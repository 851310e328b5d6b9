"""The page of a profile."""

from __future__ import annotations

from groundspeed.judge.profile import Picture
from groundspeed.report import page, text
from groundspeed.report.charts.frame import Spec, Style
from groundspeed.report.environment import environment_parts
from groundspeed.report.html import library, roofline
from groundspeed.report.html.figure import PAGE, SIGNS, Figure, Key, Panel, colour_class
from groundspeed.report.profile import counted, timeline, views

SHAPES = tuple(SIGNS)


def to_html(picture: Picture, identity: str) -> str:
    lines = {figure.name: figure for figure in timeline.figures(picture)}
    styles = _styles(picture)
    roofs = _roofline(picture, styles)
    figures = {**lines, **({"roofline": roofs} if roofs else {})}
    parts = [
        (look, lines.get(f"timeline-{i}"), timeline.legend(look), views.tops(picture, look), counted.kernels(look))
        for i, look in enumerate(picture.looks)
    ]
    return page.render(
        "profile.html",
        scripts=[library.javascript(), page.source("charts.js")],
        picture=picture,
        title=views.title(picture),
        lead=views.lead(picture),
        which=list(views.which(picture)),
        no_claim=views.NO_CLAIM.replace("`", ""),
        summary=views.summary(picture),
        counters=counted.side_by_side(picture),
        names={look.contender: views.full_names(look) for look in picture.looks},
        parts=[part for part in parts if part[0].tops],
        roofs=roofs,
        known=[_told(picture, i) for i in range(_roofs(picture))],
        legend=[Key(s.contender, SIGNS[s.shape], colour_class(s.colour)) for s in styles],
        notes=list(views.notes(picture)),
        environment=list(environment_parts(picture.profile.environment)),
        identity=identity,
        charts={name: figure.data for name, figure in figures.items()},
    )


def _styles(picture: Picture) -> list[Style]:
    return [
        Style(look.contender, "rival", PAGE.rivals[i % len(PAGE.rivals)], SHAPES[i % len(SHAPES)])
        for i, look in enumerate(picture.looks)
        if look.point
    ]


def _roofs(picture: Picture) -> int:
    return max((len(look.point.roofs) for look in picture.looks if look.point), default=0)


def _told(picture: Picture, i: int) -> str:
    roofs = next(look.point for look in picture.looks if look.point).roofs[i]
    size, unit = text.flop_rate_unit(roofs.flops)
    return (
        f"{roofs.origin}: {text.significant(roofs.flops / size)} {unit}, {text.significant(roofs.bandwidth / 1e9)} GB/s"
    )


def _roofline(picture: Picture, styles: list[Style]) -> Figure | None:
    points = [(look, look.point) for look in picture.looks if look.point]
    if not points:
        return None
    size, unit = text.flop_rate_unit(max(point.flops for _, point in points))
    values: list[Spec] = [
        {
            "contender": look.contender,
            "case": picture.profile.case.name,
            "x": point.intensity,
            "y": point.flops / size,
            "said": f"{text.significant(point.flops / size)} {unit}",
        }
        for look, point in points
    ]
    roofs, x = points[0][1].roofs, points[0][1].intensity
    low = min([x / roofline.ROOM, *(roof.ridge / 4 for roof in roofs)])
    high = max([x * roofline.ROOM, *(roof.ridge * 4 for roof in roofs)])
    lines: list[Spec] = [
        {"roof": roof.origin, "origin": roof.origin, "x": at, "y": roof.allow(at) / size}
        for roof in roofs
        for at in (low, roof.ridge, high)
    ]
    ys = [value["y"] for value in (*values, *lines)]
    bottom = min(value["y"] for value in values) / roofline.ROOM
    spec = roofline.spec_of(styles, lines, [low, high], bottom, max(ys) * roofline.ROOM, unit)
    return Figure("roofline", "rate of each contender under the roofs of the device", spec, [Panel("", values)])
