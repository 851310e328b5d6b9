"""A8: `groundspeed profile` for real on a CPU, and what the other commands do with what it leaves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from invocation import BundleOf, Cli

from groundspeed.evidence import profile_bundle, store
from groundspeed.lab import profile
from groundspeed.lab.request import Request
from groundspeed.suites import listing
from profiles import gpu_profile

MINE = """
import groundspeed as gs
from torch.nn.functional import scaled_dot_product_attention


@gs.contender("attention")
def forgets_the_mask(q, k, v, *, causal, scale):
    return scaled_dot_product_attention(q, k, v, scale=scale)
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("mine") / "mine.py"
    file.write_text(MINE)
    return str(file)


@pytest.mark.slow
def test_a_cpu_has_operators_and_a_wrong_contender_is_not_profiled(cli: Cli, mine: str, tmp_path: Path) -> None:
    files = ("--html", "p.html", "--json", "p.json", "--markdown", "p.md")
    shape = ("--shape", "S=64,causal=1", "--device", "cpu", "--only", "sdpa-math", "--with", mine)
    done = cli("profile", "attention", *shape, *files)
    assert done.code == 0, done.err
    assert re.search(r"^sdpa-math +PASSED +[\d.]+ [mµ]s", done.out, re.M)
    assert re.search(r"^aten::bmm +2 +[\d.]+ [mµ]s +[\d.]+%", done.out, re.M)
    assert re.search(r"^INCORRECT +forgets-the-mask: \w+ error .* over the tolerance", done.out, re.M)
    assert "No hardware counters: Nsight Compute needs an NVIDIA GPU, and this is a CPU." in done.out
    facts = json.loads((tmp_path / "p.json").read_text())
    passed, wrong = facts["contenders"]
    assert (passed["status"], wrong["status"], wrong["tops"]) == ("PASSED", "INCORRECT", [])
    (made,) = store.finished(tmp_path / store.PROFILES)
    for command in ("verify", "show", "report"):
        assert cli(command, made.name[-64:][:12]).code == 0
    found = profile.verify(made)[0].profile
    assert {event.kind for event in found.events} == {"operator"}
    assert {call.call for call in found.calls} == {0, 1, 2, 3, 4}
    spent = sum(call.seconds for call in found.calls) / 5
    assert 0 < sum(top["seconds"] for top in passed["tops"]) <= spent


@pytest.mark.slow
def test_the_process_that_is_counted_in_ends_with_the_reason_of_a_contender_that_fails(
    mine: str, tmp_path: Path
) -> None:
    """What Nsight Compute would look into, without it and on a CPU: it never comes to the call."""
    suite = listing.load("attention", [mine])
    (case,) = suite.module.shape_cases("S=64,causal=1", ["fp32"])
    request = Request("attention", "quick", with_files=(mine,))
    one = profile.One(suite, request, "cpu", case, "forgets-the-mask", [], 1)
    messages = (one.start, one.prepare, {"count": {"contender": "forgets-the-mask"}})
    (tmp_path / "requests").write_text("".join(json.dumps(message) + "\n" for message in messages))
    command = [sys.executable, "-m", "groundspeed.measure.counted", str(tmp_path / "requests")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("INCORRECT: ")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["attention"], 2, "a profile covers one case: name one"),
        (["attention", "tiny-full-fp32", "--shape", "S=64"], 2, "a profile covers one case: name one"),
        (["attention", "tiny", "--device", "cpu"], 2, "a profile covers one case, and this means 2 (tiny-full-fp32"),
        (["attention", "nosuch", "--device", "cpu"], 2, "unknown case 'nosuch'"),
        (["nosuch", "tiny-full-fp32"], 2, "unknown suite 'nosuch'"),
        (["attention", "tiny-full-fp32", "--only", "nosuch"], 2, "unknown contender in --only: 'nosuch'"),
        (["attention", "tiny-full-fp32", "--ncu", "x", "--no-ncu"], 2, "--ncu and --no-ncu exclude each other"),
        (["attention", "tiny-full-fp32", "--timeout", "0"], 2, "--timeout 0: give a number of seconds above 0"),
        (
            ["attention", "tiny-full-fp32", "--only", "sdpa-cudnn", "--device", "cpu"],
            4,
            "can run here (needs an NVIDIA",
        ),
        (["attention", "tiny-full-fp32", "--html", "a", "--json", "a"], 2, "two reports cannot both go to a"),
    ],
)
def test_what_is_asked_wrongly_is_one_sentence(cli: Cli, arguments: list[str], code: int, said: str) -> None:
    done = cli("profile", *arguments)
    assert done.code == code
    assert said in done.sentence


def test_other_commands_know_a_profile_from_a_run(cli: Cli, tmp_path: Path, bundle_of: BundleOf) -> None:
    run = bundle_of()
    made = profile_bundle.write(gpu_profile(), tmp_path / store.PROFILES, "profile-attention-x")
    assert "of 1 of 2 contenders, 1 launch counted" in cli("verify", made.short, run.short).out
    assert "profile of attention" in cli("show", made.short).out
    assert "# profile of attention" in cli("report", made.short).out
    assert cli("report", made.short, "--json", "-").out.startswith("{")
    assert "use --html, --md or --json" in cli("report", made.short, "--csv", "a.csv").sentence
    assert "has no baseline and no cost" in cli("show", made.short, "--baseline", "sdpa-flash").sentence
    assert "is the bundle of a profile" in cli("run", "--reproduce", made.short).sentence
    assert f"evidence  {run.path}" in cli("show", "latest").out or run.short in cli("show", "latest").out
    (made.path / "facts.json").write_bytes(b"{}")
    done = cli("verify", made.short)
    assert done.code == 1
    assert done.out.startswith("FAILED")


ROOT = Path(__file__).parents[2]
SEEN = next((ROOT / "tests" / "measured" / "profiles").iterdir())
(SWEEP,) = ROOT.glob("tests/measured/bundles/*-3553-*")
(HALVES,) = ROOT.glob("evidence/nvidia-h200/*-833b-*")


def test_the_report_of_a_run_takes_its_profile_along(cli: Cli, tmp_path: Path) -> None:
    """A10: run and profile are of the same kernels; in whatever order they are named, and as often."""
    done = cli("report", SEEN, SWEEP, SEEN, "--md", "-", "--json", tmp_path / "r.json")
    assert done.code == 0
    told = done.out.partition("\n## Profile\n")[2].partition("\n## ")[0]
    assert "| tensor pipe | 72.9% | 81.5% |" in told
    assert "| SM | over 60% | yes |" in done.out.replace("attention: ", "")
    (facts,) = json.loads((tmp_path / "r.json").read_text())["profiles"]
    assert (facts["bundle"], facts["left_out"]) == (SEEN.name[-64:], [])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((HALVES, SEEN, "--md", "-"), "is of sweep-d128-s4096-full-bf16, which the run did not measure; leave it out"),
        ((SWEEP, HALVES), "are two runs, and a report covers one; `groundspeed compare` takes two"),
        ((SWEEP, SEEN, "--csv", "-"), "cannot hold a profile; leave out the profile, or add --html, --md or --json"),
    ],
)
def test_what_is_no_run_with_its_profiles_has_no_report(cli: Cli, arguments: tuple[object, ...], said: str) -> None:
    done = cli("report", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.sentence
