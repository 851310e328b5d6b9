"""The sentences and tables that all forms of a profile share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from groundspeed.evidence.profile import Event
from groundspeed.judge.claims import conditions
from groundspeed.judge.profile import Look, Picture, Top
from groundspeed.report import text
from groundspeed.report.page import Column, Table
from groundspeed.report.words import short_kernel

NO_CLAIM = (
    "A profile describes a few calls in one process under a profiler, which slows them down: it shows where time goes, "
    "and no speed in it is a claim. `groundspeed run` measures speed."
)
TOPS = 8
"""The most kernels or operators of a contender that the tables name."""
LONGEST = 300
"""The most characters of a kernel's full name."""


def title(picture: Picture) -> str:
    profile = picture.profile
    return text.safe(f"profile of {profile.suite} {profile.case.name} on {picture.device_name}")


def lead(picture: Picture) -> str:
    return text.safe(f"{conditions(picture.profile.case)}; profiled until {picture.profile.finished}")


def which(picture: Picture) -> Iterator[str]:
    """Yield which picture this is: what was counted, what was seen and what is computed, all in the first sentence.
    After it come the reasons why something was not counted."""
    profile, counted = picture.profile, picture.counted
    seen = "kernels, copies and gaps" if profile.device == "cuda" else "operators"
    parts = [f"timeline of {seen} by PyTorch's profiler", "roofline computed from the FLOPs and bytes of the maths"]
    if counted:
        names = ", ".join(look.contender for look in counted)
        parts.insert(
            0, f"hardware counters by {profile.counters_by} (one call of {names}, each kernel from a cold cache)"
        )
    said = "; ".join(parts)
    yield text.safe(f"{said[0].upper()}{said[1:]}")
    reasons: dict[str, list[str]] = {}
    for look in picture.looks:
        if look.seen.status == "PASSED" and look.seen.no_counters:
            reasons.setdefault(look.seen.no_counters, []).append(look.contender)
    for why, contenders in reasons.items():
        of = f" of {', '.join(contenders)}" if counted or len(reasons) > 1 else ""
        yield text.safe(f"No hardware counters{of}: {why}")
    if kept := [look.contender for look in picture.looks if look.seen.report_sha256]:
        yield text.safe(f"Nsight Compute's own reports of {', '.join(kept)} were kept beside the bundle (.ncu-rep)")


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
            "; device: from the start of the first kernel to the end of the last; before: from the start of the call "
            "to that of the first kernel; gaps, idle: the pauses between kernels, and the time in them"
        )
    said += "; copies: their share of the time of everything that ran"
    if roofs:
        said += "; of roof, bound: the share of what the datasheet's peaks allow, and what limits this work"
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
        note = f"{text.plural(len(rest), f'more {what}')}, {text.share(share)} of the time together."
    if look.seen.left_out:
        note += f" The bundle leaves out {text.plural(look.seen.left_out, 'more event')} that the profiler saw."
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


def full_names(look: Look) -> list[str]:
    """Return the full names of kernels whose names are cut in the tables: a library's kernel names its variant."""
    kernels = [top.name for top in look.tops[:TOPS] if top.kind == "kernel"]
    cut = [name for name in kernels if short_kernel(name) != name]
    return [text.safe(name if len(name) <= LONGEST else f"{name[:LONGEST]}…") for name in cut]


def notes(picture: Picture) -> Iterator[tuple[str, str]]:
    """Yield the contenders without a valid profile: the status of each, and the reason."""
    for look in picture.looks:
        if look.seen.status != "PASSED":
            yield look.seen.status, text.safe(f"{look.contender}: {look.seen.reason}")
        elif look.point and look.point.impossible:
            yield (
                "INVALID",
                text.safe(
                    f"{look.contender}: the device cannot do this work in the time that the profiler saw; the "
                    "profiler missed a part, or not all of the work was done"
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
