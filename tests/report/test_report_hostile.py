"""Names and reasons come out of bundles that somebody else may have made: in every report they stay text."""

from __future__ import annotations

import ast
import csv
import html
import io
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judgements import IDENTITY, Shown, judgement_of, markdown_tables, renamed, widest
from test_report_html import Parsed

from groundspeed.evidence import bundle
from groundspeed.evidence.revision import CHANGES, KEY, SIDES, Revision
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.lab import check
from groundspeed.report import export, markdown, words
from groundspeed.report.commands import compared_again
from groundspeed.report.environment import environment_lines, environment_parts
from groundspeed.report.escape import escape
from groundspeed.report.html import to_html
from groundspeed.report.text import safe
from links import anchors, links

HOSTILE = {
    "rich markup": "[red]x[/]",
    "a closing tag": "[/]",
    "an emoji code": ":boom:",
    "ansi colour": "\x1b[31mred\x1b[0m",
    "ansi cursor": "\x1b[2J\x1b[1;1H",
    "an 8-bit escape": "\x9b31m",
    "a terminal title": "\x1b]0;owned\x07",
    "newlines": "one\ntwo\r\nthree",
    "a line separator": "one\u2028two\x85three",
    "html": "<script>alert(1)</script>",
    "an image": "![x](https://example.org/x.png)",
    "a bare address": "https://example.org and www.example.org",
    "a mention": "@somebody",
    "pipes": "a|b||c\\|d",
    "backticks": "`rm -rf`",
    "emphasis": "**bold** _it_ ~~out~~",
    "a formula": "$x^2$",
    "a spreadsheet formula": "=cmd()",
    "a wide formula": "＝cmd()",
    "a formula after a space": " +1",
    "right-to-left": "\u202etxt.exe",
    "an entity": "&lt;b&gt;",
    "quotes": "\"a\",'b'",
    "very long": "x" * 400,
    "rather long": "y" * 200,
    "wide letters": "注意力機構" * 10,
    "a lone surrogate": "\udc80",
    "nothing but a space": " ",
}


NAMES = [text for text in HOSTILE.values() if text.isprintable() and len(text) <= 200]
"""Those that a contender can have; descriptions and reasons can be all of them."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """Hostile contenders, of which every third fails; and one that is absent for each hostile reason."""
    means = {"baseline": 1e-3, **dict.fromkeys(NAMES, 0.9e-3)}
    absent = [(f"absent-{i}", "ABSENT", "reason") for i in range(len(HOSTILE))]

    def fails(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        hit = block == 0 and list(means).index(contender) % 3 == 1
        return {"status": "ERROR", "reason": "reason"} if hit else None

    folder = tmp_path_factory.mktemp("hostile")
    plain = judgement_of(folder, means, fails, unmeasured=absent, shapes=["B=1,S=64,causal=0"], processes=2).record
    texts = iter(HOSTILE.values())
    contenders = tuple(replace(c, description=c.name, reason=c.reason and next(texts)) for c in plain.contenders)
    reasons = itertools.cycle(HOSTILE.values())
    outcomes = tuple(replace(o, reason=o.reason and next(reasons)) for o in plain.outcomes)
    return judge(replace(plain, contenders=contenders, outcomes=outcomes))


@pytest.mark.parametrize("width", [40, 80, 250, 10_000])
def test_the_screen_shows_them_as_text(hostile: Judgement, shown: Shown, width: int) -> None:
    output = shown(hostile, width)
    assert all(c.isprintable() or c == "\n" for c in output)
    assert widest(output) <= width
    together = re.sub(r"\s", "", output)
    for said in HOSTILE.values():
        assert re.sub(r"\s", "", safe(said)) in together


def test_markup_of_the_terminal_is_not_followed(hostile: Judgement, shown: Shown) -> None:
    """Even on a console that would: names never pass through rich's markup or emoji codes."""
    output = shown(hostile, 10_000, terminal=True, markup=True, emoji=True)
    assert "[red]x[/]" in output
    assert ":boom:" in output
    assert set(re.findall(r"\x1b\[([0-9;]*)m", output)) <= {"0", "1", "2", "31", "32", "33", "36", "1;31"}


