"""Serves the operations on inboxes, questions to people, and what needs a person."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from threading import Event

from flask import Response, request

from api import requests
from api.auth import current_caller, current_visitor, token_recheck
from api.dashboard.stream import connection_check
from api.events import stream_response
from api.fanout import Cut
from api.serving import Call, current_api, serves
from app.engine import Engine
from app.sessions.inbox import list_messages, message_view, send_hint, send_to_parent, take_all
from app.sessions.questions import list_questions, list_questions_of_tree
from app.store.changes import ChangeReads
from leadhand.contract import messages
from leadhand.contract.operation import EVENT_STREAM, NoBody, PageQuery
from leadhand.errors import StoreAway
from leadhand.models.views.explain import AttentionView, ChangeView, InboxMessage, QuestionView
from leadhand.models.views.step import position
from leadhand.models.views.view import Page

#: How often a stream looks for changes, sends a comment, and checks its token again.
EVERY_S, KEEP_ALIVE_S, RECHECK_S = 0.25, 15.0, 5.0
#: Changes per read.
BATCH = 500
BEGINNING = "0-0"


@serves(messages.INBOX)
def list_all(engine: Engine, call: Call, asked: messages.InboxQuery) -> Page[InboxMessage]:
    """Lists the messages of a session's inbox."""
    return list_messages(
        engine, call.session, unread=asked.unread, limit=asked.limit, cursor=asked.cursor
    )


@serves(messages.TAKE_MESSAGES)
def take(engine: Engine, call: Call, _: NoBody) -> Page[InboxMessage]:
    """Marks unread messages (at most 100) as read; returns them."""
    taken = take_all(engine, call.session, by=current_visitor(), idempotency_key=call.key)
    return Page[InboxMessage](items=[message_view(message) for message in taken])


@serves(messages.NOTIFY_PARENT)
def notify_parent(engine: Engine, call: Call, asked: messages.Notify) -> InboxMessage:
    """Sends a message of the session to its parent."""
    message = send_to_parent(
        engine,
        call.session,
        asked.status,
        asked.message,
        pr_number=asked.pr_number,
        by=current_caller(),
        idempotency_key=call.key,
    )
    return message_view(message)


@serves(messages.HINT)
def hint(engine: Engine, call: Call, asked: messages.Hint) -> InboxMessage:
    """Sends a hint to the session's next turn."""
    message = send_hint(
        engine, call.session, asked.text, by=current_visitor(), idempotency_key=call.key
    )
    return message_view(message)


@serves(messages.QUESTIONS)
def questions(engine: Engine, _: Call, asked: messages.QuestionsQuery) -> Page[QuestionView]:
    """Lists the open questions, of all sessions or of one and its children."""
    if asked.session is not None:
        return list_questions_of_tree(engine, asked.session, limit=asked.limit)
    return list_questions(engine, limit=asked.limit, cursor=asked.cursor)


@serves(messages.ATTENTION)
def attention(engine: Engine, _: Call, asked: PageQuery) -> Page[AttentionView]:
    """Lists the sessions that need a person."""
    return engine.attention.page(limit=asked.limit, cursor=asked.cursor)


@serves(messages.CHANGES)
def changes(engine: Engine, _: Call, asked: messages.ChangesQuery) -> Response | Page[ChangeView]:
    """Returns a page, or a stream, of the changes of all sessions."""
    last = requests.last_event_id() or asked.after
    if request.accept_mimetypes.best_match(["application/json", EVENT_STREAM]) == EVENT_STREAM:
        return _stream(engine, last)
    found = engine.store.part(ChangeReads).after(last or BEGINNING, limit=asked.limit)
    more = found[-1].id if len(found) == asked.limit else None
    return Page[ChangeView](items=found, next=more)


def _stream(engine: Engine, last: str | None) -> Response:
    streams, still, is_gone = current_api().streams, token_recheck(), connection_check()
    streams.take()
    frames = _frames(engine, last, still, is_gone, streams.closing)
    return stream_response(frames, streams.release)


def _frames(
    engine: Engine,
    last: str | None,
    still: Callable[[], bool],
    is_gone: Callable[[], bool],
    closing: Event,
) -> Iterator[str]:
    """Yields the text of a stream; it ends with the process, Redis or the token."""
    reads = engine.store.part(ChangeReads)
    sent = checked = time.monotonic()
    yield "retry: 1000\n\n"
    try:
        first = reads.first()
        if last is not None and first is not None and position(first) > position(last):
            yield 'event: reset\ndata: {"why": "changes between were dropped"}\n\n'
        at = last or reads.last()
        while not (closing.wait(EVERY_S) or is_gone()):
            for one in reads.after(at, limit=BATCH):
                at, sent = one.id, time.monotonic()
                yield f"id: {one.id}\nevent: change\ndata: {one.model_dump_json()}\n\n"
            now = time.monotonic()
            if now - sent >= KEEP_ALIVE_S:
                sent = now
                yield ": keep-alive\n\n"
            if now - checked >= RECHECK_S:
                checked = now
                if not still():
                    yield f"event: cut\ndata: {json.dumps({'why': 'token'})}\n\n"
                    return
        yield f"event: cut\ndata: {json.dumps({'why': Cut.CLOSING})}\n\n"
    except StoreAway:
        yield f"event: cut\ndata: {json.dumps({'why': 'store away'})}\n\n"
