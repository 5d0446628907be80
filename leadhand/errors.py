"""Leadhand's errors, each declared once: the API raises one and sends it, and a client raises it.

A subclass of Refused declares the type, HTTP status and title of its problem, its fields and its
sentence; its constructor takes the facts. The command line takes exit code and text from it.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from leadhand.models.problems import FieldProblem, Kind, Problem

if TYPE_CHECKING:
    from leadhand.models.views.plan import PlanView
    from leadhand.models.views.session import BatchItemView

#: Names of flows in an error; the others are counted.
_FLOWS_NAMED = 10
#: Retry-After while Redis is unreachable or all streams are in use.
RETRY_AFTER_S = 2
#: How Redis differs from the store that a process remembers.
StoreState = Literal["known", "empty", "another", "older", "unreadable"]


class LeadhandError(Exception):
    """The base of Leadhand's errors; keeps its arguments, so that each error pickles."""

    #: The exit code of a command that ends by it.
    exit_code: ClassVar[int] = 1
    #: What the command line adds to the sentence.
    advice: ClassVar[str] = ""

    def __reduce__(self) -> str | tuple[object, ...]:
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

    advice = "sessions are kept and continue once it is back; see `leadhand doctor`"

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
    """The API returned an error, or returns it; the constructor of a subclass takes its facts."""

    kind: ClassVar[Kind] = Kind("about:blank", 500, "Internal Server Error")
    #: Whether the sentence may begin with the name of a field, for which a command has a flag.
    names_fields: ClassVar[bool] = False
    #: The class that clients raise for it.
    seen_as: ClassVar[type[Refused]]
    #: The headers that the API sends with it.
    headers: Mapping[str, str] = MappingProxyType({})

    def __init_subclass__(cls, *, narrow: bool = False, statuses: Sequence[int] = ()) -> None:
        """Declare a refusal.

        Args:
            narrow: Only the side that raises it tells it from its base class, which clients raise.
            statuses: Those for which clients raise it where a response has no known type.
        """
        super().__init_subclass__()
        base = cls.__base__
        cls.seen_as = base.seen_as if narrow and base and issubclass(base, Refused) else cls
        if "kind" in vars(cls):
            REFUSALS.setdefault(cls.kind.uri, cls)
        _BY_STATUS.update(dict.fromkeys(statuses, cls))

    def __init__(
        self,
        detail: str,
        *,
        hint: str | None = None,
        field: str | None = None,
        value: str | None = None,
        session_status: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(
            type=self.kind.uri,
            title=self.kind.title,
            status=self.kind.status,
            detail=detail,
            hint=hint or self.kind.hint,
            field=field,
            value=value,
            session_status=session_status,
        )
        self.status = self.kind.status

    @classmethod
    def of(cls, detail: str, *, hint: str | None = None, field: str | None = None) -> Self:
        """Build it with another sentence, such as for an id that needs no request to be refused."""
        error = cls.__new__(cls, detail)
        Refused.__init__(error, detail, hint=hint, field=field)
        return error

    @property
    def detail(self) -> str:
        """Return the sentence without the hint."""
        return self.problem.detail

    def __str__(self) -> str:
        return str(self.problem)

    def __reduce__(self) -> str | tuple[object, ...]:
        return (copyreg.__newobj__, (type(self), *self.args), vars(self))  # type: ignore[attr-defined]


Refused.seen_as = Refused
#: The class that declares each type of problem, by its URI.
REFUSALS: dict[str, type[Refused]] = {Refused.kind.uri: Refused}
_BY_STATUS: dict[int, type[Refused]] = {}


class RequestInvalid(Refused, statuses=(400, 413, 415, 422)):
    """The request is invalid; `problem.errors` lists each field."""

    kind = Kind("invalid", 422, "A field is not valid")
    names_fields = True

    @classmethod
    def of_fields(cls, errors: Sequence[FieldProblem]) -> Self:
        """Build it for these invalid fields."""
        error = cls.of("")
        error._name(errors)
        return error

    def _name(self, errors: Sequence[FieldProblem]) -> None:
        """Name the invalid fields; the first one is at the top level too."""
        first = errors[0]
        detail = f"{first.field or 'the document'}: {first.message}"
        if len(errors) > 1:
            detail += f" (and {len(errors) - 1} more, see errors)"
        named = {"detail": detail, "errors": tuple(errors)}
        named |= first.model_dump(include={"field", "value", "hint"})
        self.problem = self.problem.model_copy(update=named)


class Malformed(RequestInvalid, narrow=True):
    """A header is invalid, or the body is not JSON."""

    kind = Kind("malformed", 400, "The request cannot be read")


class IdempotencyConflict(RequestInvalid):
    """The Idempotency-Key was used before, for another body."""

    kind = Kind(
        "idempotency-conflict",
        422,
        "The Idempotency-Key was used for another body",
        "use a new key",
    )

    def __init__(self, key: str) -> None:
        detail = f"Idempotency-Key {key!r} was used for another body; use a new key"
        super().__init__(detail, field="Idempotency-Key")


class TokenRefused(Refused, statuses=(401, 403)):
    """No token, or one that does not grant this."""

    kind = Kind("forbidden", 403, "The token does not grant this")


class TokenInvalid(TokenRefused, narrow=True):
    """The request has no token, or an invalid, revoked or expired one."""

    kind = Kind("unauthenticated", 401, "A token is needed")

    def __init__(self, why: str = "", *, hint: str | None = None) -> None:
        sent = "send the header 'Authorization: Bearer <token>'"
        super().__init__(why or "no bearer token was sent", hint=hint if why else sent)
        error = ', error="invalid_token"' if why else ""
        self.headers = {"WWW-Authenticate": f'Bearer realm="leadhand"{error}'}


class SessionUnknown(Refused):
    """No session has this id."""

    kind = Kind("session-unknown", 404, "No such session")

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} is not found; `leadhand ls` lists the sessions")


