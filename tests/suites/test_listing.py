"""What the files of `--with` register is found out elsewhere: nothing that importing them does is done here."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path

import pytest

from groundspeed.errors import BadInput
from groundspeed.suites import listing, registry

GOOD = '''\
import groundspeed as gs

print("at work")

@gs.contender("attention")
def my_kernel(q, k, v, *, causal, scale):
    """What it does."""

@gs.contender("attention", name="Second.2+x", description="told")
def another(q, k, v, *, causal, scale):
    """Not this."""

@gs.contender("calibration")
def elsewhere(a, b):
    """Of another suite."""
'''


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_c1_a_file_is_listed_as_it_is_loaded(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD)
    listed, loaded = listing.load("attention", (file,)), registry.load("attention", (file,))
    assert listed.own == loaded.own == ["my-kernel", "Second.2+x"]
    assert list(listed.contenders) == list(loaded.contenders)
    for name in listed.own:
        mine, theirs = listed.contenders[name], loaded.contenders[name]
        assert (mine.description, mine.source) == (theirs.description, theirs.source)
        assert mine.source_hash() == theirs.source_hash()
    with pytest.raises(RuntimeError, match="in the processes that measure"):
        listed.contenders["my-kernel"].build(listed.module.all_cases()[0])


def test_without_a_file_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_ask", None)
    assert listing.load("attention").own == []


def test_a_file_is_asked_again_when_it_has_changed(tmp_path: Path) -> None:
    assert listing.load("attention", (write(tmp_path, GOOD),)).own[0] == "my-kernel"
    assert listing.load("attention", (write(tmp_path, GOOD.replace("my_kernel", "newer")),)).own[0] == "newer"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "registers no contender of attention"),
        ("import os\nraise ValueError('no')\n", "line 2: ValueError: no"),
        (GOOD.replace("Second.2+x", "naive"), "contender 'naive' already exists"),
        ("import os\nos._exit(7)\n", "exited with code 7 without listing its contenders"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "exited with code -9"),
    ],
    ids=["empty", "raises", "a name twice", "ends", "is killed"],
)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=r"mine\.py") as caught:
        listing.load("attention", (write(tmp_path, text),))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no such file"):
        listing.load("attention", (str(tmp_path / "none.py"),))


def test_d6_what_a_file_does_to_its_process_is_not_done_here(tmp_path: Path) -> None:
    marks = "import atexit, builtins, json, os, sys\nbuiltins.ValueError = KeyError\njson.dumps = os._exit = print\n"
    marks += f"atexit.register(lambda: open({str(tmp_path / 'exit')!r}, 'w'))\n"
    assert listing.load("attention", (write(tmp_path, marks + GOOD, "marks.py"),)).own[0] == "my-kernel"
    assert builtins.ValueError.__name__ == "ValueError"
    assert not [
        module for module in sys.modules.values() if getattr(module, "__file__", "") == str(tmp_path / "marks.py")
    ]
    assert not (tmp_path / "exit").exists()
