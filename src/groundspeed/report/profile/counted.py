"""The counters of Nsight Compute as tables: the longest kernel of each contender side by side, and all of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from groundspeed.judge.counters import Reading
from groundspeed.judge.profile import Look, Picture
from groundspeed.report import text
from groundspeed.report.page import Column, Table
from groundspeed.report.words import short_kernel

KERNELS = 8
"""The most columns of kernels in a table."""
STALLS, LEAST = 6, 0.03
"""The most stall reasons with a row of their own, and the least share of a warp's time that one must take."""

DOES = {
    "barrier": "waits at a barrier of its block",
    "wait": "waits for an instruction of known length",
    "long scoreboard": "waits for global or local memory",
    "short scoreboard": "waits for shared memory or special functions",
    "gmma": "waits for wgmma",
    "math pipe throttle": "waits for a busy arithmetic pipe",
    "not selected": "is ready, but another warp issues",
    "dispatch stall": "waits for the dispatcher",
    "mio throttle": "waits for the queue of shared memory",
    "lg throttle": "waits for the queue of global memory",
    "tex throttle": "waits for the queue of textures",
    "no instruction": "waits for its next instruction",
    "branch resolving": "waits for a branch",
    "membar": "waits at a memory fence",
    "drain": "waits for its last stores",
    "imc miss": "waits for a constant",
    "sleeping": "sleeps",
}
"""Nsight Compute's word for what a warp does when it does not issue → plainer words."""

Tell = Callable[[Reading], str]
ROWS: tuple[tuple[str, Tell], ...] = (
    ("launches", lambda r: f"{r.launches}"),
    ("time", lambda r: text.NOTHING if r.seconds is None else text.seconds(r.seconds)),
    ("SM", lambda r: text.share(r.sm)),
    ("tensor pipe", lambda r: text.share(r.tensor)),
    ("DRAM", lambda r: _dram(r)),
    ("L2", lambda r: text.share(r.l2)),
    ("L2 hits", lambda r: text.share(r.l2_hits)),
    ("registers per thread", lambda r: text.NOTHING if r.registers is None else str(r.registers)),
    ("spills", lambda r: text.NOTHING if r.spills is None else f"{r.spills:,}"),
    ("shared memory per block", lambda r: text.amount_of_bytes(r.shared_bytes)),
    ("blocks per SM", lambda r: _blocks(r)),
    ("warps per SM", lambda r: _warps(r)),
    ("occupancy", lambda r: _occupancy(r)),
    ("waves", lambda r: text.NOTHING if r.waves is None else f"{r.waves:.3g}"),
)
NOTE = (
    f"SM, tensor pipe, DRAM and L2: shares of their peak over the kernel's whole time; {text.NOTHING} means unknown. "
    "Blocks per SM: how many fit at a time, and what limits them. Occupancy: the warps that were active on average, "
    "and those that could have been, as shares of what an SM can hold. Waves: how many times the grid fills the "
    "device. From 'a warp issues' on: where the time of a warp goes, averaged over all warps, including those that "
    "only load; Nsight Compute's own term is in parentheses."
)


def side_by_side(picture: Picture) -> Table:
    """Return the counters of each contender's longest kernel; without rows if no contender was counted."""
    counted = picture.counted[:KERNELS]
    first = [look.readings[0] for look in counted]
    names = [["kernel", *(short_kernel(reading.kernel) for reading in first)]] if first else []
    more = [
        f"{look.contender} has {text.plural(len(look.readings), 'kernel')}" for look in counted if look.readings[1:]
    ]
    note = f"{NOTE} The longest kernel of each contender is shown: {', '.join(more)}." if more else NOTE
    columns = (Column("counter"), *(Column(look.contender) for look in counted))
    return Table("Counters", columns, [*names, *_body(first)], note)


def kernels(look: Look) -> Table:
    """Return the counters of every kernel of a contender that has several, the longest first; else without rows."""
    told = look.readings[:KERNELS] if len(look.readings) > 1 else ()
    rest = look.readings[KERNELS:]
    note = f"The bundle has {text.plural(len(rest), 'more kernel')}." if rest else ""
    columns = (Column("counter"), *(Column(short_kernel(reading.kernel)) for reading in told))
    return Table(f"Counters of {look.contender}", columns, list(_body(told)), note)


def _body(readings: Sequence[Reading]) -> Iterator[list[str]]:
    if readings:
        yield from ([name, *map(tell, readings)] for name, tell in ROWS)
        yield ["a warp issues", *(text.share(reading.issuing) for reading in readings)]
        yield from _waits(readings)


def _waits(readings: Sequence[Reading]) -> Iterator[list[str]]:
    """Yield a row for each stall reason that takes much of a warp's time in any kernel, and one for all the others."""
    shares = [{stall.why: stall.share for stall in reading.stalls} for reading in readings]
    most = {why: max(some.get(why) or 0.0 for some in shares) for why in dict.fromkeys(w for s in shares for w in s)}
    named = [why for why in sorted(most, key=lambda why: -most[why]) if most[why] >= LEAST][:STALLS]
    for why in named:
        yield [f"{DOES[why]} ({why})" if why in DOES else why, *(_part(some, [why]) for some in shares)]
    if others := [why for why in most if why not in named]:
        yield ["waits for something else", *(_part(some, others) for some in shares)]


def _part(shares: dict[str, float | None], of: Sequence[str]) -> str:
    """Return the sum of these shares. A reason that a reading does not name took no time, if it names any."""
    known = [share for share in shares.values() if share is not None]
    return text.share(sum(shares.get(why) or 0.0 for why in of)) if known else text.NOTHING


def _dram(reading: Reading) -> str:
    if reading.dram is None or reading.dram_bytes_s is None:
        return text.share(reading.dram)
    return f"{text.share(reading.dram)}, {text.significant(reading.dram_bytes_s / 1e9)} GB/s"


def _blocks(reading: Reading) -> str:
    return (
        text.NOTHING if reading.blocks is None else f"{reading.blocks}, limited by {' and '.join(reading.limited_by)}"
    )


def _warps(reading: Reading) -> str:
    if reading.warps is None:
        return text.NOTHING
    return f"{text.significant(reading.warps, 2)} of {reading.warps_possible} that fit"


def _occupancy(reading: Reading) -> str:
    possible = "" if reading.possible is None else f", {text.share(reading.possible)} possible"
    return text.share(reading.achieved) + possible
