"""D2: a run goes by the calibration of its machine where one fits, says why where none does, and refuses claims under
its floors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeWorker, begin, continue_run, header, noisy, protocol
from groundspeed.errors import BadInput, VerificationFailed
from groundspeed.evidence import bundle, store
from groundspeed.evidence.calibration import Calibration, Noise
from groundspeed.evidence.record import Record
from groundspeed.judge.calibration import calibration_of, check_kept
from groundspeed.judge.judgement import judge
from groundspeed.lab import calibration
from groundspeed.lab.declare import case_facts
from groundspeed.measure.channel import Message
from groundspeed.suites.attention.shapes import Shape
from groundspeed.suites.calibration import cases
from groundspeed.suites.registry import suite_module

NOW = datetime.now(UTC).isoformat(timespec="seconds")
HAD = {"asked": ["torch>=2.14"], "met": "venv", "packages": {"torch": "2.14.0"}}
HERE = {"cpu": {"name": "Test CPU", "cores": 2, "governor": None}, "gpu": None, "packages": {"torch": "2.13.0"}}
NOISE = {"once": 1e-3, "again": 1e-3}


class _ByName(FakeWorker):
    """Knows a case of calibration by its name, and copies without an error."""

    def receive(self, timeout_s: float) -> Message:
        message = super().receive(timeout_s)
        return {**message, "errors": dict.fromkeys(message["errors"], 0.0)} if "errors" in message else message

    def prepare(self, request: Mapping[str, Any]) -> None:
        super().prepare({**request, "params": {"B": 1, "S": 1}})
        self.case = suite_module("calibration").case_of_params(dict(request["params"])).name


def measured(folder: Path, means: dict[str, float] = NOISE, noise: float = 0.01, **changes: Any) -> Record:
    """A calibration on attention cases only: what the scripted worker knows."""
    facts = header(list(means), **changes)
    shapes = [cases.attention(Shape(B, 1, 64, 64), "fp32", False) for B in range(1, 23)]
    facts["cases"] = [case_facts(case) for case in shapes]
    facts["run"]["suite"], facts["run"]["baseline_origin"] = "calibration", "declared"
    facts["environment"] = HERE
    begin(folder, facts).close()
    record = continue_run(folder, noisy(means, noise))
    return replace(record, run=replace(record.run, finished=NOW))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return store.calibrations()


def looked_up(name: str | None = None, environment: dict[str, Any] = HERE, **changes: Any) -> Any:
    return calibration.look_up(name, "cpu", protocol(**changes), environment)


def test_where_there_is_none_it_says_so(home: Path) -> None:
    assert looked_up() == (None, "this machine was never calibrated")


def test_one_that_fits_is_found(home: Path, tmp_path: Path) -> None:
    made = bundle.write(measured(tmp_path / "run"), home, "calibration")
    found, why = looked_up()
    assert why is None
    assert found.identity == made.identity
    assert [(noise.clock, noise.length, len(noise.estimates)) for noise in found.noise] == [("default", "long", 22)]


def test_of_several_the_newest_that_fits(home: Path, tmp_path: Path) -> None:
    fits = bundle.write(measured(tmp_path / "one"), home, "calibration-1")
    bundle.write(measured(tmp_path / "two", processes=2), home, "calibration-2")
    assert looked_up()[0].identity == fits.identity


def test_go_without() -> None:
    assert looked_up("none") == (None, "calibrations were turned off for this run")


@pytest.mark.parametrize(
    ("environment", "changes", "why"),
    [
        ({"cpu": {"name": "Other CPU", "cores": 2}}, {}, "another machine"),
        ({"cpu": {"name": "Test CPU", "cores": 3}}, {}, "another machine"),
        ({"packages": {"torch": "2.14.0"}}, {}, "torch was 2.13.0 then and is 2.14.0 now"),
        ({"installed": {"mine@head": HAD}}, {}, "torch of mine@head was 2.13.0 then and is 2.14.0 now"),
        ({}, {"processes": 2}, "with 4 processes"),
        ({}, {"threads": 7}, "threads"),
    ],
)
def test_one_that_does_not_fit_is_not_used_and_says_why(
    home: Path, tmp_path: Path, environment: dict[str, Any], changes: dict[str, Any], why: str
) -> None:
    made = bundle.write(measured(tmp_path / "run"), home, "calibration")
    found, reason = looked_up(None, {**HERE, **environment}, **changes)
    assert found is None
    assert why in reason
    with pytest.raises(BadInput, match="groundspeed calibrate"):
        looked_up(str(made.path), {**HERE, **environment}, **changes)


def test_one_process_has_none(home: Path, tmp_path: Path) -> None:
    made = bundle.write(measured(tmp_path / "run"), home, "calibration")
    assert looked_up(None, HERE, processes=1) == (None, "a run of one process has no verdicts and needs no floors")
    with pytest.raises(BadInput, match="needs no floors; leave it out, or use --processes 2 or more"):
        looked_up(str(made.path), HERE, processes=1)


def test_an_old_one_is_stale(home: Path, tmp_path: Path) -> None:
    record = measured(tmp_path / "run")
    for days, stale in ((29, False), (31, True), (-2, True)):
        date = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")
        old = replace(record, run=replace(record.run, finished=date))
        assert bool(calibration.why_not(old, "cpu", protocol(), HERE)) == stale


def test_a_damaged_one_does_no_harm(home: Path, tmp_path: Path) -> None:
    made = bundle.write(measured(tmp_path / "run"), home, "calibration")
    (made.path / "facts.json").write_text("{}")
    found, reason = looked_up()
    assert found is None
    assert "cannot be read" in reason


def test_a_run_of_another_suite_is_no_calibration(home: Path, tmp_path: Path) -> None:
    facts = header(["sdpa-math", "sdpa-flash"])
    begin(tmp_path / "run", facts).close()
    other = bundle.write(continue_run(tmp_path / "run", noisy({"sdpa-math": 1e-3, "sdpa-flash": 1e-3})), tmp_path, "x")
    with pytest.raises(BadInput, match="is not a calibration"):
        looked_up(str(other.path))


def floors(*estimates: float, ts: tuple[float, ...] | None = None) -> Calibration:
    quiet = tuple(0.5 if i % 2 else -0.5 for i in range(len(estimates)))
    return Calibration("ab" * 32, NOW, 4, (Noise("default", "long", estimates, ts or quiet),), ())


def judged(folder: Path, calibrated: Calibration | None, faster: float = 1.02) -> Any:
    facts = header(["base", "ours"], shapes=("B=1,S=64,causal=0",))
    if calibrated:
        facts["calibration"], facts["uncalibrated"] = asdict(calibrated), None
    begin(folder, facts).close()
    means = {"base": 1e-3, "ours": 1e-3 / faster}
    return judge(continue_run(folder, noisy(means, 0.001)))


def test_d2_a_difference_under_a_calibrated_floor_is_refused(tmp_path: Path) -> None:
    def verdict(name: str, calibrated: Calibration | None) -> tuple[str, str]:
        comparison = judged(tmp_path / name, calibrated).cases[0].result("ours").comparison
        return comparison.verdict, comparison.reason

    assert verdict("default", None)[0] == "FASTER"
    assert verdict("quiet", floors(*[0.002] * 20))[0] == "FASTER"
    assert "calibrated floor of 0.42%" in verdict("quiet again", floors(*[0.002] * 20))[1]
    assert verdict("loud", floors(*[0.02] * 20))[0] == "UNCLEAR"
    assert "below the calibrated floor of 4.3%" in verdict("loud again", floors(*[0.02] * 20))[1]
    assert "default floor of 1.0%" in verdict("few", floors(*[0.02] * 19))[1]


def test_d2_on_a_machine_that_raised_the_alarm_there_is_no_verdict(tmp_path: Path) -> None:
    judgement = judged(tmp_path, floors(*[0.001] * 20, ts=(3.0,) * 20))
    comparison = judgement.cases[0].result("ours").comparison
    assert comparison.verdict == "UNCLEAR"
    assert "alarm" in comparison.reason
    assert judgement.grids[0].doubt is not None


def test_no_other_floors_can_be_put_in_afterwards(tmp_path: Path) -> None:
    """All draws depend on the calibration."""
    with_it, without = (judged(tmp_path / str(c is None), c).record for c in (floors(*[0.002] * 20), None))
    assert with_it.draw_seed != without.draw_seed
    other = replace(with_it, calibration=replace(with_it.calibration, identity="cd" * 32))
    assert other.draw_seed != with_it.draw_seed


def test_roofs_are_those_of_the_largest_copy_and_the_fastest_product(tmp_path: Path) -> None:
    work = [cases.copy(16), cases.copy(4096), cases.matmul(64, "fp32"), cases.matmul(256, "fp32")]
    facts = header(list(NOISE))
    facts["cases"] = [case_facts(case) for case in work]
    facts["run"]["suite"], facts["run"]["baseline_origin"] = "calibration", "declared"
    seconds = {case.name: s for case, s in zip(work, (1e-7, 1e-3, 1e-3, 1e-3), strict=True)}
    begin(tmp_path, facts).close()
    record = continue_run(tmp_path, lambda contender, case, block: seconds[case], worker_type=_ByName)
    roofs = {roof.what: roof for roof in calibration_of(judge(record), "ab" * 32).roofs}
    assert roofs["copy"].case == "copy-4m-fp32"
    assert roofs["copy"].rate == pytest.approx(2 * 4 * 2**20 / 1e-3, rel=1e-3)
    assert roofs["matmul"].case == "matmul-256-fp32"


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-12, 1.001, -1.0])
def test_what_a_run_keeps_is_held_against_its_calibration(tmp_path: Path, factor: float) -> None:
    judgement = judge(measured(tmp_path))
    kept = calibration_of(judgement, "ab" * 32)
    noise = tuple(replace(one, estimates=tuple(factor * x for x in one.estimates)) for one in kept.noise)
    changed = replace(kept, noise=noise)
    if abs(factor - 1) < 1e-9:
        check_kept(changed, judgement)
    else:
        with pytest.raises(VerificationFailed, match="differ from those of its calibration abababababab"):
            check_kept(changed, judgement)
