"""`list`, `show`, `verify`, `report` and `doctor`: what they print and how they end."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from invocation import BundleOf, Cli

from groundspeed.evidence import store
from groundspeed.evidence.bundle import read
from groundspeed.judge import warnings
from groundspeed.measure import environment

FILES = ("manifest.json", "facts.json", "samples.npz")


def test_list_names_the_suites(cli: Cli) -> None:
    done = cli("list")
    assert done.code == 0
    assert done.out.startswith("attention  ")


def test_list_shows_every_case_and_every_contender_with_its_reason(cli: Cli) -> None:
    """A2: an absent contender is listed with the reason, never dropped. A3: every named shape."""
    done = cli("list", "attention")
    assert done.code == 0
    for shape in ("tiny", "multi-head", "medium, t1", "t4", "ref-64", "ref-128", "sweep-d256-s16384"):
        assert re.search(rf"^{re.escape(shape)} ", done.out, re.M)
    for contender in ("sdpa-math", "sdpa-flash", "naive", "naive-compiled", "flex"):
        assert re.search(rf"^{contender} .* (yes|ABSENT: .+)", done.out, re.M)
    for contender in (
        "sdpa-mem-efficient",
        "sdpa-cudnn",
        "xformers",
        "flash-attn-2",
        "flash-attn-3",
        "flash-attn-4",
        "cutlass",
        "ours-portable",
        "ours-hopper",
    ):
        assert re.search(rf"^{contender} .* ABSENT: \w.+", done.out, re.M)
    assert re.search(r"^sdpa-math .* baseline *$", done.out, re.M)
    assert re.search(r"^ {9}S {8}sequence$", done.out, re.M)
    assert re.search(r"^ {9}lengths  instead of B and S: ", done.out, re.M)
    assert "e+0" not in done.out, "work is told in FLOP with a unit, never with an exponent"


def test_list_has_a_line_for_every_shape_of_a_calibration(cli: Cli) -> None:
    for suite, said in (
        ("attention", "f(q, k, v, *, causal, scale)"),
        ("moe", "f(x, router, up, down, *, top_k, activation)"),
        ("moe", "T=128 alone means T=128 H=4096 I=11008 E=32 K=2"),
        ("gemm", "f(a, b)"),
        ("inference", "S=128 alone means L=12 d=768 H=12 B=1 S=128"),
    ):
        assert said in " ".join(cli("list", suite).out.split())
    done = cli("list", "calibration")
    lines = [line.split() for line in done.out.splitlines() if line.startswith(("copy-", "matmul-"))]
    assert len({line[0] for line in lines}) == len(lines) > 10
    assert all(" / " not in " ".join(line) for line in lines)


def test_show_against_another_contender_says_when_it_was_chosen(cli: Cli) -> None:
    bundles = (Path(__file__).parents[2] / "evidence" / "nvidia-h200").glob("attention-standard-*")
    bundle = next(path for path in bundles if "xformers" in {c.name for c in read(path).record.measured})
    done = cli("show", str(bundle), "--baseline", "xformers")
    assert done.code == 0
    assert "baseline xformers (chosen afterwards)" in done.out
    claims = [line for line in done.out.splitlines() if " vs " in line]
    assert claims
    assert all(" vs xformers (chosen afterwards), " in line for line in claims)
    done = cli("show", str(bundle), "--baseline", "nobody")
    assert (done.code, done.out) == (2, "")
    assert "unknown contender of this run 'nobody'" in done.err


@pytest.mark.parametrize("flag", ["--case", "--only", "--dtype"])
def test_a_flag_that_names_nothing_does_not_mean_everything(cli: Cli, flag: str) -> None:
    done = cli("run", "attention", flag, " ,")
    assert (done.code, done.out) == (2, "")
    assert "was given none; name at least one, or leave the flag out" in done.err


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_list_fits_the_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    done = cli("list", "attention")
    assert max(map(len, done.out.splitlines())) <= width
    assert "…" not in done.out
    assert "sdpa-mem-efficient" in re.sub(r"\s", "", done.out) or width < 60


def test_many_lengths_leave_room_for_names(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = cli("list", "attention").out.splitlines()
    assert any(line.startswith("sweep-d256-s16384 ") for line in lines)
    (first,) = [i for i, line in enumerate(lines) if line.startswith("form-packed-d64 ")]
    shape = "".join(re.findall(r"[\d+]+\+|248", " ".join(lines[first : first + 3])))
    assert shape == "3967+17+2048+65+1201+640+4096+129+311+777+2885+248"


def test_a_folder_of_bundles_says_how_to_name_them(cli: Cli, bundle_of: BundleOf) -> None:
    paths = [bundle_of(seed=seed).path for seed in (1, 2)]
    for command in ("verify", "show"):
        done = cli(command, store.RUNS)
        assert done.code == 2
        assert "/runs is not a bundle but holds 2; name one, as .groundspeed/runs/attention-" in done.sentence
        assert done.sentence.endswith(" where several can be given all, as .groundspeed/runs/*")
    assert cli("verify", *store.RUNS.glob("*")).code == 0
    (paths[0] / "manifest.json").unlink()
    assert cli("verify", paths[0]).sentence.endswith("is not a bundle: it has no manifest.json")
    assert "is not a bundle but holds 2" in cli("verify", store.OWN).sentence


def test_show_prints_table_and_every_claim(cli: Cli, bundle_of: BundleOf) -> None:
    made = bundle_of()
    for name in ("latest", made.short, made.identity[:4].upper(), made.path):
        done = cli("show", name)
        assert done.code == 0
        assert done.out.count("sdpa-flash is faster: ") == 3, "over both cases, and each"
        assert re.search(r"(29[89]|30[0-2]) µs", done.out)
        assert done.err == ""


def test_show_obeys_the_width_it_is_told(cli: Cli, bundle_of: BundleOf, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle_of()
    lines = cli("show", "latest").out.splitlines()
    assert any(line.startswith("case ") for line in lines), "a pipe has no width: the wide table"
    monkeypatch.setenv("COLUMNS", "60")
    lines = cli("show", "latest").out.splitlines()
    copied = ("evidence", "check it", "report")
    assert max(len(line) for line in lines if not line.startswith(copied)) <= 60


def test_verify_says_what_it_did_and_what_that_proves(cli: Cli, bundle_of: BundleOf) -> None:
    made = bundle_of()
    done = cli("verify", "latest")
    assert done.code == 0
    assert re.search(rf"^OK .*{made.identity}$", done.out, re.M)
    samples = len(made.record.samples["process"])
    assert re.search(rf"[\d,]+ figures recomputed from {samples:,} samples", done.out)
    assert re.search(r"\d+ blocks in the drawn order, 8 stops where the protocol says", done.out)
    assert done.out.splitlines()[4] == "        no calibration: its floors are the defaults"
    assert "Hashes prove" in done.out
    assert "only another run can" in done.out


@pytest.mark.parametrize("file", FILES)
def test_verify_fails_on_one_changed_byte_in_any_file(cli: Cli, bundle_of: BundleOf, file: str) -> None:
    made = bundle_of()
    content = bytearray((made.path / file).read_bytes())
    content[len(content) // 2] ^= 1
    (made.path / file).write_bytes(content)
    done = cli("verify", "latest")
    assert done.code == 1
    assert done.out.startswith("FAILED  ")
    assert "Hashes prove" not in done.out, "nothing was proved"
    assert "Traceback" not in done.err
    for command in (("show",), ("report",), ("report", "--csv", "-"), ("report", "--bencher", "-"), ("grade",)):
        refused = cli(*command, "latest")
        assert refused.code == 2, f"{command} has no answer, which could be a no"
        assert refused.out == ""
        assert refused.sentence.endswith("; nothing is shown of a bundle that does not verify")
    assert cli("run", "--reproduce", "latest").code == 2


def test_verify_of_something_that_is_no_bundle(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("{}")
    for name in ("folder", "file", "nosuch", "latest"):
        done = cli("verify", name)
        assert done.code == 2
        assert done.sentence
        assert done.out == ""


def test_verify_of_several_tells_each_and_1_wins(cli: Cli, bundle_of: BundleOf) -> None:
    good, bad = bundle_of(), bundle_of(seed=2)
    with (bad.path / "facts.json").open("ab") as file:
        file.write(b" ")
    assert cli("verify", good.path, good.path).code == 0
    for names in ([good.path, bad.path, "nosuch"], ["nosuch", bad.path, good.path], [bad.path, "nosuch"]):
        done = cli("verify", *names)
        assert done.code == 1
        assert done.out.count("FAILED  ") == 1
        assert done.out.count("OK  ") == names.count(good.path)
        assert done.sentence.startswith("nosuch is not a bundle")
    assert cli("verify", good.path, "nosuch").code == 2


def test_verify_of_a_renamed_copy_fails(cli: Cli, bundle_of: BundleOf, tmp_path: Path) -> None:
    shutil.copytree(bundle_of().path, tmp_path / "copy")
    assert cli("verify", "copy").code == 1


def test_report_writes_markdown_to_the_terminal_by_itself(cli: Cli, bundle_of: BundleOf) -> None:
    made = bundle_of()
    done = cli("report", "latest")
    assert done.code == 0
    assert done.out.startswith("# attention on Test CPU")
    assert made.identity in done.out
    assert cli("report", "latest", "--md", "-").out == done.out


def test_report_writes_every_format(cli: Cli, bundle_of: BundleOf, tmp_path: Path) -> None:
    """A9."""
    bundle_of()
    charts = [f"a-{kind}{dark}.svg" for kind in ("speedups", "roofline", "samples") for dark in ("", "-dark")]
    files = ("a.md", *charts, "b.csv", "c.json", "d.jsonl")
    done = cli("report", "latest", "--md", "a.md", "--csv", "b.csv", "--json", "c.json", "--jsonl", "d.jsonl")
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [f"written to {name}" for name in files]
    rows = list(csv.DictReader((tmp_path / "b.csv").read_text().splitlines()))
    lines = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    everything = json.loads((tmp_path / "c.json").read_text())
    assert len(rows) == len(lines) == len(everything["rows"]) == 4
    assert everything["rows"] == lines
    assert [float(row["median_s"]) for row in rows] == [line["median_s"] for line in lines]
    said = (tmp_path / "a.md").read_text()
    linked = re.findall(r'(?:src|srcset)="([^"]+)"', said)
    assert sorted(linked) == sorted(charts), "beside it"
    without = re.sub(r"\n## Charts\n.*</picture>\n", "", said, flags=re.DOTALL)
    assert without == cli("report", "latest").out


def test_report_writes_a_page(cli: Cli, bundle_of: BundleOf, tmp_path: Path) -> None:
    """A10; what is in it is tested in tests/report, how it looks in tests/browser."""
    made = bundle_of()
    done = cli("report", "latest", "--html", "a.html", "--price-per-hour", "3.99")
    assert (done.code, done.out, done.err) == (0, "", "written to a.html\n")
    page = (tmp_path / "a.html").read_text()
    assert page.startswith("<!doctype html>")
    assert made.identity in page
    assert " at 3.99 per hour" in page
    assert cli("report", "latest", "--html", "a.md", "--md", "a.md").code == 2
    assert cli("report", "latest", "--csv", "a-speedups.svg", "--md", "a.md").code == 2, "that is a chart of a.md"


def test_without_its_package_markdown_has_no_charts(
    cli: Cli, bundle_of: BundleOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle_of()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert cli("report", "latest", "--md", "a.md").err == "written to a.md\n"
    assert (tmp_path / "a.md").read_text() == cli("report", "latest").out


def test_report_has_what_was_tried_where_a_log_tells_it(cli: Cli, bundle_of: BundleOf, tmp_path: Path) -> None:
    log = tmp_path / "log.md"
    log.write_text("# Log\n## Tiles\nLarger ones were slower.\n## Other\nNothing.\n")
    files = tmp_path / "r.html", tmp_path / "r.md"
    bundle = str(bundle_of().path)
    done = cli("report", bundle, "--html", str(files[0]), "--md", str(files[1]), "--log", f"{log}#tiles")
    assert done.code == 0
    for file in files:
        assert "Larger ones were slower." in file.read_text()
        assert "Nothing." not in file.read_text().split("Optimisation attempts")[-1].split("Protocol")[0]
    for wrong, said in ((f"{log}#forms", "no heading contains 'forms'"), (str(tmp_path / "gone.md"), "no such file")):
        refused = cli("report", bundle, "--md", "-", "--log", wrong)
        assert (refused.code, said in refused.err) == (2, True)
    assert cli("report", bundle, "--csv", "-", "--log", str(log)).code == 2
    os.mkfifo(tmp_path / "fifo")
    for endless in (tmp_path / "fifo", Path("/dev/zero")):
        assert "not a plain file" in cli("report", bundle, "--md", "-", "--log", str(endless)).err
    log.write_text("x" * (1 << 19))
    assert "too much for a report" in cli("report", bundle, "--md", "-", "--log", str(log)).err
    log.write_bytes(b"\xff\xfe")
    assert "not text in UTF-8" in cli("report", bundle, "--log", str(log), "--md", "-").err


def test_report_writes_the_formats_of_other_tools(cli: Cli, bundle_of: BundleOf, tmp_path: Path) -> None:
    bundle_of()
    done = cli("report", "latest", "--pytest-benchmark", "a.json", "--hud", "b.jsonl", "--bencher", "c.json")
    assert (done.code, done.out) == (0, "")
    benchmarks, measures = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "c.json"))
    assert len(benchmarks["benchmarks"]) == len(measures) == 4
    assert all("metric" in json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines())
    refused = cli("report", "latest", "--nvbench", "d.json")
    assert refused.code == 2
    assert "times on a GPU" in refused.err
    assert not (tmp_path / "d.json").exists()


def test_what_a_run_cost(cli: Cli, bundle_of: BundleOf, tmp_path: Path) -> None:
    """A12."""
    bundle_of()
    assert re.search(
        r"^cost +\S+ s of device time, .*, \S+ at 3600 per hour, ",
        cli("show", "latest", "--price-per-hour", "3600").out,
        re.M,
    )
    assert "cost " not in cli("show", "latest").out
    told = cli("report", "latest", "--md", "-", "--price-per-hour", "3600").out
    assert " at 3600 per hour" in told.partition("## Cost")[2]
    cost = json.loads(cli("report", "latest", "--json", "-", "--price-per-hour", "3600").out)["cost"]
    assert cost["money"] == pytest.approx(cost["device_s"])
    for price in ("-1", "nan", "inf"):
        refused = cli("show", "latest", "--price-per-hour", price)
        assert refused.code == 2
        assert "--price-per-hour" in refused.err


def test_report_draws_the_chart_for_light_and_for_dark_pages(cli: Cli, bundle_of: BundleOf, tmp_path: Path) -> None:
    bundle_of()
    done = cli("report", "latest", "--svg", "chart.svg")
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == ["written to chart.svg", "written to chart-dark.svg"]
    light, dark = ((tmp_path / name).read_text() for name in ("chart.svg", "chart-dark.svg"))
    assert light != dark
    assert light.startswith("<svg ")
    assert cli("report", "latest", "--svg", "-").out == light, "the terminal gets one"
    assert cli("report", "latest", "--svg", "/dev/null").err == "written to /dev/null\n"
    assert cli("report", "latest", "--svg", "a.svg", "--md", "a-dark.svg").code == 2


def test_a_chart_without_its_package_leaves_no_report_half_written(
    cli: Cli, bundle_of: BundleOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle_of()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    done = cli("report", "latest", "--svg", "chart.svg", "--md", "a.md")
    assert done.code == 4
    assert "pip install 'groundspeed[report]'" in done.sentence
    assert not list(tmp_path.glob("*.svg"))
    assert not (tmp_path / "a.md").exists()


def test_data_on_stdout_is_data_alone(cli: Cli, bundle_of: BundleOf) -> None:
    bundle_of()
    done = cli("report", "latest", "--json", "-", "--md", "a.md")
    assert json.loads(done.out)["claims"]
    assert len(list(csv.reader(io.StringIO(cli("report", "latest", "--csv", "-").out)))) == 5


def test_report_writes_through_a_link_and_to_a_device(cli: Cli, bundle_of: BundleOf, tmp_path: Path) -> None:
    bundle_of()
    (tmp_path / "real.md").write_text("old")
    (tmp_path / "link.md").symlink_to("real.md")
    assert cli("report", "latest", "--md", "link.md").code == 0
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real.md").read_text().startswith("# attention")
    assert cli("report", "latest", "--md", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()


def test_doctor_describes_the_machine_and_writes_it_down(cli: Cli, tmp_path: Path) -> None:
    """A7."""
    done = cli("doctor", "--write", "GPU_ENV.md")
    assert done.code == 0
    for label in ("cpu", "governor", "memory", "gpu", "system", "packages"):
        assert re.search(rf"^{label} +\S", done.out, re.M)
    assert "written to GPU_ENV.md" in done.out
    written = (tmp_path / "GPU_ENV.md").read_text()
    assert written.startswith("# Environment\n\n- **os**: ")
    for part in ("python", "cpu", "memory", "gpu", "packages", "variables"):
        assert f"- **{part}**: " in written


def test_doctor_tells_what_disturbs_and_what_to_do(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    real = environment.host_environment()
    real["cpu"].update(governor="powersave", load_1min=64.0, busy_share=1.0, cores=2, name="[red]CPU[/]")
    real["packages"] = {"numpy": "2"}
    monkeypatch.setattr(environment, "host_environment", lambda: real)
    done = cli("doctor")
    assert done.code == 0
    expected = list(warnings.environment_warnings(real))
    assert {"governor", "busy"} <= {warning.code for warning in expected}
    for warning in expected:
        assert f"warning   {warning.message}; {warning.remedy}" in done.out
    assert "torch is not installed: pip install" in done.out
    assert "[red]CPU[/]" in done.out, "brackets in a name are text"
    assert "nothing found" not in done.out


EVIDENCE = Path(__file__).parents[2] / "evidence" / "amd-epyc"


def test_doctor_tells_the_noise_that_runs_go_by(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration made beside other work hides differences, and nobody else would mention it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert "never calibrated" in cli("doctor").out
    kept = store.calibrations()
    kept.mkdir(parents=True)
    (kept / f"calibration-{'0' * 64}").mkdir()  # a damaged one
    for path in EVIDENCE.glob("calibration-*"):
        (kept / path.name).symlink_to(path)
    out = " ".join(cli("doctor").out.split())
    assert re.search(r"noise calibrated on 2026-11-\d\d for \w+ on cpu, \d+ processes, in ", out)
    assert re.search(r"(short|long) work: floor [\d.]+% for one case, [\d.]+% for 36 \(RMS", out)
    real = warnings.environment_warnings
    busy = warnings.Disturbance("busy", "other work is running (load 3.1 on 2 cores)", "stop it")
    monkeypatch.setattr(warnings, "environment_warnings", lambda environment: [busy, *real(environment)])
    out = " ".join(cli("doctor").out.split())
    assert "other work is running (load 3.1 on 2 cores) when it was measured: delete it and calibrate again" in out


def test_a_run_and_its_calibration_are_held_against_each_other(cli: Cli, tmp_path: Path) -> None:
    calibrations = {path.name[-64:]: path for path in EVIDENCE.glob("calibration-*")}
    kept = {path: _identity(path) for path in sorted(EVIDENCE.glob("attention-*"))}
    run = next(path for path, identity in kept.items() if identity in calibrations)
    calibration = calibrations[kept[run]]
    short = kept[run][:12]
    elsewhere = shutil.copytree(run, tmp_path / "alone" / run.name)
    alone, beside, together = (cli("verify", *map(str, given)) for given in ([elsewhere], [run], [run, calibration]))
    assert (alone.code, beside.code, together.code) == (0, 0, 0)
    floors = f"        its floors are those of calibration {short}"
    assert alone.out.splitlines()[4] == f"{floors}, which is neither given nor beside it: not checked"
    assert beside.out.splitlines()[4] == f"{floors}, which lies beside it"
    for given in ((elsewhere, calibration), (calibration, elsewhere)):
        *blocks, _ = re.split(r"^(?=OK |Hashes)", cli("verify", *given).out, flags=re.M)[1:]
        assert [block.splitlines()[0] for block in blocks] == [f"OK      {path}" for path in given]
        lines = {path: block.splitlines()[4:] for path, block in zip(given, blocks, strict=True)}
        assert lines == {elsewhere: [floors], calibration: []}, "a calibration needs no floors"
    assert together.out.splitlines()[4] == floors
    false = shutil.copytree(calibration, elsewhere.parent / calibration.name)
    (false / "facts.json").write_text((false / "facts.json").read_text().replace("AMD", "VIA"))
    failed = cli("verify", str(elsewhere))
    assert failed.code == 1
    assert failed.out.startswith(f"FAILED  {elsewhere}: {false}")
    assert "OK " not in failed.out
    both = cli("verify", elsewhere, false, calibration)
    assert both.code == 1
    assert re.findall(r"^FAILED|^OK", both.out, re.M) == ["FAILED", "FAILED", "OK"]


def _identity(run: Path) -> str:
    """Of the calibration that a run rests on; nothing where it has none."""
    kept = json.loads((run / "facts.json").read_text())["calibration"]
    return str(kept["identity"]) if kept else ""
