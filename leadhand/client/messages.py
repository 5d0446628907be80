"""The operations on messages: questions to people, inboxes and hints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from leadhand.client.operation import Ask, Op, Operations
from leadhand.client.paths import session_path
from leadhand.client.requests import get, given, idempotent, items, post, reads
from leadhand.models.views import InboxMessage, Page, QuestionView, SessionView


class Messages(Operations):
    """Answers questions, and reads and sends messages of sessions."""

    @Op
    def answer(
        self,
        session: str,
        text: str | None = None,
        address: str | None = None,
        *,
        choice: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Ask[SessionView]:
        """Answer a session's question to a person: with a text, a choice, or the form's fields.

        Raises AnswerUnwanted, or RequestInvalid for an answer that does not fit the question.
        """
        body = given(text=text, address=address, choice=choice, fields=fields)
        return reads(SessionView, post(session_path(session, "answers"), body))

    @Op
    def questions(
        self, *, session: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Ask[Page[QuestionView]]:
        """List a page of the open questions to people: of all sessions, or of a session's tree.

        A page may have fewer than `limit`; there are more while it has a `next`.
        """
        call = get("/v1/questions", session=session, limit=limit, cursor=cursor)
        return reads(Page[QuestionView], call)

    @Op
    def inbox(
        self,
        session: str,
        *,
        unread: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Ask[Page[InboxMessage]]:
        """List a page of the messages in a session's inbox, oldest first; marks none as read.

        With `unread` only those that neither a turn nor another reader has acknowledged.
        """
        path, only = session_path(session, "inbox"), "true" if unread else None
        return reads(Page[InboxMessage], get(path, unread=only, limit=limit, cursor=cursor))

    @Op
    def take_messages(
        self, session: str, *, idempotency_key: str | None = None
    ) -> Ask[list[InboxMessage]]:
        """Mark at most 100 unread messages of a session's inbox as read, and return them.

        At most 100 messages, of 64 KiB together; there may be more unless the list is empty.
        """
        path = session_path(session, "inbox/read")
        return items(Page[InboxMessage], post(path, {}, idempotent(idempotency_key)))

    @Op
    def notify_parent(
        self,
        session: str,
        status: Literal["success", "failure"],
        message: str,
        *,
        pr_number: int | None = None,
        idempotency_key: str | None = None,
    ) -> Ask[InboxMessage]:
        """Send a message from a session to its parent's inbox; a failure calls for a person.

        It does not end the session. Raises MessageRefused without a parent that can read it.
        """
        body = given(status=status, message=message, pr_number=pr_number)
        call = post(session_path(session, "inbox"), body, idempotent(idempotency_key))
        return reads(InboxMessage, call)

    @Op
    def hint(
        self, session: str, text: str, *, idempotency_key: str | None = None
    ) -> Ask[InboxMessage]:
        """Send a hint text to a session; its next agent turn reads it. Raises MessageRefused."""
        call = post(session_path(session, "hints"), {"text": text}, idempotent(idempotency_key))
        return reads(InboxMessage, call)
