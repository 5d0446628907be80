"""The folder of checkers that are `clean`: it has the work, and nothing else that a doer made.

It is beside the session's snapshots. In a repository it is one of its own, which has the objects,
branches and tags of the folder's, and none of its settings and hooks. Ignored files are there only
if the session's `copy` or `prepare` has brought them; what checks leave there is removed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue

from app.core.outcomes import Outcome
from leadhand.models.git_settings import repository_top
from workers.folders.git_state import GitState
from workers.folders.private_repository import by_products_of, find_repository
from workers.folders.snapshots import SnapshotLost, Worktree
from workers.folders.work_diff import SNAPSHOTS, left_out
from workers.git.git import Cancelled, Git, WorkspaceRefused
from workers.git.worktrees import copy_ignored, is_prepared, preparation, write_prepared
from workers.processes.exit_outcome import failure
from workers.processes.process import run
from workers.processes.user_folders import claim_folder
from workers.task import BodyTask

#: The folder within the session's spill folder.
CLEAN = "clean"
#: A state of a folder that was not recorded.
UNKNOWN = "unknown"


class NotClean(Exception):
    """The clean folder cannot be made; the text says why."""


class NotPrepared(NotClean):
    """The command that prepares the folder failed, which may pass, as of a registry."""


def is_merge(workspace: Mapping[str, JsonValue]) -> bool:
    """Whether the folder is that of a merge, which has the merged commit and nothing else."""
    return workspace.get("do") in ("rebase", "merge")


def prepare_folder(task: BodyTask, git: Git, path: Path, cwd: Path, command: str) -> Outcome | None:
    """Run the command that prepares a folder, unless that is done; return its failure, or None."""
    digest = preparation(list(dict.fromkeys((path, cwd))), command)
    if not command or is_prepared(path, digest):
        return None
    result = run(task.command(command), git.cancel)
    failed = failure(result, who="the command that prepares the folder", timeout_s=task.timeout_s)
    if failed is None:
        write_prepared(path, digest)
    return failed


def record_work(task: BodyTask, top: Path) -> None:
    """Record what a folder of the session's own has now as the work that is judged.

    That is of a merge or a fork. It has files as they are, and not as git would store them.
    """
    tree = snapshots_of(task, top, is_own=True)
    digest = tree.snapshot()
    GitState(tree).record()
    task.on_workspace({"work": digest or ""})


def state_as_found(task: BodyTask) -> str:
    """Return the state of the working folder now, or UNKNOWN, for a check in the clean folder."""
    top, is_own = task.own_top or task.folder, task.own_top is not None
    return snapshots_of(task, top, is_own=is_own).snapshot() or UNKNOWN


def snapshots_of(task: BodyTask, top: Path, *, is_own: bool) -> Worktree:
    """Return the session's snapshots of a folder."""
    shelf, by_products = task.home / SNAPSHOTS, left_out(task.inputs)
    return Worktree(top, shelf, is_own=is_own, most=task.copy_max, leave_out=by_products)


@contextmanager
def in_clean_folder(
    task: BodyTask, cancel: threading.Event, digest: str | None
) -> Iterator[BodyTask]:
    """Yield the task of a check in the clean folder, which is set to a state of the working folder.

    `digest` is that state; None for the work that the check judges. Raises NotClean.
    """
    git = Git(_top(task), cancel, time.monotonic() + task.timeout_s)
    folder = _CleanFolder(task, git)
    try:
        try:
            folder.set_to(_required(digest or task.recorded_work() or UNKNOWN))
        except (SnapshotLost, WorkspaceRefused, OSError, subprocess.SubprocessError) as error:
            raise NotClean(f"its folder cannot be set to the work: {error}") from None
        yield folder.task
    finally:
        if not folder.is_kept:
            folder.remove()


def remove_clean_folder(session: Path) -> None:
    """Removes the clean folder of a session, by its spill folder."""
    shutil.rmtree(session / CLEAN, ignore_errors=True)


def _top(task: BodyTask) -> Path:
    return task.own_top or repository_top(task.folder) or task.folder


def _is_whole(task: BodyTask) -> bool:
    """Whether the states of the session are those of the top folder, and not of `cwd` in it."""
    return task.own_top is not None or is_merge(task.workspace or {})


def _required(digest: str) -> str:
    if not digest.startswith("git:"):
        raise NotClean("the state of the working folder is not recorded: it is too large, or slow")
    return digest


class _Extras(NamedTuple):
    """What the session's own folder gets beside the files that git tracks."""

    origin: Path | None
    copy: tuple[str, ...]
    prepare: str


def _extras(task: BodyTask) -> _Extras:
    given = task.workspace or {}
    names, prepare = given.get("copy"), given.get("prepare")
    return _Extras(
        task.origin, tuple(map(str, names)) if isinstance(names, list) else (), str(prepare or "")
    )


