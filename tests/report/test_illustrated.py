"""A10: a report in Markdown has the charts of the page in files beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from judgements import IDENTITY, judgement_of, sweep_of
from test_report_charts import FEW, TRICKY, texts

from groundspeed.judge.judgement import Judgement
from groundspeed.report.illustrated import KINDS, illustrated

NAMES = ["base", "flash", "ours-hopper"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    rates = {"base": 5e14, "flash": 4.8e14, "ours-hopper": 5.5e14}
    lengths = (512, 1024, 2048)
    return sweep_of(tmp_path_factory.mktemp("swept"), rates, lengths=lengths, dims=[64, 128], **FEW)


def test_a_sweep_has_every_chart_for_light_and_dark_pages(swept: Judgement) -> None:
    files = illustrated(swept, IDENTITY, "r.md")
    assert set(files) == {"r.md", *(f"r-{kind}{dark}.svg" for kind in KINDS for dark in ("", "-dark"))}
    linked = re.findall(r'(?:src|srcset)="([^"]+)"', files["r.md"])
    assert sorted(linked) == sorted(set(files) - {"r.md"})
    for kind in ("latencies", "roofline", "memory"):
        said = texts(files[f"r-{kind}.svg"])
        assert set(NAMES) <= set(said), "in a legend"
        assert any(IDENTITY[:12] in line for line in said)
        assert ("D = 128, full mask" in said) == (kind != "roofline")
        assert "var(" not in files[f"r-{kind}.svg"], "a colour that only the page has"
        assert texts(files[f"r-{kind}-dark.svg"]) == said
        assert files[f"r-{kind}-dark.svg"] != files[f"r-{kind}.svg"]
    assert any("all S × S scores" in line for line in texts(files["r-memory.svg"]))


def test_no_sweep_has_no_curves_and_tricky_names_stay_text(tmp_path: Path) -> None:
    means = {"base": 1e-3, **dict.fromkeys(TRICKY, 0.9e-3)}
    files = illustrated(judgement_of(tmp_path, means, shapes=["B=1,S=64,causal=0"], **FEW), IDENTITY, "a.md")
    assert {name for name in files if "dark" not in name} == {"a.md", "a-speedups.svg", "a-roofline.svg"}
    said = texts(files["a-roofline.svg"])
    for name in TRICKY:
        whole = [line for line in said if line.strip() == name.strip()]
        cut = [line for line in said if line.endswith("…") and len(line) > 10 and name.startswith(line[:-1])]
        assert whole or cut or not name.strip(), name
