"""Whatever fails wherever, and however often the run is interrupted: the record replays (statistics.md 8 and 16)."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import CONTENDERS, KINDS, MEANS, blocks_of, interrupted_at, judged

from fakes import FakeWorker, begin, continue_run, header, noisy
from groundspeed.measure.channel import Message

LOOKS = (4, 8, 12)
CASES = ("b1-s64", "b2-s64")


@dataclass
class Chaos:
    """Faults by (contender, case, how many times it was prepared or timed there), each of which strikes once."""

    preparing: dict[tuple[str, str, int], str]
    timed: dict[tuple[str, str, int], str]
    count: Counter[tuple[str, str, bool]] = field(default_factory=Counter)

    def __call__(self, contender: str, case: str, block: int | None) -> Message | Exception | None:
        self.count[contender, case, block is None] += 1
        key = contender, case, self.count[contender, case, block is None] - 1
        kind = (self.preparing if block is None else self.timed).get(key)
        return KINDS[kind][0] if kind else None


def names_and(last: int) -> Any:
    return st.tuples(st.sampled_from(CONTENDERS), st.sampled_from(CASES), st.integers(0, last))


chaos = st.builds(
    Chaos,
    st.dictionaries(names_and(4), st.sampled_from(sorted(KINDS)), max_size=4),
    st.dictionaries(names_and(3 * LOOKS[-1]), st.sampled_from(sorted(KINDS)), max_size=6),
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    chaos=chaos,
    noise=st.sampled_from([0.005, 0.03, 0.2]),
    seed=st.integers(0, 2**32),
    budget_s=st.sampled_from([None, 0.05, 100.0]),
    check_one_in=st.sampled_from([1, 3, 1000]),
    interruptions=st.lists(st.integers(0, 60), max_size=2),
)
def test_d1_any_faults_anywhere_leave_a_record_that_replays(
    chaos: Chaos, noise: float, seed: int, budget_s: float | None, check_one_in: int, interruptions: list[int]
) -> None:
    generator = random.Random(seed)

    class ChecksSome(FakeWorker):
        """As the real one: each contender's first calls are checked until one came through, then a few more."""

        def block(self, block: int, order: Any) -> None:
            begins = len(self.outbox)
            super().block(block, order)
            tail = [self.outbox.pop() for _ in range(len(self.outbox) - begins)][::-1]
            unchecked: set[str] = set()
            for message in tail:
                if isinstance(message, dict) and message["kind"] == "sample":
                    message["check"] = block >= LOOKS[0] // 2 or generator.randrange(check_one_in) == 0
                    if not message["check"]:
                        unchecked.add(message["contender"])
                if (
                    isinstance(message, Exception)
                    or message["kind"] != "checked"
                    or (message["contender"] not in unchecked)
                ):
                    self.outbox.append(message)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        facts = header(CONTENDERS, processes=2, looks=LOOKS, seed=seed, budget_s=budget_s)
        begin(folder, facts).close()
        for samples in interruptions:
            stopping = interrupted_at(samples)
            try:
                continue_run(folder, noisy(MEANS, noise, seed), chaos, worker_type=stopping)
            except KeyboardInterrupt:
                pass
        record = judged(continue_run(folder, noisy(MEANS, noise, seed), chaos, worker_type=ChecksSome))
    assert record.complete
    ended = Counter((o.process, o.case) for o in record.outcomes if record.finished_attempts[o.process] == o.attempt)
    assert set(ended.values()) == {len(CONTENDERS)}
    lost = {(o.process, o.attempt, o.case): o.block for o in record.outcomes if o.lost_worker}
    stops = {(s.process, s.attempt, s.case): s.blocks for s in record.stops}
    for outcome in record.outcomes:
        key = outcome.process, outcome.attempt, outcome.case
        if outcome.status == "PASSED" and key not in lost:
            assert blocks_of(record, outcome) == set(range(stops[key]))