def test_markdown_keeps_its_columns_and_shows_no_html(hostile: Judgement) -> None:
    content = markdown.to_markdown(hostile, IDENTITY)
    tables = markdown_tables(content)
    assert len(tables["Results"]) == len(NAMES) + 1
    assert len(tables["Fairness record"]) == len(NAMES) + len(HOSTILE) + 1
    assert all(c.isprintable() or c == "\n" for c in content)
    assert "<" not in content, "no tag of any kind"
    assert {link.to for link in links(content)} <= set(anchors(content)), "no link but ours"
    for markup in ("](h", "**bold**", "~~out~~", "$x^2$", "`rm", "@somebody"):
        assert not re.search(rf"(?<!\\){re.escape(markup)}", content)
    assert not re.search(r"https?://|www\.(?=e)", content), "nothing that GitHub makes a link of"


def test_a_page_shows_them_as_text(hostile: Judgement) -> None:
    first, *_ = (case.facts.name for case in hostile.cases)
    content = to_html(renamed(hostile, {first: HOSTILE["html"]}), IDENTITY)
    content.encode()
    parsed = Parsed(content)
    assert sorted(str(a.get("id", "")) for a, _ in parsed.scripts) == ["", "", "", "charts", "sample-data"]
    for attributes, script in parsed.scripts:
        assert "id" not in attributes or not set(script) & {*"<>&\u2028\u2029"}
    for _, attributes in parsed.elements:
        assert not any(name.startswith("on") or name in ("src", "style") for name in attributes)
        assert str(attributes.get("href", "#")).startswith("#")
    seen = "".join(parsed.sections.values())
    assert all(c.isprintable() or c == "\n" for c in seen)
    for said in HOSTILE.values():
        assert safe(said) in seen
    assert HOSTILE["html"] in parsed.sections["matrix"]


def test_a_command_to_copy_is_one_command_whatever_things_are_called(ordinary: Judgement) -> None:
    evil, then = "x; rm -rf ~", ordinary.record
    sides = [Revision(evil, "base", "main", "a" * 40), Revision(evil, "head", ".", f"{'b' * 40}{CHANGES}")]
    record = replace(
        then,
        run=replace(then.run, suite=evil, with_files=("--evil", "$(evil)")),
        cases=(replace(then.cases[0], name=evil),),
        environment={**then.environment, KEY: {side.name: asdict(side) for side in sides}},
    )
    assert compared_again(record) == (
        "groundspeed compare aaaaaaaaaaaa . --suite SUITE --with FILE --with FILE --only CONTENDER --case CASE "
        "--preset quick --processes 4 --device cpu"
    )


def test_a_command_to_compare_again_names_every_case_and_clock(ordinary: Judgement) -> None:
    """A preset has other cases than a pattern that was asked for, and other clocks than those of a flag."""
    then = ordinary.record
    sides = [Revision("mine", side, "main", "a" * 40) for side in SIDES]
    environment = {**then.environment, KEY: {side.name: asdict(side) for side in sides}}

    def again(*clocks: tuple[str, ...]) -> str:
        first = then.cases[0]
        cases = tuple(
            replace(first, name=f"wide-{i}@{clock}", params={**first.params, "clock": clock})
            for i, of in enumerate(clocks)
            for clock in of
        )
        found = compared_again(
            replace(then, run=replace(then.run, device="cuda"), cases=cases, environment=environment)
        )
        return str(found).partition("--only mine ")[2].partition(" --preset")[0]

    names = ",".join(f"wide-{i}" for i in range(30))
    assert again(*[("default",)] * 30) == f"--case {names} --clock default"
    assert again(("graph", "eager"), ("graph", "eager")) == "--case wide-0,wide-1 --clock graph,eager"
    assert again(("default", "graph"), ("default",)) == "--case wide-0@default,wide-0@graph,wide-1@default"


