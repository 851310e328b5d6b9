"""What the reports tell of a GPU and of no CPU: kernels, clocks, other views, device memory, cache (A8, A9, D9)."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from judgements import IDENTITY, MEANS, Shown, judgement_of, markdown_tables

from fakes import FakeWorker, begin, continue_run, header, noisy
from groundspeed.case import Case, with_clock
from groundspeed.evidence.launched import Launched
from groundspeed.judge.claims import ratio_text
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.lab.declare import case_facts
from groundspeed.report import charts, export, markdown, words
from groundspeed.report.escape import escape
from groundspeed.report.interpretation import interpretation
from groundspeed.suites.registry import suite_module

SHORT, LONG = (
    case
    for shape in ("B=1,S=64,causal=0", "B=8,S=4096,causal=0")
    for case in suite_module("attention").shape_cases(shape, ("bf16",))
)
CASES = (SHORT, with_clock(SHORT, "graph"), with_clock(SHORT, "eager"), LONG)
SLOWER = {name: 50 * mean for name, mean in MEANS.items()}
THROTTLED, IN_A_ROW = "without throttled blocks", "one after the other"
HOSTILE = [
    "void at::native::<unnamed>::softmax<float, 4>(float*, int)",
    "a|b",
    "[x](https://example.org)",
    "<script>alert(1)</script>",
    "one\ntwo\x1b[31m\u202e",
    "`rm -rf` **bold** $x$ @somebody",
]

SEEN: dict[str, Any] = {"binaries": ["ab" * 32], "timings": [], "moves": [], "times": [], "seconds": []}


class DeviceWorker(FakeWorker):
    """Tells of the device's memory, as one on a GPU does, and of its cache."""

    def prepare(self, request: Mapping[str, Any]) -> None:
        super().prepare(request)
        for message in self.outbox:
            if isinstance(message, dict) and message["kind"] == "ready":
                message.update(device_peak_bytes=9 << 20, device_extra_bytes=3 << 20)

    def send(self, message: Any) -> None:
        super().send(message)
        if "loader" in message:
            self.outbox[-1]["environment"] = {"torch": "0", "l2_bytes": 50 << 20}


