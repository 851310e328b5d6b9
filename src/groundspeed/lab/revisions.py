"""Checks out two revisions of the current git repository, each into a temporary folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence.revision import CHANGES, SIDES, Revision, Side, short
from groundspeed.suites import listing, registry

WORKING_TREE = "."
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""Variables that git sets for its hooks, and that would direct a checkout to another repository."""
SOON_S = 600
"""The time limit of a git command: a checkout of a large repository takes minutes on a slow disk."""


@dataclass(frozen=True)
class Checkout:
    side: Side
    asked: str
    commit: str
    tree: str
    """The hash of its content in git; empty if the content is not committed."""
    folder: Path

    @property
    def words(self) -> str:
        """The name and the commit, as in `main (0123456789ab)`; a commit that was named by its hash appears only
        once."""
        name = "the working tree" if self.asked == WORKING_TREE else self.asked
        return short(self.commit) if self.commit.startswith(self.asked) else f"{name} ({short(self.commit)})"


@dataclass(frozen=True)
class Pair:
    repository: Path
    base: Checkout
    head: Checkout
    scratch: Path
    """A folder that exists as long as the checkouts do."""

    @property
    def sides(self) -> tuple[Checkout, Checkout]:
        return self.base, self.head

    def revisions(self, contender: str) -> dict[str, Revision]:
        found = [Revision(contender, one.side, one.asked, one.commit) for one in self.sides]
        return {revision.name: revision for revision in found}

    def notes(self) -> Iterator[str]:
        """Yield what a reader of the comparison must know about the two revisions."""
        if self.base.tree and self.base.tree == self.head.tree:
            yield "both revisions have the same content: any difference is noise"
        if self.head.asked == "HEAD" and git(self.repository, "status", "--porcelain", "--untracked-files=no"):
            yield (
                "HEAD is the commit, without the changes in the working tree: "
                f"`groundspeed compare {self.base.asked} {WORKING_TREE}` compares the working tree"
            )


