"""Stacks of workflow sessions: starts, advances, ends, loads, deletes and reads them."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.records import Reply
from app.core.stacks import (
    DEPTH,
    STEPS,
    TOTAL_BYTES,
    StoredStack,
    head_view,
    ms_of,
    pack_outputs,
    pack_workflow,
    stack_view,
    workflow_view,
)
from app.fleet.store_guard import StoreGuard
from app.redaction import redact
from app.sessions.listing import decode_cursor, encode_cursor, invalid_cursor, number_of
from app.store.script_library import Verb
from app.store.stacks import StackReads
from app.store.store import Store
from leadhand.contract.stacks import StartWorkflow
from leadhand.errors import NoActiveWorkflow, StackRefused, WorkflowNotStacked, WorkflowUnknown
from leadhand.models.stacks import (
    OutputsView,
    StackChange,
    StackHead,
    StackView,
    Status,
    WorkflowSession,
)
from leadhand.models.views.view import Page

_NONE = SessionRef("", "")
#: How many ids are tried for a new workflow session.
TRIES = 20
#: The most records per round trip; each may have a megabyte.
_BATCH = 200


class StackCall(NamedTuple):
    """The stack and the workflow session that a call is about."""

    stack: str
    #: The id of a workflow session; None for the active one.
    workflow: str | None = None
    #: Who calls, and the key under which a repeated call is executed once.
    by: str = ""
    idempotency_key: str | None = None
    #: The session that has to have made the stack, unless it is unused.
    owner: str | None = None

    def arguments(self) -> dict[str, JsonValue]:
        """Return the fields that name the stack and the workflow session, as Lua arguments."""
        return {"stack": self.stack, "workflow": self.workflow, "owner": self.owner}


class Stacks:
    """Changes of stacks, each of them atomic. All methods raise StoreAway, and where a call names
    a workflow session WorkflowNotStacked, otherwise NoActiveWorkflow.
    """

    def __init__(
        self,
        store: Store,
        guard: StoreGuard,
        *,
        keep_s: int,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4())[:8],
    ) -> None:
        self._store = store
        self._guard = guard
        self._keep_s = keep_s
        self._new_id = new_id

    def start(self, call: StackCall, new: StartWorkflow) -> StackChange:
        """Start a workflow session on top of the stack. Raises StackRefused if it is full."""
        arguments: dict[str, JsonValue] = {
            "job_name": new.job_name,
            "workflow_name": new.workflow_name,
            "goal": redact(new.goal),
            "instance_id": new.instance_id,
            "step": new.first_step_id,
            "folder": new.folder,
            "place": new.place,
        }
        nonce = _nonce("start", call, arguments)
        arguments |= {**call.arguments(), "nonce": nonce}
        for _ in range(TRIES):
            answer = self._run_on_known("stack_push", arguments | {"workflow": self._new_id()})
            if answer.word != "taken":
                return _change(call, answer)
        why = f"no unused id was found in {TRIES} tries"
        raise StackRefused(call.stack, "stack", why, "try again")

    def start_step(self, call: StackCall, step: str) -> StackChange:
        """Record the start of a step, which becomes the current step. Raises StackRefused."""
        return self._step(call, "start", {"step": step})

    def complete_step(
        self, call: StackCall, step: str, outputs: Mapping[str, JsonValue], notes: str | None = None
    ) -> StackChange:
        """Record the end of a step with its outputs and notes. Raises StackRefused."""
        arguments: dict[str, JsonValue] = {
            "step": step,
            "notes": None if notes is None else redact(notes),
        }
        return self._step(call, "complete", arguments, pack_outputs(outputs))

    def record_quality_attempt(self, call: StackCall, step: str) -> StackChange:
        """Add 1 to the quality attempts of a step. Raises StackRefused."""
        return self._step(call, "attempt", {"step": step})

    def advance(self, call: StackCall, step: str, index: int) -> StackChange:
        """Make any step, later or earlier, the current one of a workflow session."""
        return self._run("stack_advance", call, {"step": step, "index": index})

    def complete(self, call: StackCall) -> StackChange:
        """Mark a workflow session as completed and remove it from any position of its stack."""
        return self._run("stack_finish", call, {"status": "completed", "keep_s": self._keep_s})

    def abort(self, call: StackCall, reason: str) -> StackChange:
        """Mark a workflow session as aborted and remove it from any position of its stack."""
        arguments: dict[str, JsonValue] = {"status": "aborted", "keep_s": self._keep_s}
        return self._run("stack_finish", call, arguments | {"reason": redact(reason)})

    def load(
        self, call: StackCall, record: WorkflowSession | None = None, *, force: bool = False
    ) -> StackChange:
        """Put a workflow session back on top of its stack; if it is not stored, import it first.

        The one on top leaves the stack: that needs `force`, as does an ended one. Raises
        WorkflowUnknown, StackRefused.
        """
        arguments: dict[str, JsonValue] = {"force": force or None, "keep_s": self._keep_s}
        if record is not None:
            arguments["fields"] = list(pack_workflow(record))
            arguments["status"] = record.status
            arguments["started"] = ms_of(record.started_at, "record.started_at")
        arguments |= {"nonce": _nonce("load", call, arguments)}
        return _change(call, self._run_on_known("stack_load", call.arguments() | arguments))

    def move(self, call: StackCall, to: str, folder: str | None, place: str | None) -> StackChange:
        """Give a stack another name and folder. Raises StackRefused.

        There has to be one of the old name, and none of the new one.
        """
        arguments: dict[str, JsonValue] = {
            "to": to, "folder": folder, "place": place, "keep_s": self._keep_s,
        }  # fmt: skip
        arguments |= {"nonce": _nonce("stack_move", call, arguments)}
        answer = self._store.run("stack_move", _NONE, "", call.arguments() | arguments)
        match answer.word:
            case "missing":
                why = f"stack {call.stack!r} has never been used, or has expired"
                raise StackRefused(
                    call.stack, "stack", why, "`leadhand stack all` lists the stacks"
                )
            case "occupied":
                hint = "name another one, or end and delete its workflow sessions"
                raise StackRefused(call.stack, "to", f"stack {to!r} exists already", hint)
            case _:
                return _change(call._replace(stack=to), answer)

    def delete(self, call: StackCall) -> StackChange:
        """Delete a workflow session's record and its place on the stack. Raises WorkflowUnknown."""
        return self._run("stack_delete", call, {"keep_s": self._keep_s})

    def _step(
        self, call: StackCall, op: str, arguments: dict[str, JsonValue], outputs: str = ""
    ) -> StackChange:
        return self._run("stack_step", call, {"op": op, **arguments}, outputs)

    def _run(
        self, verb: Verb, call: StackCall, arguments: dict[str, JsonValue], document: str = ""
    ) -> StackChange:
        arguments |= {"nonce": _nonce(verb, call, arguments, document)}
        return _change(
            call,
            self._store.run(verb, _NONE, "", call.arguments() | arguments, outcome=document),
        )

    def _run_on_known(self, verb: Verb, arguments: dict[str, JsonValue]) -> Reply:
        """Run a verb that also writes to a store without records. Raises StoreUnknown."""
        arguments |= {"keep_s": self._keep_s}
        while True:
            known = self._guard.expected_identity()
            given = arguments | {"store": None if known is None else known.id}
            answer = self._store.run(verb, _NONE, "", given)
            if answer.word != "other_store":
                return answer
            self._guard.check()  # raises, unless the store was accepted meanwhile


