"""C3: the level, the peak of each scope and what was largest there, against a count by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groundspeed.evidence.memory import Allocation
from groundspeed.measure import alive as module
from groundspeed.measure.alive import Alive, Scope


def made(size: int) -> Allocation:
    return Allocation(size, None, None, None, None)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("make"), st.integers(0, 7), st.integers(0, 9)),
        st.tuples(st.just("free"), st.integers(0, 7), st.just(0)),
        st.tuples(st.just("fall"), st.just(0), st.integers(1, 4)),
        st.tuples(st.sampled_from(["open", "close"]), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(0, 5))
def test_every_sequence_is_counted_as_by_hand(steps: list[tuple[str, int, int]], before: int) -> None:
    alive, held, foreign, at = Alive(before, keep=3), dict[int, int](), before, 0.0
    seen: list[tuple[Scope, list[tuple[int, list[int]]]]] = []

    def level() -> int:
        return foreign + sum(held.values())

    def note() -> None:
        for _, states in seen:
            states.append((level(), sorted(held.values(), reverse=True)[:3]))

    seen.append((alive.open(), []))
    note()
    opened = [seen[0]]
    for kind, key, size in steps:
        at += 1
        if kind == "make":
            if key in held:  # resized: for a moment it is gone
                del held[key]
                note()
            alive.make(key, made(size), at)
            held[key] = size
        elif kind == "free" and key in held:
            alive.free(key, at)
            del held[key]
        elif kind == "fall":
            fell = min(size, alive.level)
            alive.fall(size, at)
            foreign -= fell
        elif kind == "open":
            seen.append((alive.open(), []))
            opened.append(seen[-1])
        elif kind == "close" and len(opened) > 1:
            scope, states = opened.pop()
            alive.close(scope)
            seen = [one for one in seen if one[0] is not scope]
            check(scope, states)
        note()
        assert alive.level == level()
    for scope, states in opened[::-1]:
        alive.close(scope)
        check(scope, states)
    assert alive.times == sorted(alive.times)
    if steps and alive.levels:
        assert alive.levels[-1] == alive.level


def check(scope: Scope, states: list[tuple[int, list[int]]]) -> None:
    if not states:
        return
    highest = max(level for level, _ in states)
    assert scope.peak == highest
    assert [one.bytes for one in scope.largest] in [largest for level, largest in states if level == highest]


def test_a_long_timeline_keeps_its_peaks() -> None:
    alive = Alive()
    module.MOST_POINTS, kept = 50, module.MOST_POINTS
    try:
        for i in range(1000):
            alive.make(i, made(1000 if i == 500 else 1), 2 * i)
            alive.free(i, 2 * i + 1)
    finally:
        module.MOST_POINTS = kept
    assert alive.thinned
    assert len(alive.times) < 100
    assert max(alive.levels) == 1000
    assert alive.times == sorted(alive.times)
