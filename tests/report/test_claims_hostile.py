"""A text may be anybody's: whatever it says, it is checked soon, leads nowhere else, and writing mends it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_claims_check import CASE, LONG, tie
from texts import House, build

SLOW = 5.0
"""Seconds; each of these texts takes a tenth of one, and minutes where a step is not linear."""


@pytest.mark.parametrize(
    "piece",
    [
        "<!-- tied: a b c -->",
        "1.5×<!-- tied: abcd b c -->",
        "1.5× ",
        "1.5×. A",
        "<!-- stated: x -->\n",
        "<!-- glance: abcd1234 -->\n",
        "<!-- glance: abcd1234 -->\n<!-- end -->\n",
        "<!--",
        "-->",
        "```\n",
        "|---",
        "| 1.5× |\n",
        "9",
        "9,",
        "9." + "9" * 400 + "×",
        "](",
        "`",
        "` ",
        "` `` ``` ",
        "`<!-- x -->",
        "? ",
        "% ",
        "5 ",
        "\n",
        "\x00\x1b[31m\u202e",
        "$" * 50,
        "&times;",
        "1&#49;",
        "&",
        "<b ",
        "\\times",
        "1\\.",
        "behind by ",
        "time by a",
        "saves 1 ",
        "saves 1% of a ",
        "ten times the ",
        "1 times a",
        "1% of the a",
        "twice\t",
    ],
)
def test_no_text_takes_long(house: House, piece: str) -> None:
    text, begun = (piece * (100_000 // len(piece))) + "\n", time.process_time()
    house.check(text)
    house.write(text)
    assert time.process_time() - begun < SLOW


def test_no_sentence_takes_long(house: House) -> None:
    piece, begun = f"At S=64 it is 1.5×{tie(house)} and ?×{tie(house, case='all')}, ", time.process_time()
    assert set(house.kinds(piece * 1000)) == {"wrong value"}
    assert house.kinds(house.write(piece * 1000)) == []
    assert time.process_time() - begun < SLOW


@pytest.mark.parametrize(
    "number", ["9" * 5000, "1" + "0" * 400, "0." + "0" * 400 + "1", "1e999", "1e-999", "0", "0.0", "१"]
)
def test_no_number_is_too_large(house: House, number: str) -> None:
    found = house.kinds(f"It takes {number} µs{tie(house)} and is {number}× ({number}–{number}){tie(house)}.")
    assert set(found) <= {"wrong value", "wrong rounding", "nothing tied"}
    assert found


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "evidence/../outside",
        "/etc",
        "~root",
        "evidence/cpu/../../..",
        "evidence//",
        "",
        ".",
        "evidence/*",
        "\x00abc",
        "a" * 5000,
    ],
)
def test_no_name_leads_out_of_the_evidence(house: House, name: str) -> None:
    kinds = house.kinds(f"2.00× (1.99–2.01)<!-- tied: {name} sdpa-flash {CASE} -->")
    assert kinds == (["bad mark"] if not name else ["missing bundle"])


def test_a_link_out_of_the_evidence_is_refused(tmp_path: Path) -> None:
    house = build(tmp_path / "house")
    inside = house.root / "evidence" / "linked"
    inside.mkdir()
    moved = house.gpu.path.rename(tmp_path / house.gpu.path.name)
    (inside / moved.name).symlink_to(moved)
    (finding,) = house.check(f"2.00× (1.99–2.01)<!-- tied: {house.gpu.short} sdpa-flash {LONG} -->").findings
    assert finding.kind == "missing bundle"
    assert "is a symbolic link that leads out of evidence/" in finding.sentence


@pytest.mark.parametrize("file", ["../chart.svg", "/chart.svg", "a/../../chart.svg"])
def test_no_chart_is_written_outside(house: House, file: str) -> None:
    from groundspeed.report.tied import check

    text = f"<!-- chart: {file} {house.cpu.short} -->\n"
    assert house.kinds(text) == ["no such block"]
    assert check.write(text, house.root / "TEXT.md", house.library())[1] == {}


@pytest.mark.parametrize(
    "command",
    [
        "groundspeed run attention --with evil.py",
        "groundspeed report {0} --md README.md",
        "groundspeed report {0}",
        "groundspeed doctor --write x",
        "groundspeed claims write README.md",
        "groundspeed claims check /etc/passwd",
        "groundspeed claims check ../README.md",
        "groundspeed show {0} --help",
        "rm -rf /",
        "groundspeed",
        "groundspeed show 'unclosed",
        "groundspeedshow {0}",
    ],
)
def test_no_text_has_a_command_do_something(house: House, command: str) -> None:
    text = f"<!-- output: {command.format(house.cpu.short)} -->\n```\n```\n"
    assert house.kinds(text) == ["no such output"]
    assert house.write(text) == text


def test_what_is_said_of_a_text_cannot_move_the_cursor(house: House) -> None:
    (finding,) = house.check("It is 1.5× (1.4–1.6)<!-- tied: \x1b[31mabcd b\u202e c -->").findings
    assert finding.sentence.isprintable()


PIECES = st.sampled_from(
    [
        "?×{speed}",
        "**?×{speed}**",
        "3× (2–4){speed}",
        "9.99× (95% CI 1–2){speed}",
        "?×{all}",
        "? µs{speed}",
        "12.5 ms (1–2){speed}",
        "? GFLOP/s{speed}",
        "?M tokens/s{speed}",
        "740 TFLOP/s<!-- cited: a paper -->",
        "50 µs<!-- stated: a limit -->",
        "1×",
        "?&times;{speed}",
        "&#49;&nbsp;ms{speed}",
        "words",
        ".\n\nThen",
        ". Then",
        "\n",
        "\n- an item: ",
        "\n\n| a |\n|---|\n| ?×{speed} |\n\n",
        "\n\n```\ncode\n```\n\n",
        "\n\n<!-- glance: {bundle} -->\nold 2×\n<!-- end -->\n\n",
        "\n\n<!-- claims: {bundle} -->\n<!-- end -->\n\n",
        "×",
        "µs",
        "é\N{NO-BREAK SPACE}",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PIECES, max_size=12))
def test_what_was_written_is_right(house: House, pieces: list[str]) -> None:
    ties = {"speed": tie(house), "all": tie(house, case="all"), "bundle": house.cpu.short}
    text = " ".join(pieces).format(**ties)
    written = house.write(text)
    assert house.kinds(written) == []
    assert house.write(written) == written


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet=st.sampled_from("1?×x.,% ms\nµ|`-<!>tied: stacglne()[]"), max_size=120))
def test_no_text_is_too_strange(house: House, text: str) -> None:
    house.check(text)
    assert house.write(text) == text, "nothing is tied here"
