"""Typed arguments and replies of the store's Lua functions, and the engine's ports."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from app.core.addresses import SessionRef, block_of, iteration_in
from app.core.messages import Message
from app.core.outcomes import Thread
from app.core.program import Program
from app.core.shared import LockRecord
from app.core.stacks import StoredStack
from leadhand.models.verdicts import Reason
from leadhand.models.views.fleet import Finding, WorkerView


class Hint(BaseModel):
    """A ready step for which a message is to be sent."""

    model_config = ConfigDict(frozen=True)

    queue: str
    address: str
    action: str
    path: str
    label: str
    #: 0 is first, 9 is last.
    priority: int = 5


class Origin(BaseModel):
    """The older run that a loop's run continues, after a resume from an earlier point."""

    model_config = ConfigDict(frozen=True)

    #: The older run that it replaces.
    run: str
    #: The iteration at which it started; earlier iterations belong to the older run.
    opened: int
    #: The nodes of that iteration that count as done -> the block instance that ran them.
    kept: dict[str, str] = {}


def parse_messages(value: object) -> object:
    """Parses a list of inbox messages, each a JSON text; empty if the value is no list."""
    texts = value if isinstance(value, list | tuple) else []
    return [json.loads(text) if isinstance(text, str) else text for text in texts]


class KeptAnswer(BaseModel):
    """A person's answer that counts once the folder was compared."""

    model_config = ConfigDict(frozen=True)

    #: The outcome of the step (JSON), as the answer has it.
    outcome: str
    #: What the question showed of the work: a SeenWork (JSON).
    seen: str
    #: How often the question was asked.
    asked: int = 1


class Grant(BaseModel):
    """A granted claim: the fence of the attempt, its lease and its deadline."""

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
    #: The thread with which the step's conversation resumes.
    thread: Thread | None = None
    #: The error of the attempt before this one, in one line.
    failure: str | None = None
    #: The end of that attempt and its last lines, for the next attempt of a doer.
    ending: str | None = None
    #: The iteration of the step's loop that checks the work of the one before again; 0 for none.
    recheck: int = 0
    #: Whether the folder must be compared: it may have changed since the session was stopped.
    compare: bool = False
    #: Whether it is the first one after a person's answer that counts for the folder as it was.
    approved: bool = False
    #: The origins of the turns around the step; empty unless the session was resumed.
    origins: dict[str, Origin] = Field(default_factory=dict)
    #: The mark of the session's definitions, which a resume may have changed.
    definitions: str = ""
    #: The messages of the inbox that this attempt gets, oldest first.
    messages: tuple[Message, ...] = ()
    #: A person's answer, which counts if the folder is still as the question showed it.
    given: KeptAnswer | None = None

    @property
    def is_recheck(self) -> bool:
        """Whether the step is in an iteration that checks the work of the one before again."""
        return self.recheck == iteration_in(block_of(self.address)) > 0

    @field_validator("messages", mode="before")
    @classmethod
    def _parse_messages(cls, value: object) -> object:
        return parse_messages(value)

    @field_validator("thread", mode="before")
    @classmethod
    def _parse_thread(cls, value: object) -> object:
        # The store holds it as the JSON text that settle wrote.
        return Thread.model_validate_json(value) if isinstance(value, str) else value


class HookTask(BaseModel):
    """The task of a plan that a webhook event is about."""

    model_config = ConfigDict(frozen=True)

    id: str
    run: int
    #: The child session that carries it out.
    session: str | None = None
    #: As it was reported, `failed` or `blocked`, or what became of the proposal.
    status: str
    #: Of `task_failed`.
    reason: Reason | None = None
    #: Of `proposed`: the proposal, and the id of its task.
    proposal: str | None = None
    proposed: str | None = None


class Delivery(BaseModel):
    """One webhook event that is due, and how often its delivery was tried."""

    model_config = ConfigDict(frozen=True)

    event: str
    #: The time of the event, and the session's status at that time.
    at: int
    status: str
    reason: Reason | None = None
    #: Of an event about a task of the session's plan.
    task: HookTask | None = None
    tries: int


