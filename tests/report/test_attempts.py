"""A10: what was tried stands in the report where a log has it, in the log's own words."""

from __future__ import annotations

import pytest

from groundspeed.errors import BadInput
from groundspeed.report import attempts

LOG = """# Log <!-- of ours -->
Begin.

Decoding: four tries
--------------------
- **First**: [two programs](../kernels.py), 3 µs<!-- stated -->
### Why
````
```
## no heading
````
  ## Windows
None."""
HOSTILE = (
    "## Try <script>alert(1)</script>\n<img src=x onerror=alert(2)> ![picture](http://x/y.png) <http://x>\n\n"
    "[link](javascript:alert(3)) [other](../file) `<b>`\x1b[31m\n\n| a | b |\n|---|---|\n| 1 | **2** |\n\n```\nopen"
)


def test_parts_are_chosen_by_the_words_of_their_heading() -> None:
    assert "<!--" not in attempts.chosen(LOG, "")
    decoding = attempts.chosen(LOG, "decoding").splitlines()
    assert decoding[0] == "## Decoding: four tries"
    assert decoding[2:] == ["### Why", "````", "```", "## no heading", "````"]
    assert attempts.chosen(LOG, "WIND") == "## Windows\nNone."
    with pytest.raises(BadInput, match="no heading contains 'forms'"):
        attempts.chosen(LOG, "forms")


def test_headings_go_under_those_of_the_report() -> None:
    lines = list(attempts.as_markdown(attempts.chosen(LOG, "")))
    found = ["### Log", "#### Decoding: four tries", "##### Why", "## no heading", "#### Windows"]
    assert [line for line in lines if line.startswith("#")] == found
    assert list(attempts.as_markdown("plain\n\n---\n- a\n---")) == ["plain", "", "---", "- a", "---"]
    assert attempts.as_html("Title\n=====").startswith("<h3>")


def test_a_page_has_its_words_and_nothing_that_runs_or_leads_away() -> None:
    page = attempts.as_html(HOSTILE)
    for tag in ("<script", "<img", "<a", "\x1b"):
        assert tag not in page
    assert "link" in page
    assert "<td><strong>2</strong></td>" in page
    assert "<h3>Try &lt;script&gt;" in page


def test_markdown_has_no_html_no_links_and_leaves_nothing_open() -> None:
    lines = list(attempts.as_markdown(HOSTILE))
    assert lines[0] == "### Try &lt;script>alert(1)&lt;/script>"
    assert lines[1] == "&lt;img src=x onerror=alert(2)> picture &lt;http://x>"
    assert lines[3].startswith("link other `<b>`")
    assert "\x1b" not in "\n".join(lines)
    assert lines[-3:] == ["```", "open", "```"]
    assert list(attempts.as_markdown("[a][b] and\n[b]: http://x")) == ["\\[a]\\[b] and", "\\[b]: http://x"]
    assert list(attempts.as_markdown("- ```\n  x\n\nafter"))[-1] == "after", "a list ends what is in it"
    assert attempts.chosen("before <!-- never closed\n## after", "") == "before"


def test_what_is_made_to_take_long_does_not() -> None:
    """A quadratic search would take minutes."""
    assert attempts.chosen("<!--" * 60_000, "") == ""
    assert len(list(attempts.as_markdown("[" * 200_000))) == 1
