"""The operations on messages: questions to people, inboxes and hints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from leadhand.client.operation import Ask, Op, Operations
from leadhand.client.requests import given, idempotent, items, reads, request
from leadhand.contract import messages
from leadhand.models.views.explain import QuestionView
from leadhand.models.views.inbox import InboxMessage
from leadhand.models.views.session import SessionView
from leadhand.models.views.view import Page


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
        return reads(SessionView, request(messages.ANSWER, session, body=body))

    @Op
    def questions(
        self, *, session: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Ask[Page[QuestionView]]:
        """List a page of the open questions to people: of all sessions, or of a session's tree.

        A page may have fewer than `limit`; there are more while it has a `next`.
        """
        call = request(messages.QUESTIONS, session=session, limit=limit, cursor=cursor)
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
        only = "true" if unread else None
        call = request(messages.INBOX, session, unread=only, limit=limit, cursor=cursor)
        return reads(Page[InboxMessage], call)

    @Op
    def take_messages(
        self, session: str, *, idempotency_key: str | None = None
    ) -> Ask[list[InboxMessage]]:
        """Mark at most 100 unread messages of a session's inbox as read, and return them.

        At most 100 messages, of 64 KiB together; there may be more unless the list is empty.
        """
        headers = idempotent(idempotency_key)
        return items(Page[InboxMessage], request(messages.TAKE_MESSAGES, session, headers=headers))

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
        headers = idempotent(idempotency_key)
        call = request(messages.NOTIFY_PARENT, session, body=body, headers=headers)
        return reads(InboxMessage, call)

    @Op
    def hint(
        self, session: str, text: str, *, idempotency_key: str | None = None
    ) -> Ask[InboxMessage]:
        """Send a hint text to a session; its next agent turn reads it. Raises MessageRefused."""
        headers = idempotent(idempotency_key)
        call = request(messages.HINT, session, body={"text": text}, headers=headers)
        return reads(InboxMessage, call)