class _OfStatus(Refused):
    """The status of a session does not fit."""

    @property
    def session_status(self) -> str:
        """Return the status of the session when the request was refused."""
        return self.problem.session_status or ""


class SessionStillRuns(_OfStatus):
    """The call needs a session that has ended."""

    kind = Kind("session-still-runs", 409, "The session has not ended")

    def __init__(self, session: str, status: str) -> None:
        detail = f"session {session!r} is still {status}; wait for its end or abort it"
        super().__init__(detail, session_status=status)


class ControlRefused(_OfStatus):
    """The verb does not fit the session's status."""

    kind = Kind("control-refused", 409, "The session's status does not allow this")

    def __init__(self, session: str, verb: str, status: str, hint: str = "") -> None:
        detail = f"cannot {verb} session {session!r}: it is {status}"
        detail = f"{detail}; {hint}" if hint else detail
        super().__init__(detail, hint=hint, session_status=status)


class SessionChanged(_OfStatus):
    """The session has changed since the caller read it; read it again."""

    kind = Kind(
        "session-changed", 412, "The session has changed since it was read", "read it again"
    )

    def __init__(self, session: str, status: str) -> None:
        detail = f"session {session!r} has changed since it was read; it is {status}"
        super().__init__(detail, session_status=status)


class FlowUnknown(Refused):
    """No flow of the catalog has this name."""

    kind = Kind("flow-unknown", 404, "No such flow")

    def __init__(self, name: str, folders: tuple[str, ...], known: Sequence[str] = ()) -> None:
        #: Where it was searched, and the flows that are there.
        self.why = _not_found(name, folders, known)
        super().__init__(f"flow {name!r} {self.why}")


def _not_found(name: str, folders: tuple[str, ...], known: Sequence[str]) -> str:
    from leadhand.models.suggestions import nearest

    if not folders:
        return f"is not found; save it as flows/{name}.json, or set LEADHAND_FLOWS"
    where = f"is not found in {' or '.join(folders)}"
    if not known:
        return f"{where}: no flow is there"
    more = len(known) - _FLOWS_NAMED
    named = ", ".join(known[:_FLOWS_NAMED]) + (f" and {more} more" if more > 0 else "")
    near = nearest(name, known)
    return f"{where}; " + (f"did you mean {near!r}? " if near else "") + f"there is: {named}"


class FlowDisabled(Refused):
    """The flow's file is invalid, as the message says with its path; or needs an approval."""

    kind = Kind("flow-disabled", 409, "The flow is disabled", "mend the file")

    def __init__(self, name: str, why: str, hint: str | None = None) -> None:
        super().__init__(f"flow {name!r} is disabled: {why}", hint=hint)


class AnswerUnwanted(Refused):
    """No step of the session waits for this answer, or another answer was first."""

    kind = Kind("answer-unwanted", 409, "No step waits for this answer")

    def __init__(self, session: str, why: str) -> None:
        super().__init__(f"session {session!r} does not accept this answer: {why}")
        self.why = why


