"""The models of plan documents, and of the operations that change a plan.

A plan session analyzes a request, decomposes it into tasks, refines them with a person, and starts
one child session for each task in the order of their dependencies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, get_args

from pydantic import Field, StrictBool, ValidationInfo, field_validator, model_validator

from leadhand.models import patterns
from leadhand.models.cycles import find_cycles, show_cycle
from leadhand.models.documents import (
    AGENT_TIMEOUT_S,
    DEFAULT_MAX_ITERATIONS,
    MAX_ITERATIONS_CEILING,
    Budget,
    Checker,
    Document,
    Doer,
    LeaveOut,
    Name,
    OnProtected,
    Place,
    Priority,
    Protected,
    Quarantined,
    Rule,
    Seconds,
    Text,
    Webhook,
    absolute,
    check_folder_needs,
    check_names,
    check_protected,
)
from leadhand.models.session_environment import WithEnvironment
from leadhand.models.suggestions import listed, nearest

#: The most tasks of a plan.
MAX_TASKS = 500
#: The most child sessions of a plan that may work at once.
MAX_AT_ONCE = 100
#: How long refine waits for a person, in seconds: two days.
REFINE_TIMEOUT_S = 2 * 24 * 3600.0

TaskId = Annotated[str, Field(pattern=patterns.TASK)]
#: The name of a git branch; git has more rules, which it checks itself.
BranchName = Annotated[str, Field(pattern=patterns.BRANCH)]
#: What a child may report; `complete` and `done` are read as `completed`.
TaskStatus = Literal["pending", "in_progress", "completed", "failed", "blocked"]
TASK_STATUSES: tuple[TaskStatus, ...] = get_args(TaskStatus)
#: What becomes of the plan when a task has failed for good.
TaskFailure = Literal["continue", "stop", "replan"]
ProposalPolicy = Literal["accept", "ask", "refuse"]


class PlannedTask(Document):
    """A task of a plan. Its checkers are names from the list of the plan's document."""

    id: TaskId
    title: Annotated[str, Field(min_length=1, max_length=200)]
    description: Annotated[str, Field(max_length=50_000)] = ""
    #: The tasks that must be accepted before this one starts.
    dependencies: Annotated[tuple[TaskId, ...], Field(max_length=MAX_TASKS)] = ()
    agent: Name | None = None
    model: Name | None = None
    #: By default all checkers of the plan.
    checkers: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)] | None = None
    rule: Rule = "all"
    file_scope: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    #: 0 is first, 9 is last, among the tasks that may start.
    priority: Annotated[int, Field(strict=True, ge=0, le=9)] = 5
    budget: Budget = Budget()
    max_iterations: Annotated[int, Field(strict=True, ge=1, le=MAX_ITERATIONS_CEILING)] = (
        DEFAULT_MAX_ITERATIONS
    )


