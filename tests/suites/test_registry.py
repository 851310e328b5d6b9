"""Finding contenders: in files given with `--with`, and in installed packages (C1)."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from groundspeed.errors import BadInput
from groundspeed.suites import registry

GOOD = '''\
import groundspeed as gs

@gs.contender("attention")
def my_kernel(q, k, v, *, causal, scale):
    """What it does.

    And more about it."""

@gs.contender("attention", name="Second.2+x", description="told", supports=lambda case, device: "never")
def another(q, k, v, *, causal, scale):
    """Not this."""
'''


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def refusal(*files: str) -> str:
    with pytest.raises(BadInput) as caught:
        registry.load("attention", files)
    return str(caught.value)


def test_c1_a_file_adds_its_contenders_to_those_of_the_suite(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD)
    suite = registry.load("attention", (file,))
    assert suite.own == ["my-kernel", "Second.2+x"]
    assert "sdpa-math" in suite.contenders
    first, second = (suite.contenders[name] for name in suite.own)
    assert (first.description, second.description) == ("What it does.", "told")
    case = suite.module.all_cases()[0]
    assert first.supports(case, "cpu") is None
    assert second.supports(case, "cpu") == "never"
    assert first.absent("cpu") is None
    assert first.source_hash() == hashlib.sha256(GOOD.encode()).hexdigest()


def test_without_a_file_there_are_none_of_ones_own(tmp_path: Path) -> None:
    registry.load("attention", (write(tmp_path, GOOD),))
    suite = registry.load("attention")
    assert suite.own == []
    assert "my-kernel" not in suite.contenders


def test_several_files_keep_their_order(tmp_path: Path) -> None:
    files = [
        write(tmp_path, f"import groundspeed as gs\n@gs.contender('attention')\ndef {n}(): ...\n", f"{n}.py")
        for n in ("zz", "aa")
    ]
    assert registry.load("attention", files).own == ["zz", "aa"]


def test_a_file_can_import_what_lies_beside_it_and_be_loaded_again(tmp_path: Path) -> None:
    """`run` loads it twice, and Python imports the module beside it only once."""
    write(tmp_path, GOOD, "beside_for_registry_test.py")
    file = write(tmp_path, "import beside_for_registry_test\n")
    path = list(sys.path)
    for _ in range(2):
        assert registry.load("attention", (file,)).own == ["my-kernel", "Second.2+x"]
    assert sys.path == path


def test_a_file_that_changed_is_read_anew(tmp_path: Path) -> None:
    registry.load("attention", (write(tmp_path, GOOD),))
    assert registry.load("attention", (write(tmp_path, GOOD.replace("my_kernel", "newer")),)).own[0] == "newer"


def test_a_syntax_error_names_file_and_line(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD + "\ndef broken(:\n")
    message = refusal(file)
    line = GOOD.count("\n") + 2
    assert message.startswith(f"--with {file}: line {line}: SyntaxError: ")


@pytest.mark.parametrize("relative", [False, True])
def test_an_error_while_importing_names_its_line(
    tmp_path: Path, relative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, "import math\n\ndef f():\n    return math.log(-1)\n\nf()\n", "fails.py")
    given = "fails.py" if relative else file
    message = refusal(given)
    assert message.startswith(f"--with {given}: line 4: ValueError: ")


def test_an_error_in_a_module_beside_it_names_the_line_that_imports_it(tmp_path: Path) -> None:
    write(tmp_path, "\n\n\n\ndef broken(:\n", "beside_with_syntax_error.py")
    message = refusal(write(tmp_path, "import math\nimport beside_with_syntax_error\n"))
    assert ": line 2: SyntaxError: " in message
    assert "beside_with_syntax_error.py" in message


def test_a_missing_module_names_the_line(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "\nimport no_such_module_anywhere\n"))
    assert "line 2: ModuleNotFoundError: No module named 'no_such_module_anywhere'" in message


def test_a_file_that_exits_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    assert "line 2: SystemExit: 7" in refusal(write(tmp_path, "import sys\nsys.exit(7)\n"))


@pytest.mark.parametrize("text", ["", "x = 1\n"])
def test_a_file_that_registers_nothing_says_how_to(tmp_path: Path, text: str) -> None:
    message = refusal(write(tmp_path, text))
    assert 'registers no contender of attention; decorate a function with @gs.contender("attention")' in message


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    taken = "import groundspeed as gs\n@gs.contender('attention')\ndef sdpa_math(): ...\n"
    assert "contender 'sdpa-math' already exists; give yours another name" in refusal(write(tmp_path, taken))
    twice = "import groundspeed as gs\n" + "@gs.contender('attention')\ndef f(): ...\n" * 2
    assert "contender 'f' already exists" in refusal(write(tmp_path, twice, "twice.py"))


@pytest.mark.parametrize(
    "name", ["a b", "a,b", "a\tb", "a\nb", "-a", "a|b", "a/b", "é", "\x1b[31m", "x" * 81, 5, ("a",)]
)
def test_a_name_that_a_flag_or_a_table_cannot_hold_is_refused(tmp_path: Path, name: Any) -> None:
    text = f"import groundspeed as gs\n@gs.contender('attention', name={name!r})\ndef f(): ...\n"
    message = refusal(write(tmp_path, text))
    assert f"invalid contender name {name!r}; use letters, digits and dashes" in message


def test_a_lambda_needs_a_name(tmp_path: Path) -> None:
    lambda_ = "import groundspeed as gs\ngs.contender('attention')(lambda q, k, v, **_: q)\n"
    assert "invalid contender name '<lambda>'" in refusal(write(tmp_path, lambda_))


CALLABLES = """\
import functools
import groundspeed as gs

