"""What a client can be told, as one tree; each error is named for the fact.

LeadhandError
├── SettingInvalid          a setting of the environment cannot be used
├── ApiAway                 the API does not answer
├── AnswerUnreadable        something answered that is not the API
├── WaitTimedOut            the session had not ended in time
├── EmbeddedError           the embedded stack could not be had (start_errors.py draws its branch)
└── Refused                 the API said no: `problem` and `status` hold what it said
    ├── RequestInvalid      400, 413, 415, 422: what was sent cannot be used
    │   └── IdempotencyConflict     the key was used before, for another body
    ├── TokenRefused        401, 403: no token, or one that does not grant this
    ├── SessionUnknown      404: no session has this id
    ├── SessionStillRuns    409: the call needs a session that has ended
    ├── ControlRefused      409: the verb does not fit the session's status
    ├── FlowUnknown         404: no flow of the catalog has this name
    ├── FlowDisabled        409: the flow's file is broken
    ├── AnswerUnwanted      409: no step of the session waits for this answer
    ├── TokenUnknown        404: no token has this id
    ├── QuotaPassed         429: the token's sessions have used what they may
    ├── SessionChanged      412: the session is no longer what the caller saw
    ├── LimitChanged        412: the limit is no longer what the caller saw
    ├── LimitUnknown        404: no limit is set for this key
    └── Unavailable         503: Redis is away, or too many streams are open
"""

from __future__ import annotations

from leadhand.problems import Kind, Problem


class LeadhandError(Exception):
    """What all of the client's own errors are; the arguments are kept, so each one pickles."""

    def __reduce__(self) -> tuple[type[LeadhandError], tuple[object, ...]]:
        return (type(self), self.args)


class SettingInvalid(LeadhandError):
    """A setting of the environment cannot be used."""

    def __init__(self, name: str, value: str, hint: str) -> None:
        super().__init__(name, value, hint)
        self.name = name
        self.value = value
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.name} is {self.value!r}: {self.hint}"


class ApiAway(LeadhandError):
    """The API does not answer."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, why)
        self.url = url
        self.why = why

    def __str__(self) -> str:
        return f"the API at {self.url} does not answer: {self.why}"


class AnswerUnreadable(LeadhandError):
    """Something answered that is not the API."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(url, status)
        self.url = url
        self.status = status

    def __str__(self) -> str:
        return (
            f"{self.url} answered {self.status} with what Leadhand's API never says; check the URL"
        )


class WaitTimedOut(LeadhandError, TimeoutError):
    """The session had not ended in time; it goes on."""

    def __init__(self, session: str, status: str, timeout_s: float) -> None:
        super().__init__(session, status, timeout_s)
        # An OSError makes of its arguments what it likes; a pickle needs them as they were.
        self.args = (session, status, timeout_s)
        self.session = session
        self.status = status
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"session {self.session!r} is still {self.status} after {self.timeout_s:g} s"


class Refused(LeadhandError):
    """The API said no."""

    def __init__(self, problem: Problem, status: int) -> None:
        super().__init__(problem, status)
        self.problem = problem
        self.status = status

    def __str__(self) -> str:
        return str(self.problem)


class RequestInvalid(Refused):
    """What was sent cannot be used; `problem.errors` lists each field."""


class IdempotencyConflict(RequestInvalid):
    """The Idempotency-Key was used before, for another body."""


class TokenRefused(Refused):
    """No token, or one that does not grant this."""


class SessionUnknown(Refused):
    """No session has this id."""


class SessionStillRuns(Refused):
    """The call needs a session that has ended."""


class ControlRefused(Refused):
    """The verb does not fit the session's status."""


class FlowUnknown(Refused):
    """No flow of the catalog has this name."""


class FlowDisabled(Refused):
    """The flow's file is broken; what it says names the place in it."""


class AnswerUnwanted(Refused):
    """No step of the session waits for this answer, or another answer was first."""


class TokenUnknown(Refused):
    """No token has this id."""


class QuotaPassed(Refused):
    """The token's sessions have used what they may."""


class SessionChanged(Refused):
    """The session is no longer what the caller saw; read it again."""


class LimitChanged(Refused):
    """The limit is no longer what the caller saw; read it again."""


class LimitUnknown(Refused):
    """No limit is set for this key."""


class Unavailable(Refused):
    """Redis is away, or too many streams are open; trying again later may help."""


def refused(problem: Problem, status: int) -> Refused:
    """The error that says what the problem says."""
    kind = Kind.of(problem.type)
    named = _BY_KIND.get(kind) if kind is not None else None
    return (named or _BY_STATUS.get(status, Refused))(problem, status)


_BY_KIND: dict[Kind, type[Refused]] = {
    Kind.IDEMPOTENCY_CONFLICT: IdempotencyConflict,
    Kind.SESSION_UNKNOWN: SessionUnknown,
    Kind.SESSION_STILL_RUNS: SessionStillRuns,
    Kind.CONTROL_REFUSED: ControlRefused,
    Kind.FLOW_UNKNOWN: FlowUnknown,
    Kind.FLOW_DISABLED: FlowDisabled,
    Kind.ANSWER_UNWANTED: AnswerUnwanted,
    Kind.TOKEN_UNKNOWN: TokenUnknown,
    Kind.QUOTA_PASSED: QuotaPassed,
    Kind.SESSION_CHANGED: SessionChanged,
    Kind.LIMIT_CHANGED: LimitChanged,
    Kind.LIMIT_UNKNOWN: LimitUnknown,
}
_BY_STATUS: dict[int, type[Refused]] = {
    400: RequestInvalid,
    401: TokenRefused,
    403: TokenRefused,
    413: RequestInvalid,
    415: RequestInvalid,
    422: RequestInvalid,
    429: QuotaPassed,
    503: Unavailable,
}
