"""What every form of a profile says: its sentences and its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from groundspeed.evidence.profile import Event
from groundspeed.judge.claims import conditions
from groundspeed.judge.counters import Reading
from groundspeed.judge.profile import Look, Picture, Top
from groundspeed.report import text
from groundspeed.report.page import Column, Table
from groundspeed.report.words import short_kernel

NO_CLAIM = (
    "A profile describes a few calls in one process under a profiler, which slows them down: it shows where time goes, "
    "and no speed in it is a claim. `groundspeed run` measures speed."
)
TOPS = 8
"""Kernels or operators of a contender that the screen and the tables name."""
STALLS = 3


def title(picture: Picture) -> str:
    profile = picture.profile
    return text.safe(f"profile of {profile.suite} {profile.case.name} on {picture.device_name}")


def lead(picture: Picture) -> str:
    return text.safe(f"{conditions(picture.profile.case)}; looked at until {picture.profile.finished}")


def which(picture: Picture) -> Iterator[str]:
    """Plainly, which picture this is: what was counted, what was seen, what is computed."""
    profile, counted = picture.profile, picture.counted
    if counted:
        names = ", ".join(look.contender for look in counted)
        yield text.safe(
            f"Hardware counters by {profile.counters_by}, of {names}: one call, each kernel from a cold cache"
        )
    reasons: dict[str, list[str]] = {}
    for look in picture.looks:
        if look.seen.status == "PASSED" and look.seen.no_counters:
            reasons.setdefault(look.seen.no_counters, []).append(look.contender)
    for why, contenders in reasons.items():
        of = f" of {', '.join(contenders)}" if counted or len(reasons) > 1 else ""
        yield text.safe(f"No hardware counters{of}: {why}")
    seen = "kernels, copies and gaps" if profile.device == "cuda" else "operators"
    yield f"Timeline of {seen} by PyTorch's profiler; the roofline is computed from the FLOPs and bytes of the maths"


def summary(picture: Picture) -> Table:
    on_gpu = picture.profile.device == "cuda"
    roofs = any(look.point and look.point.roofs for look in picture.looks)
    rates = [look.point.flops for look in picture.looks if look.point]
    unit, name = text.flop_rate_unit(max(rates, default=0.0))
    body = []
    for look in picture.looks:
        gaps, point = look.gaps, look.point
        device = [
            _seconds(look.span_s),
            _seconds(look.before_s),
            text.NOTHING if gaps is None else f"{gaps.number:g}",
            text.NOTHING if gaps is None else text.seconds(gaps.seconds) if gaps.seconds else "0",
            text.share(gaps.share if gaps else None),
        ]
        body.append(
            [
                look.contender,
                look.seen.status,
                _seconds(look.call_s),
                *(device if on_gpu else []),
                text.share(look.copy_share),
                text.significant(point.flops / unit) if point else text.NOTHING,
                *([text.share(point.share), point.bound or ""] if point and roofs else [text.NOTHING] * 2 * roofs),
            ]
        )
    columns = (
        Column("contender"),
        Column("status", word=True),
        Column("call", number=True),
        *((_numbers("device", "before", "gaps", "idle", "idle share")) if on_gpu else ()),
        *_numbers("copies", name),
        *((Column("of roof", number=True), Column("bound")) if roofs else ()),
    )
    return Table("Calls", columns, body, _summary_note(picture, on_gpu, roofs))


def _summary_note(picture: Picture, on_gpu: bool, roofs: bool) -> str:
    calls = max(
        (len([c for c in picture.profile.calls if c.contender == x.contender]) for x in picture.looks), default=0
    )
    said = f"Medians over {text.plural(calls, 'call')}. call: as the host sees it, until all is done"
    if on_gpu:
        said += (
            "; device: from the first kernel's begin to the last one's end; before: from the begin of the call to that "
            "of the first kernel; gaps, idle: between kernels, the device doing nothing"
        )
    said += "; copies: their share of the time of all that ran"
    if roofs:
        said += "; of roof: of what the datasheet's peaks allow this work, and what binds it there"
    return f"{said}."


def tops(picture: Picture, look: Look, most: int = TOPS) -> Table:
    on_gpu = picture.profile.device == "cuda"
    body = []
    for top in look.tops[:most]:
        sizes = _sizes(top.launch) if on_gpu else []
        body.append(
            [
                short_name(top),
                *([top.kind] if on_gpu else []),
                f"{top.times:g}",
                text.seconds(top.seconds),
                text.share(top.share),
                *sizes,
            ]
        )
    what = "kernel" if on_gpu else "operator"
    columns = (
        Column(what),
        *((Column("kind"),) if on_gpu else ()),
        *_numbers("times", "time", "share"),
        *((Column("grid × block"), *_numbers("registers", "shared")) if on_gpu else ()),
    )
    rest = look.tops[most:]
    note = ""
    if rest:
        share = sum(top.share for top in rest)
        note = f"{text.plural(len(rest), what)} more, {text.share(share)} of the time together."
    if look.seen.left_out:
        note += f" {look.seen.left_out:,} events more were seen, and are not in the bundle."
    return Table(look.contender, columns, body, note.strip())


def short_name(top: Top) -> str:
    return short_kernel(top.name) if top.kind == "kernel" else top.name


def _sizes(launch: Event) -> list[str]:
    grid, block = ("·".join(map(str, size)) if size else "" for size in (launch.grid, launch.block))
    return [
        f"{grid} × {block}" if grid and block else text.NOTHING,
        text.NOTHING if launch.registers is None else str(launch.registers),
        text.amount_of_bytes(launch.shared_bytes),
    ]


def counters(look: Look) -> Table:
    """A column for each kernel, the longest first."""
    told = look.readings[:TOPS]
    rows: list[tuple[str, Callable[[Reading], str]]] = [
        ("launches", lambda r: f"{r.launches}"),
        ("time", lambda r: _seconds(r.seconds)),
        ("SM", lambda r: text.share(r.sm)),
        ("tensor pipe", lambda r: text.share(r.tensor)),
        ("DRAM", lambda r: text.share(r.dram)),
        ("L2", lambda r: text.share(r.l2)),
        ("L2 hits", lambda r: text.share(r.l2_hits)),
        ("occupancy", lambda r: text.share(r.achieved)),
        ("possible occupancy", lambda r: text.share(r.possible)),
        ("registers a thread", lambda r: text.NOTHING if r.registers is None else str(r.registers)),
        ("spills", lambda r: text.NOTHING if r.spills is None else f"{r.spills:,}"),
        ("shared a block", lambda r: text.amount_of_bytes(r.shared_bytes)),
        ("warps wait for", stalls),
    ]
    body = [[name, *(tell(reading) for reading in told)] for name, tell in rows] if told else []
    note = (
        f"SM to L2: of peak, while the kernel ran; {text.NOTHING} is not known. Possible occupancy: what registers, "
        "shared memory and blocks allow. Warps wait for: how many, for each instruction that is issued."
    )
    if rest := look.readings[TOPS:]:
        note += f" {text.plural(len(rest), 'kernel')} more in the bundle."
    columns = (Column("counter"), *(Column(short_kernel(reading.kernel)) for reading in told))
    return Table(f"Counters of {look.contender}", columns, body, note)


def stalls(reading: Reading) -> str:
    some = reading.stalls[:STALLS]
    return ", ".join(f"{stall.why} {text.significant(stall.warps, 2)}" for stall in some) or text.NOTHING


def notes(picture: Picture) -> Iterator[tuple[str, str]]:
    """Who was not looked at, and why."""
    for look in picture.looks:
        if look.seen.status != "PASSED":
            yield look.seen.status, text.safe(f"{look.contender}: {look.seen.reason}")
        elif look.point and look.point.impossible:
            yield (
                "INVALID",
                text.safe(
                    f"{look.contender}: the device cannot do this work in the time that the profiler saw; it missed a "
                    "part, or not all of the work is done"
                ),
            )
    for status in ("ABSENT", "SKIPPED"):
        names = [c for c in picture.profile.contenders if c.status == status]
        together: dict[str, list[str]] = {}
        for contender in names:
            together.setdefault((contender.reason or "").partition("; ")[0], []).append(contender.name)
        if together:
            yield status, text.safe("; ".join(f"{', '.join(names)} ({why})" for why, names in together.items()))


def _numbers(*titles: str) -> Sequence[Column]:
    return [Column(title, number=True) for title in titles]


def _seconds(value: float | None) -> str:
    return text.NOTHING if value is None else text.seconds(value)
