"""Stacks of workflow sessions: starts, advances, ends, loads, deletes and reads them.

Each change is atomic. All functions raise StoreAway, and those that change a workflow session on
the stack raise WorkflowNotStacked where a call names it, otherwise NoActiveWorkflow.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Concatenate, NamedTuple, ParamSpec, TypeAlias

from pydantic import JsonValue

from app.context import Context
from app.core import stacks as rules
from app.core.addresses import SessionRef
from app.core.records import Reply
from app.core.stacks import (
    Call,
    IdUsed,
    StoredStack,
    head_view,
    pack_outputs,
    pack_workflow,
    stack_view,
    workflow_view,
)
from app.redaction import redact
from app.sessions.listing import decode_cursor, encode_cursor, invalid_cursor, number_of
from app.store.script_library import Verb
from app.store.stacks import StackReads
from leadhand.contract.stacks import StartWorkflow
from leadhand.errors import StackRefused, WorkflowUnknown
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
#: Attempts to write a stack that other calls change meanwhile.
WRITES = 500
#: Of stacks by their names, so that the threads of a process do not refuse each other's writes.
_LOCKS = tuple(threading.Lock() for _ in range(64))
#: The most seconds that a thread waits for its turn: the one before may wait for the store.
TURN_S = 0.5
#: The most records per round trip; each may have a megabyte.
_BATCH = 200
P = ParamSpec("P")
#: Returns a stack after a change of the one that was read.
Rule: TypeAlias = Callable[Concatenate[StoredStack, P], StoredStack]


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
    #: Another name, which the stack is to get.
    to: str | None = None

    def nonce(self, *asked: object) -> str:
        """Return what a repeated call has in common with the first one, and with no other."""
        key = self.idempotency_key or uuid.uuid4().hex
        text = json.dumps([self.by, key, self.workflow, *asked], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


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


def start(
    engine: Context,
    call: StackCall,
    new: StartWorkflow,
    *,
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())[:8],
) -> StackChange:
    """Start a workflow session on top of the stack. Raises StackRefused if it is full."""
    fields = {
        "job_name": new.job_name,
        "workflow_name": new.workflow_name,
        "goal": redact(new.goal),
        "instance_id": new.instance_id,
        "current_step_id": new.first_step_id,
    }
    nonce = call.nonce("start", fields, new.folder, new.place)
    for _ in range(TRIES):
        with suppress(IdUsed):
            named = call._replace(workflow=new_id())
            return _write(engine, named, nonce, rules.start, fields, new.folder, new.place)
    why = f"no unused id was found in {TRIES} tries"
    raise StackRefused(call.stack, "stack", why, "try again")


def start_step(engine: Context, call: StackCall, step: str) -> StackChange:
    """Record the start of a step, which becomes the current step. Raises StackRefused."""
    return _change(engine, call, rules.start_step, step)


def complete_step(
    engine: Context,
    call: StackCall,
    step: str,
    outputs: Mapping[str, JsonValue],
    notes: str | None = None,
) -> StackChange:
    """Record the end of a step with its outputs and notes. Raises StackRefused."""
    text, kept = pack_outputs(outputs), None if notes is None else redact(notes)
    return _change(engine, call, rules.complete_step, step, text, kept)


def record_quality_attempt(engine: Context, call: StackCall, step: str) -> StackChange:
    """Add 1 to the quality attempts of a step. Raises StackRefused."""
    return _change(engine, call, rules.count_attempt, step)


def advance(engine: Context, call: StackCall, step: str, index: int) -> StackChange:
    """Make any step, later or earlier, the current one of a workflow session."""
    return _change(engine, call, rules.advance, step, index)


def complete(engine: Context, call: StackCall) -> StackChange:
    """Mark a workflow session as completed and remove it from any position of its stack."""
    return _change(engine, call, rules.finish, {"status": "completed"})


def abort(engine: Context, call: StackCall, reason: str) -> StackChange:
    """Mark a workflow session as aborted and remove it from any position of its stack."""
    fields = {"status": "aborted", "abort_reason": redact(reason)}
    return _change(engine, call, rules.finish, fields)


def load(
    engine: Context, call: StackCall, record: WorkflowSession | None = None, *, force: bool = False
) -> StackChange:
    """Put a workflow session back on top of its stack; if it is not stored, import it first.

    The one on top leaves the stack: that needs `force`, as does an ended one. Raises
    WorkflowUnknown, StackRefused.
    """
    fields = None if record is None else pack_workflow(record)
    return _change(engine, call, rules.load, fields, force)


def move(
    engine: Context, call: StackCall, to: str, folder: str | None, place: str | None
) -> StackChange:
    """Give a stack another name and folder. Raises StackRefused.

    There has to be one of the old name, and none of the new one.
    """
    named = call._replace(workflow="", to=to)
    return _change(engine, named, rules.move, to, folder, place)


def delete(engine: Context, call: StackCall) -> StackChange:
    """Delete a workflow session's record and its place on the stack. Raises WorkflowUnknown."""
    return _change(engine, call, rules.delete)


def _change(
    engine: Context, call: StackCall, rule: Rule[P], *given: P.args, **named: P.kwargs
) -> StackChange:
    return _write(engine, call, call.nonce(rule.__name__, *given), rule, *given, **named)


