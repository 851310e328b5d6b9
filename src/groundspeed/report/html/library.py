"""The JavaScript that draws the charts: Vega, Vega-Lite and Vega-Embed, as vl-convert carries them (BSD-3-Clause)."""

from __future__ import annotations

from functools import lru_cache

from groundspeed.errors import GroundspeedError
from groundspeed.report.charts.svg import VEGA_LITE
from groundspeed.report.page import NEEDED


@lru_cache
def javascript() -> str:
    try:
        import vl_convert
    except ImportError:
        raise GroundspeedError(NEEDED) from None
    made = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;", vl_version=VEGA_LITE)
    # The bundle is a module; a function around it keeps its names local.
    return f"(()=>{{{made}\n}})();"
