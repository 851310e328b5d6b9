"""The site of a history: the page with all lines, and the report that each of its points leads to."""

from groundspeed.report.history.document import LIBRARY, to_page, to_report

__all__ = ["LIBRARY", "to_page", "to_report"]
