"""Applies the work of a session to the folder that it was started in, as steps.

The work is merged, the checkers that accepted it judge it again if the merged tree is another one
than they saw, and the user's branch is fast-forwarded. The checkers run between two steps, so that
the lock of the repository is free meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field, JsonValue

from app.core.outcomes import Outcome
from app.core.states import ENDED
from app.truncate import cut
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.plan import RecheckView
from workers.attempt.folder_records import reserved
from workers.attempt.own_folder_step import Asked, home_of, own_facts
from workers.checkers.clean_folder import prepare_folder, record_work
from workers.checkers.combine import judge
from workers.git import merging, worktrees
from workers.git.applying import (
    Arrived,
    MergedWork,
    is_tree,
    land_work,
    merge_branch,
    name_uncommitted,
)
from workers.git.copies import apply_copy
from workers.git.git import Git, WorkspaceRefused
from workers.git.own_folders import Home
from workers.git.worktrees import copy_ignored, forget_prepared
from workers.processes.exit_outcome import failed_outcome
from workers.task import BodyTask

#: What the steps of this module do.
STEPS = frozenset({"merge", "apply"})
#: Characters of the checkers' feedback in the record.
_FEEDBACK = 2_000
_COPY = "a copy is brought back file by file, and no checker has seen the result"


class _Merged(BaseModel):
    """What a merge came to, for the step that brings it to the user's branch."""

    work: MergedWork
    #: Whether the checkers accepted this very tree.
    is_same: bool = False
    #: Why no checker judges it again; empty if some do.
    why_not: str = ""


class _Landing(BaseModel):
    """The inputs of the step that brings merged work to the user's branch."""

    #: None for a copy.
    merged: _Merged | None = None
    checks: list[JsonValue] = Field(default_factory=list)
    left_out: tuple[str, ...] = ()
    iteration: int = 1
    max: int = 1


def carry_out(task: BodyTask, git: Git) -> Outcome:
    """Run a step that merges a session's work, or brings it to the user's branch."""
    asked = Asked.model_validate(task.inputs)
    home = home_of(task, asked)
    try:
        if asked.do == "merge":
            return _merge(task, git, home, asked)
        return _apply(task, git, home)
    except WorkspaceRefused as error:
        task.on_workspace(own_facts(home, refused=str(error), recheck=""))
        return failed_outcome(ReasonCode.FAILED_STEP, str(error))


def _merge(task: BodyTask, git: Git, home: Home, asked: Asked) -> Outcome:
    path, cwd = home.merge_path, home.merge_path / home.prefix
    if task.cwd != cwd:
        raise WorkspaceRefused(
            f"the folder of this session is {str(task.cwd)!r}, but this worker checks merged work"
            f" in {str(cwd)!r}: LEADHAND_WORKTREES or the repository has changed; apply it again"
        )
    digest, why_not = (str(task.inputs.get(name) or "") for name in ("digest", "why_not"))
    with home.locked(git, "worktree") as held, reserved(task, home.session, ENDED):
        work = merge_branch(held, home.path, home.require_record(), home.session)
        is_same = bool(digest) and is_tree(held, work, digest)
        merged = _Merged(work=work, is_same=is_same, why_not=why_not)
        checks = not (is_same or why_not or work.new == work.old)
        if checks:
            merging.check_out(held, path, work.new)
    failed = _furnish(task, git, home, asked) if checks else None
    if failed is not None:
        return failed
    if checks:
        record_work(task, path)
    text = f"{work.branch} is merged with {work.target} as {work.new}"
    value: JsonValue = {"merged": merged.model_dump(), "checks": checks or None}
    return Outcome(word="succeeded", text=text, value=value)


def _furnish(task: BodyTask, git: Git, home: Home, asked: Asked) -> Outcome | None:
    """Bring what git does not have into the worktree of the merge; the failure, or None."""
    path, cwd = home.merge_path, home.merge_path / home.prefix
    cwd.mkdir(parents=True, exist_ok=True)
    copy_ignored(git, Path(git("rev-parse", "--show-toplevel")), path, asked.copy_files)
    return prepare_folder(task, git, path, cwd, asked.prepare)


