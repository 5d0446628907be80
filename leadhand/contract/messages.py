"""The operations on inboxes, questions to people, and what needs a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue

from leadhand.contract.calls import Noun
from leadhand.contract.operation import (
    EVENT_STREAM,
    JSON,
    READS,
    ApiResponse,
    Body,
    BodyRight,
    Limit,
    NoBody,
    Operation,
    PageQuery,
    Query,
    Scope,
    YesOrNo,
    replies,
)
from leadhand.contract.requests import calls
from leadhand.models.forms import Option
from leadhand.models.views.explain import AttentionView, ChangeView, InboxMessage, QuestionView
from leadhand.models.views.session import SessionView
from leadhand.models.views.view import Page

_ONE = "/v1/sessions/{session}"


class InboxQuery(PageQuery):
    """The page of an inbox."""

    #: Only messages that no turn and no other reader has acknowledged.
    unread: YesOrNo = False


INBOX = Operation[InboxQuery](
    name="inbox.listed", method="GET", path=f"{_ONE}/inbox",
    summary="List the messages of a session's inbox, oldest first",
    responses=(replies(Page[InboxMessage], "A page of messages."),),
    scope=Scope.READ,
    body_right=BodyRight("inbox", "own"), query=InboxQuery,
)  # fmt: skip


TAKE_MESSAGES = Operation[NoBody](
    name="inbox.take", method="POST", path=f"{_ONE}/inbox/read",
    summary="Acknowledge the unread messages that no turn has got",
    responses=(replies(Page[InboxMessage], "The messages, oldest first; empty if none is left."),),
    scope=Scope.CONTROL,
    body_right=BodyRight("inbox", "own"), body=NoBody, headers=("Idempotency-Key",),
)  # fmt: skip


class Notify(Body):
    """A child session's message to its parent; it is no completion signal."""

    status: Annotated[
        Literal["success", "failure"],
        Field(description="A failure calls for a person until the message is acknowledged."),
    ]
    message: Annotated[
        str,
        Field(
            min_length=1,
            max_length=20_000,
            description="The whole report, at most 16 KiB: the reader gets this text alone.",
        ),
    ]
    pr_number: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="The number of a pull request; it becomes a line of the text."
    )


NOTIFY_PARENT = Operation[Notify](
    name="inbox.notify_parent", method="POST", path=f"{_ONE}/inbox",
    summary="Send a message of a session to its parent's inbox",
    responses=(replies(InboxMessage, "The message, new or known by its key.", 201),),
    scope=Scope.CONTROL,
    body_right=BodyRight("report", "own"), body=Notify, body_required=True,
    headers=("Idempotency-Key",), refuses=(409,), mcp="notify_parent",
)  # fmt: skip


class Hint(Body):
    """A person's message to the session's next turn."""

    #: At most 16 KiB; the session's next turn begins with it.
    text: Annotated[str, Field(min_length=1, max_length=20_000)]


HINT = Operation[Hint](
    name="inbox.hint", method="POST", path=f"{_ONE}/hints",
    summary="Send a hint to a session's next turn",
    responses=(replies(InboxMessage, "The message, new or known by its key.", 201),),
    scope=Scope.CONTROL,
    body=Hint, body_required=True, headers=("Idempotency-Key",), refuses=(409,),
)  # fmt: skip


class QuestionsQuery(PageQuery):
    """The page of the list of questions, or the questions of one session and its children."""

    #: Only those of this session and of the child sessions that its steps wait for; one page.
    session: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")] | None = None


QUESTIONS = Operation[QuestionsQuery](
    name="questions.listed", method="GET", path="/v1/questions",
    summary="List the open questions to people",
    responses=(replies(Page[QuestionView], "A page of questions, those of new sessions first."),),
    scope=Scope.READ,
    body_right=READS, session_in_query="session", query=QuestionsQuery, refuses=(404,),
)  # fmt: skip


