"""What is loaded from where, in a process that is a revision's: the contender's code, and never the laboratory's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import groundspeed
from groundspeed.errors import BadInput
from groundspeed.suites import listing
from groundspeed.suites.revision import paths
from repositories import CONTENDER, KERNEL, write

HOME = Path(groundspeed.__file__).parent


def told(repository: Path, folder: Path) -> dict[str, str]:
    return {"repository": str(repository), "folder": str(folder), "suffix": "@base"}


def test_folders_of_the_repository_become_those_of_the_checkout(tmp_path: Path) -> None:
    top, folder, elsewhere = tmp_path / "repository", tmp_path / "checkout", tmp_path / "elsewhere"
    for path in (top / "src", top / "new", top / "tools", top / ".venv/lib", folder / "src", folder / "tools"):
        path.mkdir(parents=True)
    before = [str(path) for path in (top, elsewhere, top / "src", top / "new", top / "tools", top / ".venv/lib")]
    found = paths(before, top, folder, [str(top / ".venv")])
    expected = [folder / "src", folder, elsewhere, folder / "tools", top / ".venv/lib"]
    assert found == [str(path) for path in expected]


def test_a_contender_imports_the_project_from_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the working tree is on Python's path, as an installed project is."""
    top, folder = tmp_path / "repository", tmp_path / "checkout"
    write(top, {"bench.py": CONTENDER, KERNEL: "raise RuntimeError('the working tree')\n"})
    write(folder, {"bench.py": CONTENDER, KERNEL: "ROUNDS = 1\n"})
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(top / "src"), os.environ.get("PYTHONPATH", "")]))
    suite = listing.load_revision("attention", [str(folder / "bench.py")], told(top, folder))
    assert list(suite.contenders) == ["mine@base"]
    files = {Path(file).relative_to(folder).as_posix() for file in suite.contenders["mine@base"].files}
    assert files == {"bench.py", KERNEL}


def test_what_a_finder_gives_of_the_working_tree_is_refused(tmp_path: Path) -> None:
    """As an editable install does that the revision has no folder for."""
    top, folder = tmp_path / "repository", tmp_path / "checkout"
    write(top, {"project.py": "ROUNDS = 1\n"})
    finder = f"""
import importlib.util, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "project":
            return importlib.util.spec_from_file_location(name, {str(top / "project.py")!r})

sys.meta_path.append(Finder)
"""
    write(folder, {"bench.py": finder + CONTENDER.replace("project.kernel", "project")})
    with pytest.raises(BadInput, match=r"project was imported from the working tree \(project.py\)"):
        listing.load_revision("attention", [str(folder / "bench.py")], told(top, folder))


def test_kernels_that_end_their_process_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"src/groundspeed/kernels/__init__.py": "import os\nos._exit(5)\n"})
    with pytest.raises(BadInput, match=r"^the kernels: the process that imported this exited with code 5 "):
        listing.load_revision("attention", [], told(tmp_path / "nowhere", tmp_path))


IMPORTED = """
import json, sys
from pathlib import Path
from groundspeed.suites import revision

told = json.loads(sys.argv[1])
suite = revision.load("attention", [sys.argv[2]], **told)
suite.look()
before = Path(told["imported"]).read_text()
suite.contenders["mine@base"].build(None)(*[None] * 3, causal=False, scale=1.0)
suite.look()
print(json.dumps([before, Path(told["imported"]).read_text()]))
"""
LAZY = """
import groundspeed as gs


@gs.contender("attention")
def mine(q, k, v, *, causal, scale):
    from project.kernel import ROUNDS
"""


def test_it_is_known_what_a_contender_has_imported_of_its_revision_when_it_was_called(tmp_path: Path) -> None:
    """Also what it imports no earlier; its own file is no import."""
    top, folder = tmp_path / "repository", tmp_path / "checkout"
    write(top, {KERNEL: ""})
    write(folder, {"bench.py": LAZY, KERNEL: "ROUNDS = 1\n"})
    asked = {**told(top, folder), "imported": str(tmp_path / "imported")}
    command = [sys.executable, "-c", IMPORTED, json.dumps(asked), str(folder / "bench.py")]
    before, after = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert before == "\n"
    assert after.split() == ["project", "project.kernel"] or after.split() == ["project.kernel"]


LOOK = """
import json, sys
from groundspeed.suites import revision

suite = revision.load("attention", [], **json.loads(sys.argv[1]))
case = suite.module.case_of_params({"B": 1, "H": 1, "S": 64, "D": 64, "dtype": "fp32", "causal": False})
contender = suite.contenders["ours-portable@base"]
import groundspeed as gs
from groundspeed.measure import bench

print(json.dumps({
    "called": contender.build(case).func(1, 2, 3),
    "public": gs.attention(1, 2, 3),
    "oracle": sys.modules[suite.module.__name__ + ".dense"].reference.__file__,
    "work": sys.modules[suite.module.__name__ + ".dense"].work.__file__,
    "tolerance": dict(case.tolerance),
    "bench": bench.__file__,
    "files": contender.files,
    "names": list(suite.contenders),
}))
"""


def test_of_groundspeed_itself_the_kernels_are_the_revisions_and_the_oracle_is_not(tmp_path: Path) -> None:
    """A revision that loosens its own tolerance, or its own clock, is measured by ours all the same."""
    kernels = "src/groundspeed/kernels"
    files = {
        f"{kernels}/__init__.py": "",
        f"{kernels}/attention/__init__.py": "",
        f"{kernels}/attention/api.py": "def attention(*inputs, **asked):\n    return 'of the revision'\n",
        f"{kernels}/attention/reference.py": "TOLERANCE = {}\n",
        f"{kernels}/work.py": "raise RuntimeError('nobody asks for it')\n",
        "src/groundspeed/measure/bench.py": "raise RuntimeError('nobody asks for it')\n",
    }
    write(tmp_path, files)
    call = [sys.executable, "-c", LOOK, json.dumps(told(tmp_path / "nowhere", tmp_path))]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["called"] == found["public"] == "of the revision"
    assert Path(found["oracle"]) == HOME / "kernels/attention/reference.py"
    assert Path(found["work"]) == HOME / "kernels/work.py"
    assert Path(found["bench"]) == HOME / "measure/bench.py"
    assert found["tolerance"]
    assert all(Path(file).is_relative_to(tmp_path) for file in found["files"])
    assert found["names"] == ["ours-portable@base", "ours-hopper@base"]