def _nonce(
    verb: str, call: StackCall, arguments: Mapping[str, JsonValue], document: str = ""
) -> str:
    """What a repeated call has in common with the first one, and with no other."""
    key = call.idempotency_key or uuid.uuid4().hex
    said = json.dumps([verb, call.by, key, call.workflow, arguments, document], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _change(call: StackCall, answer: Reply) -> StackChange:
    """The reply as a view. Raises the error for a refusal."""
    if answer.word not in (
        "started",
        "recorded",
        "advanced",
        "finished",
        "loaded",
        "deleted",
        "moved",
    ):
        raise _refusal(call, answer)
    stored = answer.stack or StoredStack()
    return StackChange(
        workflow=None if stored.workflow is None else workflow_view(stored.workflow),
        quality_attempts=answer.count,
        stack=stack_view(call.stack, stored),
    )


def _refusal(call: StackCall, answer: Reply) -> Exception:
    workflow = call.workflow or ""
    match answer.word:
        case "empty":
            return NoActiveWorkflow(call.stack)
        case "not_on_stack":
            return WorkflowNotStacked(workflow)
        case "unknown":
            return WorkflowUnknown(workflow)
        case "foreign":
            why = f"stack {call.stack!r} is not of session {call.owner!r}"
            return StackRefused(call.stack, "stack", why, "use one with another name")
        case "full" | "many" | "long":
            return _no_room(call, answer.word)
        case _:
            return _not_loaded(workflow, answer)


def _no_room(call: StackCall, word: str) -> StackRefused:
    if word == "full":
        why = f"stack {call.stack!r} has {DEPTH} workflow sessions"
        return StackRefused(call.stack, "stack", why, "complete or abort some of them")
    if word == "many":
        why = f"the workflow session has {STEPS} steps"
        hint = "start another workflow session"
        return StackRefused(call.workflow or "active", "step", why, hint)
    why = f"the outputs and notes of the workflow session would have more than {TOTAL_BYTES} bytes"
    hint = "write the outputs to files and name those"
    return StackRefused(call.workflow or "active", "outputs", why, hint)


def _not_loaded(workflow: str, answer: Reply) -> StackRefused:
    if answer.word == "occupied" and answer.stack is not None:
        why = (
            f"Session '{answer.stack.line[-1]['id']}' is on top of the stack and would be replaced"
        )
        return StackRefused(workflow, "force", why, "end it first, or load with force")
    if answer.word == "ended":
        why = f"Session '{workflow}' has ended"
        return StackRefused(workflow, "force", why, "start a new one, or load with force")
    why = f"Session '{workflow}' belongs to another stack"
    return StackRefused(workflow, "workflow", why, "name that stack")


class WorkflowFilter(NamedTuple):
    """Which workflow sessions of a stack are listed; None: any."""

    job_name: str | None = None
    workflow_name: str | None = None
    instance_id: str | None = None
    status: Status | None = None

    def accepts(self, workflow: WorkflowSession) -> bool:
        """Whether a workflow session has the values of all fields that the filter sets."""
        given = {name: value for name, value in self._asdict().items() if value is not None}
        return all(getattr(workflow, name) == value for name, value in given.items())


class StackQueries:
    """All methods raise StoreAway."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reads = store.part(StackReads)

    def stack(self, stack: str) -> StackView:
        """Returns a stack with its workflow sessions; one that was never used is empty."""
        answer = self._store.run("stack_look", SessionRef("", ""), "", {"stack": stack})
        return stack_view(stack, answer.stack or StoredStack())

    def stacks(self, *, limit: int = 50, cursor: str | None = None) -> Page[StackHead]:
        """Returns a page of the stacks, the one that was changed last first."""
        after = number_of(cursor)
        names = self._reads.stacks()[after:]
        page = names[:limit]
        heads = self._reads.heads(page)
        tops = self._reads.workflows([top or "" for _, _, top in heads])
        items = [
            head_view(name, head, depth, top)
            for name, (head, depth, _), top in zip(page, heads, tops, strict=True)
            if head
        ]
        return Page(items=items, next=encode_cursor(after + limit) if len(names) > limit else None)

    def workflow(self, stack: str, workflow: str) -> WorkflowSession:
        """Returns a workflow session of a stack, also an ended one. Raises WorkflowUnknown."""
        fields = self._reads.workflow(workflow)
        if fields.get("stack") != stack:
            raise WorkflowUnknown(workflow)
        return workflow_view(fields)

    def active(self, stack: str) -> WorkflowSession:
        """Returns the workflow session on top of a stack. Raises NoActiveWorkflow."""
        top = self.stack(stack).active
        if top is None:
            raise NoActiveWorkflow(stack)
        return self.workflow(stack, top.session_id)

    def workflows(
        self, stack: str, wanted: WorkflowFilter, *, limit: int = 50, cursor: str | None = None
    ) -> Page[WorkflowSession]:
        """Returns a page of a stack's workflow sessions, newest first, ended ones too."""
        members = self._reads.members(stack)
        after = 0 if cursor is None else _position_after(members, cursor)
        found: list[WorkflowSession] = []
        while after < len(members):
            batch = members[after : after + min(limit, _BATCH)]
            rows = self._reads.workflows([_id_of(member) for _, member in batch])
            for member, fields in zip(batch, rows, strict=True):
                after += 1
                if "status" in fields and wanted.accepts(view := workflow_view(fields)):
                    found.append(view)
                if len(found) == limit:
                    more = after < len(members)
                    return Page(items=found, next=encode_cursor(list(member)) if more else None)
        return Page(items=found)

    def outputs(self, stack: str, workflow: str | None) -> OutputsView:
        """Returns the merged outputs of a workflow session's completed steps; None: the active one.

        Raises WorkflowNotStacked, NoActiveWorkflow.
        """
        if workflow is None:
            found = self.active(stack)
        elif any(one.session_id == workflow for one in self.stack(stack).workflows):
            found = self.workflow(stack, workflow)
        else:
            raise WorkflowNotStacked(workflow)
        return OutputsView(session_id=found.session_id, outputs=found.merge_outputs())


def _id_of(member: str) -> str:
    return member.partition("<")[2]


def _position_after(members: list[tuple[float, str]], cursor: str) -> int:
    """The position behind the last member of the page before, also if it was deleted since."""
    match decode_cursor(cursor):
        case [float() | int() as started, str() as member]:
            last = (float(started), member)
        case _:
            raise invalid_cursor(cursor)
    return next((at for at, one in enumerate(members) if one < last), len(members))
