"""Reads the inbox of a session, and why it calls for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from app.domain.clock import iso
from app.domain.ids import SessionRef
from app.domain.messages import Message
from app.domain.program import Action, Loop, Program, Step
from app.domain.records import TurnRecord
from app.domain.states import ENDED
from app.queries.cursors import encode_cursor, number_of
from app.store.store import Store
from leadhand.models.views.inbox import InboxMessage
from leadhand.models.views.view import Page

#: Messages per read.
BATCH = 100


class InboxQueries:
    """Raises SessionUnknown for ids that are not found, and StoreAway."""

    def __init__(self, store: Store, ref_of: Callable[[str], SessionRef]) -> None:
        self._store = store
        self._ref = ref_of

    def page(
        self, session: str, *, unread: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[InboxMessage]:
        """Returns a page of a session's inbox messages, oldest first; `unread`: only unread."""
        ref, items = self._ref(session), list[InboxMessage]()
        for message in read_messages(self._store, ref, after=number_of(cursor)):
            if unread and message.read_ms is not None:
                continue
            if len(items) == limit:
                return Page(items=items, next=encode_cursor(items[-1].id))
            items.append(message_view(message))
        return Page(items=items)

    def newest(self, session: str, *, limit: int) -> list[InboxMessage]:
        """Returns the last `limit` messages in a session's inbox, newest first."""
        ref = self._ref(session)
        ids = _ids(self._store, ref)
        after = ids[-limit - 1] if len(ids) > limit else 0
        found = [message_view(one) for one in read_messages(self._store, ref, after=after)]
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