class MessageRefused(Refused):
    """The session's inbox does not accept the message: it has ended, or is full."""

    kind = Kind("message-refused", 409, "The inbox does not accept this")

    def __init__(self, session: str, why: str) -> None:
        super().__init__(f"session {session!r} does not accept this message: {why}")


class LockTaken(Refused):
    """Another attempt or session holds the lock, or is before the caller in its line."""

    kind = Kind("lock-taken", 409, "Another one has the lock")

    def __init__(self, name: str, holder: str) -> None:
        hint = "ask again with queue, or do other work first"
        super().__init__(f"lock {name!r} is taken: {holder}", field="name", value=name, hint=hint)


class LockLost(Refused):
    """The lock is not held any more: its time is over, or its owner has ended."""

    kind = Kind("lock-lost", 409, "The lock is not held by this holder")

    def __init__(self, holder: str, name: str) -> None:
        detail = f"{holder!r} does not hold lock {name!r}: its time is over, or it was freed"
        hint = "stop what the lock protects, and take it again with a new holder"
        super().__init__(detail, field="holder", value=holder, hint=hint)


class LockRefused(Refused):
    """The session can take no locks, or no further ones."""

    kind = Kind("lock-refused", 409, "The lock cannot be taken")

    def __init__(self, name: str, why: str, hint: str) -> None:
        detail = f"lock {name!r} cannot be taken: {why}"
        super().__init__(detail, field="name", value=name, hint=hint)


class ValueUnknown(Refused):
    """The tree of sessions has no value under this key."""

    kind = Kind("value-unknown", 404, "No such value in the tree of sessions")

    def __init__(self, key: str, session: str) -> None:
        detail = f"the tree of session {session!r} has no value under {key!r}"
        hint = f"`leadhand kv list {session}` lists the keys"
        super().__init__(detail, field="key", value=key, hint=hint)


class ValueChanged(Refused):
    """The value has another version than the caller expects; read it again."""

    kind = Kind("value-changed", 412, "The value has another version")

    def __init__(self, expected: int, key: str, version: int) -> None:
        now = f"has version {version}" if version else "has no value"
        detail = f"key {key!r} {now}, but version {expected} was expected"
        hint = "read the value, and apply the change to it as it is now"
        super().__init__(detail, field="if_version", value=str(expected), hint=hint)


class ValueRefused(Refused):
    """The tree of sessions accepts no value: it has too many, or its root session is deleted."""

    kind = Kind("value-refused", 409, "The value cannot be stored")

    def __init__(self, key: str, why: str, hint: str) -> None:
        detail = f"a value under {key!r} cannot be stored or deleted: {why}"
        super().__init__(detail, field="key", value=key, hint=hint)


class NoActiveWorkflow(Refused):
    """No workflow session is on the stack; start one."""

    kind = Kind("stack-empty", 409, "No workflow session is active")

    def __init__(self, stack: str) -> None:
        detail = "No active workflow session. Use start_workflow to begin one."
        super().__init__(detail, field="stack", value=stack, hint="start a workflow on it first")


class WorkflowUnknown(Refused):
    """The stack has no workflow session of this id, neither an active nor an ended one."""

    kind = Kind("workflow-unknown", 404, "No such workflow session")

    def __init__(self, workflow: str) -> None:
        hint = "`leadhand stack ls` lists the workflow sessions of the stack"
        super().__init__(
            f"Session not found: {workflow}", field="workflow", value=workflow, hint=hint
        )


class WorkflowNotStacked(Refused):
    """The workflow session is not on the stack: it has ended, or was replaced or deleted."""

    kind = Kind("workflow-not-stacked", 409, "The workflow session is not on the stack")

    def __init__(self, workflow: str) -> None:
        detail = f"Session '{workflow}' not found in active stack"
        hint = "`leadhand stack show` lists those on the stack"
        super().__init__(detail, field="workflow", value=workflow, hint=hint)


class StackRefused(Refused):
    """The stack does not allow this: it is full, or another workflow session is on top of it."""

    kind = Kind("stack-refused", 409, "The stack does not allow this")

    def __init__(self, value: str, field: str, why: str, hint: str) -> None:
        super().__init__(why, field=field, value=value, hint=hint)


