"""C2: the comment on a pull request, which GitHub takes up to 65,536 characters of."""

from __future__ import annotations

import json
import re

import pytest

from groundspeed.judge.regression import Change, Regression, Word
from groundspeed.judge.statistics import Interval
from groundspeed.report.regression import Told, to_json, to_markdown

THETA = Interval(-0.02, -0.025, -0.015, 0.005, 1e-6, 8)


def changes(word: Word, count: int, may_hide: bool = False) -> list[Change]:
    return [
        Change(
            f"sweep-d128-s16384-causal-{word.lower()}{i}",
            "ours-hopper",
            word,
            f"for reason {i}",
            1e-6,
            1e-6,
            THETA,
            -0.1,
            0.01,
            may_hide,
        )
        for i in range(count)
    ]


def comment(*some: list[Change], left_out: int = 0) -> str:
    of = [change for part in some for change in part]
    missing = tuple(
        f"case-{i}, ours: base is ERROR (out of luck), head is ERROR (out of luck)" for i in range(left_out)
    )
    return to_markdown(Told(Regression("paired", tuple(of), missing, ("a note",)), "a", "b", "c", ("0" * 64,)))


def rows(text: str) -> int:
    return len(re.findall(r"^\| sweep", text, re.MULTILINE))


@pytest.mark.parametrize("word", ["SAME", "UNCLEAR", "REGRESSED"])
@pytest.mark.parametrize("count", [600, 5000])
def test_a_comment_on_many_comparisons_fits_and_says_how_many_more_there_are(word: Word, count: int) -> None:
    made = comment(changes(word, count, may_hide=word == "UNCLEAR"), changes("SAME", 300), left_out=count)
    assert len(made.encode()) < 60_000
    assert made.count("more in the evidence") >= 2
    assert made.rstrip().endswith("</details>")
    assert "groundspeed verify 000000000000" in made
    first, folded = made.split("<details>")
    cut = re.findall(r"^(\d+) more in the evidence", folded, re.MULTILINE)
    assert [int(n) + rows(folded) for n in cut[:1]] == [count + 300]
    if word != "SAME":
        assert int(re.findall(r"^(\d+) more", first, re.MULTILINE)[0]) + rows(first) == count


def test_what_regressed_comes_first_and_nothing_is_cut_where_all_fits() -> None:
    made = comment(
        changes("UNCLEAR", 3, may_hide=True), changes("IMPROVED", 2), changes("SAME", 2), changes("REGRESSED", 1)
    )
    first, folded = made.split("<details>")
    assert re.findall(r"causal-([a-z]+)", first) == ["regressed", *["improved"] * 2, *["unclear"] * 3]
    assert rows(folded) == 8
    assert "more in the evidence" not in made


def test_packages_that_differ_are_told_where_everybody_reads_and_are_no_markup() -> None:
    """Their names come out of a bundle."""
    many = tuple((f"package{i}", "1", "2") for i in range(40))
    result = Regression("paired", (), (), (), packages=(("torch", "2.13.0", "2.14.0"), ("<b>x", None, "1\x1b"), *many))
    told = Told(result, "a", "b", "c", ())
    first, _ = to_markdown(told).split("<details>")
    (line,) = (line for line in first.splitlines() if line.startswith("Packages"))
    assert line.startswith("Packages: torch 2.13.0 → 2.14.0, &lt;b&gt;x none → 1�, package0 1 → 2,")
    assert " and 30 more; these differ too" in line
    assert len(json.loads(to_json(told))["packages"]) == 42
