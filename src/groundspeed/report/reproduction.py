"""What a repetition says about the claims of an earlier run, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from groundspeed.judge.claims import with_interval
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.reproduction import Repeated, gpus, overall
from groundspeed.report import text


def differences(then: Judgement, now: Judgement) -> Iterator[str]:
    """Yield the differences in hardware and contenders from the first measurement."""
    if then.device_name != now.device_name:
        yield text.safe(f"other hardware: {then.device_name} then, {now.device_name} now")
    elif gpus(then.record) != gpus(now.record):
        yield "another GPU of the same model"
    before = {c.name: c for c in then.record.measured}
    for contender in now.record.measured:
        known = before.get(contender.name, contender)
        if known.version != contender.version:
            yield text.safe(f"{contender.name}: {known.version} then, {contender.version} now")
        elif known.source_sha256 != contender.source_sha256:
            yield text.safe(f"{contender.name}: its file has changed; what is measured now is another contender")


def lines(claims: Sequence[Repeated]) -> Iterator[str]:
    for claim in claims:
        verdict, interval = claim.now
        now = f"{with_interval(interval)} {verdict or ''}".rstrip() if interval else claim.why
        then = f"{with_interval(claim.then[1])} {claim.then[0]}"
        apart = "; the intervals do not overlap" if claim.answer == "agrees" and claim.apart else ""
        yield text.safe(f"{claim.answer:<12}  {claim.what}, {claim.contender}: {then} then, {now} now{apart}")
    counts = Counter(claim.answer for claim in claims)
    said = ", ".join(f"{count} {word if count == 1 else _of_many(word)}" for word, count in counts.items())
    yield f"{overall(list(claims))}: {said or 'the earlier run made no claim'}"


def _of_many(answer: str) -> str:
    return answer.removesuffix("s") if answer.endswith("agrees") else answer