def test_a_command_to_copy_has_nothing_of_the_suite_whatever_that_is_called(ordinary: Judgement) -> None:
    record = replace(ordinary.record, run=replace(ordinary.record.run, suite="x; rm -rf ~"))
    said = Parsed(to_html(replace(ordinary, record=record), IDENTITY)).sections["reproduce"]
    assert f"groundspeed run --reproduce {IDENTITY[:12]}\n" in said
    assert "rm -rf" not in said


def test_a_line_to_paste_into_python_has_no_code_of_the_bundle(tmp_path: Path) -> None:
    wrong = {"status": "INCORRECT", "reason": "off; out[0, 0, 0, 1] of [1, 1, 16, 16] is 1, the oracle has 2"}
    judgement = judgement_of(
        tmp_path, fault=lambda name, case, block: wrong if (name, block) == ("mine", None) else None
    )
    params = judgement.record.cases[0].params
    params["dtype"] = "fp32'); print('pwned"
    (line,) = [note.sentence for note in words.notes(judgement) if note.word == words.SEE_IT]
    names = {node.id for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Name)}
    assert names == {"case", "gs", "inputs", "f"}
    for case in judgement.record.cases:
        case.params["S=__import__('os').system('true'), x"] = 1
    assert words.SEE_IT not in {note.word for note in words.notes(judgement)}


def test_no_name_becomes_a_field_or_an_expression_of_a_chart(hostile: Judgement, ordinary: Judgement) -> None:
    """An expression is code: those of a page are the same whatever the bundle."""
    names = {case.facts.name: f"{HOSTILE['html']}{i}" for i, case in enumerate(hostile.cases)}
    found = [
        set(code_of(Parsed(to_html(judgement, IDENTITY)).island("charts")))
        for judgement in (renamed(hostile, names), ordinary)
    ]
    assert found[0] == found[1]
    assert len(found[0]) > 10


def code_of(spec: Any) -> Iterator[tuple[str, str]]:
    """What Vega would read as the name of a field or as an expression."""
    if isinstance(spec, list):
        for item in spec:
            yield from code_of(item)
    elif isinstance(spec, dict):
        for key, value in spec.items():
            if isinstance(value, str) and key in ("field", "filter", "calculate", "labelExpr", "expr", "signal", "as"):
                yield key, value
            elif key not in ("panels", "values", "domain"):
                yield from code_of(value)


def test_a_hostile_suite_cannot_begin_a_line_of_markdown_with_markup(ordinary: Judgement) -> None:
    for suite in ("# heading", "- item", "1. item", "    code", "> quote", "=====", "```"):
        record = replace(ordinary.record, run=replace(ordinary.record.run, suite=suite))
        lines = markdown.to_markdown(replace(ordinary, record=record), IDENTITY).splitlines()
        (line,) = (line for line in lines if "Evidence: bundle" in line)
        assert re.match(r"\\[#=-]|1\\\.|code|&gt;|\\`", line), line


def test_a_hostile_environment_stays_a_list(ordinary: Judgement) -> None:
    texts = list(HOSTILE.values())
    environment = {text: {text: text, f"{text}_bytes": text, "list": texts, "deep": {text: [text]}} for text in texts}
    lines = list(environment_lines(environment))
    assert len(lines) == 3 * len(texts)
    assert all(line.isprintable() and line.startswith(("- **", "  - ")) and "<" not in line for line in lines)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({f"package-{i}": "1.0" for i in range(100_000)}, "99,744 more left out here; the bundle has them"),
        ({f"package-{i}": "1" * 1_999 for i in range(1_000)}, "more left out here; the bundle has them"),
        ({"users": ["someone"] * 100_000}, "characters left out here)"),
        ({"x" * 1_000_000: 1}, "998,002 characters left out here)"),
    ],
)
def test_an_endless_environment_is_cut_and_the_page_says_by_how_much(
    ordinary: Judgement, part: dict[str, Any], said: str
) -> None:
    record = replace(ordinary.record, environment={**ordinary.record.environment, "packages": part})
    for make in (to_html, markdown.to_markdown):
        content, bare = (make(replace(ordinary, record=r), IDENTITY) for r in (record, ordinary.record))
        assert said in content
        assert len(content) < len(bare) + 30_000


