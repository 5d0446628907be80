"""The rules of stacks of workflow sessions, and their stored form (pure).

A rule returns the stack after a change of the one that was read, or raises the error of a refusal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, JsonValue, field_validator

from app.core.addresses import iso
from app.errors import InvalidDocument
from app.redaction import redact, without_secrets
from leadhand.errors import NoActiveWorkflow, StackRefused, WorkflowNotStacked, WorkflowUnknown
from leadhand.models.stacks import (
    StackedWorkflow,
    StackHead,
    StackView,
    StepProgress,
    WorkflowSession,
)

#: The most that the outputs of one step may have, in bytes of JSON.
OUTPUT_BYTES = 64 * 1024
#: The most bytes of outputs and notes that a workflow session may have.
TOTAL_BYTES = 1024 * 1024
#: The most steps of a workflow session, and workflow sessions on a stack.
STEPS, DEPTH = 1000, 100

#: A stored record: texts by their names.
Record: TypeAlias = Mapping[str, str]
#: Fields of a record to set, or to remove: None.
Edit: TypeAlias = Mapping[str, str | None]


class StoredStep(BaseModel):
    """The record of a step, without its outputs and notes; times in ms."""

    model_config = ConfigDict(frozen=True)

    order: int
    started: int | None = None
    completed: int | None = None
    attempts: int = 0


class Call(BaseModel):
    """A change that was carried out: the workflow session that it was about, and its count."""

    model_config = ConfigDict(frozen=True)

    workflow: str
    count: int | None = None


class StoredStack(BaseModel):
    """A stack as the Lua functions return it: each record is a table of texts."""

    model_config = ConfigDict(frozen=True)

    name: str
    head: Record = {}
    #: The workflow sessions on it, without their steps, from the bottom to the top.
    line: tuple[Record, ...] = ()
    #: The workflow session that a call is about: empty if it has no record.
    workflow: Record = {}
    #: Whether the id of that belongs to it, to a session or to a deleted workflow session.
    is_used: bool = False
    #: Whether there is a stack of the name that this one is to get.
    is_occupied: bool = False
    #: The call that asks for a change, if that was carried out before.
    call: Call | None = None
    #: The id that a call names, or None for the active workflow session; and the time in ms.
    asked: str | None = None
    now: int = 0
    #: Of a stack after a change: the changed fields by workflow session, and the quality attempts.
    edits: Mapping[str, Edit] = {}
    count: int | None = None

    @field_validator("line", mode="before")
    @classmethod
    def _empty_list(cls, value: JsonValue) -> JsonValue:
        return value or []  # Lua encodes an empty list as {}

    @field_validator("head", "workflow", mode="before")
    @classmethod
    def _empty_table(cls, value: JsonValue) -> JsonValue:
        return value or {}  # another encoder may write []

    @property
    def ids(self) -> list[str]:
        """Return the ids of the workflow sessions on the stack, from the bottom to the top."""
        return [one["id"] for one in self.line]

    @property
    def is_known(self) -> bool:
        """Whether the workflow session that the call is about has a record."""
        return "status" in self.workflow


class IdUsed(Exception):
    """The id for a new workflow session is used already."""


# Rules


def find(stack: StoredStack) -> str:
    """Return the id of the workflow session on the stack that a call is about.

    Raises NoActiveWorkflow, WorkflowNotStacked.
    """
    if stack.asked is None and not stack.line:
        raise NoActiveWorkflow(stack.name)
    if stack.asked is not None and stack.asked not in stack.ids:
        raise WorkflowNotStacked(stack.asked)
    return stack.asked or stack.ids[-1]


def start(stack: StoredStack, fields: Edit, folder: str | None, place: str | None) -> StoredStack:
    """Start a workflow session on top of the stack. Raises IdUsed, StackRefused."""
    id_ = str(stack.asked)
    if stack.is_used:
        raise IdUsed(id_)
    if len(stack.line) >= DEPTH:
        why = f"stack {stack.name!r} has {DEPTH} workflow sessions"
        raise StackRefused(stack.name, "stack", why, "complete or abort some of them")
    first = {"status": "active", "current_entry_index": "0", "started": str(stack.now)}
    return _describe(_push(_add(stack, id_, {**fields, **first}), id_), folder, place)


def start_step(stack: StoredStack, name: str) -> StoredStack:
    """Record the start of a step, which becomes the current one. Keeps the end of an earlier run.

    The record of the step is made if there is none, as in the rules below.
    """
    step = _find_step(stack, name).model_copy(update={"started": stack.now})
    return _save_step(stack, name, step, {"current_step_id": name})


def complete_step(stack: StoredStack, name: str, outputs: str, notes: str | None) -> StoredStack:
    """Record the end of a step with its outputs (JSON) and notes."""
    step, texts = _find_step(stack, name), {f"o:{name}": outputs, f"n:{name}": notes}
    size = int(stack.workflow.get("bytes", 0))
    size += sum(_size(text) - _size(stack.workflow.get(key)) for key, text in texts.items())
    if size > TOTAL_BYTES:
        why = "the outputs and notes of the workflow session would have more than"
        hint = "write the outputs to files and name those"
        raise StackRefused(find(stack), "outputs", f"{why} {TOTAL_BYTES} bytes", hint)
    started = stack.now if step.started is None else step.started
    step = step.model_copy(update={"completed": stack.now, "started": started})
    return _save_step(stack, name, step, {**texts, "bytes": str(size)})


def count_attempt(stack: StoredStack, name: str) -> StoredStack:
    """Add 1 to the quality attempts of a step."""
    step = _find_step(stack, name)
    return _save_step(stack, name, step.model_copy(update={"attempts": step.attempts + 1}), {})


def advance(stack: StoredStack, step: str, index: int) -> StoredStack:
    """Make any step, later or earlier, the current one."""
    fields = {"current_step_id": step, "current_entry_index": str(index)}
    return _edit(stack, find(stack), fields)


def finish(stack: StoredStack, fields: Edit) -> StoredStack:
    """End a workflow session, anywhere in the stack: those above stay."""
    id_ = find(stack)
    return _remove(_edit(stack, id_, {**fields, "completed": str(stack.now)}), id_)


def delete(stack: StoredStack) -> StoredStack:
    """Delete the record of a workflow session and its place on the stack: those above stay."""
    id_ = str(stack.asked)
    if stack.workflow.get("stack") != stack.name:
        raise WorkflowUnknown(id_)
    return _remove(stack, id_).model_copy(update={"workflow": {}})


def load(stack: StoredStack, record: Edit | None, force: bool) -> StoredStack:
    """Replace the top of the stack by a workflow session, or push it onto an empty stack.

    Without a record of it, the given one is imported. Raises WorkflowUnknown, StackRefused.
    """
    id_, top = str(stack.asked), stack.ids[-1] if stack.line else None
    _check_load(stack, id_, record or {}, None if force else top, force=force)
    if not stack.is_known:
        stack = _add(stack, id_, record or {})
    if top == id_:
        return _edit(stack, id_, {})
    stack = _remove(stack, id_)  # it may be below
    return _push(stack if top is None else _remove(stack, top), id_)


def _check_load(
    stack: StoredStack, id_: str, record: Edit, top: str | None, *, force: bool
) -> None:
    if not stack.is_known and (stack.is_used or not record):
        raise WorkflowUnknown(id_)
    if stack.is_known and stack.workflow["stack"] != stack.name:
        why = f"Session '{id_}' belongs to another stack"
        raise StackRefused(id_, "workflow", why, "name that stack")
    if top not in (None, id_):
        why = f"Session '{top}' is on top of the stack and would be replaced"
        raise StackRefused(id_, "force", why, "end it first, or load with force")
    if not force and (stack.workflow.get("status") or record["status"]) != "active":
        why = f"Session '{id_}' has ended"
        raise StackRefused(id_, "force", why, "start a new one, or load with force")


def move(stack: StoredStack, to: str, folder: str | None, place: str | None) -> StoredStack:
    """Give a stack another name and folder. Raises StackRefused.

    There has to be one of the old name, and none of the new one.
    """
    if not stack.head:
        why = f"stack {stack.name!r} has never been used, or has expired"
        raise StackRefused(stack.name, "stack", why, "`leadhand stack all` lists the stacks")
    if stack.is_occupied:
        hint = "name another one, or end and delete its workflow sessions"
        raise StackRefused(stack.name, "to", f"stack {to!r} exists already", hint)
    head = {name: text for name, text in stack.head.items() if name not in ("folder", "place")}
    return _describe(stack.model_copy(update={"name": to, "head": head}), folder, place)


def check_owner(stack: StoredStack, owner: str | None) -> None:
    """Raise StackRefused for a session that has not made the stack, unless that is unused."""
    if owner is not None and "created" in stack.head and stack.head.get("made_by") != owner:
        why = f"stack {stack.name!r} is not of session {owner!r}"
        raise StackRefused(stack.name, "stack", why, "use one with another name")


def touch(before: StoredStack, after: StoredStack, owner: str | None) -> StoredStack:
    """Give a changed stack its next version.

    A session that makes a stack has it until another caller changes it.
    """
    now = str(before.now)
    head = {"created": now, **after.head, "updated": now}
    head["version"] = str(int(head.get("version", 0)) + 1)
    if owner is None:
        head.pop("made_by", None)
    elif "created" not in before.head:
        head["made_by"] = owner
    return after.model_copy(update={"head": head})


def differences(before: StoredStack, after: StoredStack) -> dict[str, JsonValue]:
    """Return what a change writes, as arguments of the Lua function."""
    about = before.workflow if before.is_known else after.workflow
    found: dict[str, JsonValue] = {
        "stack": before.name,
        "version": int(before.head.get("version", 0)),
        "head": {**after.head},
        "records": {id_: {**edit} for id_, edit in after.edits.items()},
    }
    if before.ids != after.ids:
        found["line"] = [*after.ids]
    if before.is_known != after.is_known:
        found["gone" if before.is_known else "new"] = about["id"]
        found["started"] = int(about["started"])
        found["entry"] = f"{int(about['order']):012d}<{about['id']}"
    return found


def _present(edit: Edit) -> dict[str, str]:
    return {name: value for name, value in edit.items() if value is not None}


def _size(text: str | None) -> int:
    return len((text or "").encode())


def _edit(stack: StoredStack, id_: str, fields: Edit) -> StoredStack:
    """Change fields of a workflow session, which gets its next revision."""
    records = {one["id"]: one for one in (*stack.line, stack.workflow) if one}
    revision = str(int(records[id_].get("revision", 0)) + 1)
    edit = {**fields, "revision": revision}

    def edited(one: Record) -> Record:
        return _present({**one, **edit}) if one.get("id") == id_ else one

    changed = {**stack.edits, id_: {**stack.edits.get(id_, {}), **edit}}
    line = tuple(map(edited, stack.line))
    return stack.model_copy(
        update={"line": line, "workflow": edited(stack.workflow), "edits": changed}
    )


def _add(stack: StoredStack, id_: str, fields: Edit) -> StoredStack:
    """Add the record of a workflow session, which is on no stack yet."""
    order = str(int(stack.head.get("number", 0)) + 1)
    record = _present({**fields, "id": id_, "stack": stack.name, "order": order})
    head = {**stack.head, "number": order}
    edits = {**stack.edits, id_: record}
    return stack.model_copy(update={"head": head, "workflow": record, "edits": edits})


def _push(stack: StoredStack, id_: str) -> StoredStack:
    """Put the workflow session that the call is about on top of the stack."""
    below = stack.ids[-1] if stack.line else ""
    line = (*stack.line, stack.workflow)
    return _edit(stack.model_copy(update={"line": line}), id_, {"parent": below})


def _remove(stack: StoredStack, id_: str) -> StoredStack:
    """Take a workflow session off the stack: the one above gets the one below as its parent."""
    ids = stack.ids
    if id_ not in ids:
        return stack
    at = ids.index(id_)
    if at + 1 < len(ids):
        stack = _edit(stack, ids[at + 1], {"parent": ids[at - 1] if at else ""})
    return stack.model_copy(update={"line": stack.line[:at] + stack.line[at + 1 :]})


def _find_step(stack: StoredStack, name: str) -> StoredStep:
    """The record of a step of the workflow session, a new one if there is none."""
    id_, text = find(stack), stack.workflow.get(f"a:{name}")
    if text is not None:
        return StoredStep.model_validate_json(text)
    steps = int(stack.workflow.get("steps", 0))
    if steps >= STEPS:
        why, hint = f"the workflow session has {STEPS} steps", "start another workflow session"
        raise StackRefused(id_, "step", why, hint)
    return StoredStep(order=steps + 1)


def _save_step(stack: StoredStack, name: str, step: StoredStep, fields: Edit) -> StoredStack:
    steps = max(int(stack.workflow.get("steps", 0)), step.order)
    record = {f"a:{name}": step.model_dump_json(exclude_none=True), "steps": str(steps)}
    changed = _edit(stack, find(stack), {**fields, **record})
    return changed.model_copy(update={"count": step.attempts})


def _describe(stack: StoredStack, folder: str | None, place: str | None) -> StoredStack:
    """Record the folder and the place of a folder's stack, if it has none yet."""
    head = {**_present({"folder": folder, "place": place}), **stack.head}
    return stack.model_copy(update={"head": head})


