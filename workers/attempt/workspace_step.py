"""Carries out the steps that look at a plan's folder, or make, keep and remove those of tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from pydantic import BaseModel, JsonValue

from app.core.folders import Kind, RunFolder, Survey, plan_branch
from app.core.outcomes import Outcome
from app.core.program import Action
from app.folders import StoreFolders
from app.sessions.attempts import Work
from leadhand.models.git_settings import repository_top
from leadhand.models.verdicts import ReasonCode
from workers.attempt import apply_step, merge_step
from workers.attempt.folder_records import removable, reserved, worktrees_root
from workers.attempt.own_folder_step import (
    STEPS,
    carry_out_own,
    is_unopened,
    judged_work,
    own_path,
    own_target,
    require_own_folder,
    require_same,
)
from workers.checkers.clean_folder import is_merge
from workers.folders.work_diff import left_out
from workers.git import worktrees
from workers.git.applying import require_movable
from workers.git.audit import Access, FolderAudit
from workers.git.cleaning import Removed, clean, clean_merges
from workers.git.copies import check_size, make_copy, write_digests
from workers.git.git import Cancelled, Git, WorkspaceRefused
from workers.git.layout import Record, Shelf, read_record, reopen
from workers.git.recorded_tree import keep_work
from workers.git.repository import (
    OTHERWISE,
    agent_warnings,
    check_repository,
    count_uncommitted,
    find_repository,
)
from workers.git.worktrees import Place
from workers.processes.exit_outcome import failed_outcome
from workers.task import BodyTask


class _Made(RunFolder):
    """The inputs of a step that makes or keeps the folder of a task's run."""

    message: str = ""


class _Cleaning(BaseModel):
    """The inputs of a step that removes folders."""

    kind: Kind
    plan: str
    origin: str
    runs: tuple[tuple[str, int], ...]
    #: Where the folders are, as they were recorded when they were made.
    folders: tuple[str, ...] = ()
    force: bool = False


