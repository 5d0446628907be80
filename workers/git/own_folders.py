"""Makes, keeps and removes the folder that a single session has to itself.

It is `ROOT/ORIGIN-HASH/SESSION/tree`, with a record beside it, as of the tasks of plans. The
lock is that of the repository, whose place is by its real common directory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from app.core.folders import MERGE_FOLDER, TREE, OwnFolder, RecordedState, own_branch, own_shelf
from workers.git import copies, worktrees
from workers.git.cleaning import Removed, clean, clean_merges
from workers.git.copies import make_copy
from workers.git.git import Git, GitMissing, WorkspaceRefused
from workers.git.layout import Record, Shelf, read_record, write_record
from workers.git.recorded_tree import Work, keep_work
from workers.git.repository import Repository, check_repository, find_repository
from workers.git.worktrees import Place, forget_prepared

_OTHERWISE = "or start the session without a worktree"
#: What to do where a fork cannot have a worktree at the recorded state.
AS_IS = "fork with --folder as-is to work in the folder as it is now"


class Home(NamedTuple):
    """The folder of a session, as its worker knows it."""

    root: Path
    session: str
    #: The folder that the session was started in.
    origin: Path
    prefix: str

    @property
    def place(self) -> Place:
        """Return where the session's own folder belongs: its parent folder, session and run."""
        shelf = Shelf(self.root.resolve() / own_shelf(str(self.origin)))
        return Place(shelf, self.session, TREE, 1)

    @property
    def path(self) -> Path:
        """Return the path of the session's own folder."""
        return self.place.path

    @property
    def cwd(self) -> Path:
        """Return the working folder of the session."""
        own = OwnFolder(str(self.root.resolve()), str(self.origin), self.prefix)
        return Path(own.cwd(self.session))

    @property
    def merge_path(self) -> Path:
        """Return the path of the worktree in which its merged work is checked again."""
        return self.path.with_name(MERGE_FOLDER)

    @property
    def record(self) -> Record | None:
        """Read the record of the session's folder; None before it is made."""
        return read_record(self.path)

    def require_record(self) -> Record:
        """Return the session folder's record. Raises WorkspaceRefused if it is not complete."""
        record = self.record
        if record is None or not record.ready:
            raise WorkspaceRefused(
                f"the folder {str(self.path)!r} of session {self.session} is gone"
            )
        return record

    @contextmanager
    def locked(self, git: Git, kind: str) -> Iterator[Git]:
        """Yield git while the lock of the repository, or of the copied folder, is held."""
        shelf = self.place.shelf
        if kind == "worktree":
            shelf = Shelf.of(self.root, git.folder / git("rev-parse", "--git-common-dir"))
        with shelf.locked(git.cancel) as lock:
            yield git.holding(lock)

    @contextmanager
    def opening(self, git: Git) -> Iterator[Git]:
        """Yield git while no other step of the session makes the folder."""
        with Shelf(self.path.parent).locked(git.cancel) as lock:
            yield git.holding(lock)


def open_folder(
    git: Git,
    home: Home,
    *,
    most: int,
    store: str = "",
    state: RecordedState | None = None,
    leave_out: tuple[str, ...] | None = None,
) -> Record:
    """Make a session's own folder (worktree or copy), unless it exists, and return its record.

    Raises WorkspaceRefused, Cancelled.

    It is a worktree where the folder is in a git repository, otherwise a copy. The worktree of a
    fork starts from the commit that was checked out when the `state` was recorded.
    """
    known = home.record
    otherwise = _OTHERWISE if state is None else f"or {AS_IS}"
    is_copy = known is not None and known.kind == "copy"
    found = None if is_copy else _repository(git, otherwise)
    top = home.origin.resolve() if found is None else found.top.resolve()
    if home.root.resolve().is_relative_to(top):
        raise WorkspaceRefused(
            f"the folder for worktrees, {str(home.root)!r}, lies inside {str(top)!r}; set"
            " LEADHAND_WORKTREES to one outside"
        )
    wanted = Record(
        kind="worktree", origin=str(home.origin), task=TREE, run=1, session=home.session,
        store=store, leave_out=leave_out,
    )  # fmt: skip
    if found is None:
        return _copy(git, home, wanted, most)
    if found.prefix != home.prefix:
        instead = f"start the session in {str(found.top)!r}" if state is None else AS_IS
        raise WorkspaceRefused(
            f"{str(home.origin)!r} is not the top of its repository, which the API could not see;"
            f" {instead}"
        )
    base = _base_of(git, home, state) if state is not None and known is None else ""
    wanted = wanted.model_copy(
        update={"branch": own_branch(home.session), "target": found.target, "base": base}
    )
    with home.locked(git, "worktree") as held:
        record = worktrees.make(held, home.place, wanted)
    home.cwd.mkdir(parents=True, exist_ok=True)
    return record


