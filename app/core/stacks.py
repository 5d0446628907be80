"""The stored form of stacks and workflow sessions (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, JsonValue, field_validator

from app.core.addresses import iso
from app.errors import InvalidDocument
from app.redaction import redact, without_secrets
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
#: The most steps of a workflow session, and workflow sessions on a stack. The Lua functions refuse
#: more too.
STEPS, DEPTH = 1000, 100


class StoredStep(BaseModel):
    """The record of a step, without its outputs and notes; times in ms."""

    model_config = ConfigDict(frozen=True)

    order: int
    started: int | None = None
    completed: int | None = None
    attempts: int = 0


class StoredStack(BaseModel):
    """A stack as the Lua functions return it: each record is a table of texts."""

    model_config = ConfigDict(frozen=True)

    head: Mapping[str, str] = {}
    #: The workflow sessions on it, without their steps, from the bottom to the top.
    line: tuple[Mapping[str, str], ...] = ()
    #: The workflow session that a call is about.
    workflow: Mapping[str, str] | None = None

    @field_validator("line", mode="before")
    @classmethod
    def _empty_list(cls, value: JsonValue) -> JsonValue:
        return value or []  # Lua encodes an empty list as {}

    @field_validator("head", mode="before")
    @classmethod
    def _empty_table(cls, value: JsonValue) -> JsonValue:
        return value or {}  # another encoder may write []


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


def stack_view(name: str, stored: StoredStack) -> StackView:
    """Builds the API's view of a stack; one that was never used is empty."""
    head = stored.head
    return StackView(
        name=name,
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


def pack_workflow(workflow: WorkflowSession) -> list[str]:
    """Converts a workflow session to a flat list of names and values. Raises InvalidDocument."""
    fields: dict[str, str | None] = {
        "status": workflow.status,
        "job_name": workflow.job_name,
        "workflow_name": workflow.workflow_name,
        "goal": redact(workflow.goal),
        "instance_id": workflow.instance_id,
        "current_step_id": workflow.current_step_id,
        "current_entry_index": str(workflow.current_entry_index),
        "started": str(ms_of(workflow.started_at, "record.started_at")),
        "completed": _optional_ms(workflow.completed_at, "record.completed_at"),
        "abort_reason": workflow.abort_reason and redact(workflow.abort_reason),
        "revision": str(workflow.revision),
        "steps": str(len(workflow.step_progress)),
    }
    if len(workflow.step_progress) > STEPS:
        raise InvalidDocument("record.step_progress", "...", f"give at most {STEPS} steps")
    steps: dict[str, str | None] = {}
    for order, (name, step) in enumerate(workflow.step_progress.items(), start=1):
        steps |= _pack_step(name, order, step)
    size = sum(len((text or "").encode()) for name, text in steps.items() if name[0] in "on")
    if size > TOTAL_BYTES:
        hint = f"its outputs and notes have {size} bytes, more than {TOTAL_BYTES}"
        raise InvalidDocument("record.step_progress", "...", hint)
    fields |= {"bytes": str(size), **steps}
    return [text for name, value in fields.items() if value is not None for text in (name, value)]


def ms_of(time: str, field: str) -> int:
    """Parses an ISO 8601 time to ms, in UTC if it has no offset. Raises InvalidDocument.

    >>> ms_of("1970-01-01T00:00:01.5+00:00", "at"), ms_of("1970-01-01T00:00:01", "at")
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


def _optional_ms(time: str | None, field: str) -> str | None:
    return None if time is None else str(ms_of(time, field))


def _pack_step(name: str, order: int, step: StepProgress) -> dict[str, str | None]:
    where = f"record.step_progress.{name}"
    started = _optional_ms(step.started_at, f"{where}.started_at")
    completed = _optional_ms(step.completed_at, f"{where}.completed_at")
    record = StoredStep(
        order=order,
        started=None if started is None else int(started),
        completed=None if completed is None else int(completed),
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
