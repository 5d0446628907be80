"""Problem details (RFC 9457): the one shape in which the API says no, for both ends of the wire."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

MEDIA_TYPE = "application/problem+json"


class Kind(StrEnum):
    """What a problem is, as the last part of its type URI."""

    #: The envelope cannot be read: a header, or text that is no JSON.
    MALFORMED = "malformed"
    #: What the envelope holds is not valid: a field of the body or of the query.
    INVALID = "invalid"
    #: The Idempotency-Key was used before, for another body.
    IDEMPOTENCY_CONFLICT = "idempotency-conflict"
    #: No token, or one that is not ours.
    UNAUTHENTICATED = "unauthenticated"
    #: The token is ours and does not grant this.
    FORBIDDEN = "forbidden"
    SESSION_UNKNOWN = "session-unknown"
    #: The call needs a session that has ended.
    SESSION_STILL_RUNS = "session-still-runs"
    #: The verb does not fit the session's status.
    CONTROL_REFUSED = "control-refused"
    #: No flow of the catalog has this name.
    FLOW_UNKNOWN = "flow-unknown"
    #: The flow's file is broken.
    FLOW_DISABLED = "flow-disabled"
    #: No step of the session waits for this answer.
    ANSWER_UNWANTED = "answer-unwanted"
    #: No token has this id.
    TOKEN_UNKNOWN = "token-unknown"  # noqa: S105 - the name of a problem
    #: The token's sessions have used what they may.
    QUOTA_PASSED = "quota-passed"
    #: The session is no longer what the sender saw: its ETag is another.
    SESSION_CHANGED = "session-changed"
    #: The limit is no longer what the sender saw: its ETag is another.
    LIMIT_CHANGED = "limit-changed"
    #: No limit is set for this key.
    LIMIT_UNKNOWN = "limit-unknown"
    #: Redis does not answer.
    STORE_AWAY = "store-away"
    #: A newer version wrote what the session runs: this API cannot read it.
    PROGRAM_NEWER = "program-newer"
    #: This process has as many event streams open as it can serve.
    TOO_MANY_STREAMS = "too-many-streams"
    #: Our own fault.
    INTERNAL = "internal"
    #: What the status says, and nothing more.
    BLANK = "about:blank"

    @property
    def uri(self) -> str:
        """The problem's `type`.

        >>> Kind.SESSION_UNKNOWN.uri
        'urn:leadhand:problem:session-unknown'
        >>> Kind.BLANK.uri
        'about:blank'
        """
        return self.value if self is Kind.BLANK else f"urn:leadhand:problem:{self.value}"

    @classmethod
    def of(cls, uri: str) -> Kind | None:
        """The kind that a type URI names; None for one that is not ours."""
        return next((kind for kind in cls if kind.uri == uri), None)


class FieldProblem(BaseModel):
    """What is wrong with one field, and the way out."""

    model_config = ConfigDict(frozen=True)

    #: Where the field stands, such as `phases.0.checkers.1.timeout_s`.
    field: str
    #: What was given, shortened; absent where there is nothing to show.
    value: str | None = None
    message: str
    hint: str | None = None
    place: Literal["body", "query", "header"] = "body"


class Problem(BaseModel):
    """One refusal; of several invalid fields the first one is told at the top level too."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str = Kind.BLANK.value
    title: str
    status: int
    detail: str = ""
    field: str | None = None
    value: str | None = None
    hint: str | None = None
    errors: tuple[FieldProblem, ...] = ()
    #: What the session was when it refused the verb, or why there is no result yet.
    session_status: str | None = None
    request_id: str | None = None

    def __str__(self) -> str:
        """
        >>> str(Problem(title="Not valid", status=422, detail="task is missing", hint="add it"))
        'task is missing; add it'
        """
        text = self.detail or self.title
        return f"{text}; {self.hint}" if self.hint and self.hint not in text else text
