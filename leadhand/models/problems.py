"""Problem details (RFC 9457): the format of the API's errors, shared by server and client."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, JsonValue

MEDIA_TYPE = "application/problem+json"
#: The most characters of a field's path or of a sentence about it, as both may quote the input.
LONGEST = 1_000


class Kind(Enum):
    """The table of problems: code, HTTP status, title, and the error of leadhand.errors.

    The API builds its responses from it, and both clients their errors.

    >>> Kind.SESSION_UNKNOWN.status, Kind.SESSION_UNKNOWN.title
    (404, 'No such session')
    """

    _value_: str
    #: The HTTP status; 500 for BLANK.
    status: int
    title: str
    #: The name of the class that clients raise.
    error: str
    #: The default hint to fix it.
    hint: str | None

    def __new__(
        cls, code: str, status: int, title: str, error: str, hint: str | None = None
    ) -> Self:
        one = object.__new__(cls)
        one._value_ = code
        one.status, one.title, one.error, one.hint = status, title, error, hint
        return one

    #: A header is invalid, or the body is not JSON.
    MALFORMED = "malformed", 400, "The request cannot be read", "RequestInvalid"
    #: A field of the body or the query is invalid.
    INVALID = "invalid", 422, "A field is not valid", "RequestInvalid"
    #: The Idempotency-Key was used before, for another body.
    IDEMPOTENCY_CONFLICT = (
        "idempotency-conflict",
        422,
        "The Idempotency-Key was used for another body",
        "IdempotencyConflict",
        "use a new key",
    )
    #: No token, or an unknown one.
    UNAUTHENTICATED = "unauthenticated", 401, "A token is needed", "TokenRefused"
    #: The token is valid and does not grant this.
    FORBIDDEN = "forbidden", 403, "The token does not grant this", "TokenRefused"
    SESSION_UNKNOWN = "session-unknown", 404, "No such session", "SessionUnknown"
    #: The call needs a session that has ended.
    SESSION_STILL_RUNS = (
        "session-still-runs",
        409,
        "The session has not ended",
        "SessionStillRuns",
    )
    #: The verb does not fit the session's status.
    CONTROL_REFUSED = (
        "control-refused",
        409,
        "The session's status does not allow this",
        "ControlRefused",
    )
    #: No flow of the catalog has this name.
    FLOW_UNKNOWN = "flow-unknown", 404, "No such flow", "FlowUnknown"
    #: The flow's file is invalid, or needs an approval.
    FLOW_DISABLED = (
        "flow-disabled",
        409,
        "The flow is disabled",
        "FlowDisabled",
        "mend the file",
    )
    #: No step of the session waits for this answer.
    ANSWER_UNWANTED = "answer-unwanted", 409, "No step waits for this answer", "AnswerUnwanted"
    #: The session is no plan, or has no draft yet.
    NO_PLAN = "no-plan", 409, "The session has no plan", "NoPlan"
    #: The plan has changed since the client read it: its ETag differs. `plan` has it as it is now.
    PLAN_CHANGED = (
        "plan-changed",
        412,
        "The plan has changed since it was read",
        "PlanChanged",
        "apply the change to the plan as it is now",
    )
    #: The plan does not allow this change.
    PLAN_REFUSED = "plan-refused", 409, "The plan does not allow this", "PlanRefused"
    #: The report of a child session does not count any more.
    REPORT_LATE = "report-late", 409, "The task has ended for its plan", "ReportLate"
    #: No task of the plan has this id.
    TASK_UNKNOWN = "task-unknown", 404, "No such task in the plan", "TaskUnknown"
    #: The session's inbox does not accept the message: it has ended, or has too many.
    MESSAGE_REFUSED = "message-refused", 409, "The inbox does not accept this", "MessageRefused"
    #: Another attempt or session holds the lock.
    LOCK_TAKEN = "lock-taken", 409, "Another one has the lock", "LockTaken"
    #: The caller does not hold the lock any more.
    LOCK_LOST = "lock-lost", 409, "The lock is not held by this holder", "LockLost"
    #: The session can take no locks now, or has too many.
    LOCK_REFUSED = "lock-refused", 409, "The lock cannot be taken", "LockRefused"
    #: The tree of sessions has no value under this key.
    VALUE_UNKNOWN = "value-unknown", 404, "No such value in the tree of sessions", "ValueUnknown"
    #: The value has another version than the client expects.
    VALUE_CHANGED = "value-changed", 412, "The value has another version", "ValueChanged"
    #: The tree of sessions accepts no value: it has too many, or its root session is deleted.
    VALUE_REFUSED = "value-refused", 409, "The value cannot be stored", "ValueRefused"
    #: No workflow session is on the stack.
    STACK_EMPTY = "stack-empty", 409, "No workflow session is active", "NoActiveWorkflow"
    #: The stack has no workflow session of this id.
    WORKFLOW_UNKNOWN = "workflow-unknown", 404, "No such workflow session", "WorkflowUnknown"
    #: The workflow session has left the stack.
    WORKFLOW_NOT_STACKED = (
        "workflow-not-stacked",
        409,
        "The workflow session is not on the stack",
        "WorkflowNotStacked",
    )
    #: The stack is full, or another workflow session is on top of it.
    STACK_REFUSED = "stack-refused", 409, "The stack does not allow this", "StackRefused"
    #: The session refers to no artifact with this digest.
    ARTIFACT_UNKNOWN = "artifact-unknown", 404, "No such artifact", "ArtifactUnknown"
    #: The uploaded bytes do not have the announced digest, or a part is missing.
    ARTIFACT_CHANGED = (
        "artifact-changed",
        409,
        "The upload is not the announced artifact",
        "ArtifactRefused",
    )
    #: The store of artifacts has no room, or the artifact is too large.
    ARTIFACTS_FULL = "artifacts-full", 507, "No room for the artifact", "ArtifactRefused"
    #: No token has this id.
    TOKEN_UNKNOWN = "token-unknown", 404, "No such token", "TokenUnknown"
    #: The token's quota is used up.
    QUOTA_PASSED = (
        "quota-passed",
        429,
        "The token's quota is used up",
        "QuotaPassed",
        "wait for sessions to end",
    )
    #: Another active session has the label.
    LABEL_TAKEN = (
        "label-taken",
        409,
        "Another session has this label",
        "LabelTaken",
        "use another label, stop that session, or wait for its end",
    )
    #: A limit of the tree of sessions leaves no room for a child session.
    TREE_LIMIT = (
        "tree-limit",
        409,
        "The tree of sessions has no room for a child",
        "TreeLimitReached",
        "do the work in this session, or let the operator raise the limit",
    )
    #: The session has changed since the client read it: its ETag differs.
    SESSION_CHANGED = (
        "session-changed",
        412,
        "The session has changed since it was read",
        "SessionChanged",
        "read it again",
    )
    #: The limit has changed since the client read it: its ETag differs.
    LIMIT_CHANGED = (
        "limit-changed",
        412,
        "The limit has changed since it was read",
        "LimitChanged",
        "read it again",
    )
    #: No limit is set for this key.
    LIMIT_UNKNOWN = "limit-unknown", 404, "No such limit", "LimitUnknown"
    #: Redis is unreachable.
    STORE_AWAY = "store-away", 503, "Redis does not answer", "Unavailable"
    #: Redis holds another store than before, or is empty; an operator must accept it.
    STORE_UNKNOWN = (
        "store-unknown",
        503,
        "Redis holds another store than before, or none",
        "StoreUnknown",
    )
    #: A newer version wrote the session's program, and this API cannot read it.
    PROGRAM_NEWER = (
        "program-newer",
        503,
        "A newer version is needed to read this",
        "Unavailable",
        "come again, or upgrade this API",
    )
    #: This process has reached its limit of open event streams.
    TOO_MANY_STREAMS = "too-many-streams", 503, "Too many event streams", "Unavailable"
    #: A key in Redis has another type of value than it should: something else has written it.
    KEY_DAMAGED = (
        "key-damaged",
        500,
        "A key in Redis has a wrong type",
        "Refused",
        "leadhand fsck --repair moves it away",
    )
    #: An internal error.
    INTERNAL = "internal", 500, "Our own fault", "Refused"
    #: A problem without a type of its own: only the status describes it.
    BLANK = "about:blank", 500, "Internal Server Error", "Refused"

    @property
    def uri(self) -> str:
        """Return the URI in the problem's field `type`.

        >>> Kind.SESSION_UNKNOWN.uri
        'urn:leadhand:problem:session-unknown'
        >>> Kind.BLANK.uri
        'about:blank'
        """
        return self.value if self is Kind.BLANK else f"urn:leadhand:problem:{self.value}"

    @classmethod
    def of(cls, uri: str) -> Kind | None:
        """Return the problem kind with this type URI; None for an unknown one."""
        return next((kind for kind in cls if kind.uri == uri), None)


#: The errors that clients raise for an unknown problem type, by status; otherwise Refused.
ERROR_BY_STATUS = {
    400: "RequestInvalid",
    401: "TokenRefused",
    403: "TokenRefused",
    413: "RequestInvalid",
    415: "RequestInvalid",
    422: "RequestInvalid",
    429: "QuotaPassed",
    503: "Unavailable",
}


def error_name(problem_type: str, status: int) -> str:
    """Returns the name of the class in leadhand.errors that a client raises for a problem.

    >>> error_name("about:blank", 413)
    'RequestInvalid'
    """
    kind = Kind.of(problem_type)
    if kind is None or kind is Kind.BLANK:
        return ERROR_BY_STATUS.get(status, Kind.BLANK.error)
    return kind.error


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


Sentence = Annotated[str, AfterValidator(_cut)]


class FieldProblem(BaseModel):
    """The error of one field, with a hint to fix it."""

    model_config = ConfigDict(frozen=True)

    #: The field's path, such as `phases.0.checkers.1.timeout_s`.
    field: Sentence
    #: The value, shortened; absent if there is none to show.
    value: Sentence | None = None
    message: Sentence
    hint: Sentence | None = None
    place: Literal["body", "query", "header"] = "body"


class Problem(BaseModel):
    """An error response; the first of several invalid fields is also at the top level."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str = Kind.BLANK.value
    title: str
    status: int
    detail: str = ""
    field: str | None = None
    value: str | None = None
    hint: str | None = None
    errors: tuple[FieldProblem, ...] = ()
    #: The session's status when the request was refused.
    session_status: str | None = None
    #: The plan as it is now, if it has changed since the client read it.
    plan: dict[str, JsonValue] | None = None
    request_id: str | None = None

    @classmethod
    def of(
        cls, kind: Kind, detail: str, *, hint: str | None = None, field: str | None = None
    ) -> Problem:
        """Build a problem of this kind, with the kind's status and title."""
        return cls(
            type=kind.uri,
            title=kind.title,
            status=kind.status,
            detail=detail,
            hint=hint or kind.hint,
            field=field,
        )

    def __str__(self) -> str:
        """
        >>> str(Problem(title="Not valid", status=422, detail="task is missing", hint="add it"))
        'task is missing; add it'
        """
        text = self.detail or self.title
        has_hint = self.hint is None or self.hint.removeprefix("give ") in text
        return text if has_hint else f"{text}; {self.hint}"
