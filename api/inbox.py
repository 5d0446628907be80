"""REST routes for a session's inbox: read it, take messages out, send hints, notify the parent."""

from __future__ import annotations

from flask import Blueprint, Response

from api import requests
from api.auth import current_caller, current_visitor
from api.requests import NoQuery
from api.responses import answer
from app.engine import Engine
from app.queries.inbox import message_view
from leadhand.models.views import InboxMessage, Page


class Inbox:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_all(self, session: str) -> Response:
        """GET .../inbox: list the messages of a session's inbox."""
        asked = requests.query(requests.InboxQuery)
        return answer(
            self._engine.messages.page(
                session, unread=asked.unread, limit=asked.limit, cursor=asked.cursor
            )
        )

    def take(self, session: str) -> Response:
        """POST .../inbox/read: mark unread messages (at most 100) as read; return them."""
        requests.query(NoQuery)
        requests.body(requests.NoBody)
        taken = self._engine.inbox.take(
            session, by=current_visitor(), idempotency_key=requests.idempotency_key()
        )
        return answer(Page[InboxMessage](items=[message_view(message) for message in taken]))

    def notify_parent(self, session: str) -> Response:
        """POST .../inbox: send a message of the session to its parent."""
        requests.query(NoQuery)
        asked = requests.body(requests.Notify)
        message = self._engine.inbox.notify_parent(
            session,
            asked.status,
            asked.message,
            pr_number=asked.pr_number,
            by=current_caller(),
            idempotency_key=requests.idempotency_key(),
        )
        return answer(message_view(message), 201)

    def hint(self, session: str) -> Response:
        """POST .../hints: send a hint to the session's next turn."""
        requests.query(NoQuery)
        asked = requests.body(requests.Hint)
        message = self._engine.inbox.hint(
            session, asked.text, by=current_visitor(), idempotency_key=requests.idempotency_key()
        )
        return answer(message_view(message), 201)


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the routes of inboxes and hints."""
    inbox = Inbox(engine)
    routes = Blueprint("inbox", __name__, url_prefix="/v1/sessions/<session>")
    routes.add_url_rule("/inbox", "listed", inbox.list_all)
    routes.add_url_rule("/inbox", "notify_parent", inbox.notify_parent, methods=["POST"])
    routes.add_url_rule("/inbox/read", "take", inbox.take, methods=["POST"])
    routes.add_url_rule("/hints", "hint", inbox.hint, methods=["POST"])
    return routes