class Reply(BaseModel):
    """Reply of a transition: one word, and data that the caller has to act on."""

    model_config = ConfigDict(frozen=True)

    word: str
    now: int
    hints: tuple[Hint, ...] = ()
    grants: tuple[Grant, ...] = ()
    #: Child sessions that lost their parent's step.
    abort: tuple[str, ...] = ()
    #: Child sessions of a plan that are to be created: messages of the outbox.
    spawn: tuple[str, ...] = ()
    #: The version of a plan, and the number of an operation on it that was refused.
    version: int | None = None
    number: int | None = None
    #: Steps of any session that are next in line for a freed lock.
    called: tuple[str, ...] = ()
    #: Whether a parent session must be notified.
    tell: bool = False
    #: The lock because of which a claim was refused.
    lock: str | None = None
    #: The session's final status, if this transition ended it.
    ended: str | None = None
    why: str | None = None
    #: The exceeded quota, and its limit.
    text: str | None = None
    limit: int | None = None
    status: str | None = None
    state: str | None = None
    by: str | None = None
    session: str | None = None
    fence: int | None = None
    lease: int | None = None
    child: str | None = None
    #: Whether a child session that the attempt started is at work.
    children: bool = False
    #: Whether a person's answer still binds the folder that the attempt found changed.
    bound: bool = False
    #: A webhook event that is due.
    delivery: Delivery | None = None
    leases: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    errands: tuple[str, ...] = ()
    #: The store's id, and its counter of sweeps.
    store: str | None = None
    sweeps: int | None = None
    #: The ids of the entries that were appended to an output.
    ids: tuple[str, ...] = ()
    #: Messages of the session's inbox.
    messages: tuple[Message, ...] = ()
    #: A named lock, and the number of waiters before the caller.
    record: LockRecord | None = None
    before: int = 0
    #: A stack, and the quality attempts of a step.
    stack: StoredStack | None = None
    count: int | None = None
    #: The state of a Stop guard, and the decision about a stop that was made before (JSON).
    guard: str | None = None
    decision: str | None = None
    #: Inconsistencies that an audit found.
    found: tuple[Finding, ...] = ()

    @field_validator("messages", mode="before")
    @classmethod
    def _parse_messages(cls, value: object) -> object:
        return parse_messages(value)

    @field_validator(
        "hints", "grants", "abort", "called", "leases", "ready", "errands", "found", mode="before"
    )
    @classmethod
    def _empty_list(cls, value: JsonValue) -> JsonValue:
        # Lua encodes an empty list as {}.
        return value or []


class StepRecord(BaseModel):
    """The stored record of a step."""

    state: str
    fence: int = 0
    nonce: str | None = None
    attempt: int = 0
    lost: int = 0
    #: Whether the end of the session, or a stop, has started it; `kept` if it had started before.
    last: bool | Literal["kept"] = False
    failed: int = 0
    owner: str | None = None
    since: int | None = None
    #: When it last became ready.
    ready: int | None = None
    ended: int | None = None
    #: Time of the last heartbeat; None if there was none since the claim.
    heard: int | None = None
    lease: int | None = None
    deadline: int | None = None
    due: int | None = None
    #: How often it was hinted again because no worker took it.
    hints: int = 0
    verdict: str | None = None
    reason: Reason | None = None
    parked: dict[str, JsonValue] | None = None
    #: Who answered the parked step: a name as in the log, or `deadline`.
    answered_by: str | None = None
    #: Their answer, until the folder was compared with what they saw.
    given: KeptAnswer | None = None
    #: The lock that it waits for.
    blocked: str | None = None
    #: Whether it waits for a rate limit and not for a free slot.
    paced: bool = False
    #: The error of its last attempt, until the next one ends.
    failure: str | None = None
    cost_micros: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


class TurnRecord(BaseModel):
    """The stored record of one run of a loop, of a for_each, or of the program (at '')."""

    state: str
    iteration: int = 0
    max: int = 0
    verdict: str | None = None
    reason: Reason | None = None
    each: bool = False
    width: int = 0
    attempts_failed: int = 0
    attempts_lost: int = 0
    #: Number of consecutive iterations with the same result.
    same: int = 0
    #: The iteration that is a recheck, which `max` allows in addition; 0 for none.
    recheck: int = 0
    #: The run number of its node, from the address.
    run: int = 1
    #: Number of runs that its retries still allow.
    left: int = 0
    origin: Origin | None = None
    since: int | None = None
    ended: int | None = None


class StoredProgram(NamedTuple):
    """A program as it is stored: its canonical JSON, and a route (JSON) for each node path."""

    document: str
    routes: Mapping[str, str]


class NewSession(NamedTuple):
    """A session that is ready to be created: the arguments of the create transition."""

    ref: SessionRef
    program: Program
    #: Called only if the store may not have the program.
    content: Callable[[], StoredProgram]
    fields: Mapping[str, str]
    idempotency_key: str | None
    body_hash: str
    parent: Mapping[str, JsonValue] | None = None
    #: The limits of the tree, if a body starts the session.
    limits: Mapping[str, int] | None = None
    #: The owning token, its quotas, and the bytes that this session uses of them.
    owner: Mapping[str, JsonValue] | None = None
    #: The submitted document (JSON), if there is one.
    request: str = ""
    #: The stored form of its environment, which is encrypted; empty without one.
    environment: str = ""
    #: The definitions of its folder (JSON); empty without any.
    definitions: str = ""
    #: Warnings about what was submitted.
    warnings: Sequence[str] = ()
    #: The live workers with which its document was checked; None for a program without a document.
    workers: Sequence[WorkerView] | None = None


class Carrier(Protocol):
    """Sends hints to workers. Hints may get lost; the sweep repeats them."""

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:
        """Send a message to a queue for each ready step."""

    def publish_all(self, batch: Sequence[tuple[SessionRef, Program, Sequence[Hint]]]) -> None:
        """Send a message for each ready step of several sessions, in one batch."""

    def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        """Return the number of messages in each queue."""

    def strays(
        self, gone: Callable[[str, Sequence[str]], set[str]], *, drop: bool
    ) -> Sequence[QueueDepth]:
        """Count messages per queue, and those of deleted sessions (`drop` removes); [] if away.

        `gone` takes a queue and the sessions that have messages in it, and returns the deleted
        ones. Their messages are the stray ones.
        """


class QueueDepth(NamedTuple):
    """A queue of the broker: its length, and how many of its messages are stray."""

    name: str
    depth: int
    #: Messages for sessions that were deleted.
    strays: int
