"""D4, A11: a number without its bundle, of another value, rounding, shape or dtype is a finding with its message."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from texts import House, build

from groundspeed.judge.judgement import judge
from groundspeed.report.tied import figures
from groundspeed.report.tied.notation import unit_of

CASE = "b1-h8-s64-d64-full-fp32"
LONG = "b4-h16-s4096-d128-causal-bf16"


WAY_OUT = "give the speed-up as `1.23×` and tie that"


def test_the_cases_are_called_so(house: House) -> None:
    assert CASE in [case.name for case in house.cpu.record.cases]
    assert LONG in [case.name for case in house.gpu.record.cases]


def tie(house: House, contender: str = "sdpa-flash", case: str = CASE, more: str = "") -> str:
    return f"<!-- tied: {house.cpu.short} {contender} {case}{more} -->"


def gpu(house: House, case: str = LONG, contender: str = "ours-portable") -> str:
    return f"<!-- tied: {house.gpu.short} {contender} {case} -->"


def told(house: House, text: str, name: str = "TEXT.md") -> str:
    """The one finding of a text, as `kind: sentence`."""
    (finding,) = house.check(text, name).findings
    return f"{finding.kind}: {finding.sentence}"


@pytest.mark.parametrize("case", [CASE, "all"])
def test_a_speed_up_is_filled_in_with_its_interval_and_is_then_right(house: House, case: str) -> None:
    text = house.write(f"It is ?×{tie(house, case=case)} as fast.\n")
    assert re.match(r"It is (1\.9\d|2\.0\d)\d?× \(\d\.\d+–\d\.\d+\)<!-- tied: ", text)
    assert house.kinds(text) == []
    assert house.write(text) == text
    assert house.check(text).counts == {"tied": 1}
    longer = text.replace("× (", "× (95% CI ")
    assert house.kinds(longer) == []
    assert house.write(longer) == longer


@pytest.mark.parametrize("unit", ["ms", "µs", "GFLOP/s", "TFLOP/s", "GB/s", "M tokens/s", "KiB", "samples/s"])
def test_a_rate_a_time_or_an_amount_of_a_contender_on_a_case(house: House, unit: str) -> None:
    text = house.write(f"It reads ? {unit}{tie(house)} here.")
    assert re.match(rf"It reads [\d,.]+ {unit}<!--", text)
    assert house.kinds(text) == []
    wrong = re.sub(r"[\d,.]+", "77777", text, count=1)
    assert told(house, wrong).startswith("wrong value: ")
    assert house.write(wrong) == text


def test_a_time_may_have_its_interval(house: House) -> None:
    text = house.write(f"It takes ? µs (?–?){tie(house)}.")
    assert re.match(r"It takes 1[45]\d µs \(1[45]\d–1[45]\d\)<!--", text)
    assert house.kinds(text) == []
    assert told(house, re.sub(r"\(\d+", "(9", text)).startswith("wrong value: the low end of ")


def test_a_share_of_the_peak(house: House) -> None:
    text = house.write(f"It reaches ?% of peak{gpu(house)} there.")
    assert re.match(r"It reaches \d+\.\d% of peak<!--", text)
    assert house.kinds(text) == []
    assert told(house, f"It reaches 62.5% of peak{tie(house)}.").startswith(
        "no figure: the bundle does not have the share"
    )


@pytest.mark.parametrize("unit", ["TFLOP/s", "GFLOP/s", "GB/s"])
def test_a_rate_of_work_that_nobody_stated_is_no_figure(house: House, unit: str) -> None:
    """As of a function that was measured without `flops` and `bytes_moved`: 0 would be a number."""
    judgement = judge(house.cpu.record)
    result = next(result for case in judgement.cases for result in case.results if result.rates)
    assert result.rates
    assert figures._amount(unit_of(unit), result, "mine")[0] > 0
    unknown = replace(result, rates=replace(result.rates, flops=0.0, bytes=0.0))
    with pytest.raises(figures.NoFigure, match=r"the bundle does not have the (flops|bytes) of mine"):
        figures._amount(unit_of(unit), unknown, "mine")


def test_a_wrong_value(house: House) -> None:
    said = told(house, f"It is 3.50× (3.40–3.60){tie(house)} as fast.")
    assert said.startswith(f"wrong value: the figure of sdpa-flash on {CASE} of {house.cpu.short} is ")
    assert "not 3.50" in said
    assert "`groundspeed claims write` fixes it" in said


def test_a_wrong_rounding(house: House) -> None:
    latency = house.library().bundle(house.cpu.short).judgement.cases[0].result("sdpa-flash").latency
    assert latency is not None
    exact = latency.median * 1e6
    for said in (f"{exact:.1f}", f"{exact:.3f}", f"{math.floor(exact)}", f"{math.ceil(exact)}"):
        expected = [] if said == f"{exact:.0f}" else ["wrong rounding"]
        assert house.kinds(f"It takes {said} µs{tie(house)}.") == expected
    assert house.kinds(f"It takes {exact + 2:.0f} µs{tie(house)}.") == ["wrong value"]
    ratio = house.write(f"?×{tie(house)}")
    assert told(house, re.sub(r"^\d\.\d+", "2", ratio)).startswith("wrong rounding: ")
    assert told(house, re.sub(r"–\d\.\d+", "–2", ratio)).startswith("wrong rounding: the high end of ")


def test_an_interval_omitted(house: House) -> None:
    text = re.sub(r" \(.*?\)", "", house.write(f"It is ?×{tie(house)} as fast."))
    assert told(house, text).startswith("interval omitted: ")
    assert house.kinds(house.write(text)) == []


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("at S=8192", "wrong shape"),
        ("at S = 8,192", "wrong shape"),
        ("at S=8k", "wrong shape"),
        ("with D = 64", "wrong shape"),
        ("in FP16", "wrong dtype"),
        ("in float32", "wrong dtype"),
        ("with a full mask", "wrong mask"),
        ("in a CUDA graph", "wrong clock"),
        ("as eager latency", "wrong clock"),
        ("on an H100", "wrong device"),
        ("on an AMD EPYC", "wrong device"),
    ],
)
def test_the_sentence_says_another_work(house: House, condition: str, kind: str) -> None:
    text = house.write(f"It is ?×{gpu(house)} {condition}. And so on.")
    assert told(house, text).startswith(f"{kind}: ")
    assert house.kinds(text.replace(f"{condition}. And", f"here. It runs {condition}. And")) == [], "another sentence"


@pytest.mark.parametrize(
    ("condition", "kind"),
    [("on an H200", "wrong device"), ("on an A100 GPU", "wrong device"), ("in a CUDA graph", "wrong clock")],
)
def test_what_was_measured_on_a_cpu_was_on_no_gpu(house: House, condition: str, kind: str) -> None:
    text = house.write(f"It is ?×{tie(house)} as fast {condition}.")
    assert house.kinds(text) == [kind]
    assert house.kinds(text.replace(condition, "in eager calls")) == []


@pytest.mark.parametrize(
    "condition",
    ["at S=4096, D=128 and B = 4 in BF16, causal, on an H200", "at S=4k with a cold L2", "at S = 4,096", "with M=3"],
)
def test_the_sentence_says_the_work_that_it_is(house: House, condition: str) -> None:
    assert house.kinds(house.write(f"It is ?×{gpu(house)} {condition}.")) == []


def test_several_numbers_in_a_sentence_have_several_conditions(house: House) -> None:
    other = gpu(house, "b4-h16-s2048-d128-causal-bf16@graph")
    text = f"It is ?×{gpu(house, LONG + '@graph')} at S=4096 and ?×{other} at S=2048 in a CUDA graph."
    assert house.kinds(house.write(text)) == []
    assert house.kinds(house.write(text.replace("S=2048 in", "S=1024 in"))) == ["wrong shape"]


def test_a_mean_over_lengths_is_of_no_single_length(house: House) -> None:
    text = f"It is ?×{gpu(house, 'all@graph')} in a CUDA graph, BF16."
    assert house.kinds(house.write(text)) == []
    assert house.kinds(house.write(text.replace("BF16", "BF16, S=4096"))) == ["wrong shape"]
    assert house.kinds(house.write(text.replace("BF16", "BF16, S=2048 and S=4096"))) == []
    beside = f"It is ?×{gpu(house, 'all@graph')} in a CUDA graph, ? ms{gpu(house, LONG + '@graph')} at S=4096."
    assert house.kinds(house.write(beside)) == [], "that length is the other number's"


def test_in_a_table_the_row_and_the_head_of_the_column_are_the_sentence(house: House) -> None:
    table = f"| mask | BF16, × |\n|---|---|\n| causal | ?×{gpu(house)} |\n"
    assert house.kinds(house.write(table)) == []
    assert house.kinds(house.write(table.replace("BF16", "FP16"))) == ["wrong dtype"]
    assert house.kinds(house.write(table.replace("| causal", "| full"))) == ["wrong mask"]
    plain = f"| mask | TFLOP/s |\n|---|---|\n| causal | ?{gpu(house)} |\n"
    filled = house.write(plain)
    assert re.search(r"\| [\d.]+<!--", filled)
    assert house.check(filled).counts == {"tied": 1}


def test_a_missing_bundle(house: House) -> None:
    said = told(house, f"It is 2.00× (1.99–2.01){tie(house).replace(house.cpu.short, 'abcdef12')}.")
    assert said.startswith("missing bundle: there is no bundle 'abcdef12' in evidence/")
    assert house.kinds("2.00× (1.99–2.01)<!-- tied: ab sdpa-flash all -->") == ["missing bundle"], "too short"


def test_a_bundle_by_the_start_of_its_path(house: House) -> None:
    for name in ("evidence/cpu", "evidence/cpu/attention", house.cpu.identity[:4], house.cpu.identity.upper()):
        assert house.kinds(house.write(tie(house).replace(house.cpu.short, name).join(("?×", ".")))) == []
    assert told(house, "2×<!-- tied: evidence/ sdpa-flash all -->").startswith(
        "missing bundle: 'evidence/' matches 2 bundles"
    )


@pytest.mark.parametrize(
    ("contender", "case", "kind"),
    [
        ("sdpa-flsh", CASE, "unknown contender: there is no contender 'sdpa-flsh' in {short}; did you mean sdpa-flash"),
        ("flash-attn-3", CASE, "unknown contender: flash-attn-3 was ABSENT in {short} (needs an NVIDIA GPU)"),
        ("sdpa-flash", "b1-h8-s65-d64-full-fp32", "unknown case: there is no case"),
        ("sdpa-flash", "all@graph", "unknown case: there is no case 'all@graph' in {short}; did you mean all?"),
        ("sdpa-math", CASE, "no figure: there is no speed-up of sdpa-math"),
        ("sdpa-flash", "all@graph vs best-rival", "unknown case: there is no case 'all@graph' in {short}"),
        ("sdpa-math", "all vs best-rival", "no figure: {short} has no best rival of sdpa-math by this clock"),
        ("sdpa-flash", f"{CASE} vs best-rival", "no figure: against the best rival there is a mean of speed-ups only"),
        ("sdpa-flash", f"{CASE} vs sdpa-cudnn", "wrong baseline: the baseline of {short} is sdpa-math"),
        ("sdpa-flash", "", "bad mark: "),
        ("sdpa-flash", f"{CASE} versus sdpa-math", "bad mark: "),
    ],
)
def test_a_tie_that_means_nothing(house: House, contender: str, case: str, kind: str) -> None:
    said = told(house, f"It is 2.00× (1.99–2.01){tie(house, contender, case)}.")
    assert said.startswith(kind.format(short=house.cpu.short)), said
    assert house.write(text := f"?×{tie(house, contender, case)}") == text, "left as it is"


def test_against_the_best_rival_no_other_one_may_be_named(house: House) -> None:
    mark = tie(house, case="all", more=" vs best-rival")
    assert house.kinds(text := house.write(f"?×{mark} as fast as the best rival.")) == []
    assert house.kinds(text.replace("the best rival", "sdpa-math")) == ["wrong baseline"]
    assert house.kinds(text.replace("the best rival", "mine")) == []


def test_the_baseline_may_be_said(house: House) -> None:
    assert house.kinds(house.write(f"?×{tie(house, more=' vs sdpa-math')}")) == []


def test_over_all_cases_there_are_speed_ups_of_the_judged_only(house: House) -> None:
    assert told(house, f"It takes 1.00 ms{tie(house, case='all')}.").startswith("no figure: over all cases")
    text = house.write(f"?×{gpu(house, 'all', 'sdpa-cudnn')}")
    assert told(house, "1" + text[1:]).startswith("no figure: sdpa-cudnn has no mean")


def test_a_percentage_cannot_be_tied(house: House) -> None:
    said = told(house, f"It is 100% faster{tie(house)}.")
    assert said.startswith("not tied: a percentage does not say")
    assert house.kinds(f"It is 100%{tie(house)} faster.") == ["not tied", "nothing tied"]


@pytest.mark.parametrize("claim", ["ten times faster", "twice as fast", "half as fast"])
def test_a_speed_in_words_cannot_be_tied(house: House, claim: str) -> None:
    assert told(house, f"It is {claim}.") == f"not tied: '{claim}' has no bundle behind it; {WAY_OUT}"
    assert told(house, f"It is {claim}{tie(house)}.").startswith("not tied: a speed in words has no digits")
    assert house.write(f"It is {claim}{tie(house)}.") == f"It is {claim}{tie(house)}.", "left as it is"


def test_what_is_written_as_an_entity_is_tied_and_filled_in(house: House) -> None:
    for unit in ("&times;", "&nbsp;&micro;s", "&#215;"):
        text = house.write(f"It reads ?{unit}{tie(house)} there.")
        assert house.kinds(text) == []
        assert unit in text
        wrong = re.sub(r"reads [\d.]+", "reads 7&#55;7.7", text)
        assert house.kinds(wrong) == ["wrong value"]
        assert house.write(wrong) == text


@pytest.mark.parametrize("case", [LONG, "all@graph"])
def test_what_is_unclear_is_called_so(house: House, case: str) -> None:
    text = house.write(f"It reads ?×{gpu(house, case, 'sdpa-flash')} there.")
    assert told(house, text).startswith("unclear: ")
    assert house.kinds(text.replace("there.", "there, which is UNCLEAR.")) == []


def test_a_number_that_is_not_tied(house: House) -> None:
    text = "# A\n\nFine.\n\nIt is 1.72× faster\nand takes 3 ms.\n"
    findings = house.check(text).findings
    assert [(finding.line, finding.kind) for finding in findings] == [(5, "not tied"), (6, "not tied")]
    tie_it = "tie it with <!-- tied: BUNDLE CONTENDER CASE -->, or "
    assert findings[0].sentence.endswith(f"{tie_it}mark it as cited or stated")
    assert house.check(text, "README.md").findings[0].sentence.endswith(f"{tie_it}move it to another page")


def test_a_tie_without_a_number(house: House) -> None:
    for text in (f"It is fast{tie(house)}.", f"{tie(house)}", f"2.0× and much, much faster{tie(house)}"):
        assert "nothing tied" in house.kinds(text)


def test_emphasis_may_end_between_a_number_and_its_tie(house: House) -> None:
    for form in ("**{}**{}", "`{}` {}", "*{}*{}", "[{}{}](evidence)"):
        assert house.kinds(house.write(form.format("?×", tie(house)))) == []


class TestCitedAndStated:
    def test_what_others_say_is_cited_outside_a_readme(self, house: House) -> None:
        text = "They read 740 TFLOP/s<!-- cited: https://example.org/paper -->."
        assert house.kinds(text) == []
        assert house.check(text).counts == {"cited": 1}
        assert told(house, text, "README.md").startswith("cited here: ")

    def test_a_constant_is_stated_outside_a_readme(self, house: House) -> None:
        text = "Every 20 ms<!-- stated: measure/gpu.py --> it is read."
        assert house.kinds(text) == []
        assert house.check(text).counts == {"stated": 1}
        assert house.kinds(text, "README.md") == ["stated here"]

    @pytest.mark.parametrize("name", ["README.md", "readme.md", "README.de.md", "docs/Readme.markdown"])
    def test_no_claim_hides_behind_a_mark_in_a_readme(self, house: House, name: str) -> None:
        claim = "Our kernel is 10× faster than cuDNN on an H200, 900 TFLOP/s. <!-- stated: a constant -->"
        below = f"<!-- stated: an example -->\n```\n{claim}\n```\n"
        for text in (claim, below):
            said = told(house, text, name)
            assert said.startswith("stated here: a README may have only what its own bundles say")
            assert "move the limit or example to another page and link to it, or tie the number" in said

    def test_a_mark_speaks_for_its_sentence_only(self, house: House) -> None:
        text = "At least 1 ms, at most 2 ms<!-- stated: a limit -->. It takes 3 ms."
        assert [finding.sentence[:6] for finding in house.check(text).findings] == ["'3 ms'"]

    def test_alone_on_its_line_it_speaks_for_what_is_below(self, house: House) -> None:
        below = ("2× and\n3×\n", "| a |\n|---|\n| 2× |\n| 3× |\n", "- 2×\n- 3×\n", "```\n2×\n\n3×\n```\n")
        for block in below:
            text = f"<!-- cited: a paper -->\n{block}\n4× is not.\n"
            assert [finding.sentence[:4] for finding in house.check(text).findings] == ["'4×'"]

    def test_it_says_where_from(self, house: House) -> None:
        for kind in ("cited", "stated"):
            assert told(house, f"It takes 3 ms<!-- {kind}: -->.").startswith("no source: ")

    def test_no_mark_may_end_its_comment_early(self, house: House) -> None:
        assert told(house, "It takes 3 ms<!-- cited: https://example.org/a--b -->.").startswith("bad mark: ")

    def test_a_mark_in_code_is_code(self, house: House) -> None:
        assert house.kinds("```\n3 ms <!-- stated: x -->\n```\n") == ["not tied"]
        assert house.kinds("It takes 3 ms `<!-- stated: x -->` there.") == ["not tied"]
        assert house.kinds("A ``tick ` <!-- tied: a -->`` and `\n\n<!-- tied: b -->.") == ["nothing tied"]

    def test_a_wrong_tie_is_wrong_beside_a_stated_number(self, house: House) -> None:
        text = f"At least 1 ms<!-- stated: a limit -->, and it takes 9 ms{tie(house)}."
        assert house.kinds(text) == ["wrong value"]


class TestBlocks:
    def test_blocks_are_filled_and_held_to_what_the_code_makes(self, house: House) -> None:
        short = house.gpu.short
        text = (
            f"<!-- overview: here = {short}; there, BF16 = {house.gpu.identity} -->\n<!-- end -->\n\n"
            f"<!-- standing: again = {house.gpu.identity} ours-portable all -->\n<!-- end -->\n\n"
            f"<!-- glance: {house.cpu.short} -->\n<!-- end -->\n\n"
            f"<!-- claims: {short} {house.cpu.short} -->\n<!-- end -->\n\n"
            f"<!-- output: groundspeed show {house.cpu.short} -->\n```\n```\n"
        )
        assert house.kinds(text) == ["out of date"] * 5
        filled = house.write(text, "docs.md")
        assert house.kinds(filled) == []
        assert house.write(filled) == filled
        assert "| there, BF16, 1 bf16 case, device time, cold L2 |" in filled
        assert f"([evidence](evidence/cpu/{house.cpu.path.name}))" in filled
        assert house.check(filled).counts["generated"] > 10
        (finding,) = house.check(filled.replace("1.25× faster", "1.26× faster")).findings
        assert (finding.kind, finding.line) == ("out of date", filled[: filled.index("1.25×")].count("\n") + 1)

    def test_a_block_without_an_end(self, house: House) -> None:
        short = house.cpu.short
        for text in (f"<!-- glance: {short} -->\n| 1 |\n", f"<!-- output: groundspeed show {short} -->\ntext\n"):
            assert told(house, text).startswith("no end: ")
        nested = f"<!-- glance: {short} -->\n<!-- glance: {short} -->\n<!-- end -->\n"
        assert house.kinds(nested) == ["no end", "out of date"]

    def test_a_quoted_command_is_of_the_folders_here_and_never_measures(self, house: House) -> None:
        """By its identity, `show` elsewhere prints the run of that machine, and `compare` could mean a revision."""
        short, folder = house.cpu.short, f"evidence/cpu/{house.cpu.path.name}"
        for command, asked in ((f"show {short}", folder), (f"compare {short} {short}", f"{folder} {folder}")):
            filled = house.write(f"<!-- output: groundspeed {command} -->\n```\n```\n")
            assert f"\n{command.split()[0]} {asked}\n" in filled
        assert house.kinds("<!-- output: groundspeed compare main HEAD -->\n```\n```\n") == ["missing bundle"]

    def test_a_block_of_a_missing_bundle(self, house: House) -> None:
        for kind in ("overview: a = abcdef12", "glance: abcdef12", "claims: abcdef12"):
            assert house.kinds(f"<!-- {kind} -->\n<!-- end -->\n") == ["missing bundle"]
        assert house.kinds("<!-- overview: abcdef12 -->\n<!-- end -->\n") == ["no such block"]

    @pytest.mark.parametrize(
        "said",
        [
            "{} ours-portable all",
            "a = {}",
            "a = {} ours-portable",
            "a = {} sdpa-cudnn all",
            "a = {} ours-portable all@warm",
        ],
    )
    def test_a_standing_names_a_mean_over_all_cases(self, house: House, said: str) -> None:
        text = f"<!-- standing: {said.format(house.gpu.short)} -->\n<!-- end -->\n"
        assert house.kinds(text) in (["no such block"], ["bad mark"])

    def test_a_chart_is_drawn_beside_its_text(self, tmp_path: Path) -> None:
        house = build(tmp_path)
        text = f"<!-- chart: chart.svg {house.cpu.short} -->\n"
        assert house.kinds(text) == ["out of date", "out of date"]
        from groundspeed.report.tied import check

        content, files = check.write(text, house.root / "TEXT.md", house.library())
        assert (content, [path.name for path in files]) == (text, ["chart.svg", "chart-dark.svg"])
        for path, drawn in files.items():
            path.write_text(drawn)
        assert house.kinds(text) == []
        (house.root / "chart-dark.svg").write_text("<svg/>")
        assert told(house, text).startswith("out of date: chart-dark.svg differs")


def test_the_log_of_experiments_is_exempt(house: House) -> None:
    assert house.kinds("It was 1.72× faster.", "docs/log.md") == []
    assert house.kinds("It was 1.72× faster.", "other/log.md") == ["not tied"]


def test_a_damaged_bundle_ties_nothing(house: House, tmp_path: Path) -> None:
    broken = build(tmp_path / "house")
    with (broken.cpu.path / "facts.json").open("ab") as file:
        file.write(b" ")
    text = f"It is 2.00× (1.99–2.01){tie(broken)}, again 2.00× (1.99–2.01){tie(broken)}."
    findings = broken.check(text).findings
    assert {finding.kind for finding in findings} == {"damaged bundle"}
    assert "facts.json was changed" in findings[0].sentence
    shutil.rmtree(broken.cpu.path)
    broken.cpu.path.mkdir()
    assert broken.kinds(text)[0] == "damaged bundle"
