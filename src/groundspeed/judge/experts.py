"""How evenly the experts of a case are used, and what routing costs (requirement B2)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from groundspeed.evidence.record import CaseFacts, Record
from groundspeed.evidence.usage import Usage
from groundspeed.judge.beside import Beside, work_of
from groundspeed.judge.profile import Look

IDEAL = 1.0
"""The balance loss if all experts are used equally."""
ROUTER = ("moe_route_kernel", "moe_scan_kernel", "moe_place_kernel", "moe_logits_kernel", "moe_choose_kernel")
"""Our kernels that choose experts and place each token among those of its expert. Those of rivals are not known."""


@dataclass(frozen=True)
class ExpertUse:
    """How the experts of one case are used. The inputs determine it; no contender influences it."""

    case: CaseFacts
    usage: Usage

    @property
    def most(self) -> int:
        return max(self.usage.tokens)

    @property
    def least(self) -> int:
        return min(self.usage.tokens)

    @property
    def variation(self) -> float:
        """The population standard deviation of the tokens per expert, divided by their mean."""
        return statistics.pstdev(self.usage.tokens) / statistics.fmean(self.usage.tokens)

    @property
    def by_chance(self) -> float:
        """The approximate variation to expect if every choice were drawn uniformly."""
        return 1 / math.sqrt(statistics.fmean(self.usage.tokens))

    @property
    def over_ideal(self) -> float:
        return self.usage.balance_loss - IDEAL


def expert_use(record: Record) -> tuple[ExpertUse, ...]:
    """Return the use of experts in each case that has them, in the order of the run."""
    told = {usage.case: usage for usage in record.usage}
    return tuple(ExpertUse(case, told[case.name]) for case in record.cases if case.name in told)


def router_share(look: Look) -> float | None:
    """Return the share of a call's GPU time that the routing kernels took, or None if events are missing from the
    profile or it shows none of these kernels."""
    if look.seen.left_out:
        return None
    found = [top.share for top in look.tops if top.kind == "kernel" and top.name in ROUTER]
    return sum(found) if found else None


def router_shares(case: CaseFacts, profiles: Sequence[Beside]) -> dict[str, float]:
    """Return contender → share of its router, as the profiles beside a run show it for this case."""
    own = [one.picture for one in profiles if work_of(one.picture.profile.case.params) == work_of(case.params)]
    shares = {look.contender: router_share(look) for picture in own for look in picture.looks}
    return {contender: share for contender, share in shares.items() if share is not None}
