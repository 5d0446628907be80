"""Views of Stop guards: the decision about a stop, and the counters of an agent session."""

from __future__ import annotations

from typing import Literal

from leadhand.models.views.view import View


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
