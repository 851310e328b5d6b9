"""A Vega-Lite chart as one self-contained SVG file: no font, no script, no link."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

from groundspeed.errors import GroundspeedError
from groundspeed.report.charts.frame import FONT, Spec
from groundspeed.report.page import NEEDED

VEGA_LITE = "6.4"
"""The version to use of those that vl-convert carries; another may lay out the same chart a little differently."""

_SVG = "http://www.w3.org/2000/svg"
_GEOMETRY = ("d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height")
_DEFAULTS = (("opacity", "1"), ("font-family", FONT))
_NEEDLESS = re.compile(r"class|role|aria-.*|pointer-events")
"""Attributes that only matter in a page with scripts and styles."""


def render(chart: Spec) -> str:
    try:
        import vl_convert
    except ImportError:
        raise GroundspeedError(NEEDED) from None
    drawn = vl_convert.vegalite_to_svg(
        json.dumps(chart, allow_nan=False), vl_version=VEGA_LITE, allowed_base_urls=[], show_warnings=False
    )
    root = ElementTree.fromstring(drawn)
    for element in list(root.iter()):
        for child in list(element):
            if child.tag == f"{{{_SVG}}}path" and not child.attrib.keys() & {"fill", "stroke"}:
                element.remove(child)  # the background of a panel, which has no colour
        for name, value in list(element.attrib.items()):
            if _NEEDLESS.fullmatch(name) or (name, value) in _DEFAULTS:
                del element.attrib[name]
            elif name in _GEOMETRY:
                element.attrib[name] = re.sub(r"-?\d+\.\d+(e-?\d+)?", _hundredths, value)
    _number_clips(root)
    root.set("font-family", FONT)
    title = ElementTree.Element(f"{{{_SVG}}}title")
    title.text = str(chart["title"]["text"])
    root.insert(0, title)
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _number_clips(root: ElementTree.Element) -> None:
    """Number the clip paths from 0 in every file, because Vega continues from the chart before."""
    clips = [element for element in root.iter() if element.tag == f"{{{_SVG}}}clipPath"]
    numbers = {element.attrib["id"]: f"clip{i}" for i, element in enumerate(clips)}
    for element in clips:
        element.set("id", numbers[element.attrib["id"]])
    for element in root.iter():
        if used := element.get("clip-path"):
            element.set("clip-path", f"url(#{numbers[used[len('url(#') : -1]]})")


def _hundredths(number: re.Match[str]) -> str:
    """Round to hundredths of a pixel, which is finer than visible."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
