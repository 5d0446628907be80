"""The tree of Leadhand's errors; each is named for the fact.

LeadhandError
├── SessionUnknown          no session has this id
├── SessionStillRuns        the call needs a session that has ended
├── ControlRefused          the verb does not fit the session's status
├── SessionChanged          the session has changed since its caller read it
├── LimitChanged            the limit has changed since its caller read it
├── LimitUnknown            no limit is set for this key
├── IdempotencyConflict     the key was used before with another body
├── InvalidDocument         a field has a value that cannot be run
│   ├── ParentRests         the step that starts a child session no longer runs
│   └── PositionRefused     a session cannot be resumed from this point
├── FlowUnknown             no file of the catalog has this name
├── FlowDisabled            the flow's file is broken, or not approved
├── AnswerUnwanted          no step of the session waits for this answer
├── MessageRefused          an inbox refuses a message (app.domain.messages)
├── SharedRefusal           a named lock or shared value cannot be had (domain/shared_errors)
├── ReferenceUnresolved     a `${reference}` names nothing
│   └── ValueMissing        its value is not there (history/reference_errors)
├── CapabilityRefused       the token does not grant this
├── SpecForeign             the program's signature does not match this process' secret
├── ExportOwed              a session is kept because its export could not be written
├── ProgramNewer            a newer version compiled the session's program
├── TokenUnknown            no token has this id
├── QuotaPassed             the token's sessions have used up its quota
├── LabelTaken              another active session has the label
├── TreeLimitReached        a tree of sessions has no room for a child (operations/create_errors)
├── SettingInvalid          a setting cannot be used
├── SchemaDiffers           another version wrote the store, in another form
├── SecretDiffers           the process' secret differs from the fleet's
├── WorkerNameTaken         another worker uses this name
├── ProgramStale            the session has adopted another program than the cached one
├── KeyDamaged              a key has another type than this program gives it
└── StoreAway               Redis does not answer
    ├── StoreFull           Redis is out of memory
    ├── StoreForbids        Redis refuses the user or password
    ├── StoreUnfit          Redis or its URL must be changed: rights, settings, certificate
    ├── StoreReadOnly       Redis cannot write to its disk
    └── StoreUnknown        Redis holds other data, or none, and this was not accepted
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from app.store_differences import DIFFERENCES, StoreState
from leadhand.models.problems import Kind
from leadhand.models.suggestions import nearest


class LeadhandError(Exception):
    """Base class of Leadhand's errors; it keeps the arguments, so that each one pickles."""

    #: The problem type of the API's response; an error without one is a server error.
    kind: ClassVar[Kind | None] = None

    def __reduce__(self) -> tuple[type[LeadhandError], tuple[object, ...]]:
        return (type(self), self.args)


class SessionUnknown(LeadhandError):
    """No session has this id."""

    kind = Kind.SESSION_UNKNOWN

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session

    def __str__(self) -> str:
        return f"session {self.session!r} is not found; `leadhand ls` lists the sessions"


class SessionStillRuns(LeadhandError):
    """The call needs a session that has ended."""

    kind = Kind.SESSION_STILL_RUNS

    def __init__(self, session: str, status: str) -> None:
        super().__init__(session, status)
        self.session = session
        self.status = status

    def __str__(self) -> str:
        return f"session {self.session!r} is still {self.status}; wait for its end or abort it"


class ControlRefused(LeadhandError):
    """The verb does not fit the session's status."""

    kind = Kind.CONTROL_REFUSED

    def __init__(self, session: str, verb: str, status: str, hint: str = "") -> None:
        super().__init__(session, verb, status, hint)
        self.session = session
        self.verb = verb
        self.status = status
        self.hint = hint

    def __str__(self) -> str:
        text = f"cannot {self.verb} session {self.session!r}: it is {self.status}"
        return f"{text}; {self.hint}" if self.hint else text


class SessionChanged(LeadhandError):
    """The session has changed since its caller read it."""

    kind = Kind.SESSION_CHANGED

    def __init__(self, session: str, status: str) -> None:
        super().__init__(session, status)
        self.session = session
        self.status = status

    def __str__(self) -> str:
        return f"session {self.session!r} has changed since it was read; it is {self.status}"


class IdempotencyConflict(LeadhandError):
    """The key was used before with another body."""

    kind = Kind.IDEMPOTENCY_CONFLICT

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"Idempotency-Key {self.key!r} was used for another body; use a new key"


class InvalidDocument(LeadhandError):
    """A field has a value that cannot be run."""

    kind = Kind.INVALID

    def __init__(self, field: str, value: object, hint: str) -> None:
        super().__init__(field, value, hint)
        self.field = field
        self.value = value
        self.hint = hint

    @property
    def all(self) -> tuple[InvalidDocument, ...]:
        """Return a tuple with this error alone; SeveralInvalid returns one error per field."""
        return (self,)

    def __str__(self) -> str:
        return f"{self.field} is {self.value!r}: {self.hint}"


