"""The process that Nsight Compute looks into: `python -m groundspeed.measure.counted FILE`, the requests of a worker.

It answers to nobody: what is found, Nsight Compute writes. A contender that fails ends it, with the reason as its last
words."""

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
