"""D3, A8: a profile is a bundle of its own kind: closed, hashed, and read only if all of it makes sense."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bundles import put

from groundspeed.errors import BadInput, VerificationFailed
from groundspeed.evidence import bundle, profile_bundle
from groundspeed.evidence.integrity import FACTS, MANIFEST, PROFILE, RUN, kind_of, make_manifest
from groundspeed.evidence.profile import MAX_COUNTED, NAME
from groundspeed.lab.profile import verify
from profiles import gpu_profile


@pytest.fixture
def made(tmp_path: Path) -> profile_bundle.ProfileBundle:
    return profile_bundle.write(gpu_profile(), tmp_path, "profile-attention")


def forged(made: profile_bundle.ProfileBundle, change: Callable[[Any], None]) -> Path:
    """With other facts, and every hash as it should be."""
    facts = json.loads((made.path / FACTS).read_bytes())
    change(facts)
    files = {FACTS: json.dumps(facts).encode()}
    return put(made.path.parent, make_manifest(files, NAME, PROFILE), files)


def column(facts: Any, table: str, name: str, value: Any, row: int = 0) -> None:
    facts[table]["rows"][row][facts[table]["columns"].index(name)] = value


def test_it_reads_as_it_was_written(made: profile_bundle.ProfileBundle) -> None:
    assert profile_bundle.read(made.path) == made
    assert sorted(path.name for path in made.path.iterdir()) == [FACTS, MANIFEST]
    assert kind_of(made.path) is PROFILE
    assert verify(made.path)[0] == made


def test_a_profile_is_no_run_and_a_run_no_profile(made: profile_bundle.ProfileBundle) -> None:
    with pytest.raises(BadInput, match="is the bundle of a profile, not of a run"):
        bundle.read(made.path)
    run = next((Path(__file__).parents[2] / "evidence").glob("*/*"))
    assert kind_of(run) is RUN
    with pytest.raises(BadInput, match="is the bundle of a run, not of a profile"):
        profile_bundle.read(run)


def test_a_changed_byte_or_a_file_too_many_fails(made: profile_bundle.ProfileBundle) -> None:
    (made.path / "more").touch()
    with pytest.raises(VerificationFailed, match="'more' is not in the manifest"):
        verify(made.path)
    (made.path / "more").unlink()
    (made.path / FACTS).write_bytes((made.path / FACTS).read_bytes() + b" ")
    with pytest.raises(VerificationFailed, match="was changed"):
        verify(made.path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.update(schema=2), "newer groundspeed"),
        (lambda f: f.update(schema=0), "schema 0 does not exist"),
        (lambda f: f.update(extra=1), "unknown key 'extra'"),
        (lambda f: f.update(events=[]), "expected a table"),
        (lambda f: f.update(device="cpu"), "operators are events of a CPU"),
        (lambda f: column(f, "events", "seconds", -1.0), "impossible time"),
        (lambda f: column(f, "events", "seconds", 1e300), "impossible time"),
        (lambda f: column(f, "events", "name", ""), "cannot be the name"),
        (lambda f: column(f, "events", "name", "a" * 5_000), "cannot be the name"),
        (lambda f: column(f, "events", "kind", "rumour"), "not one of kernel"),
        (lambda f: column(f, "events", "grid", [1, 2]), "three sizes"),
        (lambda f: column(f, "events", "registers", -1), "is negative"),
        (lambda f: column(f, "events", "call", 99), "an unknown call"),
        (lambda f: column(f, "calls", "contender", "mine"), "every contender that passed needs calls"),
        (lambda f: column(f, "seen", "status", "ERROR", 0), "needs a reason"),
        (lambda f: column(f, "seen", "no_counters", "none", 0), "a contender without counters"),
        (lambda f: column(f, "seen", "errors", {"max_abs": -1.0}), "is negative"),
        (lambda f: column(f, "counted", "metrics", {"__import__('os')": 1.0}), "not metrics"),
        (lambda f: f["contenders"].append(f["contenders"][0]), "appears twice"),
        (
            lambda f: f["counted"].update(rows=f["counted"]["rows"][:1] * (MAX_COUNTED + 1)),
            "more events, calls or counted launches than",
        ),
        (lambda f: f["case"].update(name="a\nb"), "cannot be the name"),
    ],
)
def test_facts_that_no_profile_could_have_are_refused(
    made: profile_bundle.ProfileBundle, change: Callable[[Any], None], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        verify(forged(made, change))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f["case"].update(flops=f["case"]["flops"] * 2), "the record has flops"),
        (lambda f: f["case"]["tolerance"].update(max_abs=9.0, rms_rel=9.0), "the record tolerates"),
        (lambda f: column(f, "seen", "errors", {}), "passed, but its .* error is over"),
        (lambda f: column(f, "seen", "errors", dict.fromkeys(["max_abs", "rms_rel"], 1.0)), "passed, but its"),
        (
            lambda f: [column(f, "events", "name", "mine", i) for i in range(9)],
            "no kernel that it launched has 'cudnn'",
        ),
    ],
)
def test_what_the_suite_knows_better_fails(
    made: profile_bundle.ProfileBundle, change: Callable[[Any], None], said: str
) -> None:
    with pytest.raises(VerificationFailed, match=said):
        verify(forged(made, change))


def test_a_report_that_is_kept_lies_beside_it_and_is_checked(tmp_path: Path) -> None:
    profile = gpu_profile("../evil name")
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # of x
    seen = (replace(profile.seen[0], report_sha256=digest), profile.seen[1])
    made = profile_bundle.write(replace(profile, seen=seen), tmp_path, "profile-attention")
    report = made.report_of("../evil name")
    assert report.parent == tmp_path
    assert verify(made.path)[2] == 0, "nobody kept it"
    report.write_bytes(b"x")
    assert verify(made.path)[2] == 1
    report.write_bytes(b"y")
    with pytest.raises(VerificationFailed, match="is not the report that this profile was made from"):
        verify(made.path)