def _write(
    engine: Context, call: StackCall, nonce: str, rule: Rule[P], *given: P.args, **named: P.kwargs
) -> StackChange:
    """Read the stack, apply the rule, and write it unless another call has changed it since.

    A repeated call, which has the same nonce, gets the stack as it is now. Threads take turns.
    """
    verb = "stack_delete" if rule is rules.delete else "stack_write"
    arguments: dict[str, JsonValue] = {
        "stack": call.stack, "workflow": call.workflow, "to": call.to, "nonce": nonce,
    }  # fmt: skip
    with _turn(call.stack):
        answer = _run(engine, "stack_begin", arguments)
        for _ in range(WRITES):
            assert answer.stack is not None
            read = answer.stack.model_copy(update={"asked": call.workflow, "now": answer.now})
            if read.call is not None:
                return _view(read, read.call.count)
            rules.check_owner(read, call.owner)  # first: another refusal would say what is on it
            after = rules.touch(read, rule(read, *given, **named), call.owner)
            done = Call(workflow=after.workflow.get("id", ""), count=after.count)
            written = rules.differences(read, after) | {"call": done.model_dump_json()}
            answer = _run(engine, verb, arguments | written)
            if answer.word == "written":
                return _view(after, after.count)
    raise StackRefused(call.stack, "stack", "other calls change it all the time", "try again")


@contextmanager
def _turn(stack: str) -> Iterator[None]:
    """Wait for the threads that change this stack, but not for long: a write refuses a race."""
    lock = _LOCKS[hash(stack) % len(_LOCKS)]
    is_held = lock.acquire(timeout=TURN_S)
    try:
        yield
    finally:
        if is_held:
            lock.release()


def _run(engine: Context, verb: Verb, arguments: Mapping[str, JsonValue]) -> Reply:
    """Run a Lua function that writes to no store without records. Raises StoreUnknown."""
    while True:
        given = {"keep_s": engine.settings.retention_s, "store": engine.store.expected_id()}
        answer = engine.store.run(verb, _NONE, "", {**arguments, **given})
        if answer.word != "other_store":
            return answer
        engine.guard.check()  # raises, unless the store was accepted meanwhile


def _view(stack: StoredStack, count: int | None) -> StackChange:
    return StackChange(
        workflow=workflow_view(stack.workflow) if stack.is_known else None,
        quality_attempts=count,
        stack=stack_view(stack),
    )


def read_stack(engine: Context, stack: str) -> StackView:
    """Returns a stack with its workflow sessions; one that was never used is empty."""
    return stack_view(_read(engine, stack, ""))


def _read(engine: Context, stack: str, workflow: str | None) -> StoredStack:
    """A stack with the whole record of a workflow session; None: of the active one."""
    answer = engine.store.run("stack_begin", _NONE, "", {"stack": stack, "workflow": workflow})
    read = answer.stack or StoredStack(name=stack)
    return read.model_copy(update={"asked": workflow})


def list_stacks(engine: Context, *, limit: int = 50, cursor: str | None = None) -> Page[StackHead]:
    """Returns a page of the stacks, the one that was changed last first."""
    after = number_of(cursor)
    names = _reads(engine).stacks()[after:]
    page = names[:limit]
    heads = _reads(engine).heads(page)
    tops = _reads(engine).workflows([top or "" for _, _, top in heads])
    items = [
        head_view(name, head, depth, top)
        for name, (head, depth, _), top in zip(page, heads, tops, strict=True)
        if head
    ]
    return Page(items=items, next=encode_cursor(after + limit) if len(names) > limit else None)


def read_workflow(engine: Context, stack: str, workflow: str) -> WorkflowSession:
    """Returns a workflow session of a stack, also an ended one. Raises WorkflowUnknown."""
    (fields,) = _reads(engine).workflows([workflow])
    if fields.get("stack") != stack:
        raise WorkflowUnknown(workflow)
    return workflow_view(fields)


def read_active(engine: Context, stack: str) -> WorkflowSession:
    """Returns the workflow session on top of a stack. Raises NoActiveWorkflow."""
    found = _read(engine, stack, None)
    rules.find(found)
    return workflow_view(found.workflow)


def list_workflows(
    engine: Context,
    stack: str,
    wanted: WorkflowFilter,
    *,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[WorkflowSession]:
    """Returns a page of a stack's workflow sessions, newest first, ended ones too."""
    members = _reads(engine).members(stack)
    after = 0 if cursor is None else _position_after(members, cursor)
    found: list[WorkflowSession] = []
    while after < len(members):
        batch = members[after : after + min(limit, _BATCH)]
        rows = _reads(engine).workflows([_id_of(member) for _, member in batch])
        for member, fields in zip(batch, rows, strict=True):
            after += 1
            if "status" in fields and wanted.accepts(view := workflow_view(fields)):
                found.append(view)
            if len(found) == limit:
                more = after < len(members)
                return Page(items=found, next=encode_cursor(list(member)) if more else None)
    return Page(items=found)


def merge_outputs(engine: Context, stack: str, workflow: str | None) -> OutputsView:
    """Returns the merged outputs of a workflow session's completed steps; None: the active one.

    Raises WorkflowNotStacked, NoActiveWorkflow.
    """
    read = _read(engine, stack, workflow)
    rules.find(read)
    found = workflow_view(read.workflow)
    return OutputsView(session_id=found.session_id, outputs=found.merge_outputs())


def _reads(engine: Context) -> StackReads:
    return engine.store.part(StackReads)


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
