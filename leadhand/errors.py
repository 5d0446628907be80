"""The errors that a client raises, as one tree.

LeadhandError
├── SettingInvalid          an environment variable has an invalid value
├── ApiAway                 the API does not respond
├── AnswerUnreadable        the response is not one of Leadhand's API
├── WaitTimedOut            the session did not end in time
├── BatchStopped            a later request of `submit_many` failed, after sessions were started
├── EmbeddedError           the embedded stack did not start (leadhand.local.errors has its branch)
└── Refused                 the API returned an error: `problem` and `status` have the details
    ├── RequestInvalid      400, 413, 415, 422: the request is invalid
    │   └── IdempotencyConflict     the key was used before, for another body
    ├── TokenRefused        401, 403: no token, or one that does not grant this
    ├── SessionUnknown      404: no session has this id
    ├── SessionStillRuns    409: the call needs a session that has ended
    ├── ControlRefused      409: the verb does not fit the session's status
    ├── FlowUnknown         404: no flow of the catalog has this name
    ├── FlowDisabled        409: the flow's file is invalid, or not approved
    ├── AnswerUnwanted      409: no step of the session waits for this answer
    ├── MessageRefused      409: the session's inbox does not accept the message
    ├── LockTaken           409: another attempt or session holds the lock
    ├── LockLost            409: the lock is not held any more
    ├── LockRefused         409: the session can take no locks, or no further ones
    ├── ValueUnknown        404: the tree of sessions has no value under this key
    ├── ValueChanged        412: the value has another version
    ├── ValueRefused        409: the tree of sessions accepts no value
    ├── NoActiveWorkflow    409: no workflow session is on the stack
    ├── WorkflowUnknown     404: the stack has no workflow session of this id
    ├── WorkflowNotStacked  409: the workflow session is not on the stack
    ├── StackRefused        409: the stack is full, or another workflow session is on top
    ├── ArtifactUnknown     404: the session refers to no artifact with this digest
    ├── ArtifactRefused     409, 507: an upload has other bytes than announced, or there is no room
    ├── TokenUnknown        404: no token has this id
    ├── QuotaPassed         429: the token's quota is used up
    ├── LabelTaken          409: another active session has the label
    ├── TreeLimitReached    409: a tree of sessions has no room for a child session
    ├── SessionChanged      412: the session has changed since the caller read it
    ├── PlanRefused         409: the plan does not allow this
    │   ├── NoPlan              the session is no plan, or has no draft yet
    │   └── ReportLate          the task has ended for its plan
    ├── PlanChanged         412: the plan has changed since the caller read it
    ├── TaskUnknown         404: the plan has no task of this id
    ├── LimitChanged        412: the limit has changed since the caller read it
    ├── LimitUnknown        404: no limit is set for this key
    └── Unavailable         503: Redis is unreachable, or too many streams are open
        └── StoreUnknown            Redis holds another store than before, or is empty
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.models.problems import Kind, Problem, error_name

if TYPE_CHECKING:
    from leadhand.models.views.batch import BatchItemView
    from leadhand.models.views.plan import PlanView


class LeadhandError(Exception):
    """The base of the client's errors; keeps its arguments, so that each error pickles."""

    def __reduce__(self) -> tuple[type[LeadhandError], tuple[object, ...]]:
        return (type(self), self.args)


class SettingInvalid(LeadhandError):
    """An environment variable has an invalid value."""

    def __init__(self, name: str, value: str | None, hint: str) -> None:
        super().__init__(name, value, hint)
        self.name = name
        #: None for a value that is not shown, as it may be a secret.
        self.value = value
        self.hint = hint

    def __str__(self) -> str:
        shown = "" if self.value is None else f" is {self.value!r}"
        return f"{self.name}{shown}: {self.hint}"


class ApiAway(LeadhandError):
    """The API does not respond."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, why)
        self.url = url
        self.why = why

    def __str__(self) -> str:
        return f"the API at {self.url} does not respond: {self.why}"


class AnswerUnreadable(LeadhandError):
    """The response is not one of Leadhand's API."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(url, status)
        self.url = url
        self.status = status

    def __str__(self) -> str:
        return (
            f"{self.url} returned HTTP {self.status}, but not a response of Leadhand's API;"
            " check the URL"
        )


class WaitTimedOut(LeadhandError, TimeoutError):
    """The session did not end in time; it continues."""

    def __init__(self, session: str, status: str, timeout_s: float) -> None:
        super().__init__(session, status, timeout_s)
        # OSError changes its arguments; pickle needs the original ones.
        self.args = (session, status, timeout_s)
        self.session = session
        self.status = status
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"session {self.session!r} is still {self.status} after {self.timeout_s:g} s"


