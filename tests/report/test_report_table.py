"""The table on the screen (issue 2, point 7): it fits the terminal, and whatever the layout nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from judgements import ANSI, IDENTITY, MEANS, Shown, judgement_of, markdown_tables, widest

from fakes import Died, Fault, Silence
from groundspeed.evidence import journal
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.report import markdown, table, words
from groundspeed.report.escape import escape

WIDTHS = (40, 60, 80, 100, 120, 200, 300)


def told(judgement: Judgement) -> Iterator[str]:
    """Every figure of a judgement that the table must tell."""
    for case in judgement.cases:
        yield case.facts.name
        for result in case.results:
            yield result.contender
            yield from (said for said in table.cells(judgement, result).values() if said not in ("–", "1"))


def flat(output: str) -> str:
    """Output as it reads, wherever lines were broken."""
    return re.sub(r"\s+", " ", ANSI.sub("", output))


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_lost_and_no_line_is_longer_than_the_terminal(
    ordinary: Judgement, shown: Shown, width: int, terminal: bool
) -> None:
    output = shown(ordinary, width, terminal=terminal)
    assert widest(output) <= width
    for figure in told(ordinary):
        assert figure in flat(output)
    assert "…" not in output


def test_the_narrow_layouts_keep_each_figure_on_one_line(ordinary: Judgement, shown: Shown) -> None:
    for width in (40, 80):
        lines = shown(ordinary, width).splitlines()
        for case in ordinary.cases:
            for result in case.results:
                row = table.cells(ordinary, result)
                assert any(f"{row['median']} ({row['95% interval']})" in line for line in lines)
                if result.comparison:
                    assert any(row["speed-up"] in line and row["verdict"] in line for line in lines)


def test_the_widest_layout_that_fits_is_taken(ordinary: Judgement, shown: Shown) -> None:
    first = [shown(ordinary, width).split("\n\n")[1].split()[0] for width in range(160, 60, -1)]
    assert list(dict.fromkeys(first)) == ["case", "contender", ordinary.cases[0].facts.name]
    assert first.index("contender") > 20
    assert "contender" in first[160 - 120 : 160 - 100], "between 80 and 160 columns each contender still has one line"


def test_a_pipe_gets_no_ansi_code_and_a_terminal_does(ordinary: Judgement, shown: Shown) -> None:
    assert "\x1b" not in shown(ordinary, terminal=False)
    assert "\x1b[32m" in shown(ordinary, terminal=True), "FASTER is green"


def test_no_color_is_obeyed(ordinary: Judgement, shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    output = shown(ordinary, terminal=True)
    codes = {int(code) for found in re.findall(r"\x1b\[([0-9;]*)m", output) for code in found.split(";") if code}
    assert not codes & {*range(30, 50), *range(90, 108)}


def test_the_columns_of_the_issue_are_there(on_gpu: Judgement, shown: Shown) -> None:
    heading = shown(on_gpu).splitlines()[2]
    for column in (
        "contender",
        "median",
        "95% interval",
        "TFLOP/s",
        "% peak",
        "GB/s",
        "tokens/s",
        "memory",
        "speed-up",
        "verdict",
    ):
        assert column in heading
    assert re.search(r"\d\.\d%", shown(on_gpu)), "a GPU of the table of peaks has a share of its peak"


def test_a_share_of_peak_that_no_row_has_is_no_column(ordinary: Judgement, on_gpu: Judgement, shown: Shown) -> None:
    for judgement in (ordinary, on_gpu):
        results = markdown_tables(markdown.to_markdown(judgement, IDENTITY))["Results"][0]
        has = judgement is on_gpu
        assert ("% peak" in results, "% peak" in shown(judgement).splitlines()[2]) == (has, has)


def test_small_rates_are_told_in_gflop(ordinary: Judgement, shown: Shown) -> None:
    heading = shown(ordinary).splitlines()[2]
    assert "GFLOP/s" in heading
    assert not re.search(r" 0\.0\d+", shown(ordinary))


def test_bytes_are_labelled_algorithmic(ordinary: Judgement, shown: Shown) -> None:
    """A4: GB/s are those of the bytes that the maths must move."""
    assert "algorithmic" in shown(ordinary, 300)


def fails(how: dict[str, dict[str, str] | Exception]) -> Fault:
    return lambda contender, case, block: how.get(contender) if block == 0 else None


def test_every_status_is_shown_with_its_reason(tmp_path: Path, shown: Shown) -> None:
    faults: dict[str, dict[str, str] | Exception] = {
        "wrong": {"status": "INCORRECT", "reason": "max_rel 0.5 is over 1e-5"},
        "raises": {"status": "ERROR", "reason": "ValueError: no such head"},
        "greedy": Died("the kernel killed it", out_of_memory=True),
        "hangs": Silence(),
        "picky": {"status": "SKIPPED", "reason": "D=64 is not for it"},
    }
    unmeasured = [("flash-attn-3", "ABSENT", "needs an NVIDIA GPU"), ("flex", "SKIPPED", "not in preset quick")]
    means = {"sdpa-math": 1e-3, **dict.fromkeys(faults, 1e-3), "mine": 0.5e-3}
    judgement = judgement_of(tmp_path, means, fails(faults), unmeasured=unmeasured)
    for width in (40, 300):
        output = flat(shown(judgement, width))
        for status, reason in (
            ("INCORRECT", "max_rel 0.5 is over 1e-5"),
            ("ERROR", "ValueError: no such head"),
            ("OOM", "the kernel killed it"),
            ("TIMEOUT", "no answer within 30 s"),
            ("SKIPPED", "D=64 is not for it"),
            ("ABSENT", "needs an NVIDIA GPU"),
            ("SKIPPED", "not in preset quick"),
        ):
            assert status in output
            assert reason in output
    first = next(case for case in judgement.cases)
    for name in faults:
        assert table.cells(judgement, first.result(name)) == {"verdict": first.result(name).status}, "and no time"
    assert first.result("mine").comparison is not None, "the others keep their result"


def test_the_screen_is_brief_about_what_is_absent_and_the_report_is_not(tmp_path: Path, shown: Shown) -> None:
    """Every name stands in both."""
    reasons = {
        "cudnn": "needs an NVIDIA GPU",
        "xformers": "needs an NVIDIA GPU; xformers is not installed",
        "hopper": "not written yet",
        "flash-attn-3": "needs an NVIDIA GPU; flash_attn_interface is not installed",
    }
    absent = [(name, "ABSENT", reason) for name, reason in reasons.items()]
    judgement = judgement_of(tmp_path, unmeasured=absent)
    (line,) = (line for line in shown(judgement).splitlines() if line.startswith("ABSENT"))
    assert line.split(maxsplit=1)[1] == (
        "cudnn, xformers, flash-attn-3 (needs an NVIDIA GPU); hopper (not written yet); "
        "the report has the reasons in full"
    )
    content = markdown.to_markdown(judgement, IDENTITY)
    told = {row["contender"]: row["reason"] for row in markdown_tables(content)["Fairness record"] if row["reason"]}
    assert told == {name: escape(reason) for name, reason in reasons.items()}
    (note,) = (line for line in content.splitlines() if line.startswith("- **ABSENT**"))
    assert all(f"({escape(reason)})" in note for reason in reasons.values())


def test_what_is_absent_for_one_short_reason_is_told_in_full(ordinary: Judgement, shown: Shown) -> None:
    assert "ABSENT    flash-attn-3 (needs an NVIDIA GPU)\n" in shown(ordinary)


def test_a_time_beyond_physics_is_invalid_and_has_no_number(tmp_path: Path, shown: Shown) -> None:
    judgement = judgement_of(tmp_path, {"a": 1e-3, "b": 1e-9}, gpu="NVIDIA H200", shapes=["B=8,S=4096,causal=0"])
    output = flat(shown(judgement))
    assert "INVALID" in output
    assert "cannot have been done" in output
    assert table.cells(judgement, judgement.cases[0].result("b")) == {"verdict": "INVALID"}


def test_one_process_has_a_ratio_and_neither_interval_nor_verdict(tmp_path: Path, shown: Shown) -> None:
    judgement = judgement_of(tmp_path, processes=1)
    for case in judgement.cases:
        row = table.cells(judgement, case.result("mine"))
        assert re.fullmatch(r"\d\.\d\d×", row["speed-up"])
        assert (row["95% interval"], row["verdict"]) == ("–", "–")
    for width in (60, 300):
        output = flat(shown(judgement, width))
        assert "1 of 1 process," in output
        assert "this ratio comes from a single process" in output
        assert "inf" not in output
        assert "nan" not in output


def test_an_interrupted_run_says_so_and_claims_nothing(tmp_path: Path, shown: Shown) -> None:
    def interrupt(contender: str, case: str, block: int | None) -> None:
        interrupt.calls += 1  # type: ignore[attr-defined]
        if interrupt.calls > 250:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    interrupt.calls = 0  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        judgement_of(tmp_path, fault=interrupt)
    judgement = judge(journal.to_record(journal.read_events(tmp_path), "journal"))
    done = len(judgement.record.finished_attempts)
    assert 0 < done < 4
    output = flat(shown(judgement))
    assert f"{done} of 4 processes" in output
    assert "--resume" in output
    assert "is faster" not in output
    assert all(not supported for supported, _ in words.claim_lines(judgement))


def test_a_baseline_alone_has_nothing_to_be_compared_with(tmp_path: Path, shown: Shown) -> None:
    output = flat(shown(judgement_of(tmp_path, {"sdpa-math": 1e-3})))
    assert "only the baseline was measured" in output
    assert re.search(r"1\.0[01] ms|99\d µs", output)


def test_measured_contenders_that_nobody_judges_are_not_called_absent(tmp_path: Path) -> None:
    judgement = judgement_of(tmp_path, {"a": 1e-3, "b": 1e-3}, judged=[])
    assert [s for _, s in words.claim_lines(judgement)] == ["No claim: no contender was judged; name one with --judge."]


def test_a_judged_contender_that_is_absent_is_told_as_such(tmp_path: Path) -> None:
    absent = [("gone", "ABSENT", "needs an NVIDIA GPU")]
    judgement = judgement_of(tmp_path, {"a": 1e-3, "b": 0.5e-3}, judged=["b", "gone"], unmeasured=absent)
    said = [sentence for _, sentence in words.claim_lines(judgement)]
    assert said[0].startswith("b is faster")
    assert said[1] == "No claim about gone: it was ABSENT (needs an NVIDIA GPU)."


def test_claims_have_the_demonstrated_form(ordinary: Judgement) -> None:
    """A11: `1.72× (95% CI 1.60–1.84) vs torch, B=16 H=16 S=1024 D=128 fp16, NVIDIA H200`."""
    form = re.compile(
        r"\S+ is faster: \d\.\d\d+× \(95% CI \d\.\d\d+–\d\.\d\d+\) vs sdpa-math, .+, Test CPU \(1 thread\); "
        r"trust: cooperative"
    )
    claims = list(words.case_claims(ordinary))
    assert len(claims) == 4
    for claim in [*claims, *(sentence for supported, sentence in words.claim_lines(ordinary) if supported)]:
        assert form.fullmatch(claim), claim
    assert "B=1 H=8 S=64 D=64 fp32 full" in claims[0]


def test_a_claim_is_not_printed_twice(tmp_path: Path, shown: Shown) -> None:
    judgement = judgement_of(tmp_path, shapes=["B=1,S=64,causal=0"])
    (claim,) = (s for _, s in words.claim_lines(judgement) if s.startswith("mine"))
    assert flat(shown(judgement, 300)).count(claim) == 1


def test_what_to_do_next_can_be_copied(ordinary: Judgement, shown: Shown) -> None:
    lines = shown(ordinary, 40).splitlines()
    assert "check it  groundspeed verify x" in lines
    assert "report    groundspeed report x --html report.html" in lines


def test_the_means_here_are_those_of_the_table(ordinary: Judgement) -> None:
    """Guards the fixture: what is compared below is what was scripted."""
    for case in ordinary.cases:
        for name, mean in MEANS.items():
            latency = case.result(name).latency
            assert latency is not None
            assert latency.median == pytest.approx(mean, rel=0.02)


@pytest.mark.parametrize(("cases", "status"), [(1, "not measured"), (2, "measured")])
def test_of_an_interrupted_run_the_fairness_record_says_who_was_timed(tmp_path: Path, cases: int, status: str) -> None:
    seen = set()

    def interrupt(contender: str, case: str, block: int | None) -> None:
        seen.add(case)
        if len(seen) == cases:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judgement_of(tmp_path, MEANS, interrupt)
    record = journal.to_record(journal.read_events(tmp_path), "journal")
    rows = markdown_tables(markdown.to_markdown(judge(record), IDENTITY))["Fairness record"]
    why = "" if cases > 1 else "the run was interrupted before it was timed"
    assert [(row["status"], row["reason"]) for row in rows] == [(status, why)] * len(MEANS)
