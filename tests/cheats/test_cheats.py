"""No cheat is believed, and nobody honest is refused: the laboratory against contenders that were written without
reading its gate. What is a matter of chance is tried up to three times."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import run_all

from groundspeed.measure.environment import usable_cores

pytestmark = pytest.mark.slow

NAN = r"returned NaN or infinity"
WRONG = rf"(max|mean)_abs error [\d.e+-]+ is over the tolerance|{NAN}|on large inputs"
LATE = rf"{WRONG}|was not done when its turn was over"
CHANGED = r"changed its input [qkv]"


def each(names: str, reason: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


REFUSED: dict[str, str] = {
    **each(
        """zeros tail-skipped last-row-skipped last-key-skipped every-fourth-row half-dimension first-head
        other-mask window mean-of-v overlapping-view returns-v bf16 fp16-product fp8 int8-keys tf32
        low-accumulation cheap-exp linear kept-in-batch kept-in-batch-copied kept-eight-calls kept-previous
        kept-scores when-first-calls when-many-calls when-warming-up when-after-pause
        when-batch-ends when-stack-times when-caller-times when-first-stack
        when-copies-exist frames-expected gc-expected gc-rival-result frames-lists-cut
        case-oracle case-partial gc-tolerance module-tolerance
        report-stdout report-files report-atexit""",
        WRONG,
    ),
    **each("late-process late-thread-slow late-signal late-if-kept late-next-call", LATE),
    **each("nan one-nan infinite", NAN),
    **each("no-maximum clamped", "on large inputs"),
    "gate-replaced-and-raised": "RuntimeError: oops",
    "gate-replaced-by-another": WRONG,
    "clock-oneshot": "replaced .+, which the laboratory calls|a sample began before the one before it had ended",
    **each(
        """kept-by-pointer kept-by-shape kept-by-version kept-on-object stale-memory stale-memory-of-rivals""",
        WRONG,
    ),
    **each(
        """inputs-zeroed inputs-made-easy inputs-scaled-restored-later inputs-partly-restored inputs-result-in-v
        inputs-by-data inputs-one-ulp inputs-once-in-timed inputs-swapped inputs-shrunk inputs-of-another-class
        inputs-with-own-functions inputs-of-another-dtype""",
        CHANGED,
    ),
    "fewer-rows": "returned shape",
    "meta": "returned torch.float32 on meta",
    "nothing": "returned NoneType, not a tensor",
    "agreeable": "returned Agreeable, not a tensor",
    "bf16-returned": "returned torch.bfloat16",
    **each("lazy-dispatch lazy-posing lazy-function", "not a plain tensor"),
    **each(
        """patched-equal patched-allclose patched-double patched-isfinite patched-norms patched-methods
        patched-methods-first-call patched-sub patched-roll patched-roll-first-call random-module random-seed
        random-secrets random-instance random-urandom oracle-module oracle-code oracle-code-first-call refresh-code
        clock-everywhere clock-everywhere-first-call clock-perf-counter clock-perf-counter-ns clock-time
        clock-first-call rivals-sdpa rivals-module rivals-build rivals-broken rivals-code rivals-closure
        report-json-times report-json-durations report-json-status report-exceptions
        laboratory-silenced laboratory-silenced-first-call constants""",
        r"replaced .+, which the laboratory calls",
    ),
    **each(
        """late-gc rivals-mode rivals-profiled rivals-traced rivals-gc rivals-signal rivals-priority rivals-flags
        fast-matmul-flags compiler-of-others rivals-dispatch-mode rivals-autocast""",
        r"left .+ at .+ instead of .+",
    ),
    **each("clock-in-c clock-in-c-first-call", "passed by the laboratory's clock, but .* by a second clock"),
    **each("case-refresh case-tolerance late-around", WRONG),
    **each("inputs-restrided inputs-require-grad inputs-later", CHANGED),
    **each(
        "rivals-gil rivals-gil-first-call rivals-bandwidth rivals-native-thread",
        r"left a thread running that uses \d+% of a core",
    ),
    "rivals-process": r"left a (process|thread) running that uses \d+% of a core",
    **each("report-descriptors channel-written channel-others", "wrote something that is not a message"),
    "channel-replaced": "exited with code 1",
    "rivals-threads-left": "left PyTorch's number of threads at 2",
    "rivals-default-dtype": "left PyTorch's default dtype",
    "report-exit": "exited with code 0",
    "report-system-exit": "SystemExit",
}

CHANCE = {
    "when-odd": WRONG,
    "when-lucky": WRONG,
    "late-thread": LATE,
}
"""Wrong on some calls only, of which the last one of each interval is looked at; or right if a thread is quick
enough."""
TRIES = 3

HARMLESS = each(
    """exam-spoiled when-stack-checks when-watching-locals loop-drained report-pickle report-numpy kept-by-sample
    kept-by-hash kept-by-hash-copied kept-by-sample-copied kept-by-last-row rivals-memory""",
    "",
)
"""Neither refused nor any faster: what they change is not what the laboratory uses, what they keep never comes
again, and what they hold nobody misses."""

MEAGRE = {"when-very-lucky": WRONG, "rivals-more-cores": r"its calls used [\d.]+ cores on average"}
"""Wrong so rarely that it gains nothing, whether it is seen or not; or seen if the cores are not busy with something
else, which they must be for it to gain nothing."""

FEW = max(1, usable_cores() - 1) == 1
"""Whether workers have one core: then those who take it, or more threads, take nothing."""
SPREAD = {"rivals-threads": "left PyTorch's number of threads at 1", "rivals-affinity": "left the CPU affinity at"}
(HARMLESS if FEW else REFUSED).update(SPREAD)

HONEST = [name for name in run_all.contenders() if name.startswith("honest-")]
TOGETHER = [
    [f"cheat-{name}" for name in group.split()]
    for group in (
        "kept-by-hash-copied kept-by-sample-copied kept-by-last-row",
        "late-next-call late-if-kept lazy-function lazy-dispatch lazy-posing",
        "clock-perf-counter clock-perf-counter-ns clock-time",
        "patched-equal patched-allclose patched-isfinite",
        "gate-replaced-and-raised gate-replaced-by-another",
        "rivals-gil rivals-bandwidth rivals-native-thread",
        "rivals-threads-left rivals-default-dtype rivals-flags rivals-memory",
        "report-exit report-system-exit",
        "report-pickle report-numpy",
        "report-stdout report-files",
    )
]
APART = {"cheats_wrong.py": ["fast-matmul-flags"], "cheats_when.py": ["frames-lists-cut"]}
APART |= {"cheats_inputs.py": ["inputs-later", "inputs-restrided", "inputs-require-grad"], "honest.py": []}
APART["cheats_kept.py"] = [name.removeprefix("cheat-") for name in TOGETHER[0]]
"""Of these files all the others go together in one run."""


@cache
def groups() -> dict[str, tuple[str, ...]]:
    """Contender → all those in the same run: those that cannot disturb each other."""
    found = {name: tuple(group) for group in TOGETHER for name in group}
    shared: dict[str, list[str]] = {}
    for name, file in run_all.contenders().items():
        if file.name in APART and name.removeprefix("cheat-") not in APART[file.name]:
            shared.setdefault(file.name, []).append(name)
    found |= {name: tuple(names) for names in shared.values() for name in names}
    return {name: found.get(name, (name,)) for name in run_all.contenders() if "-gpu-" not in name}


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """What became of a contender. Runs go two at a time; under xdist a run is made by whoever needs it first."""
    base = tmp_path_factory.getbasetemp()
    crowd = "PYTEST_XDIST_WORKER" in os.environ
    folder = (base.parent if crowd else base) / "cheats"
    folder.mkdir(exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "groundspeed.lab.session"])
    pool = ThreadPoolExecutor(1 if crowd else 2)

    def measure(group: tuple[str, ...], attempt: int = 0) -> Any:
        made = f"{group[0]}-{attempt}"
        results = folder / f"{made}.json"
        try:
            (folder / made).mkdir()
        except FileExistsError:
            while not results.exists():
                time.sleep(0.05)
        else:
            file = run_all.contenders()[group[0]]
            process = context.Process(target=run_all.run_here, args=([*group], file, folder / made / "run"))
            process.start()
            process.join(120)
            process.kill()
            written = results.with_suffix(".tmp")
            written.write_text(json.dumps(run_all.read([*group], folder / made / "run")))
            os.replace(written, results)
        return json.loads(results.read_text())

    asked = {name for item in request.session.items if (name := _contender(item))}
    futures: dict[tuple[str, ...], Future[Any]] = {}
    if not crowd:
        futures = {group: pool.submit(measure, group) for group in dict.fromkeys(groups()[name] for name in asked)}

    def get(name: str, attempt: int = 0) -> Any:
        group = groups()[name]
        found = futures[group].result() if group in futures and not attempt else measure(group, attempt)
        return found[name]

    yield get
    pool.shutdown(cancel_futures=True)


def _contender(item: pytest.Item) -> str | None:
    """The one that a test here asks about."""
    call = getattr(item, "callspec", None) if item.path == Path(__file__) else None
    return call.params.get("name") if call else None


def _cheats(names: dict[str, str]) -> list[Any]:
    return [pytest.param(f"cheat-{name}", reason, id=name) for name, reason in names.items()]


@pytest.mark.parametrize(("name", "reason"), _cheats(REFUSED))
def test_a_cheat_is_refused(name: str, reason: str, outcome: Callable[[str], Any]) -> None:
    found = outcome(name)
    assert found["status"] != "PASSED", f"{found['median']} µs were believed"
    assert re.search(reason, found["reason"])


@pytest.mark.parametrize(("name", "reason"), _cheats(CHANCE))
def test_a_cheat_is_likely_to_be_refused(name: str, reason: str, outcome: Callable[..., Any]) -> None:
    tried = (outcome(name, attempt) for attempt in range(TRIES))
    reasons = [found["reason"] for found in tried if found["status"] != "PASSED"]
    assert reasons
    assert re.search(reason, reasons[0])


@pytest.mark.parametrize("name", [f"cheat-{name}" for name in HARMLESS])
def test_a_cheat_that_is_not_seen_gains_nothing(name: str, outcome: Callable[[str], Any]) -> None:
    found = outcome(name)
    assert found["status"] == "PASSED"
    flash, math = (found["rivals"][rival]["least"] for rival in ("sdpa-flash", "sdpa-math"))
    assert found["least"] > 0.6 * flash
    assert flash < 0.8 * math


@pytest.mark.parametrize(("name", "reason"), _cheats(MEAGRE))
def test_a_cheat_that_is_seldom_seen_gains_nothing(name: str, reason: str, outcome: Callable[[str], Any]) -> None:
    if outcome(name)["status"] == "PASSED":
        test_a_cheat_that_is_not_seen_gains_nothing(name, outcome)
    else:
        test_a_cheat_is_refused(name, reason, outcome)


@pytest.mark.parametrize("name", [f"cheat-{name}" for name in reversed(REFUSED)])
def test_the_rivals_of_a_cheat_keep_their_samples(name: str, outcome: Callable[[str], Any]) -> None:
    """From the last to the first, so that who tests this does not wait for whom the test above keeps busy."""
    rivals = outcome(name)["rivals"]
    assert {rival: found["status"] for rival, found in rivals.items()} == dict.fromkeys(run_all.RIVALS, "PASSED")


@pytest.mark.parametrize("name", HONEST)
def test_whoever_is_honest_passes(name: str, outcome: Callable[[str], Any]) -> None:
    found = outcome(name)
    assert (found["status"], found["reason"]) == ("PASSED", None)


def test_every_cheat_has_its_place() -> None:
    listed = [*REFUSED, *CHANCE, *HARMLESS, *MEAGRE]
    written = [name for name in run_all.contenders() if name.startswith("cheat-") and "-gpu-" not in name]
    assert sorted(f"cheat-{name}" for name in listed) == sorted(written)
