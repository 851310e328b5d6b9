"""What is compared: suites of cases, and the contenders that can do them."""

from __future__ import annotations

from groundspeed.suites.registry import Suite, contender, load, suite_names

__all__ = ["Suite", "contender", "load", "suite_names"]