class PlanDocument(Document, WithEnvironment):
    """A request that a team lead plans, and that child sessions carry out."""

    kind: Literal["plan"] = "plan"
    request: Text
    #: The team lead: it analyzes and decomposes the request. By default the default agent.
    agent: Name | None = None
    model: Name | None = None
    #: The doer of every task that names no agent of its own.
    doer: Doer | None = None
    #: Must be true for a plan without checkers: its tasks are accepted unchecked.
    unchecked: StrictBool = False
    #: The checkers that tasks may name; a task without a list gets all of them.
    checkers: Annotated[tuple[Checker, ...], Field(max_length=100, validate_default=True)] = ()
    #: Given tasks: the request is neither analyzed nor decomposed.
    tasks: Annotated[tuple[PlannedTask, ...], Field(min_length=1, max_length=MAX_TASKS)] | None = (
        None
    )
    #: Whether a person refines and approves the plan before its tasks start.
    refine: StrictBool = True
    refine_timeout_s: Seconds = REFINE_TIMEOUT_S
    #: What happens if no person approves in time: the plan stops and can be resumed, or it starts.
    on_deadline: Literal["stop", "approve"] = "stop"
    #: How many child sessions may work at once.
    at_once: Annotated[int, Field(strict=True, ge=1, le=MAX_AT_ONCE)] = 3
    #: How often a task whose child ended badly is tried again.
    task_retries: Annotated[int, Field(strict=True, ge=0, le=20)] = 1
    #: What becomes of the plan when a task has failed for good: other tasks continue, nothing new
    #: starts, or the team lead is asked for another way.
    on_task_failure: TaskFailure = "continue"
    #: How often the team lead is asked for another way, and how long it has to answer.
    max_replans: Annotated[int, Field(strict=True, ge=1, le=100)] = 3
    replan_timeout_s: Seconds = AGENT_TIMEOUT_S
    #: What becomes of tasks and changes that children propose.
    proposals: Annotated[ProposalPolicy, Field(validate_default=True)] = "ask"
    #: How long a proposal waits for a person; then it is refused.
    proposal_timeout_s: Seconds = REFINE_TIMEOUT_S
    #: Seconds for each turn of the team lead.
    timeout_s: Seconds = AGENT_TIMEOUT_S
    #: Where each task works: in a worktree of the repository, in a copy of the folder, or in the
    #: folder itself with all others. By default a worktree in a git repository, otherwise a copy.
    workspace: Literal["worktree", "copy", "shared"] | None = None
    #: What becomes of accepted work in worktrees: it is merged into the plan's own branch, where
    #: the tasks' checkers judge it again; with `none` it stays on the branches of the tasks.
    merge: Literal["plan", "none"] = "plan"
    #: An existing branch of the repository that gets the work instead of the plan's own. It must
    #: not be checked out or protected.
    target: BranchName | None = None
    #: Of the loops of its tasks: see `LoopDocument`. Resolvers of merges protect files, too.
    baseline: StrictBool = True
    quarantine: Annotated[tuple[Quarantined, ...], Field(max_length=200)] = ()
    protected: Annotated[tuple[Protected, ...], Field(max_length=100)] = ()
    leave_out: LeaveOut | None = None
    on_protected: OnProtected = "terminate"
    label: Name | None = None
    priority: Priority = "normal"
    cwd: Annotated[str | None, Field(validate_default=True)] = None
    place: Place | None = None
    webhook: Webhook | None = None
    budget: Budget = Budget()

    @field_validator("target")
    @classmethod
    def _merge_into_it(cls, value: str | None, info: ValidationInfo) -> str | None:
        is_merged = info.data.get("merge") != "none"
        if value is not None and not (
            is_merged and info.data.get("workspace") in (None, "worktree")
        ):
            raise ValueError(
                "only work in worktrees is merged; leave target, or merge and workspace"
            )
        return value

    @field_validator("cwd")
    @classmethod
    def _hold_workspaces(cls, value: str | None, info: ValidationInfo) -> str | None:
        wanted = info.data.get("workspace")
        if value is None and wanted in ("worktree", "copy"):
            raise ValueError(f"workspace {wanted!r} needs a folder; give cwd")
        return absolute(value)

    @model_validator(mode="after")
    def _protect_a_folder(self) -> PlanDocument:
        check_protected(self.protected, self.cwd)
        check_folder_needs(self.checkers, self.cwd)
        if self.workspace == "shared" and any(one.isolated for one in self.checkers):
            raise ValueError(
                "isolated checkers need folders of the tasks' own; leave `workspace: shared` out,"
                " or make them `clean`"
            )
        return self

    @field_validator("proposals")
    @classmethod
    def _allow_replans(cls, value: ProposalPolicy, info: ValidationInfo) -> ProposalPolicy:
        if value == "refuse" and info.data.get("on_task_failure") == "replan":
            raise ValueError(
                "on_task_failure 'replan' asks the team lead for proposals; give 'ask' or 'accept'"
            )
        return value

    @field_validator("checkers")
    @classmethod
    def _accept_the_tasks(
        cls, value: tuple[Checker, ...], info: ValidationInfo
    ) -> tuple[Checker, ...]:
        if not value and not info.data.get("unchecked", True):
            raise ValueError(
                "a plan needs checkers, by which its tasks are accepted; give checkers,"
                " or unchecked: true"
            )
        check_names(value)
        return value

    @field_validator("tasks")
    @classmethod
    def _fit_together(cls, value: tuple[PlannedTask, ...] | None) -> tuple[PlannedTask, ...] | None:
        check_tasks(value or ())
        return value