def carry_out(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Run a step that makes, keeps, merges or removes a folder; a refusal fails the step."""
    deadline = time.monotonic() + task.timeout_s
    try:
        if task.inputs.get("do") in (STEPS | apply_step.STEPS):
            git = Git(Path(str(task.inputs["origin"])), cancel, deadline)
            is_own = task.inputs["do"] in STEPS
            return carry_out_own(task, git) if is_own else apply_step.carry_out(task, git)
        match task.inputs.get("do"):
            case "survey":
                return _survey(task, Git(task.folder, cancel, deadline))
            case "clean":
                return _clean(task, cancel, deadline)
            case "keep":
                return _keep(task, cancel, deadline)
            case "audit":
                return _audit(task, cancel)
            case _:
                merged = merge_step.carry_out(task, cancel, deadline)
                return merged or _make(task, cancel, deadline)
    except WorkspaceRefused as error:
        return failed_outcome(ReasonCode.FAILED_STEP, str(error))
    except Cancelled:
        return failed_outcome(ReasonCode.CANCELLED, "the step was cancelled")


def turn_failure(work: Work, root: Path) -> Outcome | None:
    """Returns a failure if a doer's folder is gone or off its branch; else marks it as in use."""
    if work.workspace is None or work.step.action is not Action.AGENT or work.cwd is None:
        return None
    try:
        if work.workspace["do"] == "open":
            require_own_folder(work.workspace, work.home.id, root)
        elif work.workspace["do"] == "make":  # the resolver of a merge works on no branch
            made = _Made.model_validate(work.workspace)
            _check_task(work.cwd, made)
            reopen(_path_of(work.cwd, made))
    except WorkspaceRefused as error:
        return failed_outcome(ReasonCode.FAILED_STEP, str(error))
    return None


def opening_of(work: Work, root: Path) -> dict[str, JsonValue] | None:
    """Returns the inputs that open the folder of a fork, which a step needs; None if it is open."""
    if work.workspace is None or work.step.action is Action.WORKSPACE:
        return None
    if not work.step.folder and work.step.action is not Action.CHILD:
        return None
    return {**work.workspace} if is_unopened(work.workspace, work.home.id, root) else None


def diff_target(work: Work, root: Path) -> str | None:
    """Returns the branch or commit that a session's own worktree started from; None without."""
    if work.workspace is None or work.workspace["do"] != "open":
        return None
    return own_target(work.workspace, work.home.id, root)


def own_folder(work: Work, root: Path) -> Path | None:
    """Returns the worktree or copy that the session has to itself; else None."""
    if work.workspace is None or work.cwd is None:
        return None
    if work.workspace["do"] == "open":
        return own_path(work.workspace, work.home.id, root)
    if work.workspace["do"] != "make":
        return None
    made = _Made.model_validate(work.workspace)
    return _path_of(work.cwd, made)


def merge_folder(work: Work) -> Path | None:
    """Returns the top of the folder of a merge; None for other sessions."""
    if work.workspace is None or work.cwd is None or not is_merge(work.workspace):
        return None
    return repository_top(work.cwd) or work.cwd


def _check_task(cwd: Path, made: _Made) -> None:
    path = _path_of(cwd, made)
    if made.kind == "worktree":
        worktrees.check(Git(Path(made.origin)), path, made.branch)
    elif not path.is_dir():
        raise WorkspaceRefused(f"the copy {str(path)!r} is gone; retry the step that makes it")


def _survey(task: BodyTask, git: Git) -> Outcome:
    kind, root = task.inputs.get("kind"), worktrees_root(task)
    found = None if kind == "copy" else find_repository(git)
    if found is None and kind == "worktree":
        raise WorkspaceRefused(
            f"{str(git.folder)!r} is in no git repository; give `workspace: copy` or"
            " `workspace: shared`"
        )
    top = git.folder.resolve() if found is None else found.top.resolve()
    if root.resolve().is_relative_to(top):
        raise WorkspaceRefused(
            f"the folder for worktrees, {str(root)!r}, lies inside {str(top)!r}; set"
            " LEADHAND_WORKTREES to one outside"
        )
    if found is None:
        check_size(git.folder, task.copy_max)
        shelf = Shelf.of(root, git.folder)
        survey = Survey(kind="copy", shelf=str(shelf.of_plan(task.session)))
        return _done(f"each task works in a copy of {git.folder}", survey.model_dump())
    check_repository(git, OTHERWISE)
    shelf = Shelf.of(root, found.common)
    survey = Survey(
        kind="worktree", shelf=str(shelf.of_plan(task.session)), prefix=found.prefix,
        target=found.target,
    )  # fmt: skip
    if task.inputs.get("merge"):
        with shelf.locked(git.cancel) as lock:
            merging = _merge_into(task, git.holding(lock), found.target)
        survey = survey.model_copy(update=merging)
    target = found.target.removeprefix("refs/heads/")
    outcome = _done(f"each task works in a worktree, from {target}", survey.model_dump())
    warnings = agent_warnings(git)
    changes = count_uncommitted(git)
    if changes:
        what = "1 uncommitted change is" if changes == 1 else f"{changes} uncommitted changes are"
        warnings.insert(0, f"{what} in no worktree: tasks start from the commits of {target}")
    return outcome.model_copy(update={"warning": "; ".join(warnings)}) if warnings else outcome


def _merge_into(task: BodyTask, git: Git, home: str) -> dict[str, JsonValue]:
    """Which branch gets the work of a plan: its own, or one of the user, which must be free."""
    branch = str(task.inputs.get("target") or "")
    if branch:
        home = require_movable(git, branch)
    else:
        branch = plan_branch(task.session)
        worktrees.make_branch(git, branch, home)
    return {"home": home, "target": f"refs/heads/{branch}", "merge": True}


def _make(task: BodyTask, cancel: threading.Event, deadline: float) -> Outcome:
    made = _Made.model_validate(task.inputs)
    git = Git(Path(made.origin), cancel, deadline)
    place = _place(task, made, git)
    facts = made.model_dump(exclude={"plan", "prefix", "message"})
    wanted = Record(
        **facts, session=task.session, store=task.store, leave_out=left_out(task.inputs)
    )
    if made.kind == "copy":
        record = make_copy(
            place.path, wanted, most=task.copy_max, cancel=cancel, deadline=deadline,
            on_copied=lambda copy: write_digests(place.path, copy),
        )  # fmt: skip
    else:
        with place.shelf.locked(cancel) as lock:
            record = worktrees.make(git.holding(lock), place, wanted)
        (place.path / made.prefix).mkdir(parents=True, exist_ok=True)
    done = _facts(made, folder=str(place.path), branch=record.branch)
    done["base"] = record.base  # also the empty one of a copy: it says that the folder was made
    task.on_workspace(done)
    where = f", branch {record.branch} from {record.base}" if record.branch else ""
    return _done(f"{made.kind} {place.path}{where}", done)


def _keep(task: BodyTask, cancel: threading.Event, deadline: float) -> Outcome:
    made = _Made.model_validate(task.inputs)
    git = Git(Path(made.origin), cancel, deadline)
    place = _place(task, made, git)
    with place.shelf.locked(cancel) as lock:
        worktrees.check(git, place.path, made.branch)
        judged = judged_work(task, place.path)
        commit = keep_work(git.holding(lock), place.path, judged.work, made.message)
    return judged.add_warning(_done(f"branch {made.branch} is at {commit}", {"commit": commit}))


def _clean(task: BodyTask, cancel: threading.Event, deadline: float) -> Outcome:
    asked = _Cleaning.model_validate(task.inputs)
    origin = Path(asked.origin)
    git = Git(origin, cancel, deadline)
    found = _shelf(task, asked.kind, git)
    cleaned: list[JsonValue] = []
    failed: list[JsonValue] = []
    with found.locked(cancel) as lock:
        for (name, run), folder in zip_longest(asked.runs, asked.folders):
            place = Place(found, asked.plan, name, run)
            removed = _clean_run(task, git.holding(lock), place, folder, force=asked.force)
            one: dict[str, JsonValue] = {"plan": asked.plan, "task": name, "run": run}
            if removed.kept:
                failed.append({**one, "kept": removed.kept})
                task.on_workspace({**one, "kept": removed.kept})
            else:
                cleaned.append({**one, "keeps_branch": removed.keeps_branch})
                task.on_workspace({**one, "cleaned": True})
        if asked.kind == "worktree":
            clean_merges(git.holding(lock), found.of_plan(asked.plan))
    text = f"{len(cleaned)} removed, {len(failed)} left"
    return _done(text, {"cleaned": cleaned, "failed": failed})


def _clean_run(
    task: BodyTask, git: Git, place: Place, folder: str | None, *, force: bool
) -> Removed:
    """Remove the folder of a run, unless it is elsewhere or its session is at work again."""
    record = read_record(place.path)
    try:
        if folder is not None:
            require_same("the folder of this run", folder, place.path)
        if record is None or not record.session:
            return clean(git, place, force=force)
        with reserved(task, record.session, removable(force=force)):
            return clean(git, place, force=force)
    except WorkspaceRefused as error:
        return Removed(kept=str(error))


def _facts(made: _Made, **more: str) -> dict[str, JsonValue]:
    """What the plan records about the folder of a run."""
    given = {name: value for name, value in more.items() if value}
    return {"plan": made.plan, "task": made.task, "run": made.run, **given}


def _shelf(task: BodyTask, kind: str, git: Git) -> Shelf:
    """The shelf of a repository, or of a plain folder."""
    root = worktrees_root(task)
    if kind == "copy":
        return Shelf.of(root, git.folder)
    return Shelf.of(root, git.folder / git("rev-parse", "--git-common-dir"))


def _place(task: BodyTask, made: _Made, git: Git) -> Place:
    """Where the folder of a run belongs. Raises WorkspaceRefused if the session has another."""
    place = Place(_shelf(task, made.kind, git), made.plan, made.task, made.run)
    if task.cwd is None or _path_of(task.cwd, made) != place.path:
        raise WorkspaceRefused(
            f"the folder of this session is {str(task.cwd)!r}, but tasks of this repository work in"
            f" {str(place.path)!r}; LEADHAND_WORKTREES or the repository has changed: start a new"
            " plan"
        )
    return place


def _path_of(cwd: Path, made: _Made) -> Path:
    """The worktree whose folder `prefix` is the session's working folder."""
    depth = len(Path(made.prefix).parts)
    return cwd.parents[depth - 1] if depth else cwd


def _done(text: str, value: JsonValue) -> Outcome:
    return Outcome(word="succeeded", text=text, value=value)


def _audit(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Run the step that audits the folders at this place; its text is the findings as JSON.

    Raises WorkspaceRefused, Cancelled.
    """
    root = worktrees_root(task)

    def ask(sessions: Sequence[str]) -> StoreFolders:
        found = task.stored_folders(sessions)
        if found is None:
            raise Cancelled
        return found

    access = Access(
        ask, task.on_workspace, lambda session: reserved(task, session, removable(force=False))
    )
    repair = bool(task.inputs.get("repair"))
    found = FolderAudit(root, access, repair=repair, cancel=cancel).run()
    return Outcome(word="succeeded", verdict="accept", text=found.model_dump_json())
