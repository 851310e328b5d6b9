"""The cost of a run (A12): how long its processes held the device, the money if an hour has a price, and the share that
went into checking."""

from __future__ import annotations

from dataclasses import dataclass

from groundspeed.evidence.record import Record
from groundspeed.judge.claims import headline
from groundspeed.judge.judgement import Judgement


@dataclass(frozen=True)
class Cost:
    device_s: float
    """The device time of all processes, with lost ones counted up to their last samples. The record has neither the
    line-up before the first process nor the calibration."""
    claims: int
    """The number of headlines that the run supports."""
    price_per_hour: float | None
    gate_share: float | None

    @property
    def money(self) -> float | None:
        return None if self.price_per_hour is None else self.device_s / 3600 * self.price_per_hour

    @property
    def money_per_claim(self) -> float | None:
        return None if self.money is None or not self.claims else self.money / self.claims


def cost_of(judgement: Judgement, price_per_hour: float | None = None) -> Cost:
    claims = sum(headline(judgement, grid)[0] for grid in judgement.grids)
    return Cost(device_s(judgement.record), claims, price_per_hour, gate_share(judgement.record))


def gate_share(record: Record) -> float | None:
    """Return the share of time that the gate took in the processes that recorded it, or None if none did."""
    told = [
        (p.gate_s, p.finished - p.started) for p in record.processes if p.finished is not None and p.gate_s is not None
    ]
    whole = sum(seconds for _, seconds in told)
    return sum(gate_s for gate_s, _ in told) / whole if whole > 0 else None


def device_s(record: Record) -> float:
    samples = record.samples
    ends = samples["start"] + samples["seconds"]
    total = 0.0
    for process in record.processes:
        if process.finished is not None:
            total += max(0.0, process.finished - process.started)
            continue
        mine = (samples["process"] == process.process) & (samples["attempt"] == process.attempt)
        for worker in set(samples["worker"][mine].tolist()):  # each worker's clock starts with it
            total += float(ends[mine & (samples["worker"] == worker)].max())
    return total