class BatchStopped(LeadhandError):
    """A request of `submit_many` failed after earlier ones had started sessions.

    The same call with `keys` starts the sessions that are missing, and returns all.
    """

    def __init__(self, items: list[BatchItemView], keys: list[str], why: str) -> None:
        super().__init__(items, keys, why)
        #: What became of the first documents.
        self.items = items
        #: The idempotency keys of all documents.
        self.keys = keys
        self.why = why

    def __str__(self) -> str:
        return (
            f"{self.why}; the {len(self.items)} documents before are submitted: repeat the call"
            " with the keys of this error as idempotency_keys"
        )


class Refused(LeadhandError):
    """The API returned an error."""

    def __init__(self, problem: Problem, status: int) -> None:
        super().__init__(problem, status)
        self.problem = problem
        self.status = status

    def __str__(self) -> str:
        return str(self.problem)


class RequestInvalid(Refused):
    """The request is invalid; `problem.errors` lists each field."""


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
    """The flow's file is invalid, as the message says with its path; or needs an approval."""


class AnswerUnwanted(Refused):
    """No step of the session waits for this answer, or another answer was first."""


class MessageRefused(Refused):
    """The session's inbox does not accept the message: it has ended, or is full."""


class LockTaken(Refused):
    """Another attempt or session holds the lock; the message names it."""


class LockLost(Refused):
    """The lock is not held any more: its time is over, or its owner has ended."""


class LockRefused(Refused):
    """The session can take no locks, or no further ones."""


class ValueUnknown(Refused):
    """The tree of sessions has no value under this key."""


class ValueChanged(Refused):
    """The value has another version than the caller expects; read it again."""


class ValueRefused(Refused):
    """The tree of sessions accepts no value: it has too many, or its root session is deleted."""


class NoActiveWorkflow(Refused):
    """No workflow session is on the stack; start one."""


class WorkflowUnknown(Refused):
    """The stack has no workflow session of this id."""


class WorkflowNotStacked(Refused):
    """The workflow session is not on the stack: it has ended, or was replaced or deleted."""


class StackRefused(Refused):
    """The stack does not allow this: it is full, or another workflow session is on top of it."""


class ArtifactUnknown(Refused):
    """The session refers to no artifact with this digest."""


class ArtifactRefused(Refused):
    """The API does not store an artifact: it has other bytes than announced, or no room."""


class TokenUnknown(Refused):
    """No token has this id."""


class QuotaPassed(Refused):
    """The token's quota is used up."""


class LabelTaken(Refused):
    """Another active session has the label."""


class TreeLimitReached(Refused):
    """A limit of the tree of sessions leaves no room for another child session."""


class SessionChanged(Refused):
    """The session has changed since the caller read it; read it again."""


class PlanRefused(Refused):
    """The plan does not allow this; the message says why."""


class NoPlan(PlanRefused):
    """The session is no plan, or its team lead has not drafted one yet."""


class ReportLate(PlanRefused):
    """The report came after the task had ended for its plan."""


class PlanChanged(Refused):
    """The plan has changed since the caller read it."""

    @property
    def plan(self) -> PlanView | None:
        """Return the current plan, if the response has it."""
        from leadhand.models.views.plan import PlanView

        given = self.problem.plan
        return None if given is None else PlanView.model_validate(given)


class TaskUnknown(Refused):
    """The plan has no task of this id."""


class LimitChanged(Refused):
    """The limit has changed since the caller read it; read it again."""


class LimitUnknown(Refused):
    """No limit is set for this key."""


class Unavailable(Refused):
    """Redis is unreachable, or too many streams are open; a later retry may succeed."""


class StoreUnknown(Unavailable):
    """Redis holds another store than before, or is empty; an operator must accept it."""


def error_for(problem: Problem, status: int) -> Refused:
    """Returns the exception for a problem response, by its type and status."""
    return _REFUSALS[error_name(problem.type, status)](problem, status)


def local_error(
    kind: Kind, detail: str, *, hint: str | None = None, field: str | None = None
) -> Refused:
    """Returns the exception for a request that the client itself rejects, as the API would."""
    return error_for(Problem.of(kind, detail, hint=hint, field=field), kind.status)


#: The error classes by name, as the table of problem kinds refers to them.
_REFUSALS: dict[str, type[Refused]] = {
    one.__name__: one
    for one in globals().copy().values()
    if isinstance(one, type) and issubclass(one, Refused)
}