class _CleanFolder:
    """The clean folder of a session on this host."""

    def __init__(self, task: BodyTask, git: Git) -> None:
        self._git = git
        self._home = task.spill.parent / CLEAN
        self._top, self._extras = _top(task), _extras(task)
        self._shelf = task.home / SNAPSHOTS
        #: The top of it, and the folder in it in which checks work.
        self._path = self._home / "tree"
        cwd = self._path / task.folder.resolve().relative_to(self._top.resolve())
        self._snapshot_folder = self._path if _is_whole(task) else cwd
        self.task = replace(task, cwd=cwd, own_top=self._path)
        #: Whether it is used again, since it was prepared, and removed at the end of the session.
        self.is_kept = bool(self._extras.prepare) and task.home == task.spill.parent

    def remove(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)

    def set_to(self, digest: str) -> None:
        """Give the folder a state of the working folder, and what is prepared for that."""
        if not (self.is_kept and self._is_as_prepared()):
            self.remove()
        self._restore(digest)
        if self.is_kept and not is_prepared(self._path, self._preparation()):
            self.remove()  # what was prepared for other lock files goes
            self._restore(digest)
        self._furnish(digest)

    def _furnish(self, digest: str) -> None:
        """Bring copied files, and what the command that prepares the folder makes."""
        extras, git = self._extras, self._git.at(self._path)
        if extras.copy and extras.origin is not None:
            top = Path(self._git.at(extras.origin)("rev-parse", "--show-toplevel"))
            copy_ignored(git, top, self._path, extras.copy)
        if not extras.prepare or is_prepared(self._path, self._preparation()):
            return
        failed = prepare_folder(self.task, git, self._path, self.task.folder, extras.prepare)
        if failed is not None:
            self.remove()
            if git.cancel.is_set():
                raise Cancelled
            raise NotPrepared(failed.reason.text if failed.reason else failed.text)
        tree = self._restore(digest, removes=False)
        kept = tree.untracked()
        self._prepared_file.write_text(json.dumps([kept, self._state_of(kept)]))

    def _preparation(self) -> str:
        return preparation(
            list(dict.fromkeys((self._path, self.task.folder))), self._extras.prepare
        )

    @property
    def _prepared_file(self) -> Path:
        """The file that names what was prepared, with its state; else what is in no state goes."""
        return self._home / "prepared.json"

    def _is_as_prepared(self) -> bool:
        """Whether what was prepared is as it was then: code of the work has run beside it."""
        try:
            kept, state = json.loads(self._prepared_file.read_text())
            return bool(state == self._state_of(kept))
        except (OSError, ValueError):
            return False

    def _state_of(self, kept: Sequence[str]) -> str:
        """A digest of names, sizes and times, of which code of the work cannot set the last."""
        mixed = hashlib.sha256()
        for name in kept:
            top = self._snapshot_folder / name
            within = sorted(top.rglob("*")) if top.is_dir() and not top.is_symlink() else ()
            for path in (top, *within):
                facts = path.lstat()
                is_folder = stat.S_ISDIR(facts.st_mode)
                times = "" if is_folder else f"{facts.st_size} {facts.st_ctime_ns}"
                mixed.update(f"{path} {facts.st_mode} {times}\0".encode(errors="surrogateescape"))
        return mixed.hexdigest()

    def _restore(self, digest: str, *, removes: bool = True) -> Worktree:
        self._make()
        self.task.folder.mkdir(parents=True, exist_ok=True)
        by_products = by_products_of(self._shelf, self._top)
        tree = Worktree(
            self._snapshot_folder, self._home / SNAPSHOTS, is_own=True, leave_out=by_products
        )
        tree.restore(digest, self._shelf)
        if removes and self._prepared_file.exists():
            self._remove_left(tree)
        return tree

    def _remove_left(self, tree: Worktree) -> None:
        """Remove what earlier checks have left in ignored files."""
        kept, _ = json.loads(self._prepared_file.read_text())
        folders = tuple(one for one in kept if one.endswith("/"))
        for name in tree.untracked():
            if name not in kept and not name.startswith(folders):
                path = self._snapshot_folder / name
                shutil.rmtree(path) if name.endswith("/") else path.unlink(missing_ok=True)

    def _make(self) -> None:
        """Make the folder, as a repository if the working folder is in one."""
        claim_folder(self._home.parent)
        claim_folder(self._home)
        self._path.mkdir(exist_ok=True)
        if repository_top(self._top) is None:
            if repository_top(self._path) is not None:  # otherwise snapshots would be of that
                self._git.at(self._path)("init", "--quiet")
            return
        self._link()

    def _link(self) -> None:
        """Give it the history of the folder's repository, and the commit that is checked out.

        It is made anew, as code of the work that checks have run may have changed it.
        """
        theirs, ours = self._git, self._git.at(self._path)
        own = self._path / ".git"
        shutil.rmtree(own, ignore_errors=True)
        form = theirs("rev-parse", "--show-object-format")
        ours("init", "--quiet", f"--object-format={form}", "--template=")
        paths = theirs("rev-parse", "--git-path", "objects", "--git-path", "shallow")
        objects, shallow = (theirs.folder / one for one in paths.splitlines())
        for folder in ("objects/info", "info"):
            (own / folder).mkdir(exist_ok=True)
        (own / "objects" / "info" / "alternates").write_text(f"{objects.resolve()}\n")
        recorded = find_repository(self._shelf, self._top)
        if recorded is not None:
            shutil.copyfile(recorded.home / "excludes", own / "info" / "exclude")
        if shallow.is_file():
            shutil.copyfile(shallow, own / "shallow")
        refs = theirs("for-each-ref", "--format=%(objectname) %(refname)")
        (own / "packed-refs").write_text(f"{refs}\n" if refs else "")
        head = theirs.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if head is not None:
            ours("update-ref", "--no-deref", "HEAD", head)
            ours("read-tree", head)
