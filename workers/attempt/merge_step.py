"""Carries out the steps that merge a task's work into the branch of its plan, and bring it home."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel, JsonValue

from app.compiler.merges import GIVE_UP
from app.core.folders import MERGE_FOLDER, Merge
from app.core.outcomes import Outcome
from app.truncate import cut
from leadhand.models.verdicts import Reason, ReasonCode
from workers.attempt.folder_records import worktrees_root
from workers.checkers.clean_folder import record_work
from workers.checkers.combine import judge
from workers.folders.work_diff import left_out
from workers.git import merging
from workers.git.applying import fast_forward, name_uncommitted
from workers.git.git import Git, WorkspaceRefused
from workers.git.layout import Shelf
from workers.git.merging import Conflict, Rebased
from workers.processes.exit_outcome import failed_outcome
from workers.task import BodyTask, Text

#: Characters of a diff.
DIFF_LIMIT = 400_000
_RULES = (
    "You are in a git worktree that is used for merging only. Do not create or switch branches."
    " Keep the intention of both sides: the work of the task, and what is merged already."
)


class _Begin(BaseModel):
    choice: str | None = None
    fields: dict[str, JsonValue] | None = None
    refused: str | None = None
    code: ReasonCode | None = None


class _Again(BaseModel):
    """What a rebase is told about the attempts before."""

    advice: Text = ""
    refused: Text = ""
    feedback: Text = ""
    left: Conflict | None = None


class _After(BaseModel):
    verdict: str | None = None
    text: Text = ""
    #: Why the attempt was refused; None for a conflict.
    code: ReasonCode | None = None
    iteration: int
    max: int


class _Apply(BaseModel):
    plan: str
    origin: str
    source: str
    target: str = ""


class _Diff(BaseModel):
    origin: str
    pairs: tuple[tuple[str, str], ...]


def carry_out(task: BodyTask, cancel: threading.Event, deadline: float) -> Outcome | None:
    """Run a step of merging a task's branch; None for other steps. Raises WorkspaceRefused."""
    steps: Mapping[str, Callable[[BodyTask, threading.Event, float], Outcome]] = {
        "begin": _begin, "rebase": _rebase, "commit": _commit, "land": _land, "after": _after,
        "apply_plan": _apply, "diff": _diff,
    }  # fmt: skip
    step = steps.get(str(task.inputs.get("do")))
    return None if step is None else step(task, cancel, deadline)


def _begin(task: BodyTask, _: threading.Event, __: float) -> Outcome:
    given = _Begin.model_validate(task.inputs)
    if given.choice == GIVE_UP:
        return failed_outcome(given.code or ReasonCode.CONFLICT, f"given up: {given.refused}")
    advice = str((given.fields or {}).get("advice") or "")
    return _done("", {"advice": advice, "refused": given.refused if given.choice else None})


def _rebase(task: BodyTask, cancel: threading.Event, deadline: float) -> Outcome:
    wanted, again = Merge.model_validate(task.inputs), _Again.model_validate(task.inputs)
    shelf, path, git = _place(task, wanted, Git(Path(wanted.origin), cancel, deadline))
    with shelf.locked(cancel) as lock:
        found = merging.rebase(git.holding(lock), path, wanted, again.left)
    (path / wanted.prefix).mkdir(parents=True, exist_ok=True)
    text = found.conflict.text if found.conflict is not None else f"rebased onto {found.old}"
    ask = None if found.is_merged else _question(wanted, again, found)
    return _done(text, {"rebased": found.model_dump(), "ask": ask})


def _question(wanted: Merge, again: _Again, found: Rebased) -> str | None:
    """The prompt of the resolver; None if it has nothing to do."""
    refused = again.feedback or again.refused
    parts = [f"# Merge the task {wanted.task}\n\n{_RULES}"]
    if found.conflict is not None:
        parts.append(
            f"The task's work is being rebased onto {wanted.target_name!r}, and the rebase has"
            f" stopped: {found.conflict.text}. Resolve the conflict in these files, and `git add`"
            " them. Leave no conflict markers. You may finish with `git rebase --continue`; if"
            " another commit conflicts, resolve that too."
            f"\n\n```diff\n{found.conflict.excerpt}\n```"
        )
    elif not (refused or again.advice):
        return None
    else:
        parts.append(
            "The task's work is merged here without a conflict, but together with the work of other"
            f" tasks it is not accepted. Correct it. See what is merged: `git log {found.old}`, and"
            f" the task's work: `git diff {found.old}`."
        )
    if refused:
        parts.append(f"# What was refused\n\n{refused}")
    if again.advice:
        parts.append(f"# A person's advice\n\n{again.advice}")
    return "\n\n".join(parts)


def _commit(task: BodyTask, cancel: threading.Event, deadline: float) -> Outcome:
    wanted = Merge.model_validate(task.inputs)
    begun = Rebased.model_validate(task.inputs.get("begun"))
    shelf, path, git = _place(task, wanted, Git(Path(wanted.origin), cancel, deadline))
    done = begun
    if not begun.is_merged:
        with shelf.locked(cancel) as lock:
            resolver = bool(task.inputs.get("asked"))
            done = merging.conclude(
                git.holding(lock), path, wanted, begun,
                resolver=resolver, leave_out=left_out(task.inputs),
            )  # fmt: skip
            if done.new is not None and not done.is_merged:
                record_work(task, path)
    left = done.conflict if done.new is None else None
    what = done.why_not or (left.text if left is not None else f"merged as {done.new}")
    checks = done.new is not None and not done.is_merged
    value: JsonValue = {
        "rebased": done.model_dump(),
        "checks": checks or None,
        "conflict": left.model_dump() if left is not None else None,
    }
    return _done(what, value)