class Answers(Body):
    model_config = ConfigDict(str_strip_whitespace=True)

    #: The answer; of a question with choices it may be one of these.
    text: Annotated[str, Field(min_length=1, max_length=200_000)] | None = None
    #: One of the question's choices.
    choice: Option | None = None
    #: The fields of the question's form; those that are left out have their defaults.
    fields: dict[str, JsonValue] | None = None
    #: The step that asked: its address, label or position in the file; required only if several
    #: steps wait.
    address: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None


ANSWER = Operation[Answers](
    name="sessions.answers", method="POST", path=f"{_ONE}/answers",
    summary="Answer a session's question to a person",
    responses=(replies(SessionView, "The session as it is now.", 202, headers=("ETag",)),),
    scope=Scope.CONTROL,
    body=Answers, body_required=True, refuses=(409,),
)  # fmt: skip


ATTENTION = Operation[PageQuery](
    name="attention.listed", method="GET", path="/v1/attention",
    summary="List the sessions that need a person, and why",
    responses=(replies(Page[AttentionView], "A page of sessions, the newest call first."),),
    scope=Scope.READ,
    query=PageQuery,
)  # fmt: skip


class ChangesQuery(Query):
    """The page of the list of changes."""

    #: Only changes after this id; without it a page begins with the oldest, a stream with the next.
    after: Annotated[str, Field(pattern=r"^[0-9]{1,15}-[0-9]{1,15}$")] | None = None
    limit: Limit = 100


CHANGES = Operation[ChangesQuery](
    name="attention.changes", method="GET", path="/v1/events",
    summary="Read or follow the changes of all sessions",
    responses=(ApiResponse(200, "A page of changes, or a stream of them.",
                           {JSON: Page[ChangeView], EVENT_STREAM: str}),),
    scope=Scope.READ,
    query=ChangesQuery, headers=("Last-Event-ID",), refuses=(503,),
)  # fmt: skip


class Messages(Noun):
    """Answers questions, reads and sends messages of sessions, and lists what needs a person."""

    @calls(ANSWER)
    def answer(
        self,
        session: str,
        text: str | None = None,
        address: str | None = None,
        *,
        choice: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> SessionView:
        """Answer a session's question to a person: with a text, a choice, or the form's fields.

        Raises AnswerUnwanted, or RequestInvalid for an answer that does not fit the question.
        """

    @calls(QUESTIONS)
    def questions(
        self, *, session: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[QuestionView]:
        """List a page of the open questions to people: of all sessions, or of a session's tree.

        A page may have fewer than `limit`; there are more while it has a `next`.
        """

    @calls(INBOX)
    def inbox(
        self,
        session: str,
        *,
        unread: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[InboxMessage]:
        """List a page of the messages in a session's inbox, oldest first; marks none as read.

        With `unread` only those that neither a turn nor another reader has acknowledged.
        """

    @calls(TAKE_MESSAGES)
    def take_messages(
        self, session: str, *, idempotency_key: str | None = None
    ) -> list[InboxMessage]:
        """Mark at most 100 unread messages of a session's inbox as read, and return them.

        At most 100 messages, of 64 KiB together; there may be more unless the list is empty.
        """

    @calls(NOTIFY_PARENT)
    def notify_parent(
        self,
        session: str,
        status: Literal["success", "failure"],
        message: str,
        *,
        pr_number: int | None = None,
        idempotency_key: str | None = None,
    ) -> InboxMessage:
        """Send a message from a session to its parent, whose next turn begins with it.

        It does not end the session. Raises MessageRefused without a parent that can read it.
        """

    @calls(HINT)
    def hint(self, session: str, text: str, *, idempotency_key: str | None = None) -> InboxMessage:
        """Send a hint text to a session; its next agent turn reads it. Raises MessageRefused."""

    @calls(ATTENTION)
    def attention(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[AttentionView]:
        """List a page of the sessions that need a person, with the reasons; the latest first."""

    @calls(CHANGES)
    def changes(self, *, after: str | None = None, limit: int | None = None) -> Page[ChangeView]:
        """List a page of the changes of all sessions after an id, oldest first; 5,000 are kept."""
