"""What goes into the store's scripts and what comes out of them, as typed records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue, field_validator

from app.keys import SessionRef
from app.outcomes import Thread
from app.reasons import Reason


class Hint(BaseModel):
    """A ready step that a worker should be told of."""

    model_config = ConfigDict(frozen=True)

    queue: str
    address: str
    action: str
    path: str
    label: str
    #: 0 goes first, 9 last.
    priority: int = 5


class Origin(BaseModel):
    """What the run of a loop goes on from, where a session was resumed from an earlier point."""

    model_config = ConfigDict(frozen=True)

    #: The older run, at whose place it opened.
    run: str
    #: The iteration in which it opened; those before it are the older run's.
    opened: int
    #: The nodes of that iteration that count as done, and the block instance where they are.
    kept: dict[str, str] = {}


class Grant(BaseModel):
    """One worker's go at a step: the fence to settle under, and how long it may take."""

    model_config = ConfigDict(frozen=True)

    address: str
    fence: int
    nonce: str
    attempt: int
    #: Server times in ms.
    lease: int
    deadline: int
    lost: int
    failed: int
    #: Where the step's conversation goes on.
    thread: Thread | None = None
    #: What the attempt before this one failed with, in one line.
    failure: str | None = None
    #: Whether nobody has yet looked at the folder since the session was stopped.
    compare: bool = False
    #: What the turns around it go on from; nothing as a rule.
    origins: dict[str, Origin] = {}

    @field_validator("thread", mode="before")
    @classmethod
    def _kept(cls, value: object) -> object:
        # It lies in the store as the text that settle wrote.
        return Thread.model_validate_json(value) if isinstance(value, str) else value


class Delivery(BaseModel):
    """One thing that a webhook is told, and how often that was tried."""

    model_config = ConfigDict(frozen=True)

    event: str
    #: When it happened, and what the session was then.
    at: int
    status: str
    reason: Reason | None = None
    tries: int


class Found(BaseModel):
    """Something that does not agree, as the script found it that may have mended it at once."""

    model_config = ConfigDict(frozen=True)

    kind: str
    session: str | None = None
    what: str
    mended: bool


class Answer(BaseModel):
    """What a transition answered: one word, and what the caller has to do with it."""

    model_config = ConfigDict(frozen=True)

    word: str
    now: int
    hints: tuple[Hint, ...] = ()
    grants: tuple[Grant, ...] = ()
    #: Child sessions that lost their parent's step.
    abort: tuple[str, ...] = ()
    #: Steps of any session whose turn for a lock has come.
    called: tuple[str, ...] = ()
    #: Whether a parent session has to hear of this.
    tell: bool = False
    #: What a claim was refused for.
    lock: str | None = None
    #: The status in which the session ended by this transition.
    ended: str | None = None
    why: str | None = None
    #: What is used of a limit that refuses, or how many of something there may be.
    text: str | None = None
    limit: int | None = None
    status: str | None = None
    state: str | None = None
    by: str | None = None
    session: str | None = None
    fence: int | None = None
    lease: int | None = None
    child: str | None = None
    #: What a webhook is to be told.
    delivery: Delivery | None = None
    leases: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    errands: tuple[str, ...] = ()
    #: What an audit found.
    found: tuple[Found, ...] = ()

    @field_validator(
        "hints", "grants", "abort", "called", "leases", "ready", "errands", "found", mode="before"
    )
    @classmethod
    def _empty(cls, value: JsonValue) -> JsonValue:
        # Lua does not tell an empty list from an empty table.
        return value or []


class StepRecord(BaseModel):
    """What the store knows of one step."""

    state: str
    fence: int = 0
    nonce: str | None = None
    attempt: int = 0
    lost: int = 0
    failed: int = 0
    owner: str | None = None
    since: int | None = None
    #: When it became ready last.
    ready: int | None = None
    ended: int | None = None
    #: When its worker told last that the attempt lives, if it has since its claim.
    heard: int | None = None
    lease: int | None = None
    deadline: int | None = None
    due: int | None = None
    verdict: str | None = None
    reason: Reason | None = None
    parked: dict[str, JsonValue] | None = None
    #: Who gave what it waited for: somebody as the log calls them, or `deadline`.
    answered_by: str | None = None
    #: The lock that it waits for.
    blocked: str | None = None
    #: Whether that has room, and only so many may begin with it in a minute.
    paced: bool = False
    #: What its last attempt failed with, until the next one ends.
    failure: str | None = None
    cost_micros: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


class TurnRecord(BaseModel):
    """What the store knows of one run of a loop, of a for_each, or of the program (at '')."""

    state: str
    iteration: int = 0
    max: int = 0
    verdict: str | None = None
    reason: Reason | None = None
    each: bool = False
    width: int = 0
    attempts_failed: int = 0
    attempts_lost: int = 0
    #: How many of the last iterations came to the same.
    same: int = 0
    #: Which run of its node it is; from its address.
    run: int = 1
    #: How many more runs its retries grant.
    left: int = 0
    origin: Origin | None = None
    since: int | None = None
    ended: int | None = None


class NewSession(NamedTuple):
    """All that create needs to know."""

    ref: SessionRef
    program: str
    document: str
    routes: Mapping[str, Mapping[str, JsonValue]]
    fields: Mapping[str, str]
    idempotency_key: str | None
    body_hash: str
    parent: Mapping[str, JsonValue] | None = None
    #: Whose it is: token, its quotas, and how many bytes this session takes of them.
    owner: Mapping[str, JsonValue] | None = None