def _land(task: BodyTask, cancel: threading.Event, deadline: float) -> Outcome:
    wanted = Merge.model_validate(task.inputs)
    done = Rebased.model_validate(task.inputs.get("done"))
    if done.why_not:
        return _again(done.why_not)
    if done.new is None:
        why = done.conflict.text if done.conflict is not None else "the rebase did not finish"
        return _again(why, feedback=why)
    if not done.is_merged:
        judged = judge(task.inputs)
        if judged.verdict != "accept":
            text = f"the merged work was not accepted by the checkers: {judged.text}"
            refused = _again(text, feedback=judged.text or text)
            value: JsonValue = {
                "feedback": judged.text or text,
                "checks": _checks(judged),
                "code": ReasonCode.RECHECK_FAILED.value,
            }
            return refused.model_copy(
                update={
                    "verdict": judged.verdict,
                    "reason": _recheck(judged, text),
                    "value": value,
                }
            )
    shelf, path, git = _place(task, wanted, Git(Path(wanted.origin), cancel, deadline))
    with shelf.locked(cancel) as lock:
        landed = merging.land(git.holding(lock), path, wanted, done)
    if landed.commit is None:
        return _again(landed.why_not)
    merge: dict[str, JsonValue] = {
        "merged": landed.commit, "tip": done.tip, "into": wanted.target_name,
    }  # fmt: skip
    task.on_workspace({"plan": wanted.plan, "task": wanted.task, "run": wanted.run, **merge})
    text = f"{wanted.target_name} is at {landed.commit}, with the work of {wanted.task}"
    return _done(text, merge).model_copy(update={"verdict": "accept"})


def _checks(judged: Outcome) -> JsonValue:
    """What each checker said, for the ledger."""
    return judged.value.get("checks") if isinstance(judged.value, dict) else None


def _recheck(judged: Outcome, text: str) -> Reason | None:
    if judged.verdict != "terminate":
        return None
    return Reason(code=ReasonCode.RECHECK_FAILED, text=text, beneath=judged.reason)


def _after(task: BodyTask, _: threading.Event, __: float) -> Outcome:
    given = _After.model_validate(task.inputs)
    if given.verdict == "accept":
        return _done(given.text, None).model_copy(update={"verdict": "accept"})
    why = given.text or "the attempt failed; its steps say why"
    code = given.code or ReasonCode.CONFLICT
    if given.iteration >= given.max:
        return failed_outcome(code, why)
    question = (
        f"The task could not be merged: {why}\n\nAnswer `again` once you have changed the task's"
        " branch or have advice for the resolver, or `give up`."
    )
    return _done(why, {"question": question, "refused": why, "code": code.value})


def _apply(task: BodyTask, cancel: threading.Event, deadline: float) -> Outcome:
    given = _Apply.model_validate(task.inputs)
    git = Git(Path(given.origin), cancel, deadline)
    with _shelf(task, git).locked(cancel) as lock:
        done = fast_forward(git.holding(lock), given.source, given.target)
    text = f"{done.branch} is at {done.new}"
    if done.old == done.new:
        text = f"{done.branch} has all commits of {given.source} already"
    value: JsonValue = {"branch": done.branch, "old": done.old, "new": done.new}
    outcome = _done(text + name_uncommitted(done.uncommitted), value)
    return outcome.model_copy(update={"verdict": "accept"})


def _diff(task: BodyTask, cancel: threading.Event, deadline: float) -> Outcome:
    given = _Diff.model_validate(task.inputs)
    git = Git(Path(given.origin), cancel, deadline)
    parts = [merging.diff(git, target, source) for target, source in given.pairs]
    text = cut("\n".join(part for part in parts if part), DIFF_LIMIT)
    return _done(text, None).model_copy(update={"verdict": "accept"})


def _again(text: str, *, feedback: str | None = None) -> Outcome:
    """The attempt has not landed; `feedback` is for the resolver, if it is to work."""
    value: JsonValue = {"feedback": feedback}
    return Outcome(word="succeeded", verdict="retry", text=text, value=value)


def _shelf(task: BodyTask, git: Git) -> Shelf:
    return Shelf.of(worktrees_root(task), git.folder / git("rev-parse", "--git-common-dir"))


def _place(task: BodyTask, wanted: Merge, git: Git) -> tuple[Shelf, Path, Git]:
    """Where the plan merges. Raises WorkspaceRefused if the session has another folder."""
    shelf = _shelf(task, git)
    path = shelf.of_plan(wanted.plan) / MERGE_FOLDER
    if task.cwd is None or task.cwd != path / wanted.prefix:
        raise WorkspaceRefused(
            f"the folder of this session is {str(task.cwd)!r}, but merges of this repository happen"
            f" in {str(path)!r}; LEADHAND_WORKTREES or the repository has changed: start a new plan"
        )
    return shelf, path, git


def _done(text: str, value: JsonValue) -> Outcome:
    return Outcome(word="succeeded", text=text, value=value)
