"""Makes, keeps and removes the folder that a session has to itself, as steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, Field, JsonValue

from app.compiler.folders import recorded_state
from app.core.folders import RecordedState
from app.core.outcomes import Outcome
from workers.attempt.folder_records import removable, reserved, worktrees_root
from workers.checkers.clean_folder import prepare_folder, record_work, remove_clean_folder
from workers.folders.snapshots import SnapshotLost, Worktree
from workers.folders.work_diff import SNAPSHOTS, left_out
from workers.git.applying import listed
from workers.git.git import Git, WorkspaceRefused
from workers.git.layout import Record, reopen
from workers.git.own_folders import (
    AS_IS,
    Home,
    check_folder,
    close_folder,
    discard_folder,
    is_opened,
    mark_opened,
    open_folder,
)
from workers.git.recorded_tree import Work
from workers.git.repository import agent_warnings, count_uncommitted
from workers.git.worktrees import copy_ignored, forget_prepared
from workers.task import BodyTask

#: What the steps of this module do.
STEPS = frozenset({"open", "close", "discard"})


class Asked(BaseModel):
    """The inputs of a step."""

    do: str
    origin: str
    prefix: str = ""
    #: The session whose folder it is; the step's own, unless it is named.
    session: str = ""
    #: Where that folder is, as it was recorded when it was made.
    folder: str = ""
    message: str = ""
    force: bool = False
    copy_files: tuple[str, ...] = Field(default=(), alias="copy")
    prepare: str = ""


def carry_out_own(task: BodyTask, git: Git) -> Outcome:
    """Run a step that makes, commits or discards the own folder of a session."""
    asked = Asked.model_validate(task.inputs)
    home = home_of(task, asked)
    match asked.do:
        case "open":
            return _open(task, git, home, asked)
        case "close":
            return _close(task, git, home, asked)
        case _:
            return _discard(task, git, home, force=asked.force)


def require_own_folder(inputs: Mapping[str, JsonValue], session: str, root: Path) -> None:
    """Opens a session's folder again; raises WorkspaceRefused if it is gone or off its branch."""
    home = _home_of(inputs, session, root)
    check_folder(Git(home.origin), home)
    reopen(home.path)


def is_unopened(inputs: Mapping[str, JsonValue], session: str, root: Path) -> bool:
    """Whether the folder of a fork is not ready yet for the steps that work in it.

    They may start beside the step that makes it: what they wait for was done in another session.
    """
    return recorded_state(inputs) is not None and not is_opened(_home_of(inputs, session, root))


def own_target(inputs: Mapping[str, JsonValue], session: str, root: Path) -> str | None:
    """Returns the branch or commit that a session's worktree started from; None for a copy."""
    record = _home_of(inputs, session, root).record
    return record.target or None if record is not None else None


def own_path(inputs: Mapping[str, JsonValue], session: str, root: Path) -> Path | None:
    """Returns the path of a session's worktree or copy; None before it is made."""
    home = _home_of(inputs, session, root)
    return home.path if home.record is not None else None


class Judged(NamedTuple):
    """The work that was judged, and what else is in the worktree by now."""

    work: Work | None
    left: Sequence[str] = ()
    #: The repositories in the worktree whose files are in the commit.
    nested: Sequence[str] = ()

    def add_warning(self, outcome: Outcome) -> Outcome:
        """Name the files that are not in the commit, and the repositories that became files."""
        warnings: list[str] = []
        if self.left:
            what = "1 file differs" if len(self.left) == 1 else f"{len(self.left)} files differ"
            warnings.append(
                f"{what} from the work that was judged and stays uncommitted in the worktree:"
                f" {listed(self.left)}"
            )
        if self.nested:
            warnings.append(
                "the doer made git repositories of their own, whose files are in the commit without"
                f" their history: {listed(self.nested)}"
            )
        if not warnings:
            return outcome
        return outcome.model_copy(update={"warning": "; ".join(warnings)})


def judged_work(task: BodyTask, path: Path) -> Judged:
    """Returns the work of the task's session as its last doer left it, if it is recorded.

    Raises WorkspaceRefused if it is no longer stored.
    """
    recorded = task.recorded_work() or ""
    kind, _, tree = recorded.partition(":")
    if kind != "git":
        return Judged(None)
    snapshots = task.spill.parent.parent / task.session / SNAPSHOTS
    found = Worktree(path, snapshots, is_own=True)
    now = found.snapshot()  # it stores the tree again, if nothing has changed since
    kept = found.repository
    if kept is None or not found.knows(recorded):
        raise WorkspaceRefused(
            f"the work that was judged (tree {tree[:12]}) is no longer stored in"
            f" {str(snapshots)!r}; retry the step that did it"
        )
    left = found.changed_names(recorded, now)
    work = Work(tree, kept.objects, kept.variables, kept.conversions, kept.own_attributes)
    return Judged(work, left, found.nested())


def _home_of(inputs: Mapping[str, JsonValue], session: str, root: Path) -> Home:
    asked = Asked.model_validate(inputs)
    return Home(root, session, Path(asked.origin), asked.prefix)