# The stored form


def pack_outputs(outputs: Mapping[str, JsonValue]) -> str:
    """Serializes a step's outputs. Raises InvalidDocument if too long or with a credential."""
    text = json.dumps(dict(outputs), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    size = len(text.encode())
    if size > OUTPUT_BYTES:
        hint = (
            f"they have {size} bytes, more than {OUTPUT_BYTES}; write them to files and name those"
        )
        raise InvalidDocument("outputs", f"{text[:20]}...", hint)
    if without_secrets(dict(outputs)) != outputs:
        hint = "they have a credential, which would be stored as it is; name where it is instead"
        raise InvalidDocument("outputs", "...", hint)
    return text


def stack_view(stored: StoredStack) -> StackView:
    """Builds the API's view of a stack; one that was never used is empty."""
    head = stored.head
    return StackView(
        name=stored.name,
        folder=head.get("folder"),
        place=head.get("place"),
        version=int(head.get("version", 0)),
        depth=len(stored.line),
        updated_at=iso(int(head["updated"])) if "updated" in head else None,
        workflows=[_stacked_view(fields) for fields in stored.line],
    )


def _stacked_view(fields: Mapping[str, str]) -> StackedWorkflow:
    return StackedWorkflow(
        session_id=fields["id"],
        job_name=fields["job_name"],
        workflow_name=fields["workflow_name"],
        instance_id=fields.get("instance_id"),
        current_step_id=fields["current_step_id"],
        current_entry_index=int(fields["current_entry_index"]),
        started_at=iso(int(fields["started"])),
        parent_id=fields.get("parent") or None,
        revision=int(fields.get("revision", 0)),
    )


def head_view(
    name: str, head: Mapping[str, str], depth: int, top: Mapping[str, str] | None
) -> StackHead:
    """Builds the API's short view of a stack for a list: depth, and the workflow on top."""
    active = top if top and "status" in top else None
    return StackHead(
        name=name,
        folder=head.get("folder"),
        place=head.get("place"),
        depth=depth,
        updated_at=iso(int(head["updated"])) if "updated" in head else None,
        workflow=f"{active['job_name']}/{active['workflow_name']}" if active else None,
        step=active["current_step_id"] if active else None,
    )


def workflow_view(fields: Mapping[str, str]) -> WorkflowSession:
    """Builds the API's view of a stored workflow session."""
    completed = fields.get("completed")
    return WorkflowSession(
        session_id=fields["id"],
        job_name=fields["job_name"],
        workflow_name=fields["workflow_name"],
        goal=fields["goal"],
        instance_id=fields.get("instance_id"),
        current_step_id=fields["current_step_id"],
        current_entry_index=int(fields["current_entry_index"]),
        step_progress=_steps(fields),
        started_at=iso(int(fields["started"])),
        completed_at=iso(int(completed)) if completed else None,
        status=fields["status"],  # type: ignore[arg-type]  # validated here
        abort_reason=fields.get("abort_reason"),
        parent_id=fields.get("parent") or None,
        revision=int(fields.get("revision", 0)),
    )


def pack_workflow(workflow: WorkflowSession) -> dict[str, str | None]:
    """Converts a workflow session to the fields of its record. Raises InvalidDocument."""
    started = _ms_of(workflow.started_at, "record.started_at")
    completed = _optional_ms(workflow.completed_at, "record.completed_at")
    fields: dict[str, str | None] = {
        "status": workflow.status,
        "job_name": workflow.job_name,
        "workflow_name": workflow.workflow_name,
        "goal": redact(workflow.goal),
        "instance_id": workflow.instance_id,
        "current_step_id": workflow.current_step_id,
        "current_entry_index": str(workflow.current_entry_index),
        "started": str(started),
        "completed": None if completed is None else str(completed),
        "abort_reason": workflow.abort_reason and redact(workflow.abort_reason),
        "revision": str(workflow.revision),
        "steps": str(len(workflow.step_progress)),
    }
    if len(workflow.step_progress) > STEPS:
        raise InvalidDocument("record.step_progress", "...", f"give at most {STEPS} steps")
    steps: dict[str, str | None] = {}
    for order, (name, step) in enumerate(workflow.step_progress.items(), start=1):
        steps |= _pack_step(name, order, step)
    size = sum(_size(text) for name, text in steps.items() if name[0] in "on")
    if size > TOTAL_BYTES:
        hint = f"its outputs and notes have {size} bytes, more than {TOTAL_BYTES}"
        raise InvalidDocument("record.step_progress", "...", hint)
    return {**fields, "bytes": str(size), **steps}


def _ms_of(time: str, field: str) -> int:
    """Parses an ISO 8601 time to ms, in UTC if it has no offset. Raises InvalidDocument.

    >>> _ms_of("1970-01-01T00:00:01.5+00:00", "at"), _ms_of("1970-01-01T00:00:01", "at")
    (1500, 1000)
    """
    try:
        found = datetime.fromisoformat(time)
        aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        milliseconds = round(aware.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidDocument(
            field, time[:80], "give a time such as 2026-01-31T12:00:00Z"
        ) from None
    if milliseconds < 0:
        raise InvalidDocument(field, time[:80], "give a time after 1970")
    return milliseconds


def _optional_ms(time: str | None, field: str) -> int | None:
    return None if time is None else _ms_of(time, field)


def _pack_step(name: str, order: int, step: StepProgress) -> dict[str, str | None]:
    where = f"record.step_progress.{name}"
    record = StoredStep(
        order=order,
        started=_optional_ms(step.started_at, f"{where}.started_at"),
        completed=_optional_ms(step.completed_at, f"{where}.completed_at"),
        attempts=step.quality_attempts,
    )
    return {
        f"a:{name}": record.model_dump_json(exclude_none=True),
        f"o:{name}": pack_outputs(step.outputs),
        f"n:{name}": None if step.notes is None else redact(step.notes),
    }


def _steps(fields: Mapping[str, str]) -> dict[str, StepProgress]:
    """The steps of a stored workflow session, in the order in which they were first recorded."""
    records = {
        name.removeprefix("a:"): StoredStep.model_validate_json(text)
        for name, text in fields.items()
        if name.startswith("a:")
    }
    steps = sorted(records.items(), key=lambda one: one[1].order)
    return {name: _step(name, record, fields) for name, record in steps}


def _step(name: str, record: StoredStep, fields: Mapping[str, str]) -> StepProgress:
    return StepProgress(
        step_id=name,
        started_at=None if record.started is None else iso(record.started),
        completed_at=None if record.completed is None else iso(record.completed),
        outputs=json.loads(fields.get(f"o:{name}", "{}")),
        notes=fields.get(f"n:{name}"),
        quality_attempts=record.attempts,
    )