class ArtifactUnknown(Refused):
    """The session refers to no artifact with this digest, or its file is missing."""

    kind = Kind("artifact-unknown", 404, "No such artifact")

    def __init__(self, session: str, digest: str) -> None:
        super().__init__(
            f"session {session!r} has no artifact {digest!r}; "
            f"`leadhand artifacts {session}` lists them"
        )


class ArtifactRefused(Refused):
    """The API does not store an artifact: it has other bytes than announced, or no room."""


class ArtifactChanged(ArtifactRefused, narrow=True):
    """The bytes of an upload do not have the digest that they were announced with."""

    kind = Kind("artifact-changed", 409, "The upload is not the announced artifact")

    def __init__(self, digest: str, why: str) -> None:
        super().__init__(f"artifact {digest!r}: {why}; upload it again from the start")


class ArtifactsFull(ArtifactRefused, narrow=True):
    """The store of artifacts has no room: its disk is full, or a limit is reached."""

    kind = Kind("artifacts-full", 507, "No room for the artifact")


class TokenUnknown(Refused):
    """No token has this id."""

    kind = Kind("token-unknown", 404, "No such token")

    def __init__(self, token: str) -> None:
        super().__init__(f"token {token!r} is not found; `leadhand token list` lists the tokens")


class QuotaPassed(Refused, statuses=(429,)):
    """The token's quota is used up."""

    kind = Kind("quota-passed", 429, "The token's quota is used up", "wait for sessions to end")

    def __init__(self, what: str, limit: int, retry_after_s: int | None = None) -> None:
        when = " that have not ended" if what == "sessions" else " a day"
        hint = None if retry_after_s is None else "continue tomorrow (UTC)"
        super().__init__(f"the token's quota of {limit} {what}{when} is used up", hint=hint)
        # Without them if the time at which the quota has room again is unknown.
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}


class LabelTaken(Refused):
    """Another active session has the label."""

    kind = Kind(
        "label-taken",
        409,
        "Another session has this label",
        "use another label, stop that session, or wait for its end",
    )
    names_fields = True

    def __init__(self, label: str, session: str) -> None:
        detail = f"label is {label!r}: session {session} has it, and has not ended"
        super().__init__(detail, field="label")
        self.session = session


class TreeLimitReached(Refused):
    """A limit of the tree of sessions leaves no room for another child session."""

    kind = Kind(
        "tree-limit",
        409,
        "The tree of sessions has no room for a child",
        "do the work in this session, or let the operator raise the limit",
    )

    def __init__(self, what: str, limit: int, session: str) -> None:
        text = {
            "depth": f"a child of session {session} would be nested deeper than {limit}",
            "children": f"session {session} has {limit} child sessions already",
            "sessions": f"the tree of session {session} has {limit} sessions already",
        }[what]
        super().__init__(f"{text}, the limit of LEADHAND_TREE_{what.upper()}")


class PlanRefused(Refused):
    """The plan does not allow this; the message says why."""

    kind = Kind("plan-refused", 409, "The plan does not allow this")

    def __init__(self, session: str, what: str, why: str, operation: int | None = None) -> None:
        about = f"task {what!r}: " if what else ""
        super().__init__(
            f"the plan of session {session!r} does not allow this: {about}{why}",
            field=None if operation is None else f"operations.{operation - 1}",
        )
        #: The task or proposal that the change concerns; empty for the whole plan.
        self.what = what
        self.why = why


class NoPlan(PlanRefused):
    """The session is no plan, or its team lead has not drafted one yet."""

    kind = Kind("no-plan", 409, "The session has no plan")

    def __init__(self, session: str, why: str) -> None:
        Refused.__init__(self, f"session {session!r} has no plan: {why}")


class ReportLate(PlanRefused):
    """The report came after the task had ended for its plan."""

    kind = Kind("report-late", 409, "The task has ended for its plan")

    def __init__(self, session: str, state: str) -> None:
        detail = f"the task of session {session!r} is {state} for its plan already"
        if state == "superseded":
            detail = f"session {session!r} was replaced by another run of its task"
        Refused.__init__(self, detail)