def test_endless_parts_of_an_environment_are_counted() -> None:
    *first, last = environment_parts({str(i): "x" for i in range(1_000)})
    assert len(first) == 64
    assert last.short == "936 parts left out here; the bundle has them"


def test_csv_keeps_its_columns_and_holds_no_formula(hostile: Judgement) -> None:
    content = export.to_csv(hostile, IDENTITY)
    rows = list(csv.reader(io.StringIO(content), strict=True))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert len(rows) == len(NAMES) + 2
    assert len(content.splitlines()) == len(rows), "no cell has a line of its own"
    for cell in (cell for row in rows for cell in row):
        assert cell.isprintable()
        number = re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", cell)
        assert number or cell.lstrip()[:1] not in ("=", "+", "-", "@", "＝")


def test_a_hostile_parameter_is_no_formula_in_the_heading_either(ordinary: Judgement) -> None:
    facts = ordinary.cases[0].facts
    facts.params["=cmd()"] = "@x"
    try:
        heading, first, *_ = csv.reader(io.StringIO(export.to_csv(ordinary, IDENTITY)))
    finally:
        del facts.params["=cmd()"]
    assert "'=cmd()" in heading
    assert first[heading.index("'=cmd()")] == "'@x"


@pytest.mark.parametrize("make", [export.to_json, export.to_jsonl])
def test_json_gives_back_the_very_names_and_is_safe_to_look_at(hostile: Judgement, make: object) -> None:
    assert callable(make)
    content = make(hostile, IDENTITY)
    assert all(c.isprintable() or c == "\n" for c in content)
    content.encode()
    loaded = [json.loads(line) for line in content.split("\n") if line] if make is export.to_jsonl else None
    rows = json.loads(content)["rows"] if loaded is None else loaded
    assert [row["contender"] for row in rows] == ["baseline", *NAMES]


def test_a_bundle_with_such_names_verifies_and_reports(tmp_path: Path) -> None:
    judgement = judgement_of(tmp_path / "run", {"baseline": 1e-3, **dict.fromkeys(NAMES, 0.5e-3)})
    written = bundle.write(judgement.record, tmp_path, "hostile")
    found, replay = check.verify(written.path)
    assert markdown.to_markdown(replay.judgement, found.identity) == markdown.to_markdown(judgement, found.identity)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.text(min_size=1, max_size=60))
def test_any_text_stays_one_cell_of_a_markdown_table(ordinary: Judgement, value: str) -> None:
    contenders = tuple(replace(c, description=value) for c in ordinary.record.contenders)
    changed = replace(ordinary, record=replace(ordinary.record, contenders=contenders))
    rows = markdown_tables(markdown.to_markdown(changed, IDENTITY))["Fairness record"]
    assert len(rows) == 5
    headings = {"contender", "what it is", "version", "tuning", "longest first call", "status", "reason"}
    assert all(set(row) == headings for row in rows)


@given(st.text())
def test_escaped_text_reads_as_it_was(value: str) -> None:
    """A reader of the rendered Markdown sees the text itself: undoing escapes and entities gives it back."""
    unescaped = re.sub(r"\\([|`*_\[\]\\~$@:.])", r"\1", escape(value))
    assert html.unescape(unescaped) == html.unescape(html.escape(safe(value), quote=False))
    assert html.unescape(html.escape(safe(value), quote=False)) == safe(value)
