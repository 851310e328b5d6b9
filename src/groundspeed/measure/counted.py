"""The process that Nsight Compute profiles: `python -m groundspeed.measure.counted FILE`, where FILE has a worker's
requests.

It reports to no runner: Nsight Compute writes the results. If a contender fails, the process exits with the reason as
its last line."""

from __future__ import annotations

import sys
from typing import Any

from groundspeed.measure.worker import serve


def report(kind: str, **message: Any) -> None:
    if kind in ("fault", "fault all"):
        sys.exit(f"{message['status']}: {message['reason']}")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as requests:
        serve(requests, report)
