"""Real contenders that go wrong in real workers: each ends with its status and reason, the others with their samples
(D6; statistics.md 1 and 16)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

import groundspeed
from groundspeed.evidence.bundle import Bundle
from groundspeed.evidence.record import Outcome
from groundspeed.judge.judgement import against, judge
from groundspeed.lab import session
from groundspeed.lab.check import verify
from groundspeed.lab.request import Request
from groundspeed.measure import caserun
from groundspeed.report.words import SEE_IT, notes

FAULTY = Path(__file__).with_name("faulty_contenders.py")
TINY = "S=16,D=16,H=1,causal=0"

pytestmark = pytest.mark.slow

CHANCE = None
"""Whether it gets as far as a timed call is drawn, or depends on what memory held that nobody wrote: NaN as a rule,
something else in one call of ten, and now and then what is right."""
Expected = Mapping[str, tuple[str, str, bool | None]]

WRONG: Expected = {
    # contender: status, what the reason says, whether it got as far as a timed call
    "slightly-wrong": ("INCORRECT", "over the tolerance", False),
    "zeros": ("INCORRECT", "over the tolerance", False),
    "unwritten": ("INCORRECT", "", CHANCE),
    "skips-its-tail": ("INCORRECT", "", CHANCE),
    "wrong-shape": ("INCORRECT", "returned shape [1, 16, 1, 16], not [1, 1, 16, 16]", False),
    "wrong-dtype": ("INCORRECT", "returned torch.float64 on cpu, not torch.float32", False),
    "a-list": ("INCORRECT", "returned list, not a tensor", False),
    "overwrites-q": ("INCORRECT", "changed its input q", False),
    "overwrites-k-when-warm": ("INCORRECT", "changed its input k", False),
    "overwrites-v-when-timed": ("INCORRECT", "changed its input v", True),
    "wrong-later": ("INCORRECT", "over the tolerance", CHANCE),  # what is asked besides comes before or after warm-up
    "wrong-when-timed": ("INCORRECT", "over the tolerance", True),
    "remembers": ("INCORRECT", "", True),  # NaN where it is the same tensor, else the result of other inputs
    "raises": ("ERROR", "ValueError: this kernel does not like you", False),
    "raises-when-timed": ("ERROR", "ValueError: not while you are looking", True),
    "hands-on-other-arguments": ("ERROR", "unexpected keyword argument 'bias'", False),
    "sys-exits": ("ERROR", "SystemExit", False),
    "interrupts": ("ERROR", "KeyboardInterrupt", False),
    "imports-what-is-missing": ("ERROR", "No module named 'no_such_module_anywhere'", False),
    "broken-supports": ("ERROR", "RuntimeError: supports() itself is broken", False),
    "misread-supports": ("ERROR", "supports() returned True; it must return None or a string", False),
    "unsupported": ("SKIPPED", "sequences over a million only", False),
}
DEADLY: Expected = {
    "spins-when-timed": ("TIMEOUT", "no answer within 1 s", True),
    "sleeps": ("TIMEOUT", "no answer within 5 s", False),
    "exits": ("ERROR", "the process exited with code 3", False),
    "segfaults-when-timed": ("ERROR", "the process was killed by SIGSEGV", True),
    "hoards": ("OOM", "llocate", False),
}
HONEST = ("sdpa-math", "sdpa-flash", "chatters")


def only(names: set[str], folder: Path) -> str:
    """The file of faulty contenders without those not named."""
    text, *functions = FAULTY.read_text().split("\n\n\n@gs.contender(")
    kept = [f for f in functions if f.split("def ")[1].split("(")[0].replace("_", "-") in names]
    assert len(kept) == len(names)
    path = folder / "faulty.py"
    path.write_text(text + "".join(f"\n\n\n@gs.contender({f}" for f in kept) + "\n")
    return str(path)


def run(folder: Path, faulty: Expected, processes: int) -> Bundle:
    request = Request(
        suite="attention",
        preset="quick",
        shape=(TINY,),
        with_files=(only({*faulty, "chatters"}, folder),),
        processes=processes,
        warmup_s=0.01,
        timeout_s=1.0,
        out=folder / "runs",
    )
    made = session.run(request)
    assert made.record.complete
    found, _ = verify(made.path)
    assert found.identity == made.identity
    return found


def first_outcomes(bundle: Bundle) -> dict[str, Outcome]:
    return {o.contender: o for o in bundle.record.outcomes if o.process == 0}


def assert_ended(bundle: Bundle, expected: Expected) -> None:
    outcomes = first_outcomes(bundle)
    ended = {name: (outcomes[name].status, outcomes[name].reason) for name in expected}
    for name, (status, reason, in_a_block) in expected.items():
        assert ended[name][0] == status, ended[name]
        assert reason in (ended[name][1] or ""), ended[name]
        if in_a_block is not CHANCE:
            assert (outcomes[name].block is not None) is in_a_block, outcomes[name]
    case = bundle.record.cases[0].name
    stop = bundle.record.stops[0]
    for name in HONEST:
        assert outcomes[name].status == "PASSED", outcomes[name]
        samples = bundle.record.seconds[0, case, name]
        assert len(samples) >= stop.blocks - len(DEADLY)
        assert min(samples.values()) > 0


def test_d6_wrong_results_and_errors_end_as_such_in_one_worker(tmp_path: Path) -> None:
    bundle = run(tmp_path, WRONG, processes=1)
    assert_ended(bundle, WRONG)
    assert bundle.record.processes[0].workers == 1
    assert not any(o.lost_worker for o in bundle.record.outcomes)
    assert_seen_again(bundle, "zeros", lambda q, k, v, *, causal, scale: torch.zeros_like(q))


def assert_seen_again(bundle: Bundle, name: str, f: Callable[..., Tensor]) -> None:
    """What the note says to type into Python shows the very error, at the place where the reason has it; and there is
    no such note where the inputs are gone. Nor do they change with the baseline of a second look."""
    other = next(name for name in HONEST if name != bundle.record.run.baseline)
    lines, second = (
        [note.sentence for note in notes(judge(record)) if note.word == SEE_IT]
        for record in (bundle.record, against(bundle.record, other))
    )
    assert second == lines
    said = {line.rpartition("# f: ")[2].split()[0]: line for line in lines}
    before_timing = {name for name, outcome in first_outcomes(bundle).items() if outcome.block is None}
    assert set(said) == before_timing & {"slightly-wrong", "zeros", "unwritten", "skips-its-tail"}
    *steps, difference = said[name].partition("  #")[0].split("; ")
    here = {"gs": groundspeed, "f": f}
    exec("; ".join(steps), here)
    error = eval(difference, here).abs()
    outcome = first_outcomes(bundle)[name]
    assert float(error.max()) == pytest.approx(outcome.max_abs, rel=1e-3)
    row, column = divmod(int(error.argmax()), error.shape[-1])
    assert f"out[0, 0, {row}, {column}] of [1, 1, 16, 16]" in str(outcome.reason)


def test_hangs_crashes_and_hunger_cost_a_worker_and_nobody_else_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "memory_limit", lambda: 1 << 30)  # a smaller machine, that this one stays usable
    monkeypatch.setattr(caserun, "PREPARE_FACTOR", 5)  # for `sleeps`, which does it in its first call
    bundle = run(tmp_path, DEADLY, processes=2)
    assert_ended(bundle, DEADLY)
    assert [p.workers for p in bundle.record.processes] == [1 + len(DEADLY), 1]
    for outcome in bundle.record.outcomes:
        assert outcome.lost_worker is (outcome.contender in DEADLY and outcome.process == 0)
        if outcome.process == 1:
            assert outcome.status == ("SKIPPED" if outcome.contender in DEADLY else "PASSED")