def check_tasks(tasks: Iterable[PlannedTask]) -> None:
    """Raises ValueError for two tasks of one id, an unknown dependency or a cycle."""
    by_id: dict[str, PlannedTask] = {}
    for task in tasks:
        if task.id in by_id:
            raise ValueError(f"two tasks have the id {task.id!r}; ids must differ")
        by_id[task.id] = task
    for task in by_id.values():
        for needed in task.dependencies:
            if needed not in by_id:
                raise ValueError(
                    f"task {task.id!r} depends on {needed!r}, which is no task of the plan;"
                    f" {_hint(needed, by_id)}"
                )
    cycle = next(find_cycles({task.id: task.dependencies for task in by_id.values()}), None)
    if cycle:
        raise ValueError(
            f"tasks depend on each other in a cycle: {show_cycle(cycle)}; remove one dependency"
        )


def check_checkers(task: str, wanted: Iterable[str] | None, names: Iterable[str]) -> None:
    """Raises ValueError if a task names a checker that does not exist."""
    known = dict.fromkeys(names)
    for name in wanted or ():
        if name not in known:
            raise ValueError(
                f"task {task!r} names the checker {name!r}, which the plan does not have;"
                f" {_hint(name, known)}"
            )


def _hint(name: str, known: Iterable[str]) -> str:
    """The known name that is most like a misspelt one, or else all names."""
    names = tuple(known)
    near = nearest(name, names)
    if near is not None:
        return f"did you mean {near!r}?"
    return f"it has {listed(names)}"


class AddTask(Document):
    op: Literal["add"] = "add"
    task: PlannedTask


#: Fields of a task that a change may set to null: the task has the plan's own then.
CLEARABLE = frozenset({"agent", "model", "checkers"})


class ChangeTask(Document):
    """Changes the fields that are given. Those of a started task are frozen, but for notes and
    priority. `agent`, `model` and `checkers` may be null: the task has those of the plan then.
    """

    op: Literal["change"] = "change"
    id: TaskId
    title: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    description: Annotated[str, Field(max_length=50_000)] | None = None
    dependencies: Annotated[tuple[TaskId, ...], Field(max_length=MAX_TASKS)] | None = None
    agent: Name | None = None
    model: Name | None = None
    checkers: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)] | None = None
    file_scope: Annotated[tuple[Name, ...], Field(max_length=1000)] | None = None
    priority: Annotated[int, Field(strict=True, ge=0, le=9)] | None = None
    max_iterations: Annotated[int, Field(strict=True, ge=1, le=MAX_ITERATIONS_CEILING)] | None = (
        None
    )
    notes: Annotated[str, Field(max_length=10_000)] | None = None


class DropTask(Document):
    op: Literal["drop"] = "drop"
    id: TaskId


class MoveTask(Document):
    """Moves a task in the order of the plan: behind another task, or to the front."""

    op: Literal["move"] = "move"
    id: TaskId
    after: TaskId | None = None


class RetryTask(Document):
    """Starts a failed or blocked task again, as its next run."""

    op: Literal["retry"] = "retry"
    id: TaskId


PlanOperation = Annotated[
    AddTask | ChangeTask | DropTask | MoveTask | RetryTask, Field(discriminator="op")
]


class PlanEdit(Document):
    """Operations on a plan: all of them are carried out, or none."""

    operations: Annotated[tuple[PlanOperation, ...], Field(min_length=1, max_length=1000)]


class PlanChange(Document):
    """What the team lead is to change in its draft."""

    text: Annotated[str, Field(min_length=1, max_length=50_000)]


class Proposal(Document):
    """A task that a child proposes, or a change of its own task's description."""

    task: PlannedTask
    why: Annotated[str, Field(max_length=2_000)] = ""


class TaskReport(Document):
    """What a child session says of its own task."""

    status: TaskStatus
    #: The pull request with its work.
    pr_url: Annotated[str, Field(pattern=patterns.URL, max_length=2_000)] | None = None
    #: What the team lead should know; for a failed or blocked task: why.
    notes: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None
    #: Tasks that the plan should get, too.
    proposals: Annotated[tuple[Proposal, ...], Field(max_length=20)] = ()

    @field_validator("status", mode="before")
    @classmethod
    def _read_synonyms(cls, value: object) -> object:
        if isinstance(value, str):
            word = value.strip().lower().replace("-", "_").replace(" ", "_")
            return {"complete": "completed", "done": "completed"}.get(word, word)
        return value
