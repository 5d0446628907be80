"""Serves the operations on inboxes and questions: read, take messages out, send hints."""

from __future__ import annotations

from api.auth import current_caller, current_visitor
from api.serving import Call, serves
from app.engine import Engine
from app.queries.inbox import message_view
from leadhand.contract import messages
from leadhand.contract.bodies import NoBody
from leadhand.models.views.explain import QuestionView
from leadhand.models.views.inbox import InboxMessage
from leadhand.models.views.view import Page


@serves(messages.INBOX)
def list_all(engine: Engine, call: Call, asked: messages.InboxQuery) -> Page[InboxMessage]:
    """Lists the messages of a session's inbox."""
    return engine.messages.page(
        call.session, unread=asked.unread, limit=asked.limit, cursor=asked.cursor
    )


@serves(messages.TAKE_MESSAGES)
def take(engine: Engine, call: Call, _: NoBody) -> Page[InboxMessage]:
    """Marks unread messages (at most 100) as read; returns them."""
    taken = engine.inbox.take(call.session, by=current_visitor(), idempotency_key=call.key)
    return Page[InboxMessage](items=[message_view(message) for message in taken])


@serves(messages.NOTIFY_PARENT)
def notify_parent(engine: Engine, call: Call, asked: messages.Notify) -> InboxMessage:
    """Sends a message of the session to its parent."""
    message = engine.inbox.notify_parent(
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
    message = engine.inbox.hint(
        call.session, asked.text, by=current_visitor(), idempotency_key=call.key
    )
    return message_view(message)


@serves(messages.QUESTIONS)
def questions(engine: Engine, _: Call, asked: messages.QuestionsQuery) -> Page[QuestionView]:
    """Lists the open questions, of all sessions or of one and its children."""
    if asked.session is not None:
        return engine.questions.of_tree(asked.session, limit=asked.limit)
    return engine.questions.page(limit=asked.limit, cursor=asked.cursor)