def is_opened(home: Home) -> bool:
    """Whether the worktree of a fork is complete, so that its steps may work in it."""
    record = home.record
    return record is not None and record.opened


def mark_opened(home: Home) -> None:
    """Records that the worktree of a fork is complete."""
    write_record(home.path, home.require_record().model_copy(update={"opened": True}))


def _base_of(git: Git, home: Home, state: RecordedState) -> str:
    """The commit from which the work of a session started; empty if it is unknown."""
    earlier = Home(home.root, state.session, home.origin, home.prefix).record
    if earlier is not None and earlier.kind == "worktree":
        return earlier.base
    # A reflog has whole seconds. An earlier commit does no harm; a later one is not in the state.
    then = time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime(state.at_ms // 1000 - 1))
    return git.ask("rev-parse", "--verify", "--quiet", f"HEAD@{{{then}}}^{{commit}}") or ""


def check_folder(git: Git, home: Home) -> Record:
    """Returns a session folder's record. Raises WorkspaceRefused if it is gone or off branch."""
    record = home.require_record()
    if record.kind == "worktree":
        worktrees.check(git, home.path, record.branch)
    elif not home.cwd.is_dir():
        raise WorkspaceRefused(f"the copy {str(home.cwd)!r} is gone; retry the step that makes it")
    return record


def close_folder(git: Git, home: Home, message: str, work: Work | None) -> str:
    """Commits a session's work to its worktree's branch; returns the commit, '' for a copy.

    Without `work`, the worktree is committed as it is.
    """
    record = check_folder(git, home)
    if record.kind == "copy":
        return ""
    with home.locked(git, "worktree") as held:
        return keep_work(held, home.path, work, message)


def discard_folder(
    git: Git,
    home: Home,
    *,
    force: bool,
    reserve: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Removed:
    """Remove a session's own folder; without `force` keep unsaved work and return why.

    Raises Cancelled.

    `reserve` is entered under the lock of the folder: it keeps the session from being resumed, or
    raises WorkspaceRefused.
    """
    record = home.record
    with home.locked(git, record.kind if record is not None else "copy") as held:
        try:
            with reserve():
                removed = clean(held, home.place, force=force)
                clean_merges(held, home.path.parent)
        except WorkspaceRefused as error:
            return Removed(kept=str(error))
    if not removed.kept:
        forget_prepared(home.path)
    return removed


def _repository(git: Git, otherwise: str) -> Repository | None:
    try:
        found = find_repository(git, otherwise)
        if found is not None:
            check_repository(git, otherwise)
    except GitMissing:
        raise WorkspaceRefused(f"git is not installed; install it, {otherwise}") from None
    return found


def _copy(git: Git, home: Home, wanted: Record, most: int) -> Record:
    return make_copy(
        home.path,
        wanted.model_copy(update={"kind": "copy", "prefix": home.prefix}),
        most=most,
        cancel=git.cancel,
        deadline=git.deadline,
        on_copied=lambda copy: copies.write_digests(home.path, copy),
        instead="a copy; make it a git repository, or start the session without a worktree",
    )
