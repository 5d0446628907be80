"""Plans as the store holds them: records of tasks, and the statuses that readers see (pure).

A task's record has the fields that the Lua functions read (`id`, `deps`, `priority`) and the others
in `spec`, each as JSON text, so that Lua passes them on unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, JsonValue, field_validator

from app.core.addresses import iso
from leadhand.models.plans import PlannedTask
from leadhand.models.verdicts import Reason
from leadhand.models.views.plan import TaskHistory

#: The fields of a task that are no part of its `spec`.
_OWN = frozenset({"id", "dependencies", "priority"})


#: The prefixes of a link to a task, of the sessions that do not carry it out: one merges its
#: work, one asks the team lead about it.
MERGE, REPLAN = "merge/", "replan/"


class TaskLink(NamedTuple):
    """Which task and run a child session is for."""

    #: Empty for the session that carries out the run, otherwise one of the prefixes.
    kind: str
    task: str
    run: int


def parse_link(text: str) -> TaskLink:
    """Parses the link from a child session to its task, such as `merge/parser~2`.

    >>> parse_link("parser~2")
    TaskLink(kind='', task='parser', run=2)
    >>> parse_link("merge/parser~2")
    TaskLink(kind='merge/', task='parser', run=2)
    """
    kind = next((one for one in (MERGE, REPLAN) if text.startswith(one)), "")
    task, _, run = text.removeprefix(kind).rpartition("~")
    return TaskLink(kind, task, int(run))


class RunRecord(BaseModel):
    """One child session of a task."""

    run: int
    session: str
    ended: str | None = None
    reason: Reason | None = None
    folder: str | None = None
    branch: str | None = None
    base: str | None = None
    #: Whether the folder was removed, and why it was not when that was asked last.
    cleaned: bool = False
    kept: str | None = None


class MergeRecord(BaseModel):
    """The merge of a run's work: its child session, and how that ended."""

    run: int
    #: None until it is created.
    session: str | None = None
    ended: str | None = None
    #: When it ended.
    at: int | None = None
    reason: Reason | None = None


class ReplanRecord(BaseModel):
    """The question to the team lead about a task that failed for good."""

    #: The run that failed.
    run: int
    #: None until it is created.
    session: str | None = None
    #: The sessions that asked about this run before: it was resumed, and failed again.
    past: list[str] = []
    #: The status in which the session ended, or `deadline`.
    ended: str | None = None
    reason: Reason | None = None
    #: The id of the proposal that came of it.
    proposal: str | None = None
    #: Why none came.
    why: str | None = None


class TaskRecord(BaseModel):
    """The stored record of a task."""

    id: str
    #: Its position in the plan, from 1.
    at: int
    #: waiting, starting (its session is being created), running, merging, done.
    state: str
    spec: dict[str, str] = {}
    deps: tuple[str, ...] = ()
    priority: int = 5
    run: int = 0
    tries: int = 0
    #: The status that its child session reported.
    word: str | None = None
    #: `accepted`, or the status in which its child session ended otherwise.
    fact: str | None = None
    reason: Reason | None = None
    session: str | None = None
    runs: tuple[RunRecord, ...] = ()
    #: As readers see it.
    history: tuple[TaskHistory, ...] = ()
    pr_url: str | None = None
    notes: str | None = None
    #: Of the newest run.
    folder: str | None = None
    branch: str | None = None
    base: str | None = None
    merge: MergeRecord | None = None
    replan: ReplanRecord | None = None
    #: The commit with which its work was merged, the tip of its branch then, and the branch that
    #: got it.
    merged: str | None = None
    tip: str | None = None
    into: str | None = None

    @field_validator("deps", "runs", mode="before")
    @classmethod
    def _empty_list(cls, value: JsonValue) -> JsonValue:
        return value or []  # Lua encodes an empty list as {}

    @field_validator("history", mode="before")
    @classmethod
    def _with_times(cls, value: Sequence[dict[str, JsonValue]]) -> list[dict[str, JsonValue]]:
        """The entries: the store has their times in ms, and no empty notes."""
        return [
            {**one, "at": iso(int(str(one["at"]))), "note": one.get("note") or ""} for one in value
        ]

    @property
    def task(self) -> PlannedTask:
        """The task as it was planned, rebuilt from its stored fields."""
        fields = {name: json.loads(text) for name, text in self.spec.items()}
        fields |= {"id": self.id, "dependencies": self.deps, "priority": self.priority}
        return PlannedTask.model_validate(fields)

    @property
    def verified(self) -> bool:
        """Whether the task's work was accepted, and also merged if the plan merges."""
        return self.fact == "accepted"

    def is_due(self, link: TaskLink) -> bool:
        """Whether a child session for this link (kind and run) is needed and not yet created."""
        if link.kind == REPLAN:
            asked = self.replan
            return (
                asked is not None and asked.run == link.run and not (asked.session or asked.ended)
            )
        if self.run != link.run:
            return False
        if link.kind == MERGE:
            return self.state == "merging" and (self.merge is None or self.merge.session is None)
        return self.state == "starting"

    def is_at_work(self, link: TaskLink) -> bool:
        """Whether the plan still waits for the child session of this link (kind and run) to end."""
        if link.kind == REPLAN:
            asked = self.replan
            return asked is not None and asked.run == link.run and asked.ended is None
        works = ("merging",) if link.kind == MERGE else ("starting", "running")
        return self.run == link.run and self.state in works