def _apply(task: BodyTask, git: Git, home: Home) -> Outcome:
    given = _Landing.model_validate(task.inputs)
    if given.merged is None:
        return _apply_copy(task, git, home)
    judged = None
    if _runs_checks(given.merged):
        judged = judge({"rule": "all", "checks": given.checks})
        if judged.verdict != "accept":
            return _refuse(task, git, home, given, judged)
    with home.locked(git, "worktree") as held, reserved(task, home.session, ENDED):
        arrived = land_work(held, home.require_record(), given.merged.work)
        if arrived is not None:
            _remove(held.uncancelled(), home)
    if arrived is None:
        return _again(task, git, home, given)
    return _done(task, home, arrived, _recheck(given, judged), judged)


def _runs_checks(merged: _Merged) -> bool:
    is_new = merged.work.new != merged.work.old
    return is_new and not (merged.is_same or merged.why_not)


def _refuse(task: BodyTask, git: Git, home: Home, given: _Landing, judged: Outcome) -> Outcome:
    """The checkers do not accept the merged work: the user's branch stays where it is."""
    with home.locked(git, "worktree") as held:
        _remove(held, home)
    why = f"the merged work was not accepted by the checkers: {judged.text}".rstrip(": ")
    recheck = _recheck(given, judged)
    task.on_workspace(own_facts(home, refused=cut(why, _FEEDBACK), recheck=_stored(recheck)))
    reason = Reason(code=ReasonCode.RECHECK_FAILED, text=cut(why, _FEEDBACK), beneath=judged.reason)
    return judged.model_copy(update={"verdict": "terminate", "text": why, "reason": reason})


def _again(task: BodyTask, git: Git, home: Home, given: _Landing) -> Outcome:
    """The user's branch has moved since: merge and check once more, then give up."""
    assert given.merged is not None
    why = f"{given.merged.work.target} has moved while the work was merged and checked"
    if given.iteration < given.max:
        return Outcome(word="succeeded", verdict="retry", text=why)
    with home.locked(git, "worktree") as held:
        _remove(held, home)
    text = f"{why}, {given.max} times; apply it again once nothing commits there"
    task.on_workspace(own_facts(home, refused=text))
    return failed_outcome(ReasonCode.RECHECK_FAILED, text)


def _recheck(given: _Landing, judged: Outcome | None) -> RecheckView:
    """Which checkers ran on the merged work, for the record."""
    assert given.merged is not None
    if given.merged.is_same:
        return RecheckView(state="same")
    if judged is None:
        return RecheckView(state="unchecked", why=given.merged.why_not)
    found = judged.value["checks"] if isinstance(judged.value, dict) else []
    listed = found if isinstance(found, list) else []
    checks = {str(c["name"]): c.get("verdict") for c in listed if isinstance(c, dict)}
    return RecheckView.model_validate(
        {"state": "checked", "checks": checks, "left_out": given.left_out}
    )


def _done(
    task: BodyTask, home: Home, arrived: Arrived, recheck: RecheckView, judged: Outcome | None
) -> Outcome:
    """Record that the work has arrived, and what was checked before."""
    checked = "" if arrived.is_old else f"; {recheck.text}"
    text = f"{arrived.text}{checked}{name_uncommitted(arrived.uncommitted)}"
    task.on_workspace(own_facts(home, applied=text, refused="", recheck=_stored(recheck)))
    value = judged.value if judged is not None else None
    return Outcome(word="succeeded", verdict="accept", text=text, value=value)


def _apply_copy(task: BodyTask, git: Git, home: Home) -> Outcome:
    with home.locked(git, "copy"), reserved(task, home.session, ENDED):
        changes = apply_copy(home.path, home.cwd, home.origin)
    counts = f"{len(changes.written)} written, {len(changes.removed)} removed"
    arrived = Arrived(text=f"files in {home.origin}: {counts}")
    return _done(task, home, arrived, RecheckView(state="unchecked", why=_COPY), None)


def _stored(recheck: RecheckView) -> JsonValue:
    """The record as it is stored: in Lua an empty list is an empty object."""
    return recheck.model_dump(mode="json", exclude_defaults=True) | {"state": recheck.state}


def _remove(git: Git, home: Home) -> None:
    """Remove the worktree of the merge."""
    worktrees.forget(git, home.merge_path)
    forget_prepared(home.merge_path)
