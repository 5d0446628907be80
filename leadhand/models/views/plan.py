"""Views of plans, their tasks and folders, and of the folder of a single session."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from leadhand.models.verdicts import Reason
from leadhand.models.views.view import View


class RecheckView(View):
    """Whether checkers judged the merged work before your branch got it."""

    #: `checked`: they ran on the merged work. `same`: it is the tree that they had accepted.
    state: Literal["checked", "same", "unchecked"]
    #: Why it is unchecked.
    why: str = ""
    #: The verdict of each checker that ran again; null if it gave none.
    checks: dict[str, str | None] = {}
    #: The agents that accepted the work, and were not asked again.
    left_out: list[str] = []

    @property
    def text(self) -> str:
        """Return the sentence that `leadhand apply` prints."""
        if self.state == "same":
            return "its checkers had accepted this tree, so nothing ran again"
        if self.state == "unchecked":
            return f"unchecked: {self.why}"
        ran = ", ".join(f"{name} {verdict or 'lost'}" for name, verdict in self.checks.items())
        left = f"; not asked again: {', '.join(self.left_out)}" if self.left_out else ""
        return f"checked again: {ran}{left}"


class OwnFolderView(View):
    """The folder that a session works in instead of the one that it was started in."""

    #: None until a worker has made it.
    kind: Literal["worktree", "copy"] | None = None
    #: The folder that it was started in, and which stays as it is until the work is applied.
    origin: str
    folder: str
    #: Of a worktree: its branch, the commit that the branch started from, and the branch or commit
    #: whose tip that was.
    branch: str | None = None
    base: str | None = None
    target: str | None = None
    #: What the last `apply` did, or why it changed nothing.
    applied: str | None = None
    refused: str | None = None
    #: What was checked for that; null before, and where that was refused before the checkers.
    recheck: RecheckView | None = None
    #: Whether the folder was removed, or why not when that was asked last.
    cleaned: bool = False
    kept: str = ""

    @property
    def is_to_be_applied(self) -> bool:
        """Whether its work is only there yet."""
        return self.kind is not None and self.applied is None and not self.cleaned


class ApplyingView(View):
    """A session that brings the work of another one into the folder that it was started in."""

    #: The session that does it; its end says whether that was done.
    session: str


class TaskRun(View):
    """One child session that carried out a task."""

    run: int
    session: str
    #: The child's status when it ended; None while it works.
    ended: str | None = None
    reason: Reason | None = None


class WorktreeView(View):
    """The folder of a run of a task, or of a session: a git worktree with its branch, or a copy."""

    #: The session of the plan; empty for the folder that a session has to itself.
    plan: str = ""
    task: str
    run: int
    #: The child session that works or worked there, and its status; None if it was deleted.
    session: str
    status: str | None = None
    folder: str
    #: Of a worktree: its branch, and the commit that the branch started from.
    branch: str | None = None
    base: str | None = None
    place: str = ""
    #: Whether the folder was removed.
    cleaned: bool = False
    #: Why it was not removed when that was asked last.
    kept: str = ""


class CleaningView(View):
    """A session that removes folders of tasks at their place."""

    #: None if it has nothing to remove.
    session: str | None = None
    #: What it removes, and what it cannot, with the reason in `kept`.
    cleaning: list[WorktreeView] = []
    failed: list[WorktreeView] = []


class MergeView(View):
    """The merge of a task's accepted work."""

    task: str
    run: int
    state: Literal["merging", "merged", "failed"]
    #: The session that merges; None until it is created.
    session: str | None = None
    #: The branch of the task, and its newest commit when it was merged.
    branch: str | None = None
    tip: str | None = None
    #: The commit with the work, and the branch that got it.
    commit: str | None = None
    into: str | None = None
    merged_at: str | None = None
    reason: Reason | None = None


class ReplanView(View):
    """The question to the team lead about a task that failed for good."""

    #: The run that failed.
    run: int
    #: asked, proposed, none (no proposal came, `why` says why).
    state: Literal["asked", "proposed", "none"]
    #: The session that asks; None until it is created.
    session: str | None = None
    #: The id of the proposal that came of it.
    proposal: str | None = None
    why: str = ""


class HomeView(ApplyingView):
    """A session that applies or compares a plan's branch at its place."""

    #: The branch of the plan.
    source: str


class TaskHistory(View):
    """One change of a task's status."""

    at: str
    status: str
    #: A person's name, the id of a session, or `engine`.
    by: str
    note: str = ""


class TaskView(View):
    """A task of a plan."""

    id: str
    title: str
    description: str = ""
    dependencies: list[str] = []
    #: pending, in_progress, completed, failed, blocked: the child's word, corrected by its end.
    status: str
    #: Whether its work was accepted, and merged if the plan merges.
    verified: bool = False
    #: Of a failed or blocked task.
    reason: Reason | None = None
    agent: str | None = None
    model: str | None = None
    checkers: list[str] | None = None
    rule: str | int = "all"
    file_scope: list[str] = []
    priority: int = 5
    max_iterations: int = 3
    #: The child session of its newest run.
    session: str | None = None
    run: int = 0
    runs: list[TaskRun] = []
    pr_url: str | None = None
    notes: str = ""
    #: The branch and the folder in which its work is, and the commit that the branch started from.
    branch: str | None = None
    folder: str | None = None
    base: str | None = None
    #: Once its work was accepted, in a plan that merges.
    merge: MergeView | None = None
    #: Once the team lead was asked for another way.
    replan: ReplanView | None = None
    history: list[TaskHistory] = []


class ProposalView(View):
    """A task that a child proposed, or an edit that the team lead proposed."""

    id: str
    #: The proposed task; None for an edit.
    task: TaskView | None = None
    #: Of an edit: the failed task that it is about, and its operations, as of `PATCH`.
    about: str | None = None
    operations: list[dict[str, JsonValue]] = []
    why: str = ""
    #: The child session that proposed it.
    by: str
    at: str
    status: Literal["open", "accepted", "refused"]
    #: `engine` by the plan's policy, `deadline`, or who decided.
    decided_by: str | None = None
    #: Why an accepting policy could not add it, or that its deadline has passed.
    note: str = ""
    #: When it is refused, unless a person decides before.
    until: str | None = None


class ReportView(View):
    """What became of a child's report."""

    #: The session whose plan has the task, or the parent whose inbox has the report.
    session: str
    #: The task; empty if the parent is no plan.
    task: str
    status: str
    #: The version of the plan with this report; 0 if the parent is no plan.
    version: int
    #: Whether the same report was there already.
    repeated: bool = False


class PlanView(View):
    """The plan of a session."""

    session: str
    #: planning (no draft yet), refining, executing, ended.
    state: str
    #: Grows by one with each change; the ETag is `"plan-N"`.
    version: int
    request: str
    tasks: list[TaskView] = []
    #: By status, and how many are verified.
    progress: dict[str, int] = {}
    proposals: list[ProposalView] = []
    #: Names of the checkers that tasks may choose.
    checkers: list[str] = []
    #: What is asked about the draft, with the work so far; null: it waits for no approval.
    question: str | None = None
    #: When refine's deadline is, and what happens then.
    deadline: str | None = None
    on_deadline: str | None = None