class PlanChanged(Refused):
    """The plan has changed since the caller read it."""

    kind = Kind(
        "plan-changed",
        412,
        "The plan has changed since it was read",
        "apply the change to the plan as it is now",
    )

    def __init__(self, session: str, version: int) -> None:
        super().__init__(f"the plan of session {session!r} is at version {version} now")

    def with_plan(self, plan: PlanView) -> PlanChanged:
        """Return this error with the plan as it is now."""
        from leadhand.models.etags import plan_etag

        given = {"plan": plan.model_dump(mode="json")}
        self.problem = self.problem.model_copy(update=given)
        self.headers = {"ETag": plan_etag(plan.version)}
        return self

    @property
    def plan(self) -> PlanView | None:
        """Return the current plan, if the response has it."""
        from leadhand.models.views.plan import PlanView

        given = self.problem.plan
        return None if given is None else PlanView.model_validate(given)


class TaskUnknown(Refused):
    """The plan has no task of this id."""

    kind = Kind("task-unknown", 404, "No such task in the plan")

    def __init__(self, session: str, task: str, known: Sequence[str]) -> None:
        from leadhand.models.suggestions import listed, nearest

        near = nearest(task, known)
        ids = f"its tasks are {listed(known)}" if known else "it has no tasks yet"
        hint = ids if near is None else f"did you mean {near!r}?"
        detail = f"the plan of session {session!r} has no task {task[:80]!r}"
        super().__init__(detail, hint=hint, field="task")


class LimitChanged(Refused):
    """The limit has changed since the caller read it; read it again."""

    kind = Kind("limit-changed", 412, "The limit has changed since it was read", "read it again")

    def __init__(self, key: str) -> None:
        super().__init__(f"the limit of {key!r} has changed since it was read; read it again")


class LimitUnknown(Refused):
    """No limit is set for this key."""

    kind = Kind("limit-unknown", 404, "No such limit")

    def __init__(self, key: str) -> None:
        super().__init__(f"{key!r} has no limit; `leadhand limit list` lists all limits")


class KeyDamaged(Refused, narrow=True):
    """A key in Redis has another type than this program gives it: something else has written it."""

    kind = Kind(
        "key-damaged",
        500,
        "A key in Redis has a wrong type",
        "leadhand fsck --repair moves it away",
    )

    def __init__(self) -> None:
        super().__init__("a key in Redis has a wrong type; `leadhand fsck` names it")


class InternalFault(Refused, narrow=True):
    """An error that is none of these; only the log of the server describes it."""

    kind = Kind("internal", 500, "Our own fault")

    def __init__(self) -> None:
        super().__init__("internal error; the server's log has it under this request_id")


class Unavailable(Refused, statuses=(503,)):
    """Redis is unreachable, or too many streams are open; a later retry may succeed."""

    headers = MappingProxyType({"Retry-After": str(RETRY_AFTER_S)})


class ProgramNewer(Unavailable, narrow=True):
    """A newer version compiled the session's program, and this one cannot read it."""

    kind = Kind(
        "program-newer",
        503,
        "A newer version is needed to read this",
        "come again, or upgrade this API",
    )

    def __init__(self) -> None:
        super().__init__("its program was written by a newer version; ask an API of that version")


class TooManyStreams(Unavailable, narrow=True):
    """This process has reached its limit of open event streams."""

    kind = Kind("too-many-streams", 503, "Too many event streams")

    def __init__(self, limit: int) -> None:
        detail = f"{limit} event streams are open, as many as one process serves"
        hint = "try again soon, or read the events in pages without 'Accept: text/event-stream'"
        super().__init__(detail, hint=hint)


class StoreAway(Unavailable, narrow=True):
    """Redis does not answer; only the log of the server has its address.

    The constructor of a subclass takes what responses say after "Redis", and what the log says.
    """

    kind = Kind("store-away", 503, "Redis does not answer")
    logged = ""

    def __init__(self, url: str, public: str = "does not answer", logged: str = "") -> None:
        super().__init__(f"Redis {public}; nothing was lost")
        self.url = url
        again = "does not answer; nothing was lost, try again when it is back"
        self.logged = logged or f"Redis at {url} {again}"

    def __str__(self) -> str:
        return self.logged or str(self.problem)


class StoreFull(StoreAway, narrow=True):
    """Redis is out of memory: writes fail, deletions succeed."""

    def __init__(self, url: str) -> None:
        fix = "delete sessions, or give it more memory"
        super().__init__(url, "is full", f"Redis at {url} is full; nothing was lost: {fix}")


class StoreReadOnly(StoreAway, narrow=True):
    """Redis cannot write to its disk: writes fail."""

    def __init__(self, url: str) -> None:
        trouble = f"Redis at {url} cannot write to its disk; nothing was lost"
        super().__init__(
            url,
            "cannot write to its disk: make room there",
            f"{trouble}: make room there, or see its log",
        )