class SeveralInvalid(InvalidDocument):
    """Several fields have values that cannot be run; the first one is that of the error itself."""

    def __init__(self, errors: Sequence[InvalidDocument]) -> None:
        super().__init__(errors[0].field, errors[0].value, errors[0].hint)
        self._errors = tuple(errors)

    @property
    def all(self) -> tuple[InvalidDocument, ...]:
        """Return the tuple of InvalidDocument errors that this error combines."""
        return self._errors

    def __str__(self) -> str:
        return "; ".join(map(str, self._errors))


class ParentRests(InvalidDocument):
    """The step that starts a child session no longer runs, or its session starts no steps now."""

    def __init__(self, parent: object) -> None:
        super().__init__("parent", parent, "its step no longer runs")


class PositionRefused(InvalidDocument):
    """A session cannot be resumed from this point."""


#: Names of flows in an error; the others are counted.
_FLOWS_NAMED = 10


class FlowUnknown(LeadhandError):
    """No file of the catalog has this name."""

    kind = Kind.FLOW_UNKNOWN

    def __init__(self, name: str, folders: tuple[str, ...], known: Sequence[str] = ()) -> None:
        super().__init__(name, folders, known)
        self.name = name
        self.folders = folders
        self.known = known

    def __str__(self) -> str:
        return f"flow {self.name!r} {self.why}"

    @property
    def why(self) -> str:
        """Return where it was searched, and the flows that are there."""
        if not self.folders:
            return f"is not found; save it as flows/{self.name}.json, or set LEADHAND_FLOWS"
        where = f"is not found in {' or '.join(self.folders)}"
        if not self.known:
            return f"{where}: no flow is there"
        more = len(self.known) - _FLOWS_NAMED
        named = ", ".join(self.known[:_FLOWS_NAMED]) + (f" and {more} more" if more > 0 else "")
        near = nearest(self.name, self.known)
        return f"{where}; " + (f"did you mean {near!r}? " if near else "") + f"there is: {named}"


class FlowDisabled(LeadhandError):
    """The flow's file is broken, or needs an approval, as `hint` says then."""

    kind = Kind.FLOW_DISABLED

    def __init__(self, name: str, why: str, hint: str | None = None) -> None:
        super().__init__(name, why, hint)
        self.name = name
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return f"flow {self.name!r} is disabled: {self.why}"


class AnswerUnwanted(LeadhandError):
    """No step of the session waits for this answer."""

    kind = Kind.ANSWER_UNWANTED

    def __init__(self, session: str, why: str) -> None:
        super().__init__(session, why)
        self.session = session
        self.why = why

    def __str__(self) -> str:
        return f"session {self.session!r} does not accept this answer: {self.why}"


class ReferenceUnresolved(LeadhandError):
    """A `${reference}` names nothing."""

    kind = Kind.INVALID

    def __init__(self, reference: str, address: str) -> None:
        super().__init__(reference, address)
        self.reference = reference
        self.address = address

    def __str__(self) -> str:
        return f"{self.reference!r} in {self.address!r} names no node that is visible from there"


class CapabilityRefused(LeadhandError):
    """The token does not grant this."""

    kind = Kind.FORBIDDEN

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"the token does not grant this: {self.why}"


class SpecForeign(LeadhandError):
    """The session's program was not signed with this process' secret."""

    def __init__(self, session: str, why: str) -> None:
        super().__init__(session, why)
        self.session = session
        self.why = why

    def __str__(self) -> str:
        return f"session {self.session!r} cannot run here: {self.why}"


class ExportOwed(LeadhandError):
    """A session is kept past its retention time because its export could not be written."""

    def __init__(self, session: str, why: str) -> None:
        super().__init__(session, why)
        self.session = session
        self.why = why

    def __str__(self) -> str:
        return f"session {self.session!r} is kept until its export is written: {self.why}"


class ProgramNewer(LeadhandError):
    """A newer version compiled the session's program, and this one cannot read it."""

    kind = Kind.PROGRAM_NEWER

    def __init__(self, program: str) -> None:
        super().__init__(program)
        self.program = program

    def __str__(self) -> str:
        return "its program was written by a newer version; ask an API of that version"


class TokenUnknown(LeadhandError):
    """No token has this id."""

    kind = Kind.TOKEN_UNKNOWN

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self.token = token

    def __str__(self) -> str:
        return f"token {self.token!r} is not found; `leadhand token list` lists the tokens"


class QuotaPassed(LeadhandError):
    """The token's sessions have used up its quota."""

    kind = Kind.QUOTA_PASSED

    def __init__(self, what: str, limit: int, retry_after_s: int | None = None) -> None:
        super().__init__(what, limit, retry_after_s)
        self.what = what
        self.limit = limit
        #: None if the time at which the quota has room again is unknown.
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        when = " that have not ended" if self.what == "sessions" else " a day"
        return f"the token's quota of {self.limit} {self.what}{when} is used up"


