"""The report of a run as one HTML file that needs no other file and no network."""

from groundspeed.report.html.document import to_html

__all__ = ["to_html"]
