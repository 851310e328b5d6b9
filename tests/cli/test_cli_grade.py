"""`groundspeed grade` as a user sees it: exit codes, files, and input that is wrong (B9)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from invocation import BundleOf, Cli

from links import links

MEASURED = Path(__file__).parents[1] / "measured" / "bundles"
PROFILE = next((MEASURED.parent / "profiles").iterdir())
PADDED = next(path for path in MEASURED.iterdir() if "-140a-" in path.name)
(PRODUCTS,) = (Path(__file__).parents[2] / "evidence" / "nvidia-h200").glob("gemm-*-f579-*")


@pytest.mark.parametrize(("ours", "code"), [(1e-4, 0), (1e-3, 1), (3e-4 / 0.6, 3)])
def test_exit_codes_of_one_suite(cli: Cli, bundle_of: BundleOf, ours: float, code: int) -> None:
    bundle_of({"sdpa-math": 3e-4, "sdpa-flash": ours})
    done = cli("grade", "latest", "--suite", "attention")
    assert done.code == code
    assert f"gates: {('passed', 'failed', '', 'not determined')[code]}" in done.out


def test_it_says_whose_gate_failed(cli: Cli, bundle_of: BundleOf) -> None:
    bundle_of({"sdpa-math": 3e-4, "sdpa-flash": 1e-3, "naive": 2e-4})
    done = cli("grade", "latest", "--suite", "attention", "--contender", "sdpa-flash,naive")
    assert "gates: failed by sdpa-flash (attention performance)\n" in done.out


def test_what_is_unknown_of_several_is_said_once(cli: Cli, bundle_of: BundleOf) -> None:
    bundle_of({"sdpa-math": 3e-4, "sdpa-flash": 1e-3, "naive": 2e-4})
    done = cli("grade", "latest", "--contender", "sdpa-flash,naive")
    words = " ".join(done.out.split())
    assert words.count("two timers agree") == 1
    assert "two timers agree: needs a GPU and PyTorch's profiler (all 2 contenders)" in words


def test_without_moe_the_whole_is_not_determined(cli: Cli, bundle_of: BundleOf) -> None:
    bundle_of()
    done = cli("grade", "latest")
    assert done.code == 3
    assert "attention alone: A" in done.out
    assert "overall: not determined, because there is no bundle of moe" in done.out
    assert "gates: not determined" in done.out


def test_suites_that_no_run_can_be_of_are_one_line_and_still_count(cli: Cli, bundle_of: BundleOf) -> None:
    bundle_of()
    done = cli("grade", "latest", "--json", "all.json")
    words = " ".join(done.out.split())
    assert "memory is not compared with any target: the specification does not give the shape" in words
    assert "Their report has both. Its targets, gates" in words
    assert "not measurable yet" not in words
    assert "use --suite attention,moe,inference,gemm to leave it out" in words
    assert not re.search(r"^memory |memory alone|memory: ", done.out, re.M)
    (told,) = json.loads(Path("all.json").read_text())["contenders"]
    assert {ruling["gate"]: ruling["answer"] for ruling in told["gates"]}["moe performance"] == "not determined"
    assert told["letter"]["letters"] == []
    assert "missing" not in cli("grade", "latest", "--suite", "attention").out


def test_a_suite_without_gates_has_one_sentence_and_no_empty_table(cli: Cli, tmp_path: Path) -> None:
    done = cli("grade", PRODUCTS, "--suite", "gemm", "--markdown", "g.md")
    sentence = "There are no gates and no letter for gemm in the specification."
    assert done.code == 3
    assert done.out.count(sentence) == 1
    assert "gates: not determined, because there are none" in done.out
    for nothing in ("asks for", "overall", "no suite is graded", "S=None", "softmax", "needs a bundle"):
        assert nothing not in done.out
    lines = (tmp_path / "g.md").read_text().splitlines()
    assert lines.count(sentence) == 1
    ends = [i for i, line in enumerate(lines) if line.startswith("|---")]
    assert ends
    assert all(lines[i + 1].startswith("|") for i in ends), "each table has a row"
    both = cli("grade", PRODUCTS, next(MEASURED.glob("*-0daf-*")))
    assert sentence in both.out
    assert "attention performance" in both.out


def test_where_nothing_is_known_there_is_no_empty_list(cli: Cli) -> None:
    done = cli("grade", PRODUCTS, "--suite", "attention")
    assert not re.search(r"^list ", done.out, re.M)
    assert "two timers agree" in done.out, "as something that is not known"


def test_a_file_of_ones_own(cli: Cli, bundle_of: BundleOf, tmp_path: Path) -> None:
    bundle_of()  # twice as fast as the baseline
    mine = tmp_path / "mine.toml"
    mine.write_text("[gates]\nattention = { speed = 3.0 }\n")
    assert cli("grade", "latest", "--targets", mine).code == 1
    mine.write_text("[gates]\nattention = { spede = 3.0 }\n")
    done = cli("grade", "latest", "--targets", mine)
    assert done.code == 2
    assert "mine.toml" in done.sentence
    assert "'spede'; did you mean speed?" in done.sentence


def test_a_file_without_letters_gives_none(cli: Cli, bundle_of: BundleOf, tmp_path: Path) -> None:
    """Any part may be left out: what is not in the file is not asked for."""
    bundle_of()  # twice as fast as the baseline
    (tmp_path / "mine.toml").write_text('[gates]\nattention = { speed = 0.5 }\n[grades]\nsuites = ["attention"]\n')
    done = cli("grade", "latest", "--targets", "mine.toml")
    assert done.code == 0
    assert "attention alone: not determined, because mine.toml has no letters" in done.out


def test_a_measured_bundle_in_every_form(cli: Cli, tmp_path: Path) -> None:
    screen = cli("grade", PADDED)
    assert "slower, relative to the baseline, at lengths that do not fill their tiles" in screen.out
    assert "inputs padded to whole tiles" in screen.out
    written = cli("grade", PADDED, "--markdown", tmp_path / "g.md", "--json", "-")
    told = json.loads(written.out)
    assert written.code == screen.code == 3
    assert told["contenders"][0]["letters"]["attention"]["letters"] == ["C", "D"]
    assert "odd lengths" in {found["rule"] for found in told["contenders"][0]["diagnosis"]}
    assert told["bundles"] == [PADDED.name.rpartition("-")[2]]
    assert "### Diagnosis" in (tmp_path / "g.md").read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--contender", "nobody"), "unknown contender of these bundles 'nobody'"),
        (("--suite", "atention"), "did you mean attention?"),
        (("--reference", "sdpa-fast"), "unknown contender of these bundles 'sdpa-fast'"),
        (("--targets", "none.toml"), "cannot read none.toml"),
    ],
)
def test_bad_input_is_one_sentence(cli: Cli, flags: tuple[str, ...], said: str) -> None:
    done = cli("grade", PADDED, *flags)
    assert done.code == 2
    assert said in done.sentence


def test_a_bundle_that_does_not_verify_has_no_grade(cli: Cli, tmp_path: Path) -> None:
    copy = tmp_path / PADDED.name
    shutil.copytree(PADDED, copy)
    facts = copy / "facts.json"
    facts.write_text(facts.read_text().replace('"PASSED"', '"PASSED" ', 1))
    done = cli("grade", copy)
    assert done.code == 2, "1 is a gate that failed"
    assert done.out == ""
    assert cli("verify", copy).code == 1


def test_a_profile_stands_beside_the_run_that_it_is_about(cli: Cli, tmp_path: Path) -> None:
    """B6, B9: the run and the profile are of the same kernels, of one day."""
    (run,) = MEASURED.glob("*-3553-*")
    done = cli("grade", run, PROFILE, "--contender", "ours-hopper", "--suite", "attention", "--markdown", "g.md")
    assert done.code == 0
    assert "by 1 bundle, 1 profile and the specification" in done.out
    assert "attention: SM over 60%: yes, sweep-d128-s4096-full-bf16 in bee3ff9bd840: SM 81.5%" in done.out
    assert "| ours-hopper | attention: tensor cores | over 70% | yes |" in (tmp_path / "g.md").read_text()
    told = json.loads(cli("grade", PROFILE, run, "--contender", "ours-hopper", "--json", "-").out)
    assert told["profiles"] == [PROFILE.name[-64:]]
    used = told["contenders"][0]["utilisation"][0]
    assert (used["what"], used["answer"], used["evidence"][0]["bundle"]) == ("attention: SM", "yes", PROFILE.name[-64:])


def test_every_link_leads_to_the_bundle_that_it_names(cli: Cli, tmp_path: Path) -> None:
    """B6: a tick has a link to its evidence, from where the file really lies, whatever the folders are called."""
    odd = tmp_path / "a ](x) |<b>#%20`\\_é"
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "near").symlink_to(tmp_path / "far" / "away")
    (run,) = MEASURED.glob("*-3553-*")
    copies = [shutil.copytree(path, odd / path.name) for path in (run, PROFILE)]
    cli("grade", *copies, "--contender", "ours-hopper", "--markdown", "near/g.md")
    content = (tmp_path / "far" / "away" / "g.md").read_text()
    found = links(content)
    assert {link.said for link in found} == {copy.name[-64:][:12] for copy in copies}
    for link in found:
        (folder,) = (copy for copy in copies if copy.name[-64:].startswith(link.said))
        assert (tmp_path / "far" / "away" / unquote(link.to)).resolve() == folder.resolve()
        assert link.to == quote(unquote(link.to)), "nothing in it that ends it"
    ticked = [line for line in content.splitlines() if line.startswith("|") and ("| yes |" in line or "| no |" in line)]
    letter = next(line for line in content.splitlines() if line.startswith("- attention alone: A"))
    definitions = content[content.rindex("\n\n") :]
    assert len(ticked) > 10
    assert all(links(f"{line}\n{definitions}") for line in (*ticked, letter))
    assert links(cli("grade", *copies, "--markdown", "-").out) == [], "it is not known from where they would lead"


def test_a_profile_alone_has_no_grade(cli: Cli) -> None:
    done = cli("grade", PROFILE)
    assert done.code == 2
    assert "is a profile, which measures no speed; name the bundle of a run too" in done.sentence


@pytest.mark.parametrize("command", [("grade", "latest"), ("compare", "HEAD~1", "HEAD")])
def test_two_answers_cannot_go_to_one_file(cli: Cli, command: tuple[str, ...], tmp_path: Path) -> None:
    """Said at once, and not after minutes of measuring."""
    file = str(tmp_path / "answer")
    done = cli(*command, "--markdown", file, "--json", file)
    assert (done.code, done.out) == (2, "")
    assert f"two reports cannot both go to {file}; give each its own file" in done.err