def resolve(name: str) -> str | None:
    """Return the commit that a name means in the current repository; None if it means none, or if there is no
    repository."""
    if name == WORKING_TREE:
        return _git(Path.cwd(), "rev-parse", "HEAD").stdout.strip() or None
    found = _git(Path.cwd(), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return found.stdout.strip() or None


@contextmanager
def checked_out(base: str, head: str) -> Iterator[Pair]:
    """Check out two revisions; `.` is the working tree in place. The folders are removed afterwards, also after
    Ctrl-C."""
    repository = top()
    if base == head == WORKING_TREE:
        raise BadInput(
            "both are the working tree; name a revision to compare it with, as in `groundspeed compare HEAD .`"
        )
    commits = {name: _commit(name) for name in (base, head)}
    scratch = Path(tempfile.mkdtemp(prefix="groundspeed-")).resolve()
    try:
        base_side, head_side = (
            _check_out(repository, side, name, commits[name], scratch)
            for side, name in zip(SIDES, (base, head), strict=True)
        )
        yield Pair(repository, base_side, head_side, scratch)
    finally:
        with _undisturbed():
            shutil.rmtree(scratch, ignore_errors=True)
            _git(repository, "worktree", "prune")


def top() -> Path:
    """Return the top folder of the repository that the current folder is in."""
    found = _git(Path.cwd(), "rev-parse", "--show-toplevel")
    if "dubious ownership" in found.stderr:
        raise GroundspeedError(
            f"git refuses {Path.cwd()}, which belongs to another user; allow it with: git config --global --add "
            "safe.directory FOLDER"
        )
    if found.returncode != 0 or not found.stdout.strip():
        raise BadInput(f"{Path.cwd()} is not in a git repository; go to one to compare revisions, or name two bundles")
    return Path(found.stdout.strip()).resolve()


def _commit(name: str) -> str:
    if commit := resolve(name):
        return commit
    if name == WORKING_TREE:
        raise BadInput("this repository has no commit yet; commit what you want to compare")
    shallow = _git(Path.cwd(), "rev-parse", "--is-shallow-repository").stdout.strip() == "true"
    more = "; this clone is shallow, so fetch its history first (actions/checkout: fetch-depth: 0)" if shallow else ""
    raise BadInput(
        f"{name!r:.80} is neither a bundle nor a revision of {top()}{more or '; `git log` shows its revisions'}"
    )


def _check_out(repository: Path, side: Side, name: str, commit: str, scratch: Path) -> Checkout:
    if name == WORKING_TREE:
        changed = bool(git(repository, "status", "--porcelain", "--", ".", ":!.groundspeed"))
        tree = "" if changed else git(repository, "rev-parse", f"{commit}^{{tree}}")
        return Checkout(side, name, commit + (CHANGES if changed else ""), tree, repository)
    folder = scratch / side
    git(repository, "worktree", "add", "--detach", "--force", str(folder), commit)
    return Checkout(side, name, commit, git(repository, "rev-parse", f"{commit}^{{tree}}"), folder)


def load(pair: Pair, suite: str, with_files: Sequence[str], pythons: Mapping[Side, str]) -> dict[Side, registry.Suite]:
    """Return what each revision has to compare, as its own interpreter reports it if it has one. The names of the
    contenders end in the side."""
    found = {}
    for one in pair.sides:
        files = [str(located(pair, one, file)) for file in with_files]
        try:
            found[one.side] = listing.load_revision(suite, files, told(pair, one), pythons.get(one.side, ""))
        except BadInput as error:
            said = str(error).replace(f"{one.folder}{os.sep}", "")
            raise BadInput(f"{said} (in {one.side}, {one.asked})") from None
    return found


def told(pair: Pair, one: Checkout) -> dict[str, str]:
    """Return what the loader in a revision's worker needs to know."""
    where = {"repository": str(pair.repository), "folder": str(one.folder), "environment": sys.prefix}
    return {**where, "suffix": f"@{one.side}"}


def located(pair: Pair, one: Checkout, file: str) -> Path:
    """Return the path of a `--with` file in this revision; a file outside the repository is the same in both."""
    path = Path(file).resolve()
    if not path.is_relative_to(pair.repository):
        return path
    there = one.folder / path.relative_to(pair.repository)
    if not there.is_file():
        raise BadInput(
            f"--with {file}: {one.side} ({one.asked}) has no such file; to compare what it imports, use a copy outside "
            "the repository"
        )
    return there


def imported(pair: Pair, one: Checkout, contender: str) -> Path:
    """Return the file in which the processes of a contender write what they imported from their revision."""
    return pair.scratch / f"imported-{contender}@{one.side}"


def same_python(pair: Pair, file: str, contender: str) -> bool:
    """Whether both sides are known to have run the same Python code: the `--with` file is the same, and after its
    contender had been called, no process of either side had imported anything else from the repository."""
    if len({located(pair, one, file).read_bytes() for one in pair.sides}) > 1:
        return False
    try:
        lines = [imported(pair, one, contender).read_text(encoding="utf-8").splitlines() for one in pair.sides]
    except OSError:  # nothing was written, because the contender was never called
        return False
    return not any(line for some in lines for line in some)


def recorded(pair: Pair, file: str) -> str:
    """Return the name of a `--with` file in a record: its path in the repository, if it is in there."""
    path = Path(file).resolve()
    return path.relative_to(pair.repository).as_posix() if path.is_relative_to(pair.repository) else file


def git(folder: Path, *arguments: str) -> str:
    done = _git(folder, *arguments)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise GroundspeedError(f"git {arguments[0]} failed in {folder}: {why[:300]}")
    return done.stdout.strip()


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git without hooks, which are not wanted here, and in a session of its own, because we handle Ctrl-C."""
    command = ["git", "-c", f"core.hooksPath={os.devnull}", "-C", str(folder), *arguments]
    kept = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SOON_S,
            check=False,
            start_new_session=True,
            env={**kept, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise GroundspeedError("git is not installed, and comparing revisions needs it; install git") from None
    except ValueError:
        return subprocess.CompletedProcess(command, 128, "", "a name contains a NUL")
    except subprocess.TimeoutExpired:
        raise GroundspeedError(f"git {arguments[0]} did not finish within {SOON_S} s in {folder}") from None


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM inside the context: a user who presses Ctrl-C twice still wants the folders removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
