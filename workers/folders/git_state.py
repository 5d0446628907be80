"""Keeps what git has of a session's own worktree, and puts it back after its checkers.

That is HEAD, its branch, the index, and an operation in progress such as a merge. The files of the
worktree are not part of it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from workers.folders.snapshots import Worktree

#: The files and folders of an operation in progress, in git's folder of a worktree.
_IN_PROGRESS = (
    "MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG",
    "BISECT_START", "BISECT_TERMS", "BISECT_NAMES", "BISECT_EXPECTED_REV", "rebase-merge",
    "rebase-apply", "sequencer",
)  # fmt: skip
_HEAD, _INDEX = "HEAD", "index"
#: The folder of the copies beside the snapshots, and the file in it with the facts.
_SHELF, _FACTS = "git-state", "facts.json"


class _Facts(NamedTuple):
    head: str
    #: The branch that is checked out, empty for none, and its commit.
    branch: str
    commit: str
    #: A digest of what the index has, without times of files.
    entries: str
    #: The files and folders of an operation in progress, with digests of their contents.
    in_progress: dict[str, str]


class GitState:
    """What git has of a session's own worktree; of other folders nothing is kept."""

    def __init__(self, tree: Worktree) -> None:
        self._tree = tree
        self._shelf = tree.shelf / _SHELF

    def record(self) -> None:
        """Keep the state as it is now."""
        shutil.rmtree(self._shelf, ignore_errors=True)
        with suppress(OSError, subprocess.SubprocessError):
            home = self._home()
            if home is None:
                return
            facts = self._facts(home)
            self._shelf.mkdir(mode=0o700)
            for name in (_HEAD, _INDEX, *facts.in_progress):
                _copy(home / name, self._shelf / name)
            (self._shelf / _FACTS).write_text(json.dumps(facts))

    def is_missing(self) -> bool:
        """Whether nothing was kept of a linked worktree: its doer worked on another host."""
        try:
            return not (self._shelf / _FACTS).exists() and self._home() is not None
        except (OSError, subprocess.SubprocessError):
            return False

    def changes(self) -> list[str]:
        """Return what differs from the kept state, in words; nothing without one."""
        found = self._compare()
        return [] if found is None else [*_changes(*found[1:])]

    def put_back(self) -> None:
        """Put the kept state back. Repeat it after a kill. Raises OSError, SubprocessError."""
        found = self._compare()
        if found is None or not [*_changes(*found[1:])]:
            return
        home, kept, _ = found
        if kept.branch:
            self._tree.run_theirs(
                "update-ref", "-m", "leadhand: put back", kept.branch, kept.commit
            )
        for name in (*_IN_PROGRESS, _INDEX, _HEAD):
            _copy(self._shelf / name, home / name)

    def _compare(self) -> tuple[Path, _Facts, _Facts] | None:
        try:
            kept = _Facts(*json.loads((self._shelf / _FACTS).read_text()))
            home = self._home()
            return None if home is None else (home, kept, self._facts(home, kept.branch))
        except (OSError, ValueError, TypeError, subprocess.SubprocessError):
            return None

    def _home(self) -> Path | None:
        """Git's own folder of the worktree; None for a folder that is no linked worktree."""
        own, common = self._tree.run_theirs("rev-parse", "--git-dir", "--git-common-dir").split(
            "\n"
        )
        own_path, common_path = (self._tree.folder / one for one in (own, common))
        is_linked = own_path.resolve() != common_path.resolve()
        return own_path.resolve() if is_linked else None

    def _facts(self, home: Path, branch: str = "") -> _Facts:
        head = (home / _HEAD).read_text().strip()
        branch = branch or (head.partition("ref: ")[2])
        commit = self._tree.run_theirs("for-each-ref", "--format=%(objectname)", branch)
        entries = self._tree.run_theirs("ls-files", "--stage", "-z")
        index = hashlib.sha256(entries.encode(errors="surrogateescape")).hexdigest()
        begun = {name: _digest(home / name) for name in _IN_PROGRESS if (home / name).exists()}
        return _Facts(head, branch, commit if branch else "", index, begun)


def _digest(path: Path) -> str:
    """A digest of a file, or of all files in a folder."""
    mixed = hashlib.sha256()
    for file in (path, *sorted(path.rglob("*"))):
        mixed.update(f"{file}\0".encode(errors="surrogateescape"))
        if file.is_file():
            mixed.update(hashlib.sha256(file.read_bytes()).digest())
    return mixed.hexdigest()


def _changes(kept: _Facts, now: _Facts) -> Iterator[str]:
    if now.head != kept.head:
        yield "HEAD"
    if now.commit != kept.commit:
        yield f"the branch {kept.branch.removeprefix('refs/heads/')}"
    if now.entries != kept.entries:
        yield "the index"
    if now.in_progress != kept.in_progress:
        yield "an operation in progress"


def _copy(source: Path, target: Path) -> None:
    """Make a file or folder of git the same as another one, also where that does not exist."""
    if target.is_dir():
        shutil.rmtree(target)
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        draft = target.with_name(f"{target.name}.leadhand-draft")
        shutil.copy2(source, draft)
        draft.replace(target)
    else:
        target.unlink(missing_ok=True)