class LabelTaken(LeadhandError):
    """Another session at work has the label."""

    kind = Kind.LABEL_TAKEN

    def __init__(self, label: str, session: str) -> None:
        super().__init__(label, session)
        self.label = label
        self.session = session

    def __str__(self) -> str:
        return f"label is {self.label!r}: session {self.session} has it, and has not ended"


class SettingInvalid(LeadhandError):
    """A setting cannot be used."""

    def __init__(self, name: str, value: str, hint: str) -> None:
        super().__init__(name, value, hint)
        self.name = name
        self.value = value
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.name} is {self.value!r}: {self.hint}"


class SchemaDiffers(LeadhandError):
    """Another version wrote the store, in a form that this one does not read."""

    kind = Kind.STORE_AWAY

    def __init__(self, found: str, read: str) -> None:
        super().__init__(found, read)
        #: The schema of the store; '' for a store without one.
        self.found = found
        self.read = read

    def __str__(self) -> str:
        theirs = f"has schema {self.found}" if self.found else "has no schema"
        return (
            f"the store in Redis {theirs}, and this version reads schema {self.read}: use the "
            "version that wrote it; or end it with `leadhand down` and name another state folder "
            "with LEADHAND_HOME, or another Redis, to begin with an empty store"
        )


class SecretDiffers(LeadhandError):
    """The process' secret differs from the fleet's."""

    kind = Kind.STORE_AWAY

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return (
            "LEADHAND_SECRET differs from that of the fleet: set the same one for each API and "
            "worker; to rotate it, set the old one as LEADHAND_SECRET_OTHER; "
            f"if the old one is lost, delete the key {self.key!r} in Redis"
        )


class WorkerNameTaken(LeadhandError):
    """Another worker uses this name."""

    def __init__(self, name: str, host: str, pid: int) -> None:
        super().__init__(name, host, pid)
        self.name = name
        self.host = host
        self.pid = pid

    def __str__(self) -> str:
        return (
            f"LEADHAND_WORKER_NAME is {self.name!r}: a worker of that name is running on "
            f"{self.host} (process {self.pid}); give this one another name, or stop that one"
        )


class ProgramStale(LeadhandError):
    """The session has adopted another program than the cached one."""


class KeyDamaged(LeadhandError):
    """A key in Redis has another type than this program gives it, so a call could not read it."""

    kind = Kind.KEY_DAMAGED

    def __str__(self) -> str:
        return "a key in Redis has a wrong type; `leadhand fsck` names it"


class StoreAway(LeadhandError):
    """Redis does not answer."""

    kind = Kind.STORE_AWAY

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return f"Redis at {self.url} does not answer; nothing was lost, try again when it is back"


class StoreFull(StoreAway):
    """Redis is out of memory: writes fail, deletions succeed."""

    def __str__(self) -> str:
        trouble = f"Redis at {self.url} is full; nothing was lost"
        return f"{trouble}: delete sessions, or give it more memory"


class StoreForbids(StoreAway):
    """Redis refuses the user or password of the URL."""

    def __init__(self, url: str, setting: str = "LEADHAND_REDIS_URL") -> None:
        super().__init__(url)
        self.args = (url, setting)
        self.setting = setting

    def __str__(self) -> str:
        refused = f"Redis at {self.url} refuses the user or password of {self.setting}"
        return f"{refused}; set the right ones there"


class StoreUnfit(StoreAway):
    """Redis or its URL must be changed before Leadhand can use it."""

    def __init__(self, url: str, why: str, setting: str = "LEADHAND_REDIS_URL") -> None:
        super().__init__(url)
        self.args = (url, why, setting)
        self.why = why
        self.setting = setting

    def __str__(self) -> str:
        return f"the Redis of {self.setting} at {self.url} cannot be used: {self.why}"


class StoreReadOnly(StoreAway):
    """Redis cannot write to its disk: writes fail."""

    def __str__(self) -> str:
        trouble = f"Redis at {self.url} cannot write to its disk; nothing was lost"
        return f"{trouble}: make room there, or see its log"


class StoreUnknown(StoreAway):
    """Redis holds other data than this process expects, or none."""

    kind = Kind.STORE_UNKNOWN

    def __init__(
        self, url: str, state: StoreState, remembered: str = "", found: str = "", file: str = ""
    ) -> None:
        super().__init__(url)
        self.args = (url, state, remembered, found, file)
        self.file = file
        self.state = state
        self.remembered = remembered
        self.found = found

    @property
    def what(self) -> str:
        """Return a sentence that says what happened to the data in Redis."""
        return DIFFERENCES[self.state][0].format(file=self.file)

    @property
    def hint(self) -> str:
        """Return a sentence that says how to resolve the unexpected state of the data in Redis."""
        return DIFFERENCES[self.state][1]

    def __str__(self) -> str:
        return f"Redis at {self.url} {self.what}; {self.hint}"
