"""The site of a history: the page with all lines, and the report that each point links to."""

from groundspeed.report.history.document import LIBRARY, to_page, to_report

__all__ = ["LIBRARY", "to_page", "to_report"]