class StoreForbids(StoreAway, narrow=True):
    """Redis refuses the user or password of the URL."""

    def __init__(self, url: str, setting: str = "LEADHAND_REDIS_URL") -> None:
        refused = f"Redis at {url} refuses the user or password of {setting}"
        super().__init__(
            url,
            f"refuses the user or password of the API's {setting}",
            f"{refused}; set the right ones there",
        )


class StoreUnfit(StoreAway, narrow=True):
    """Redis or its URL must be changed first: the rights, the settings or the certificate."""

    def __init__(self, url: str, why: str, setting: str = "LEADHAND_REDIS_URL") -> None:
        super().__init__(
            url,
            f"of the API's {setting} has to be changed, as the API's log says",
            f"the Redis of {setting} at {url} cannot be used: {why}",
        )
        self.why = why


class StoreUnknown(StoreAway):
    """Redis holds another store than before, or is empty; an operator must accept it."""

    kind = Kind("store-unknown", 503, "Redis holds another store than before, or none")
    headers = MappingProxyType({})

    def __init__(
        self, url: str, state: StoreState, remembered: str = "", found: str = "", file: str = ""
    ) -> None:
        what, hint = DIFFERENCES[state]
        what = what.format(file=file)
        Refused.__init__(self, f"Redis {what}", hint=hint)
        self.logged = f"Redis at {url} {what}; {hint}"
        self.url = url
        self.state = state
        self.remembered = remembered
        self.found = found


#: What happened to the data in Redis, and what to do.
DIFFERENCES: Mapping[StoreState, tuple[str, str]] = {
    "known": ("holds the store that this process works with", ""),
    "empty": (
        "has lost its data: it is empty, and nothing is read or written",
        "restore a backup, or start without the old sessions: leadhand store accept --new",
    ),
    "another": (
        "holds another store than before, and nothing is read or written",
        "check LEADHAND_REDIS_URL, or accept this store: leadhand store accept --new",
    ),
    "older": (
        "went back to an older state, and nothing is read or written",
        "if a backup was restored, accept it: leadhand store accept",
    ),
    "unreadable": (
        "may hold another store than before: the file {file}, which keeps the store's id, cannot "
        "be read, and nothing is read or written",
        "see what Redis holds (leadhand store show), then accept it: leadhand store accept",
    ),
}


class SchemaDiffers(Unavailable, narrow=True):
    """Another version wrote the store, in a form that this one does not read."""

    kind = StoreAway.kind
    headers = MappingProxyType({})

    def __init__(self, found: str, read: str) -> None:
        theirs = f"has schema {found}" if found else "has no schema"
        super().__init__(
            f"the store in Redis {theirs}, and this version reads schema {read}: use the "
            "version that wrote it; or end it with `leadhand down` and name another state folder "
            "with LEADHAND_HOME, or another Redis, to begin with an empty store"
        )


class SecretDiffers(Unavailable, narrow=True):
    """The process' secret differs from the fleet's."""

    kind = StoreAway.kind
    headers = MappingProxyType({})

    def __init__(self, key: str) -> None:
        super().__init__("the API's secret differs from its fleet's")
        self.key = key

    def __str__(self) -> str:
        return (
            "LEADHAND_SECRET differs from that of the fleet: set the same one for each API and "
            "worker; to rotate it, set the old one as LEADHAND_SECRET_OTHER; "
            f"if the old one is lost, delete the key {self.key!r} in Redis"
        )


def error_for(problem: Problem, status: int, headers: Mapping[str, str] | None = None) -> Refused:
    """Returns the exception for a problem response, by its type and status.

    >>> type(error_for(Problem(title="Too large", status=413), 413)).__name__
    'RequestInvalid'
    """
    declared = REFUSALS.get(problem.type)
    if declared is None or declared is Refused:
        declared = _BY_STATUS.get(status, Refused)
    error = declared.seen_as.of(problem.detail)
    error.problem, error.status = problem, status
    error.headers = dict(headers or {})
    return error


def of_status(
    status: int, detail: str, *, hint: str | None = None, headers: Mapping[str, str] | None = None
) -> Refused:
    """Returns the exception without a type of its own, such as for an unknown path."""
    title = HTTPStatus(status).phrase
    problem = Problem(title=title, status=status, detail=detail, hint=hint)
    return error_for(problem, status, headers)
