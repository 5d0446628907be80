"""Views of locks and values that a tree shares, of Stop guards, and of flows."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from leadhand.models.views.view import View


class LockOwnerView(View):
    """A holder of a lock, or one that waits for it."""

    session: str
    #: The step whose attempt it is; null if the session itself is.
    address: str | None = None
    #: The name of the token that was used.
    by: str
    since: str


class LockView(View):
    """A named lock that is held, or that is waited for."""

    name: str
    holder: LockOwnerView | None = None
    #: The number of the grant: it is above those of all grants before.
    fence: int | None = None
    #: When the grant is over, unless it is renewed.
    until: str | None = None
    #: Those who wait, the first of them first.
    waiting: list[LockOwnerView] = []


class LockGrant(View):
    """The answer to one that wants a lock."""

    name: str
    state: Literal["held", "waiting"]
    #: The id of this holder, which renews and releases the lock.
    holder: str
    #: The number of the grant: it is above those of all grants before. Pass it on to what the lock
    #: protects, so that this can refuse an older one.
    fence: int | None = None
    until: str | None = None
    #: Of one that waits: how many are before it, and who holds the lock.
    before: int = 0
    held_by: LockOwnerView | None = None


class LockRelease(View):
    """What became of a release."""

    name: str
    #: False if the holder did not hold the lock any more: its time was over.
    released: bool


class ValueHead(View):
    """A key of the values that a tree of sessions shares."""

    key: str
    #: Changes with the value; a tree uses no version twice.
    version: int
    at: str
    #: The name of the token that stored it.
    by: str


class ValueView(ValueHead):
    """A value that a tree of sessions shares."""

    value: JsonValue


class StopDecision(View):
    """Whether an agent may stop, and the text for it."""

    decision: Literal["allow", "block"]
    #: The name of the guidance, such as `fix-build-errors` or `complete`.
    template: str
    #: The guidance, or the message with which it may stop.
    text: str
    #: The gate that did not pass, and its failures in a row with their limit.
    gate: str | None = None
    attempt: int = 0
    limit: int | None = None
    #: The limit that was reached; null if none was.
    limit_reached: Literal["global", "stage", "row"] | None = None


class StopView(View):
    """The answer to a stop."""

    #: run: run the gates, then report them; busy: another hook of this agent session runs.
    state: Literal["run", "decided", "busy"]
    #: The session that is the guard: its ledger has each stop.
    guard: str
    #: Which check this is since the last stop that passed all gates, and why it is made.
    attempt: int = 1
    why: str = ""
    decision: StopDecision | None = None


class GuardView(View):
    """The counters of one guard."""

    #: The session that is the guard, and its status.
    guard: str
    status: str
    #: The agent's own session.
    agent_session: str
    #: The session whose doer or checker the agent is.
    inside: str | None = None
    #: Whether a hook runs now, and since when.
    active: bool = False
    active_since: str | None = None
    #: All stops, those at which a gate failed since the last reset, and those that were refused.
    stops: int = 0
    failed_stops: int = 0
    blocks: int = 0
    #: Stops in a row that were refused.
    blocks_in_a_row: int = 0
    #: How many refusals the agent did not obey.
    overridden: int = 0
    #: The gate at which the last stop ended; `complete` if it passed all.
    stage: str = "build"
    #: Failures in a row by gate; and the last result of each gate.
    retries: dict[str, int] = {}
    last: dict[str, str] = {}
    #: The limit that keeps the guard from refusing a stop; null if none does.
    limit_reached: str | None = None
    last_stop_at: str | None = None


class GuardsView(View):
    """Guards, with how many there are and how many run a hook now."""

    active: int
    total: int
    items: list[GuardView]


class GuardReset(View):
    """How many guards were reset."""

    reset: int


class FlowInput(View):
    """An input of a flow; required if it has no default."""

    name: str
    default: str | None = None
    #: What a value has to be, if the flow declares that; without it, a text.
    json_schema: dict[str, JsonValue] | None = None


class FlowView(View):
    """A flow of the catalog, as its file defines it now."""

    name: str
    description: str = ""
    disabled: bool = False
    #: The error: the file, the path in it, and the fix.
    error: str | None = None
    inputs: list[FlowInput] = []
    #: The hash of its definition and of all files that it uses.
    hash: str = ""
    #: The definition; only in the view of one flow.
    definition: dict[str, JsonValue] | None = None


class FlowFaultView(View):
    """An error in a flow, with its path."""

    path: str
    message: str


class FlowCheckView(View):
    """Whether a flow is valid, and its errors."""

    valid: bool
    faults: list[FlowFaultView] = []