class HotGpu:
    """Gives these reasons for its clocks in every other two blocks of three contenders."""

    identity = "0123456789abcdef"

    def __init__(self, bits: int) -> None:
        self.bits, self.asked = bits, 0

    def other_users(self) -> list[str]:
        return []

    def readings(self, start: float, seconds: float) -> list[float | None]:
        self.asked += 1
        return [1755.0, 60.0, 690.0, self.bits if self.asked // 6 % 2 else 0]


Make = Callable[..., Judgement]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A run of `cases` on an H200."""
    count = itertools.count()

    def made(
        cases: Sequence[Case] = CASES,
        *,
        bits: int = 0,
        launched: Sequence[tuple[str, str, Sequence[str]]] = (),
        **changes: Any,
    ) -> Judgement:
        facts = header(list(MEANS), **changes)
        facts["cases"] = [case_facts(case) for case in cases]
        facts["run"]["device"], facts["environment"]["gpu"] = "cuda", {"name": "NVIDIA H200"}
        folder = tmp_path / f"run-{next(count)}"
        log = begin(folder, facts)
        for case, contender, kernels in launched:
            log.write("launched", case=case, contender=contender, kernels=list(kernels), **SEEN)
        log.close()
        return judge(continue_run(folder, noisy(SLOWER), worker_type=DeviceWorker, device=HotGpu(bits)))

    return made


def report(judgement: Judgement) -> str:
    return markdown.to_markdown(judgement, IDENTITY)


def section(judgement: Judgement, name: str) -> str | None:
    parts = {part.splitlines()[0]: part for part in report(judgement).split("\n## ")[1:]}
    return parts.get(name)


class TestKernels:
    def test_d9_a_chart_says_whose_lines_lie_on_each_other(self, make: Make) -> None:
        def caption(kernels: dict[str, Sequence[str]]) -> str:
            launched = [(case.name, name, seen) for case in CASES[:1] for name, seen in kernels.items()]
            return str(charts.spec(make(launched=launched), IDENTITY))

        assert "mine launched the kernels of sdpa-flash" in caption({"sdpa-flash": ["k<1>"], "mine": ["k<1>"]})
        assert "launched the kernels" not in caption({"sdpa-flash": ["k<1>"], "mine": ["k<2>"]})
        assert "launched the kernels" not in caption({"sdpa-flash": [], "mine": []})

    def test_d9_each_contender_with_its_kernels_and_where_it_launched_them(self, make: Make) -> None:
        launched = [
            (SHORT.name, "sdpa-math", ["gemm", "softmax"]),
            (SHORT.name, "mine", ["mine_small"]),
            (LONG.name, "sdpa-math", ["gemm", "softmax"]),
            (LONG.name, "mine", ["mine_large"]),
            (LONG.name, "sdpa-flash", []),
        ]
        (table,) = (v for k, v in markdown_tables(report(make(launched=launched))).items() if k == "Kernels")
        assert [list(row.values()) for row in table] == [
            ["sdpa-math", "gemm; softmax", f"{SHORT.name} and 1 more"],
            ["mine", escape("mine_small"), SHORT.name],
            ["mine", escape("mine_large"), LONG.name],
            ["sdpa-flash", "none", LONG.name],
        ]

    def test_the_same_kernels_in_another_order_are_another_row(self, make: Make) -> None:
        launched = [(SHORT.name, "mine", ["a", "b"]), (LONG.name, "mine", ["b", "a"])]
        assert len(markdown_tables(report(make(launched=launched)))["Kernels"]) == 2

    def test_without_any_there_is_no_section(self, make: Make, ordinary: Judgement) -> None:
        assert section(make(), "Kernels") is None
        assert section(ordinary, "Kernels") is None

    def test_their_names_stay_text(self, make: Make) -> None:
        """A kernel may be called anything by whoever made the bundle."""
        judgement = make(launched=[(SHORT.name, "mine", HOSTILE)])
        content = section(judgement, "Kernels")
        assert content is not None
        assert "<script>" not in content
        assert "<unnamed>" not in content
        assert all(c.isprintable() or c == "\n" for c in content)
        assert re.search(r"(?<!\\)[\[\]`*$@]", content.split("|---|")[1]) is None
        (row,) = markdown_tables(report(judgement))["Kernels"]
        assert len(row) == 3
        plain = re.sub(r"\\(.)", r"\1", list(row.values())[1]).replace("&lt;", "<").replace("&gt;", ">")
        assert plain == "; ".join(HOSTILE).replace("\n", "\ufffd").replace("\x1b", "\ufffd").replace("\u202e", "\ufffd")

    def test_endless_names_are_cut(self, make: Make) -> None:
        """Templates of C++ fill pages; who differ only behind the cut stay two rows."""
        long = f"kernel<{'at::native::' * 300}"
        launched = [(SHORT.name, "mine", [f"{long}1>"]), (LONG.name, "mine", [f"{long}2>"])]
        content = section(make(launched=launched), "Kernels")
        assert content is not None
        assert "Names longer than 120 characters are cut; the JSON has them in full" in content
        assert len(content) < 1000
        assert content.count("| mine |") == 2

    def test_all_of_them_are_in_the_json(self, make: Make) -> None:
        judgement = make(launched=[(SHORT.name, "mine", HOSTILE), (LONG.name, "mine", ["x"])])
        content = export.to_json(judgement, IDENTITY)
        assert all(c.isprintable() or c == "\n" for c in content)
        assert json.loads(content)["launched"] == [
            {"case": SHORT.name, "contender": "mine", "kernels": HOSTILE, **SEEN},
            {"case": LONG.name, "contender": "mine", "kernels": ["x"], **SEEN},
        ]

    def test_on_a_cpu_the_json_has_none(self, ordinary: Judgement) -> None:
        assert json.loads(export.to_json(ordinary, IDENTITY))["launched"] == []

    def test_a_record_with_kernels_of_many_cases_tells_the_first(self, make: Make) -> None:
        record = make().record
        launched = tuple(Launched(case.name, "mine", ("k",), (), ()) for case in record.cases)
        (row,) = markdown_tables(report(judge(replace(record, launched=launched))))["Kernels"]
        assert row["cases"] == f"{SHORT.name} and 3 more"


class TestClocks:
    def line(self, judgement: Judgement) -> list[str]:
        content = section(judgement, "Protocol")
        assert content is not None
        return [line for line in content.splitlines() if line.startswith("- Clocks")]

    def test_the_protocol_says_by_which_and_what_they_are(self, make: Make) -> None:
        assert self.line(make()) == [
            "- Clocks: default (device time, cold L2), eager (eager calls back to back), "
            "graph (device time in a CUDA graph)."
        ]

    def test_those_that_no_case_has_are_not_there(self, make: Make) -> None:
        assert self.line(make([with_clock(LONG, "warm")])) == ["- Clocks: warm (device time, warm L2)."]

    def test_a_cpu_has_none_to_speak_of(self, ordinary: Judgement) -> None:
        assert self.line(ordinary) == []

    def test_a_claim_names_its_clock(self, make: Make) -> None:
        claims = list(words.case_claims(make(CASES[:3])))
        named = [
            [what for what in ("L2", "CUDA graph", "eager calls back to back") if what in claim] for claim in claims
        ]
        assert named == [
            ["L2"],
            ["L2"],
            ["CUDA graph"],
            ["CUDA graph"],
            ["eager calls back to back"],
            ["eager calls back to back"],
        ]

    def test_the_screen_says_what_the_times_are(self, make: Make, shown: Shown, ordinary: Judgement) -> None:
        on_gpu, on_cpu = (" ".join(shown(one).split()) for one in (make(), ordinary))
        assert "times are the device's, with a cold L2 cache, unless a case ends in @warm, @graph" in on_gpu
        assert "memory is what one call adds on the device" in on_gpu
        assert "memory is what one call adds on the host" in on_cpu
        assert "L2" not in on_cpu
        assert f"{SHORT.name}@graph" in on_gpu


class TestViews:
    def columns(self, judgement: Judgement) -> list[str]:
        return list(markdown_tables(report(judgement))["Speed-ups"][0])

    def test_there_is_no_column_for_what_nobody_has(self, make: Make) -> None:
        columns = self.columns(make())
        assert THROTTLED not in columns
        assert IN_A_ROW not in columns
        assert "untrimmed" in columns

    @pytest.mark.parametrize(
        ("changes", "there", "absent"), [({"bits": 4}, THROTTLED, IN_A_ROW), ({"sequential": 10}, IN_A_ROW, THROTTLED)]
    )
    def test_each_is_there_where_a_comparison_has_it(
        self, make: Make, changes: dict[str, Any], there: str, absent: str
    ) -> None:
        judgement = make(**changes)
        columns = self.columns(judgement)
        assert there in columns
        assert absent not in columns
        view = "unthrottled" if there == THROTTLED else "sequential"
        comparisons = [r.comparison for case in judgement.cases for r in case.results if r.comparison]
        expected = [f"{ratio_text(math.exp(seen.mean))}×" if (seen := getattr(c, view)) else "–" for c in comparisons]
        assert [row[there] for row in markdown_tables(report(judgement))["Speed-ups"]] == expected
        assert set(expected) != {"–"}

    def test_one_comparison_without_it_has_a_dash(self, make: Make) -> None:
        judgement = make(sequential=10)
        first = judgement.cases[0]
        results = tuple(
            replace(r, comparison=r.comparison and replace(r.comparison, sequential=None)) for r in first.results
        )
        part = replace(judgement, cases=(replace(first, results=results), *judgement.cases[1:]))
        told = [row[IN_A_ROW] for row in markdown_tables(report(part))["Speed-ups"]]
        assert told[:2] == ["–", "–"]
        assert "–" not in told[2:]

    @pytest.mark.parametrize(
        ("changes", "key", "view"),
        [
            ({"bits": 4}, "speed_up_unthrottled", "unthrottled"),
            ({"sequential": 10}, "speed_up_sequential", "sequential"),
        ],
    )
    def test_the_data_have_them_too(self, make: Make, changes: dict[str, Any], key: str, view: str) -> None:
        judgement = make(**changes)
        rows = json.loads(export.to_json(judgement, IDENTITY))["rows"]
        lines = list(csv.DictReader(io.StringIO(export.to_csv(judgement, IDENTITY)), strict=True))
        results = [result for case in judgement.cases for result in case.results]
        values = set()
        for row, line, result in zip(rows, lines, results, strict=True):
            seen = getattr(result.comparison, view, None)
            assert row[key] == (pytest.approx(math.exp(seen.mean)) if seen else None)
            assert line[key] == ("" if seen is None else str(row[key]))
            values.add(row[key])
        assert len(values) > 1

    def test_throttling_is_told_among_the_notes(self, make: Make) -> None:
        assert "throttled its clocks (hardware thermal slowdown)" in str(section(make(bits=0x40), "Notes"))
        assert "throttled its clocks" not in str(section(make(bits=0x1), "Notes"))

    def test_the_protocol_tells_of_the_series(self, make: Make) -> None:
        said = "each contender took 10 samples of it in a row"
        assert said in str(section(make(sequential=10), "Protocol"))
        assert said not in str(section(make(), "Protocol"))


class TestMemory:
    def test_it_is_the_devices_on_a_gpu(self, make: Make, ordinary: Judgement) -> None:
        on_gpu = make()
        told, other = (markdown_tables(report(one))["Results"] for one in (on_gpu, ordinary))
        assert {row["memory"] for row in told} == {"3.00 MiB"}
        assert {row["memory"] for row in other} == {"1.00 KiB"}
        assert "memory is what one call adds on the device" in report(on_gpu)
        assert "memory is what one call adds on the host" in report(ordinary)

    def test_the_data_have_both(self, make: Make, ordinary: Judgement) -> None:
        for row in export.rows(make(), IDENTITY):
            assert (row["device_peak_bytes"], row["device_extra_bytes"]) == (9 << 20, 3 << 20)
            assert row["host_extra_bytes"] == 1 << 10
        assert {row["device_extra_bytes"] for row in export.rows(ordinary, IDENTITY)} == {None}


class TestCache:
    """50 MiB hold three sets of the short shape, which moves 256 KiB, and not of the long one."""

    def test_a_note_says_whose_bytes_are_not_the_memorys(self, make: Make, shown: Shown) -> None:
        judgement = make()
        (note,) = (note for note in words.notes(judgement) if note.word == "L2")
        assert note.sentence == (
            f"the inputs of {SHORT.name}@graph and 1 more case stay in the cache; their GB/s do not describe the memory"
        )
        assert f"- **L2**: {escape(note.sentence)}" in report(judgement)
        assert "L2        the inputs of" in shown(judgement, 250)
        (roofs,) = (said for said in interpretation(judgement) if said.startswith("By the "))
        assert roofs.endswith("cases; the inputs of 2 others stay in the L2 cache."), "the counts make up the run"
        resident = {row["case"]: row["l2_resident"] for row in export.rows(judgement, IDENTITY)}
        assert resident == {case.name: case.clock != "default" for case in CASES}

    def test_one_case_has_no_more(self, make: Make) -> None:
        (note,) = (note for note in words.notes(make(CASES[:2])) if note.word == "L2")
        assert note.sentence.startswith(f"the inputs of {SHORT.name}@graph stay in the cache")

    @pytest.mark.parametrize("cases", [[SHORT, LONG], [with_clock(LONG, "graph")]], ids=["flushed", "too large"])
    def test_there_is_none_where_nothing_stays(self, make: Make, cases: list[Case]) -> None:
        assert not [note for note in words.notes(make(cases)) if note.word == "L2"]

    def test_there_is_none_on_a_cpu(self, ordinary: Judgement) -> None:
        assert not [note for note in words.notes(ordinary) if note.word == "L2"]


SHAPES = [f"B={size},S=64,causal=0" for size in (1, 2, 3)]
NAMES = [f"b{size}-h8-s64-d64-full-fp32" for size in (1, 2, 3)]


class TestNotes:
    """What holds for many cases is said once."""

    def notes(self, folder: Path, reasons: Mapping[tuple[str, str], str]) -> list[str]:
        def fault(contender: str, case: str, block: int | None) -> Any:
            why = reasons.get((contender, case.partition("-")[0]))
            return {"status": "ERROR", "reason": why} if why and block is None else None

        judgement = judgement_of(folder, MEANS, fault, shapes=SHAPES)
        return [note.sentence for note in words.notes(judgement) if note.word == "ERROR"]

    def test_equal_reasons_of_a_contender_are_one_note(self, tmp_path: Path) -> None:
        assert self.notes(tmp_path, {("mine", f"b{size}"): "no kernel" for size in (1, 2, 3)}) == [
            f"{NAMES[0]} and 2 more cases, mine: no kernel"
        ]

    def test_two_cases_are_one_and_one_more(self, tmp_path: Path) -> None:
        assert self.notes(tmp_path, {("mine", f"b{size}"): "no kernel" for size in (2, 3)}) == [
            f"{NAMES[1]} and 1 more case, mine: no kernel"
        ]

    def test_other_reasons_and_other_contenders_stay_apart(self, tmp_path: Path) -> None:
        found = self.notes(
            tmp_path, {("mine", "b1"): "one", ("mine", "b2"): "two", ("mine", "b3"): "one", ("sdpa-flash", "b1"): "one"}
        )
        assert sorted(found) == sorted(
            [f"{NAMES[0]} and 1 more case, mine: one", f"{NAMES[1]}, mine: two", f"{NAMES[0]}, sdpa-flash: one"]
        )

    def test_another_status_with_the_same_reason_stays_apart(self, tmp_path: Path) -> None:
        def fault(contender: str, case: str, block: int | None) -> Any:
            status = {"b1": "ERROR", "b2": "INCORRECT"}.get(case.partition("-")[0])
            return {"status": status, "reason": "no"} if status and contender == "mine" and block is None else None

        notes = words.notes(judgement_of(tmp_path, MEANS, fault, shapes=SHAPES))
        found = [note for note in notes if note.word != "warning"]
        assert [(note.word, note.sentence) for note in found] == [
            ("ERROR", f"{NAMES[0]}, mine: no"),
            ("INCORRECT", f"{NAMES[1]}, mine: no"),
        ]

    def test_unclear_verdicts_are_together_too(self, tmp_path: Path) -> None:
        """A clock that shows the same whenever it is asked."""
        judgement = judgement_of(tmp_path, seconds=lambda contender, case, block: MEANS[contender], shapes=SHAPES)
        found = [note.sentence for note in words.notes(judgement) if note.word == "UNCLEAR"]
        assert [sentence.partition(":")[0] for sentence in found] == [
            f"{NAMES[0]} and 2 more cases, sdpa-flash",
            f"{NAMES[0]} and 2 more cases, mine",
        ]