def home_of(task: BodyTask, asked: Asked) -> Home:
    """Returns the folder of the session that a step works for. Raises WorkspaceRefused."""
    root, session = worktrees_root(task), asked.session or task.session
    home = Home(root, session, Path(asked.origin), asked.prefix)
    if not asked.session and task.cwd != home.cwd:
        raise WorkspaceRefused(
            f"the folder of this session is {str(task.cwd)!r}, but this worker would make it in"
            f" {str(home.cwd)!r}; give the API and the workers the same LEADHAND_WORKTREES, and"
            " start a new session"
        )
    if asked.folder:
        require_same(f"the folder of session {session}", asked.folder, home.path)
    return home


def require_same(what: str, recorded: str, here: Path) -> None:
    """Raises WorkspaceRefused if a recorded path differs from the one that this worker uses."""
    if recorded != str(here):
        raise WorkspaceRefused(
            f"{what} is {recorded!r}, but for this worker it is {str(here)!r}: LEADHAND_WORKTREES"
            " or the repository has changed; put that back, or remove the folder yourself"
        )


def _open(task: BodyTask, git: Git, home: Home, asked: Asked) -> Outcome:
    state = recorded_state(task.inputs)
    with home.opening(git) if state is not None else nullcontext(git) as held:
        return _opened(task, held, home, asked, state)


def _opened(
    task: BodyTask, git: Git, home: Home, asked: Asked, state: RecordedState | None
) -> Outcome:
    was_open = is_opened(home)
    by_products = left_out(task.inputs)
    record = open_folder(
        git, home, most=task.copy_max, store=task.store, state=state, leave_out=by_products
    )
    task.on_workspace(own_facts(home, kind=record.kind, **_of_worktree(record)))
    warnings = _warnings(git, home, record, is_fork=state is not None)
    if not was_open:  # otherwise a step beside this one works in it already
        if state is not None:
            _restore(task, git, home, state)
        if record.kind == "worktree" and asked.copy_files:
            top = Path(git("rev-parse", "--show-toplevel"))
            missing = copy_ignored(git, top, home.path, asked.copy_files)
            warnings += [f"{name} is not in the repository's folder" for name in missing]
        failed = prepare_folder(task, git, home.path, home.cwd, asked.prepare)
        if failed is not None:
            return failed
        if state is not None:
            record_work(task, home.path)  # no doer of the fork has made what it begins with
            mark_opened(home)
        if record.kind == "worktree":
            warnings += agent_warnings(git, home.path)
    where = f", branch {record.branch} from {record.base}" if record.branch else ""
    outcome = _done(f"{record.kind} {home.path}{where}")
    return outcome.model_copy(update={"warning": "; ".join(warnings)}) if warnings else outcome


def _close(task: BodyTask, git: Git, home: Home, asked: Asked) -> Outcome:
    message = f"{asked.message}\n\nSession {home.session}."
    record = check_folder(git, home)
    judged = Judged(None) if record.kind == "copy" else judged_work(task, home.path)
    commit = close_folder(git, home, message, judged.work)
    remove_clean_folder(task.spill.parent)
    done = _done(f"committed as {commit}" if commit else "the copy is as it is left")
    return judged.add_warning(done)


def _restore(task: BodyTask, git: Git, home: Home, state: RecordedState) -> None:
    """Set the worktree of a fork to the recorded state. Raises WorkspaceRefused."""
    forget_prepared(home.path)
    spill = task.spill.parent.parent
    shelf, by_products = spill / task.session / SNAPSHOTS, left_out(task.inputs)
    tree = Worktree(home.cwd, shelf, lock=git.lock, leave_out=by_products)
    try:
        tree.restore(f"git:{state.tree}", spill / state.session / SNAPSHOTS)
    except SnapshotLost as error:
        raise WorkspaceRefused(
            f"the folder as session {state.session} had it at {state.step} cannot be restored:"
            f" {error}; {AS_IS}"
        ) from None


def _warnings(git: Git, home: Home, record: Record, *, is_fork: bool) -> list[str]:
    """What of the user's folder is not in the worktree."""
    if record.kind == "copy":
        return []
    found: list[str] = []
    changes = 0 if is_fork else count_uncommitted(git)
    if changes:
        what = "1 uncommitted change is" if changes == 1 else f"{changes} uncommitted changes are"
        target = record.target.removeprefix("refs/heads/")
        found.append(f"{what} not in the worktree: it starts from the commits of {target}")
    if (home.path / ".gitmodules").exists():
        found.append(
            "submodules are empty in the worktree (git submodule update --init fills them)"
        )
    return found


def _discard(task: BodyTask, git: Git, home: Home, *, force: bool) -> Outcome:
    statuses = removable(force=force)
    removed = discard_folder(
        git, home, force=force, reserve=lambda: reserved(task, home.session, statuses)
    )
    if removed.kept:
        task.on_workspace(own_facts(home, kept=removed.kept))
        return _done(f"kept: {removed.kept}")
    task.on_workspace(own_facts(home, kept="", cleaned=True))
    return _done("removed")


def _of_worktree(record: Record) -> dict[str, JsonValue]:
    return {"branch": record.branch, "base": record.base, "target": record.target}


def own_facts(home: Home, **facts: JsonValue) -> dict[str, JsonValue]:
    """Builds what a session records about its folder."""
    return {"session": home.session, **facts}


def _done(text: str) -> Outcome:
    return Outcome(word="succeeded", text=text)
