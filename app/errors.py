"""Everything that Leadhand's core refuses, as one tree; each error is named for the fact.

LeadhandError
├── SessionUnknown          no session has this id
├── SessionStillRuns        the call needs a session that has ended
├── ControlRefused          the verb does not fit the session's status
├── SessionChanged          the session is no longer what its caller saw
├── LimitChanged            the limit is no longer what its caller saw
├── LimitUnknown            no limit is set for this key
├── IdempotencyConflict     the key was used before, for another body
├── InvalidDocument         a field holds what cannot be run
│   ├── ParentRests         the step that starts a child session runs no more
│   └── PositionRefused     a session cannot go on after this point
├── FlowUnknown             no file of the catalog has this name
├── FlowDisabled            the flow's file is broken
├── AnswerUnwanted          no step of the session waits for this answer
├── ReferenceUnresolved     a `${reference}` names nothing
├── CapabilityRefused       the token does not grant this
├── SpecForeign             what a session would run was not signed here
├── ExportOwed              a session stays, for its export could not be written
├── ProgramNewer            a newer version wrote what the session runs
├── TokenUnknown            no token has this id
├── QuotaPassed             the token's sessions have used what they may
├── SettingInvalid          a setting cannot be used
├── ProgramStale            the session has taken over another program
└── StoreAway               Redis does not answer
    └── StoreFull           Redis answers, and has no room for more
"""

from __future__ import annotations


class LeadhandError(Exception):
    """What all of Leadhand's own errors are; the arguments are kept, so each one pickles."""

    def __reduce__(self) -> tuple[type[LeadhandError], tuple[object, ...]]:
        return (type(self), self.args)


class SessionUnknown(LeadhandError):
    """No session has this id."""

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session

    def __str__(self) -> str:
        return f"session {self.session!r} is not found; `leadhand ls` lists those that are"


class SessionStillRuns(LeadhandError):
    """The call needs a session that has ended."""

    def __init__(self, session: str, status: str) -> None:
        super().__init__(session, status)
        self.session = session
        self.status = status

    def __str__(self) -> str:
        return f"session {self.session!r} is still {self.status}; wait for its end or abort it"


class ControlRefused(LeadhandError):
    """The verb does not fit the session's status."""

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
    """The session is no longer what its caller saw."""

    def __init__(self, session: str, status: str) -> None:
        super().__init__(session, status)
        self.session = session
        self.status = status

    def __str__(self) -> str:
        return f"session {self.session!r} has changed since it was read; it is {self.status}"


class LimitChanged(LeadhandError):
    """The limit is no longer what its caller saw."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"the limit of {self.key!r} has changed since it was read; read it again"


class LimitUnknown(LeadhandError):
    """No limit is set for this key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"{self.key!r} is not limited; `leadhand limit list` lists what is"


class IdempotencyConflict(LeadhandError):
    """The key was used before, for another body."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"Idempotency-Key {self.key!r} was used for another body; use a new key"


class InvalidDocument(LeadhandError):
    """A field holds what cannot be run."""

    def __init__(self, field: str, value: object, hint: str) -> None:
        super().__init__(field, value, hint)
        self.field = field
        self.value = value
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.field} is {self.value!r}: {self.hint}"


class ParentRests(InvalidDocument):
    """The step that starts a child session runs no more, or its session starts nothing now."""

    def __init__(self, parent: object) -> None:
        super().__init__("parent", parent, "its step runs no more")


class PositionRefused(InvalidDocument):
    """A session cannot go on after this point."""


class FlowUnknown(LeadhandError):
    """No file of the catalog has this name."""

    def __init__(self, name: str, folders: tuple[str, ...]) -> None:
        super().__init__(name, folders)
        self.name = name
        self.folders = folders

    def __str__(self) -> str:
        hint = "`leadhand flows` lists those that are" if self.folders else "set LEADHAND_FLOWS"
        return f"flow {self.name!r} is not found; {hint}"


class FlowDisabled(LeadhandError):
    """The flow's file is broken."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def __str__(self) -> str:
        return f"flow {self.name!r} is disabled: {self.why}"


class AnswerUnwanted(LeadhandError):
    """No step of the session waits for this answer."""

    def __init__(self, session: str, why: str) -> None:
        super().__init__(session, why)
        self.session = session
        self.why = why

    def __str__(self) -> str:
        return f"session {self.session!r} takes no such answer: {self.why}"


class ReferenceUnresolved(LeadhandError):
    """A `${reference}` names nothing."""

    def __init__(self, reference: str, address: str) -> None:
        super().__init__(reference, address)
        self.reference = reference
        self.address = address

    def __str__(self) -> str:
        return f"{self.reference!r} in {self.address!r} names no node that can be seen from there"


class CapabilityRefused(LeadhandError):
    """The token does not grant this."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"the token does not grant this: {self.why}"


class SpecForeign(LeadhandError):
    """What a session would run was not signed with this process' secret."""

    def __init__(self, session: str, why: str) -> None:
        super().__init__(session, why)
        self.session = session
        self.why = why

    def __str__(self) -> str:
        return f"nothing of session {self.session!r} is run here: {self.why}"


class ExportOwed(LeadhandError):
    """A session stays past its time, for its export could not be written."""

    def __init__(self, session: str, why: str) -> None:
        super().__init__(session, why)
        self.session = session
        self.why = why

    def __str__(self) -> str:
        return f"session {self.session!r} stays until its export is written: {self.why}"


class ProgramNewer(LeadhandError):
    """A newer version wrote what the session runs: this one cannot read it."""

    def __init__(self, program: str) -> None:
        super().__init__(program)
        self.program = program

    def __str__(self) -> str:
        return "its program was written by a newer version; ask an API of that version"


class TokenUnknown(LeadhandError):
    """No token has this id."""

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self.token = token

    def __str__(self) -> str:
        return f"token {self.token!r} is not found; `leadhand token list` lists those that are"


class QuotaPassed(LeadhandError):
    """The token's sessions have used what they may."""

    def __init__(self, what: str, limit: int, retry_after_s: int | None = None) -> None:
        super().__init__(what, limit, retry_after_s)
        self.what = what
        self.limit = limit
        #: None where nobody can tell when there is room again.
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        when = " that have not ended" if self.what == "sessions" else " a day"
        return f"the token's quota of {self.limit} {self.what}{when} is used up"


class SettingInvalid(LeadhandError):
    """A setting cannot be used."""

    def __init__(self, name: str, value: str, hint: str) -> None:
        super().__init__(name, value, hint)
        self.name = name
        self.value = value
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.name} is {self.value!r}: {self.hint}"


class ProgramStale(LeadhandError):
    """The session has taken over another program than the one that is remembered."""


class StoreAway(LeadhandError):
    """Redis does not answer."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return f"Redis at {self.url} does not answer; nothing was lost, try again when it is back"


class StoreFull(StoreAway):
    """Redis answers, and has no room for more: what is written waits, what is deleted goes."""

    def __str__(self) -> str:
        return (
            f"Redis at {self.url} is full; nothing was lost: "
            "delete sessions, or give it more memory"
        )