class ProposalRecord(BaseModel):
    """The stored record of a task that a child session proposed, or of the team lead's edit."""

    id: str
    task: dict[str, JsonValue] | None = None
    #: The failed task that an edit is about, and its operations as JSON text.
    about: str | None = None
    edit: str | None = None
    why: str | None = None
    by: str
    at: int
    status: str
    decided_by: str | None = None
    note: str | None = None
    #: When it is refused unless a person has decided; None without a deadline.
    until_ms: int | None = None


class PlanRecord(NamedTuple):
    """A plan as it is stored."""

    #: refining, executing or ended.
    state: str
    version: int
    #: In the order of the plan.
    tasks: tuple[TaskRecord, ...]
    proposals: tuple[ProposalRecord, ...]
    #: The address of the step that executes it; empty before.
    address: str


def parse_plan(fields: Mapping[str, str]) -> PlanRecord | None:
    """Parses a plan's stored hash to its tasks and proposals; None if it has no draft yet."""
    if "head" not in fields:
        return None
    head = json.loads(fields["head"])
    tasks = _records(fields, "task:", TaskRecord)
    proposals = _records(fields, "proposal:", ProposalRecord)
    return PlanRecord(
        state=head["state"],
        version=int(fields["version"]),
        tasks=tuple(sorted(tasks, key=lambda task: task.at)),
        proposals=tuple(sorted(proposals, key=lambda one: int(one.id[1:]))),
        address=head.get("address", ""),
    )


_Record = TypeVar("_Record", bound=BaseModel)


def _records(fields: Mapping[str, str], prefix: str, model: type[_Record]) -> list[_Record]:
    found = (text for name, text in fields.items() if name.startswith(prefix))
    return [model.model_validate_json(text) for text in found]


def record_of(task: PlannedTask) -> dict[str, JsonValue]:
    """Converts a new task to the record that the Lua functions take as an argument."""
    record: dict[str, JsonValue] = {
        "id": task.id,
        "priority": task.priority,
        "spec": spec_of(task.model_dump(mode="json", exclude_defaults=True)),
    }
    if task.dependencies:
        record["deps"] = list(task.dependencies)
    return record


def spec_of(fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Serializes each field of a task to JSON, without its id, dependencies and priority."""
    return {name: json.dumps(value) for name, value in fields.items() if name not in _OWN}


def statuses_of(records: Sequence[TaskRecord]) -> dict[str, str]:
    """Returns the status of each task for readers (pending, blocked, in_progress, completed ...).

    A waiting task is blocked if a task that it needs has failed for good.
    """
    blocked = _blocked(records)
    return {one.id: _status_of(one, is_blocked=one.id in blocked) for one in records}


def _status_of(record: TaskRecord, *, is_blocked: bool) -> str:
    if record.fact == "accepted":
        return "completed"
    if record.state == "done":
        return record.word or "failed"
    if record.state == "waiting":
        return "blocked" if is_blocked else "pending"
    return record.word if record.word not in (None, "pending") else "in_progress"


def _blocked(records: Sequence[TaskRecord]) -> set[str]:
    """The tasks that need one that has failed for good, directly or by others."""
    by_id = {one.id: one for one in records}
    dependents: dict[str, list[str]] = {}
    for one in records:
        for needed in one.deps:
            dependents.setdefault(needed, []).append(one.id)
    failed = [one.id for one in records if one.state == "done" and one.fact != "accepted"]
    found = set[str]()
    while failed:
        new = [id_ for id_ in dependents.get(failed.pop(), ()) if id_ not in found]
        found.update(new)
        failed += [id_ for id_ in new if by_id[id_].fact != "accepted"]
    return found


def progress_of(statuses: Iterable[str], verified: int) -> dict[str, int]:
    """Counts the tasks of a plan by status, and how many are verified."""
    counts: dict[str, int] = {}
    for status in statuses:
        counts[status] = counts.get(status, 0) + 1
    return counts | {"verified": verified}
