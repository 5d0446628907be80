"""Inboxes: sends messages to sessions, reads them, and takes them out for other readers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from pydantic import JsonValue

from app.context import Context
from app.core.addresses import SessionRef, iso
from app.core.messages import (
    BYTES,
    HINT,
    NOTICE,
    REPORT,
    Message,
    append_fields,
    check_kind,
    check_text,
    pack_data,
)
from app.core.program import Action, Loop, Program, Step
from app.core.records import Reply, TurnRecord
from app.core.states import ENDED
from app.errors import CapabilityRefused, InvalidDocument
from app.redaction import without_keys, without_secrets
from app.security.signatures import Caller
from app.sessions.listing import encode_cursor, number_of
from app.store.store import Store
from leadhand.errors import IdempotencyConflict, MessageRefused, SessionUnknown
from leadhand.models.plans import TaskReport
from leadhand.models.views.explain import InboxMessage
from leadhand.models.views.plan import ReportView
from leadhand.models.views.view import Page

#: Messages that a session keeps; the oldest acknowledged ones make room for new ones.
KEPT = 1000
#: Messages per read.
BATCH = 100


class Sender(NamedTuple):
    """Who sends a message, and the key that makes a repeated call harmless."""

    name: str
    idempotency_key: str | None = None
    #: The child session that reports, with its attempt or its session token.
    child: dict[str, JsonValue] | None = None


def send_hint(
    engine: Context, session: str, text: str, *, by: str, idempotency_key: str | None = None
) -> Message:
    """Append a person's advice to a session's inbox, for its next turn; returns the message.

    Raises InvalidDocument for a blank or long text, IdempotencyConflict, MessageRefused.
    """
    sender = Sender(by, idempotency_key)
    return append_message(
        engine, engine.registry.ref(session), HINT, check_text(text), sender=sender
    )


def send_to_parent(
    engine: Context,
    session: str,
    status: Literal["success", "failure"],
    message: str,
    *,
    pr_number: int | None = None,
    by: Caller | None = None,
    idempotency_key: str | None = None,
) -> Message:
    """Send a child session's message to its parent; a failure also alerts a person.

    The text carries all of it, as its reader gets the text alone. It is no completion signal:
    the child continues. Raises InvalidDocument, IdempotencyConflict, MessageRefused (also if
    the session has no parent), CapabilityRefused if the attempt that calls has ended.
    """
    ref = engine.registry.ref(session)
    text = check_text(
        append_fields(check_text(message, "message"), {"pr_number": pr_number}), "message"
    )
    parent = _parent_of(engine, ref)
    sender = Sender(session, idempotency_key, _reporter(engine, ref, by))
    data: JsonValue = {"status": status, "pr_number": pr_number}
    alerts = status == "failure"
    return append_message(engine, parent, NOTICE, text, sender=sender, data=data, escalates=alerts)


def report_to_parent(
    engine: Context,
    session: str,
    report: TaskReport,
    *,
    by: Caller | None = None,
    key: str | None = None,
) -> ReportView:
    """Send a child session's report on its work to its parent's inbox, as a `report`.

    Its text carries all of it; `blocked` and `failed` call for a person.
    Raises as `append_message`.
    """
    ref = engine.registry.ref(session)
    parent = _parent_of(engine, ref)
    link = f" ({report.pr_url})" if report.pr_url else ""
    notes = f": {report.notes}" if report.notes else ""
    sender = Sender(session, key, _reporter(engine, ref, by))
    append_message(
        engine,
        parent,
        REPORT,
        check_text(f"session {session}: {report.status}{link}{notes}", "notes"),
        sender=sender,
        data={"session": session, "status": report.status, "pr_url": report.pr_url},
        escalates=report.status in ("blocked", "failed"),
    )
    return ReportView(session=parent.id, task="", status=report.status, version=0)


def append_message(
    engine: Context,
    ref: SessionRef,
    kind: str,
    text: str,
    *,
    sender: Sender,
    data: JsonValue = None,
    escalates: bool = False,
) -> Message:
    """Append a message to a session's inbox, once per `sender.idempotency_key`; return it.

    An `end` is accepted by sessions that have ended, other kinds only by those that can still
    run. Raises InvalidDocument, IdempotencyConflict, MessageRefused, CapabilityRefused.
    """
    packed = pack_data(without_secrets(data))
    shown = without_keys(text)
    arguments: dict[str, JsonValue] = {
        "kind": check_kind(kind),
        "from": sender.name,
        "text": shown,
        "data": packed,
        "escalates": escalates or None,
        "child": sender.child,
    }
    if sender.idempotency_key is not None:
        asked = json.dumps([kind, shown, packed, escalates])
        arguments["key"] = _digest(f"{sender.name} {sender.idempotency_key}")
        arguments["digest"] = _digest(asked)
    answer = engine.transitions.run("inbox_add", ref, arguments)
    return _added(ref, answer, sender)


def take_all(
    engine: Context, session: str, *, by: str, idempotency_key: str | None = None
) -> tuple[Message, ...]:
    """Mark the unread messages of a session as read and return them, oldest first.

    At most 100 messages, of 64 KiB together; call again for more. A repeated call with the key
    of one of the last calls returns the same messages.
    """
    key = None if idempotency_key is None else _digest(f"{by} {idempotency_key}")
    arguments: dict[str, JsonValue] = {"by": by, "key": key}
    answer = engine.transitions.run("inbox_take", engine.registry.ref(session), arguments)
    if answer.word == "unknown":
        raise SessionUnknown(session)
    return answer.messages


def _parent_of(engine: Context, ref: SessionRef) -> SessionRef:
    parent = engine.registry.facts(ref).parent
    if parent is None:
        raise MessageRefused(ref.id, "it has no parent session that could read this")
    return SessionRef(parent, ref.root)


def _reporter(engine: Context, ref: SessionRef, by: Caller | None) -> dict[str, JsonValue]:
    """What the store compares: the attempt or the session's life that the token names."""
    base: dict[str, JsonValue] = {"base": engine.store.keys.base(ref)}
    if by is None:
        return base
    if by.is_of_session:
        return base | {"since": str(by.fence)}
    return base | {"address": by.address, "fence": by.fence}


