"""`claims check` and `claims write`: what they print and how they end (D4)."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from invocation import BundleOf, Cli

from groundspeed.evidence import bundle, store
from groundspeed.evidence.bundle import Bundle
from groundspeed.evidence.record import Record
from groundspeed.lab import sources, texts
from groundspeed.suites.registry import suite_module

CASE = "b1-h8-s64-d64-full-fp32"
Evidence = Callable[..., Bundle]


@pytest.fixture
def evidence(tmp_path: Path, bundle_of: BundleOf) -> Evidence:
    """`evidence()`: a bundle of a scripted run in evidence/ of this folder."""

    def make(**changes: object) -> Bundle:
        made = bundle_of(**changes)
        target = tmp_path / "evidence" / "cpu" / made.path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        return Bundle(made.path.rename(target), made.identity, made.record)

    return make


def tied(made: Bundle, case: str = CASE) -> str:
    return f"<!-- tied: {made.short} sdpa-flash {case} -->"


def test_write_fills_in_and_check_agrees(cli: Cli, evidence: Evidence, tmp_path: Path) -> None:
    made = evidence()
    (tmp_path / "docs").mkdir()
    text = f"It is ?×{tied(made)} as fast, ? µs{tied(made)}.\n\n<!-- glance: {made.short} -->\n<!-- end -->\n"
    (tmp_path / "docs" / "a.md").write_text(text)
    assert cli("claims", "check", "docs/a.md").code == 1
    done = cli("claims", "write", "docs/a.md")
    assert done.code == 0
    assert done.err == "written to docs/a.md\n"
    written = (tmp_path / "docs" / "a.md").read_text()
    assert re.match(r"It is [\d.]+× \([\d.]+–[\d.]+\)<!-- tied: .* as fast, 1\d\d µs<!-- tied: ", written)
    done = cli("claims", "check", "docs/a.md")
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(
        r"OK: \d+ speed numbers in 1 file: 2 tied, \d+ in generated blocks; 1 bundle verified\n", done.out
    )
    assert cli("claims", "write", "docs/a.md").err == "", "nothing to write"


def test_all_findings_of_all_files_are_listed_with_their_lines(cli: Cli, evidence: Evidence, tmp_path: Path) -> None:
    made = evidence()
    (tmp_path / "a.md").write_text(f"# A\n\nIt is 9.00× (8.00–9.90){tied(made)}.\nIt takes 3 ms.\n")
    (tmp_path / "b.md").write_text("Fine.\n")
    (tmp_path / "c.md").write_text(f"It is 2×{tied(made, 'nosuch')}.\n")
    done = cli("claims", "check", "a.md", "b.md", "c.md")
    assert (done.code, done.err) == (1, "")
    lines = done.out.splitlines()
    assert [line.partition(": ")[0] for line in lines[:-1]] == ["a.md:3", "a.md:4", "c.md:1"]
    assert [line.split(": ")[1] for line in lines[:-1]] == ["wrong value", "not tied", "unknown case"]
    assert lines[-1] == "FAILED: 3 findings in 2 of 3 files: 1 wrong value, 1 not tied, 1 unknown case"


def test_a_file_that_cannot_be_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bytes.md").write_bytes(b"It is \xff\xfe 2\xd7 as fast\n")
    (tmp_path / "good.md").write_text("Fine.\n")
    (tmp_path / "bad.md").write_text("It takes 3 ms.\n")
    for name in ("nosuch.md", "bytes.md", "."):
        done = cli("claims", "check", name, "good.md")
        assert done.code == 2
        assert done.sentence.startswith(("cannot read", "bytes.md is not UTF-8"))
        assert done.out.startswith("NOT CHECKED: 1 file; otherwise 0 speed numbers in 1 file"), "the others are"
    assert cli("claims", "check", "nosuch.md", "bad.md").code == 1, "1 wins"
    (tmp_path / "huge.md").write_bytes(b"x" * (texts.MAX_BYTES + 1))
    assert "bytes, too many for a text" in cli("claims", "check", "huge.md").sentence
    assert cli("claims", "check").code == 2
    assert cli("claims").code == 2


def test_without_evidence_the_message_says_where_it_is_looked_for(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("It is 2×<!-- tied: abcdef12 ours all -->.\n")
    done = cli("claims", "check", "a.md")
    assert done.code == 1
    assert "a.md:1: missing bundle: there is no bundle 'abcdef12' in evidence/; put it there" in done.out


def test_windows_line_ends_and_a_byte_order_mark_stay(cli: Cli, evidence: Evidence, tmp_path: Path) -> None:
    made = evidence()
    (tmp_path / "a.md").write_bytes(f"\ufeffIt takes ? µs{tied(made)}.\r\nEnd.\r\n".encode())
    assert cli("claims", "write", "a.md").code == 0
    content = (tmp_path / "a.md").read_bytes()
    assert content.startswith(b"\xef\xbb\xbfIt takes 1")
    assert content.count(b"\r\n") == content.count(b"\n") == 2


def test_an_output_is_what_the_command_prints(cli: Cli, evidence: Evidence, tmp_path: Path) -> None:
    made = evidence()
    where = made.path.relative_to(tmp_path)
    (tmp_path / "wrong.md").write_text("It takes 3 ms.\n")
    (tmp_path / "self.md").write_text("<!-- output: groundspeed claims check self.md -->\n```\n```\n")
    (tmp_path / "a.md").write_text(
        f"<!-- output: groundspeed verify {where} -->\n```\n```\n\n"
        "<!-- output: groundspeed claims check wrong.md -->\n```\n```\n"
    )
    assert cli("claims", "write", "a.md").code == 0
    text = (tmp_path / "a.md").read_text()
    assert f"\nOK      {where}\n" in text
    assert "\nwrong.md:1: not tied: " in text
    done = cli("claims", "write", "self.md")
    assert done.code in (0, 1), "it ends"
    assert "cannot quote a check itself" in (tmp_path / "self.md").read_text() + done.out


def of_ours(record: Record, sha256: str, code: dict[str, str] | None = None) -> Record:
    """A record that says to have measured our kernel from a source with this hash, and code with that."""
    ours = replace(record.contenders[1], name="ours-portable", source_sha256=sha256)
    environment = {**record.environment, **({sources.CODE: code} if code else {})}
    return replace(record, contenders=(record.contenders[0], ours), environment=environment)


class TestStale:
    """Whether what was measured is what is here now."""

    def test_a_kernel_that_is_the_same(self, bundle_of: BundleOf) -> None:
        kernels = Path(sources.__file__).parents[1] / "kernels"
        names = (
            "attention/triton",
            "attention/scores",
            "attention/split",
            "attention/decode",
            "attention/relay",
            "attention/few",
            "attention/form",
            "attention/able",
            "attention/api",
            "attention/varlen",
            "calls",
            "launch",
            "recall",
        )
        files = [kernels / f"{name}.py" for name in names]
        hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
        record = of_ours(bundle_of().record, hashlib.sha256("".join(hashes).encode()).hexdigest())
        assert list(sources.changes(record)) == []

    def test_a_kernel_that_changed(self, bundle_of: BundleOf) -> None:
        ours = next(c for c in suite_module("attention").contenders() if c.name == "ours-portable")
        record, old, code = bundle_of().record, "ab" * 32, sources.code_hash(ours)
        assert code
        assert list(sources.changes(of_ours(record, old, {"ours-portable": code}))) == [], "only its comments did"
        ((sentence, stale, _),) = sources.changes(of_ours(record, old, {"ours-portable": "cd" * 32}))
        assert sentence == "ours-portable may not be the kernel that was measured: its code changed"
        assert stale
        ((sentence, stale, _),) = sources.changes(of_ours(record, old))
        assert sentence == "cannot tell whether ours-portable is the kernel that was measured: its source changed"
        assert stale

    def test_others_do_not_count(self, bundle_of: BundleOf) -> None:
        record = of_ours(bundle_of().record, "ab" * 32)
        theirs = replace(record.contenders[1], name="theirs")
        assert list(sources.changes(replace(record, contenders=(record.contenders[0], theirs)))) == []

    def test_it_is_a_warning_and_for_a_release_an_error(
        self, cli: Cli, evidence: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = evidence()
        (tmp_path / "a.md").write_text(f"It takes ? µs{tied(made)}.\n")
        assert cli("claims", "write", "a.md").code == 0
        asked = []

        def changes(record: Record, rebuild: set[str] | None) -> list[sources.Change]:
            asked.append(rebuild)
            return [sources.Change("ours-portable changed", True)]

        monkeypatch.setattr(sources, "changes", changes)
        done = cli("claims", "check", "a.md")
        assert done.code == 0
        way_out = "--rebuild shows whether its machine code did"
        assert f"warning: ours-portable changed since {made.short}; {way_out}\n" in done.out
        done = cli("claims", "check", "--release", "a.md")
        assert done.code == 1
        assert done.out == (
            f"stale: ours-portable changed since {made.short}; measure it again\nFAILED: 1 finding: 1 stale\n"
        )
        assert cli("claims", "check", "--rebuild", "a.md").code == 0
        assert asked == [None, {CASE}, {CASE}], "nothing is compiled that nobody asked for"

    def test_the_same_machine_code_is_a_note(
        self, cli: Cli, evidence: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = evidence()
        (tmp_path / "a.md").write_text(f"It takes ? µs{tied(made)}.\n")
        assert cli("claims", "write", "a.md").code == 0
        same = sources.Change("ours-portable has the same machine code, although its code changed", False)
        monkeypatch.setattr(sources, "changes", lambda record, rebuild: [same])
        done = cli("claims", "check", "--release", "a.md")
        assert done.code == 0
        assert f"note: {same.sentence} since {made.short}\nOK: " in done.out

    @pytest.mark.parametrize(("flag", "word", "code"), [("--rebuild", "not compared", 3), ("--release", "stale", 1)])
    def test_machine_code_that_could_not_be_compared_is_not_ok(
        self,
        cli: Cli,
        evidence: Evidence,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        flag: str,
        word: str,
        code: int,
    ) -> None:
        made = evidence()
        (tmp_path / "a.md").write_text(f"It takes ? µs{tied(made)}.\n")
        assert cli("claims", "write", "a.md").code == 0
        unknown = sources.Change("ours-portable may not be it (triton 3.6.0 is missing)", True, False)
        monkeypatch.setattr(sources, "changes", lambda record, rebuild: [unknown])
        done = cli("claims", "check", flag, "a.md")
        assert done.code == code
        assert f"{word}: {unknown.sentence} since {made.short}\n" in done.out
        last = done.out.splitlines()[-1]
        assert last.startswith("NOT COMPARED: 1 kernel; otherwise 1 speed number" if code == 3 else "FAILED: 1 finding")
        assert "a few minutes" in done.err


def test_fifty_files_with_five_hundred_claims_are_checked_at_once(
    cli: Cli, evidence: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each bundle is verified once; the rest takes well under a second."""
    made = evidence()
    (tmp_path / "0.md").write_text(f"At S=64 in FP32 it is ?×{tied(made)} as fast and takes ? µs{tied(made)}.\n\n" * 5)
    assert cli("claims", "write", "0.md").code == 0
    names = [f"{number}.md" for number in range(50)]
    for name in names[1:]:
        (tmp_path / name).write_text((tmp_path / "0.md").read_text())
    verified: list[Path] = []
    monkeypatch.setattr(texts.bundles, "verify", _counted(texts.bundles.verify, verified))
    begun = time.process_time()
    done = cli("claims", "check", *names)
    assert time.process_time() - begun < 2
    assert done.out == "OK: 500 speed numbers in 50 files: 500 tied; 1 bundle verified\n"
    assert verified == [made.path]


def _counted(verify: Callable[[Path], object], seen: list[Path]) -> Callable[[Path], object]:
    def counted(path: Path) -> object:
        seen.append(path)
        return verify(path)

    return counted


def test_a_check_needs_no_torch(evidence: Evidence, tmp_path: Path) -> None:
    made = evidence()
    (tmp_path / "a.md").write_text(f"It takes ? µs{tied(made)}.\n")
    source = "import sys; sys.modules['torch'] = sys.modules['triton'] = None; sys.argv = sys.argv[:1] + sys.argv[1:]\n"
    source += "from groundspeed.cli import main; main()"
    call = [sys.executable, "-c", source, "claims", "write", "a.md"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert store.committed(tmp_path) == [made.path]
    assert bundle.read(made.path).identity == made.identity
