"""A10: the report of a run holds the profiles beside it, and no profile of something else is passed off as its own."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from judgements import IDENTITY, judgement_of

from groundspeed.errors import BadInput
from groundspeed.evidence.launched import Launched
from groundspeed.evidence.profile import Profile
from groundspeed.evidence.record import Record
from groundspeed.judge.beside import Beside, beside
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.judge.profile import picture
from groundspeed.report import export, markdown
from groundspeed.report.html import to_html
from profiles import CASE, KERNEL, gpu_profile

PROFILE = "fedcba987654" + "d" * 52
CODE = "code_sha256"
HOSTILE = "<script>alert(1)</script>|`x`"


def named(profile: Profile) -> Callable[[Record], Record]:
    """The same run, by the very contenders that were profiled."""
    return lambda record: replace(
        record, contenders=tuple(c for c in profile.contenders if c.status is None or c.name not in ("xformers",))
    )


def run_of(folder: Path, *names: str) -> Judgement:
    return judgement_of(folder, dict.fromkeys(names, 1e-3), gpu="NVIDIA H200", case=CASE, processes=2, looks=(4,))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    run = run_of(tmp_path_factory.mktemp("run"), "sdpa-cudnn", "mine")
    return judge(named(gpu_profile())(run.record))


def both(judgement: Judgement, *profiles: Beside) -> tuple[str, str]:
    return to_html(judgement, IDENTITY, profiles=profiles), markdown.to_markdown(judgement, IDENTITY, profiles=profiles)


def section(content: str) -> str:
    """What a reader sees of the profiles, of a page or of Markdown."""
    if "<section" in content:
        found = content.partition('<section id="profile">')[2].partition("</section>")[0]
        return html.unescape(re.sub(r"<[^>]+>", " ", found))
    return re.sub(r"\\(.)", r"\1", content.partition("\n## Profile\n")[2].partition("\n## ")[0])


def test_it_tells_by_what_it_looked_and_what_it_saw(measured: Judgement) -> None:
    one = beside(measured.record, PROFILE, picture(gpu_profile()))
    for content in both(measured, one):
        said = " ".join(section(content).split())
        assert "Hardware counters by Nsight Compute 2025.3.1.0 (one call of sdpa-cudnn" in said
        assert "timeline of kernels, copies and gaps by PyTorch's profiler; roofline computed" in said
        for row in ("SM", "tensor pipe", "DRAM", "L2 hits", "registers per thread", "occupancy", "a warp issues"):
            assert re.search(rf"{row}\W+\d", said), row
        assert "68.5%" in said, "the tensor pipe"
        assert "waits for wgmma (gmma)" in said
        assert "2.8%" in said, "idle between kernels: 6 of 216 µs"
        assert "2.9%" in said, "copies: 6 of 210 µs"
        assert re.search(rf"{KERNEL.split('(')[0][5:40]}", said)
        assert re.search(r"left out\W+mine: INCORRECT, max_abs error 1 is over the tolerance", said)
        assert "no speed in it is a claim" in said
        assert f"groundspeed verify {IDENTITY[:12]} {PROFILE[:12]}\n" in content
    facts = json.loads(export.to_json(measured, IDENTITY, profiles=[one]))["profiles"][0]
    assert (facts["bundle"], facts["contenders"][0]["copy_share"]) == (PROFILE, pytest.approx(6 / 210))
    assert [left["contender"] for left in facts["left_out"]] == ["mine"]


def test_without_counters_it_says_so_and_why(measured: Judgement) -> None:
    for content in both(measured, beside(measured.record, PROFILE, picture(gpu_profile(counted=False)))):
        said = section(content)
        assert "No hardware counters: the driver lets only administrators read its performance counters" in said
        assert "Hardware counters by" not in said
        assert "occupancy" not in said


def test_the_checklist_rests_on_the_profile_and_says_so(measured: Judgement) -> None:
    """B6: of the judged contender, which the profile must have as the run has it."""
    record = replace(measured.record, run=replace(measured.record.run, judged=("sdpa-cudnn",), baseline="mine"))
    judgement = judge(record)
    without, copies = markdown.to_markdown(judgement, IDENTITY), "copies under 1% of the time"
    assert f"| {copies} |" not in without
    page, text = both(judgement, beside(record, PROFILE, picture(gpu_profile())))
    shown = f"[{judgement.cases[0].facts.name} in the profile](#profile)"
    assert f"| {copies} | no | {shown}: share of time in copies 2.9% |" in text
    assert f"| sdpa-cudnn | attention: SM | over 60% | yes | {shown}: SM 71.2% |" in text
    assert f"{judgement.cases[0].facts.name} in the profile: SM 71.2%" in page


def other(**changes: Any) -> Callable[[Profile], Profile]:
    return lambda profile: replace(profile, **changes)


def of_another_case(profile: Profile) -> Profile:
    return replace(profile, case=replace(profile.case, params={**profile.case.params, "S": 77}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other(suite="moe"), "the profile fedcba987654 is of moe, but the run is of attention; leave it out"),
        (other(environment={"gpu": {"name": "NVIDIA A10"}}), "is from NVIDIA A10, but the run is from NVIDIA H200;"),
        (of_another_case, f"is of {CASE}, which the run did not measure; leave it out"),
    ],
)
def test_a_profile_of_something_else_is_refused(
    measured: Judgement, change: Callable[[Profile], Profile], said: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        beside(measured.record, PROFILE, picture(change(gpu_profile())))


def of_version(version: str) -> Callable[[Record], Record]:
    return lambda record: replace(
        record, contenders=tuple(replace(contender, version=version) for contender in record.contenders)
    )


def of_code(code: str) -> Callable[[Record], Record]:
    return lambda record: replace(record, environment={**record.environment, CODE: {"sdpa-cudnn": code}})


def from_file(record: Record) -> Record:
    return replace(record, contenders=tuple(replace(c, source_sha256="a" * 64) for c in record.contenders))


def launching(*kernels: str) -> Callable[[Record], Record]:
    return lambda record: replace(record, launched=(Launched(record.cases[0].name, "sdpa-cudnn", kernels, (), ()),))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (of_version("2.0"), "its version is 1.0 in the profile and 2.0 in the run"),
        (of_code("b" * 64), "its code differs from that in the run"),
        (from_file, "its file differs from that in the run"),
        (launching("another"), "it launched different kernels than in the run"),
        (lambda record: replace(record, contenders=record.contenders[1:]), "the run did not measure it"),
    ],
)
def test_other_code_is_not_passed_off_as_the_runs(
    measured: Judgement, change: Callable[[Record], Record], why: str
) -> None:
    profile = replace(gpu_profile(), environment={**gpu_profile().environment, CODE: {"sdpa-cudnn": "a" * 64}})
    with pytest.raises(BadInput, match=f"no contender as the run measured it \\(sdpa-cudnn: {why}; mine: INCORRECT"):
        beside(change(measured.record), PROFILE, picture(profile))


def test_the_same_code_by_its_hash_whatever_its_comments_say(measured: Judgement) -> None:
    profile = gpu_profile()
    kernels = {event.name for event in profile.events if event.kind == "kernel"}
    record = launching(*kernels)(of_code("a" * 64)(from_file(measured.record)))
    profile = replace(profile, environment={**profile.environment, CODE: {"sdpa-cudnn": "a" * 64}})
    assert [look.contender for look in beside(record, PROFILE, picture(profile)).picture.looks] == ["sdpa-cudnn"]


def test_what_else_was_not_as_in_the_run_is_said(measured: Judgement) -> None:
    then = {
        "gpu": {"name": "NVIDIA H200", "id": "a", "driver": "580"},
        "packages": {"nvidia-cudnn": "9.1", "numpy": "2"},
    }
    now = {
        "gpu": {"name": "NVIDIA H200", "id": "b", "driver": "590"},
        "packages": {"nvidia-cudnn": "9.2", "scipy": "1"},
    }
    record = replace(measured.record, environment={**measured.record.environment, **then})
    one = beside(record, PROFILE, picture(replace(gpu_profile(), environment=now)))
    assert one.apart == (
        "another GPU of the same model",
        "driver 590, in the run 580",
        "nvidia-cudnn 9.2, in the run 9.1",
    )
    for content in both(measured, one):
        assert re.search(r"differs from the run\W+driver 590, in the run 580", section(content))


def test_on_a_cpu_the_threads_are_held_against_each_other(measured: Judgement) -> None:
    then, now = ({"cpu": {"name": "EPYC"}, "worker": {"threads": number}} for number in (1, 3))
    record = replace(measured.record, run=replace(measured.record.run, device="cpu"), environment=then)
    one = beside(
        record, PROFILE, picture(replace(gpu_profile(counted=False), device="cpu", environment=now, events=()))
    )
    assert one.apart == ("threads: 3, in the run 1",)


def test_without_a_profile_it_says_how_to_make_one(measured: Judgement, ordinary: Judgement) -> None:
    """By the name of a case; a shape that has none of its own by its sizes."""
    for content in both(measured):
        (line,) = (said for said in section(content).splitlines() if said.strip() and said.strip() != "Profile")
        shape = "--shape B=16,H=16,S=1024,D=128,causal=0 --dtype bf16"
        assert f"groundspeed profile attention {shape} --only mine,sdpa-cudnn" in " ".join(line.split())
        assert f"groundspeed report {IDENTITY[:12]} PROFILE --" in line
    named = replace(ordinary.cases[0].facts, name="xlarge-full-fp32@graph")
    judgement = replace(ordinary, cases=(replace(ordinary.cases[0], facts=named),))
    said = section(markdown.to_markdown(judgement, IDENTITY))
    assert "`groundspeed profile attention xlarge-full-fp32 --only sdpa-flash,mine,sdpa-math --device cpu`" in said


def test_names_out_of_bundles_stay_text(tmp_path: Path) -> None:
    profile = gpu_profile(HOSTILE, HOSTILE)
    run = run_of(tmp_path, HOSTILE, "mine")
    judgement = judge(named(profile)(run.record))
    page, text = both(judgement, beside(judgement.record, PROFILE, picture(profile)))
    assert "<script>alert" not in page + text
    lines = [line for line in text.partition("\n## Profile\n")[2].partition("\n## ")[0].splitlines() if line[:1] == "|"]
    assert any("&lt;script&gt;" in line for line in lines)
    for content in both(judgement):
        command = re.search(r"groundspeed profile [^`<]+", section(content).replace("makes one", "`"))
        assert command
        assert shlex.split(command[0])[-2:] == ["--only", "mine"], "what is no plain name is in no command"