class Kernel:
    def __call__(self, q, k, v, *, causal, scale): ...

"""


def test_any_callable_can_be_registered_under_a_name(tmp_path: Path) -> None:
    text = (
        CALLABLES
        + "gs.contender('attention', name='k')(Kernel())\ngs.contender('attention', name='p')(functools.partial(max))\n"
    )
    suite = registry.load("attention", (write(tmp_path, text),))
    assert suite.own == ["k", "p"]
    assert {suite.contenders[n].source_hash() for n in suite.own} == {hashlib.sha256(text.encode()).hexdigest()}


def test_a_callable_without_a_name_is_told_to_take_one(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, CALLABLES + "gs.contender('attention')(Kernel())\n"))
    assert "line 7: TypeError: a Kernel has no name; give it one with name=" in message


def test_the_source_of_a_wrapped_function_is_the_file_it_was_written_in(tmp_path: Path) -> None:
    text = (
        "import functools\nimport groundspeed as gs\n"
        "def plain(q, k, v, *, causal, scale): ...\n"
        "@functools.wraps(plain)\ndef wrapper(*a, **k): ...\n"
        "wrapper.__code__ = functools.wraps.__code__\n"  # a wrapper that comes from elsewhere, as torch.compile's does
        "gs.contender('attention', name='w')(wrapper)\n"
    )
    file = write(tmp_path, text)
    assert registry.load("attention", (file,)).contenders["w"].source == file


def test_an_unknown_suite_in_a_file_offers_the_nearest(tmp_path: Path) -> None:
    text = "import groundspeed as gs\n@gs.contender('atention')\ndef f(): ...\n"
    message = refusal(write(tmp_path, text))
    assert "unknown suite (of contender f in " in message
    assert "'atention'; did you mean attention" in message


def test_an_unknown_suite_offers_the_nearest() -> None:
    with pytest.raises(BadInput, match="unknown suite 'atention'; did you mean attention"):
        registry.load("atention")


def test_files_that_are_none(tmp_path: Path) -> None:
    assert refusal(str(tmp_path / "nowhere.py")).endswith("nowhere.py: there is no such file")
    assert refusal(str(tmp_path)).endswith(": this is a folder; name a Python file in it")
    assert refusal(write(tmp_path, GOOD, "data.txt")).endswith("data.txt: not a Python file")
    (tmp_path / "binary.py").write_bytes(b"\x00\xff\xfe")
    assert refusal(str(tmp_path / "binary.py")).endswith("source code string cannot contain null bytes")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, text: str) -> None:
    """A package with an entry point for contenders, as pip would leave it."""
    (folder / f"{module}.py").write_text(text)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\nmine = {module}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_c1_an_installed_package_adds_contenders_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "entry_point_for_test", GOOD)
    for _ in range(2):
        suite = registry.load("attention")
        assert {"my-kernel", "Second.2+x"} <= set(suite.contenders)
        assert suite.own == []
        assert {*suite.brought} == {"my-kernel", "Second.2+x"}


def test_a_broken_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "broken_entry_point_for_test", "raise ValueError('no')\n")
    assert "entry point mine: ValueError: no; fix or uninstall its package" in refusal()


def test_the_public_way_to_a_case_refuses_what_it_does_not_know() -> None:
    params = {"B": 1, "H": 4, "S": 8, "D": 16, "dtype": "fp32", "causal": True}
    assert registry.case_of("attention", **params).params == params
    with pytest.raises(BadInput, match=r"unknown parameter of attention 'casual'; did you mean causal\?"):
        registry.case_of("attention", **params, casual=True)
    with pytest.raises(BadInput, match=r"\(D is missing\)"):
        registry.case_of("attention", B=1, H=4, S=8)
