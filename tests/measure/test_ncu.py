"""A4, A8: what Nsight Compute says is read as it is, and where it says nothing one sentence tells why."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from groundspeed.errors import BadInput
from groundspeed.measure import ncu
from profiles import KERNEL, fake_ncu, ncu_csv

START = {"suite": "attention", "with_files": []}


def counted(program: Path, folder: Path, timeout_s: float = 20.0) -> tuple[list[ncu.Launch], Path]:
    folder.mkdir(exist_ok=True)
    return ncu.count(program, [START, {"count": {"contender": "mine"}}], folder, 2, "GPU-aaaa", timeout_s)


def test_numbers_are_read_and_what_is_none_is_left_out() -> None:
    (launch,) = ncu.parse(ncu_csv({}))
    assert launch.kernel == KERNEL
    assert launch.metrics["gpu__time_duration.sum"] == 58_400
    assert launch.metrics["lts__t_sector_hit_rate.pct"] == 84.75
    assert launch.metrics["launch__shared_mem_per_block_static"] == 0
    assert "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio" not in launch.metrics
    assert "launch__func_cache_config" not in launch.metrics
    assert "device__attribute_clock_rate" not in launch.metrics, "a profile keeps what it knows the meaning of"


def test_other_units_are_made_base_units() -> None:
    (launch,) = ncu.parse(ncu_csv({}).replace("nsecond", "usecond").replace('"byte/block"', '"Kbyte/block"'))
    assert launch.metrics["gpu__time_duration.sum"] == pytest.approx(58_400e3)
    assert launch.metrics["launch__shared_mem_per_block_dynamic"] == pytest.approx(199_680e3)


@pytest.mark.parametrize("text", ["", "==ERROR== no report", '"ID","Metric"\n"0","1"\n', '"ID",\n'])
def test_what_is_no_report_has_no_launches(text: str) -> None:
    assert ncu.parse(text) == []


def test_a_count_keeps_the_report_and_asks_for_one_call_at_free_clocks(tmp_path: Path) -> None:
    program = fake_ncu(tmp_path / "bin", "report.write_bytes(b'report')", ncu_csv({}, {}))
    launches, report = counted(program, tmp_path / "work")
    assert len(launches) == 2
    assert report.read_bytes() == b"report"
    (asked,) = map(json.loads, (tmp_path / "bin" / "asked.jsonl").read_text().splitlines())
    assert " --profile-from-start off --clock-control none " in " ".join(asked)
    assert asked[asked.index("--metrics") + 1] == ncu.TENSOR
    requests = Path(asked[-1]).read_text().splitlines()
    assert [json.loads(line) for line in requests] == [START, {"count": {"contender": "mine"}}]


def test_a_version_that_does_not_know_the_metric_is_asked_without_it(tmp_path: Path) -> None:
    count = (
        "print('==ERROR== Failed to find metric sm__pipe') or sys.exit(1) if '--metrics' in sys.argv "
        "else report.touch()"
    )
    launches, _ = counted(fake_ncu(tmp_path / "bin", count, ncu_csv({})), tmp_path / "work")
    assert len(launches) == 1


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "only administrators.*; load the driver"),
        ("==ERROR== Error: LibraryNotLoaded", "could not load the driver's profiling library"),
        ("==ERROR== Driver resource was unavailable. Ensure that no", "another profiler or monitor.*; stop it"),
        ("==WARNING== No kernels were profiled.", "saw no kernel"),
        ("==PROF== x\n==ERROR== The moon is full\nlast words", "exited with code 1: The moon is full$"),
        ("INCORRECT: changed its input q", "exited with code 1: INCORRECT: changed its input q$"),
        ("", "exited with code 1$"),
    ],
)
def test_why_there_are_no_counters_is_one_sentence(tmp_path: Path, said: str, why: str) -> None:
    program = fake_ncu(tmp_path / "bin", f"print({said!r}); sys.exit(1)")
    with pytest.raises(ncu.NoCounters, match=why) as refused:
        counted(program, tmp_path / "work")
    assert "\n" not in str(refused.value)


def test_one_that_leaves_no_report_has_counted_nothing(tmp_path: Path) -> None:
    with pytest.raises(ncu.NoCounters, match="saw no kernel"):
        counted(fake_ncu(tmp_path / "bin", "print('==WARNING== No kernels were profiled.')"), tmp_path / "work")


def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    child = f"import time; time.sleep(1.2); open({str(mark)!r}, 'w')"
    hang = f"import subprocess, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    with pytest.raises(ncu.NoCounters, match=r"took longer than 0\.5 s; raise the limit with --timeout"):
        counted(fake_ncu(tmp_path / "bin", hang), tmp_path / "work", timeout_s=0.5)
    time.sleep(1.0)
    assert not mark.exists()


def test_the_program_is_found_by_name_on_the_path_or_in_the_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake_ncu(tmp_path / "bin", "pass")
    assert ncu.find(program) == program
    assert ncu.version_of(program) == "Nsight Compute 2025.3.1.0"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert ncu.find(None) == program
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    assert ncu.find(None) is None
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert ncu.find(None) == program
    with pytest.raises(BadInput, match=r"--ncu .*nosuch: no such program"):
        ncu.find(tmp_path / "nosuch")
