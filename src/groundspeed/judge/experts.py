"""How evenly the experts of a case are used, and what choosing them costs (requirement B2)."""

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
"""The balance loss where all experts are alike."""
ROUTER = ("moe_route_kernel", "moe_scan_kernel", "moe_place_kernel", "moe_logits_kernel", "moe_choose_kernel")
"""Our kernels that choose experts and find each token its place among those of its expert. Nobody else's are known."""


@dataclass(frozen=True)
class ExpertUse:
    """Of one case. Its inputs say who chooses whom: no contender has a part in it."""

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
        """The standard deviation of the tokens, of these experts and no sample of others, over their mean."""
        return statistics.pstdev(self.usage.tokens) / statistics.fmean(self.usage.tokens)

    @property
    def by_chance(self) -> float:
        """About the variation that is left where every choice is drawn evenly: that of so many coins."""
        return 1 / math.sqrt(statistics.fmean(self.usage.tokens))

    @property
    def over_ideal(self) -> float:
        return self.usage.balance_loss - IDEAL


def expert_use(record: Record) -> tuple[ExpertUse, ...]:
    """Of the cases that have experts, in the order of the run."""
    told = {usage.case: usage for usage in record.usage}
    return tuple(ExpertUse(case, told[case.name]) for case in record.cases if case.name in told)


def router_share(look: Look) -> float | None:
    """Of the time of all that ran on the GPU in a call, that of the kernels which route; None where nobody can tell."""
    if look.seen.left_out:
        return None
    found = [top.share for top in look.tops if top.kind == "kernel" and top.name in ROUTER]
    return sum(found) if found else None


def router_shares(case: CaseFacts, profiles: Sequence[Beside]) -> dict[str, float]:
    """Contender → the share of its router, as the profiles beside a run show it for this case."""
    own = [one.picture for one in profiles if work_of(one.picture.profile.case.params) == work_of(case.params)]
    shares = {look.contender: router_share(look) for picture in own for look in picture.looks}
    return {contender: share for contender, share in shares.items() if share is not None}