def _added(ref: SessionRef, answer: Reply, sender: Sender) -> Message:
    """The message of a reply, or the error for a refusal."""
    match answer.word:
        case "added" | "repeated":
            return answer.messages[0]
        case "conflict":
            raise IdempotencyConflict(str(sender.idempotency_key))
        case "ended":
            raise MessageRefused(ref.id, f"it is {answer.status}, so that no turn will read it")
        case "full":
            raise MessageRefused(
                ref.id, f"{KEPT} messages are unread; they are acknowledged by its next turns"
            )
        case "long":
            raise InvalidDocument("text", "...", f"it has more than {BYTES} bytes")
        case "child_ended":
            raise MessageRefused(
                ref.id, f"session {sender.name!r} has ended and cannot send messages"
            )
        case "superseded":
            raise CapabilityRefused("the attempt that the token was given to has ended")
        case _:
            raise SessionUnknown(ref.id)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def list_messages(
    engine: Context,
    session: str,
    *,
    unread: bool = False,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[InboxMessage]:
    """Returns a page of a session's inbox messages, oldest first; `unread`: only unread."""
    ref, items = engine.registry.ref(session), list[InboxMessage]()
    for message in read_messages(engine.store, ref, after=number_of(cursor)):
        if unread and message.read_ms is not None:
            continue
        if len(items) == limit:
            return Page(items=items, next=encode_cursor(items[-1].id))
        items.append(message_view(message))
    return Page(items=items)


def list_newest_messages(engine: Context, session: str, *, limit: int) -> list[InboxMessage]:
    """Returns the last `limit` messages in a session's inbox, newest first."""
    ref = engine.registry.ref(session)
    ids = _ids(engine.store, ref)
    after = ids[-limit - 1] if len(ids) > limit else 0
    found = [message_view(one) for one in read_messages(engine.store, ref, after=after)]
    return found[::-1]


def read_messages(store: Store, ref: SessionRef, *, after: int = 0) -> Iterator[Message]:
    """Yields the messages in a session's inbox with an id above `after`, oldest first."""
    ahead = [str(id_) for id_ in _ids(store, ref) if id_ > after]
    for start in range(0, len(ahead), BATCH):
        batch = ahead[start : start + BATCH]
        found = store.values(ref, "inbox", batch)
        yield from (Message.model_validate_json(found[id_]) for id_ in batch if id_ in found)


def _ids(store: Store, ref: SessionRef) -> list[int]:
    return sorted(int(name) for name in store.names(ref, "inbox") if name.isdigit())


def message_view(message: Message) -> InboxMessage:
    """Converts a stored inbox message to the form that the API returns."""
    return InboxMessage.model_validate(
        {
            "id": message.id,
            "at": iso(message.at_ms),
            "kind": message.kind,
            "sender": message.from_,
            "text": message.text,
            "data": message.data,
            "escalates": message.escalates,
            "read_at": None if message.read_ms is None else iso(message.read_ms),
            "read_by": message.read_by,
        }
    )


def attention(
    store: Store,
    ref: SessionRef,
    fields: Mapping[str, str],
    program: Program,
    turns: Mapping[str, TurnRecord],
    runs: Mapping[str, int],
) -> list[str]:
    """Returns notes for a person: failures that children report, and messages no turn will read.

    `turns` and `runs` are the newest ones of the outermost nodes.
    """
    unread, escalated = int(fields.get("unread", 0)), int(fields.get("escalated", 0))
    read = f"read with: leadhand inbox {ref.id}"
    found = []
    if escalated:
        found.append(f"{_messages(escalated)} of child sessions report a failure; {read}")
    if fields["kind"] == "plan":
        return found  # the plan itself shows what its children report
    is_over = fields["status"] in ENDED
    if unread > escalated and (is_over or not _has_turn_left(store, ref, program, turns, runs)):
        found.append(f"{_messages(unread)} that no turn will read; {read}")
    return found


def _messages(count: int) -> str:
    return f"{count} unread message{'s' if count != 1 else ''}"


def _has_turn_left(
    store: Store,
    ref: SessionRef,
    program: Program,
    turns: Mapping[str, TurnRecord],
    runs: Mapping[str, int],
) -> bool:
    """Whether an agent step is left that would get the messages."""
    nodes = [node for node in program.body if _has_agent(node)]
    blocks = [node.id for node in nodes if isinstance(node, Loop) or node.for_each is not None]
    if any(name not in turns or not turns[name].ended for name in blocks):
        return True
    names = [node.id for node in nodes if node.id not in blocks]
    steps = [name if runs[name] == 1 else f"{name}~{runs[name]}" for name in names]
    records = store.steps(ref, steps)
    return any(address not in records or not records[address].ended for address in steps)


def _has_agent(node: Step | Loop) -> bool:
    if isinstance(node, Loop):
        return any(_has_agent(one) for one in node.body)
    return node.action in (Action.AGENT, Action.DRAFT)
