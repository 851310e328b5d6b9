"""How much of a call moves data without computing anything (requirement B4), as far as the names of kernels tell."""

from __future__ import annotations

import re
from dataclasses import dataclass

from groundspeed.evidence.record import CaseFacts
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.launches import seen_of
from groundspeed.judge.timers import shape_of

_MOVING = (
    *("_to_copy", "_unsafe_view", "as_strided", "cat", "clone", "constant_pad_nd", "copy", "copy_", "expand", "fill"),
    *("full", "ones", "permute", "select", "slice", "slice_scatter", "split", "squeeze", "stack", "t", "transpose"),
    *("unsqueeze", "view", "zeros"),
)
"""Operators that compute nothing and after which Inductor names kernels."""
_COPY = re.compile(
    r"^Mem(?:cpy|set)\b"  # the driver's
    r"|copy_kernel_cuda\b|\bCatArrayBatchedCopy|\bFillFunctor<"  # PyTorch's: conversions and fills among them
    rf"|^triton_[a-z]+_fused(?:_(?:{'|'.join(_MOVING)}))+_\d+$"
    r"|^append_paged_kernel$"  # ours
)


def is_copy(name: str) -> bool:
    """Return whether a kernel or other event of this name only copies, converts or fills. One with an unknown name does
    not count as a copy."""
    return _COPY.search(name) is not None


@dataclass(frozen=True)
class CopyShare:
    """The copies in one call of a contender, as the profiler saw it once."""

    case: CaseFacts
    """The first case of the shape."""
    contender: str
    launches: int
    seconds: float
    """The device time of all launches together, without the gaps between them."""
    copies: int
    copies_s: float

    @property
    def share(self) -> float:
        return self.copies_s / self.seconds


def copy_shares(judgement: Judgement) -> tuple[CopyShare, ...]:
    """Return the copies of each contender that passed by any clock. Contenders without recorded kernel times are left
    out, so on a CPU there are none."""
    seen, found = seen_of(judgement.record), []
    passed = {(shape_of(c.facts), r.contender) for c in judgement.cases for r in c.results if r.status == "PASSED"}
    firsts = {shape_of(case.facts): case.facts for case in reversed(judgement.cases)}
    for shape, case in reversed(firsts.items()):
        for contender in judgement.record.measured:
            one = seen.get((shape, contender.name))
            if one and (shape, contender.name) in passed and sum(one.seconds) > 0:
                spent = list(zip((*one.kernels, *one.moves), one.times, one.seconds, strict=True))
                copies = [(times, seconds) for name, times, seconds in spent if is_copy(name)]
                found.append(
                    CopyShare(
                        case,
                        contender.name,
                        launches=sum(one.times),
                        seconds=sum(one.seconds),
                        copies=sum(times for times, _ in copies),
                        copies_s=sum(seconds for _, seconds in copies),
                    )
                )
    return tuple(found)
