"""The program of a Stop guard: one step that is parked between the stops of its agent."""

from __future__ import annotations

from typing import NamedTuple

from app.domain.program import Action, Program, Step
from app.operations.submit import About
from app.security.api_tokens import Owner
from leadhand.models.documents import Budget
from leadhand.models.views import Quotas

#: A guard without a stop for this long ends, completed.
IDLE_S = 7 * 24 * 3600
#: Guards of one body that have not ended: each turn of a loop may be a new session of its agent.
OPEN_INSIDE = 50
#: The longest that a budget allows: a guard ends by its idle time, not by the operator's budget.
_WALL_S = 365 * 24 * 3600
#: The loop of the ledger's entries, whose iterations are the stops.
LOOP = "stop"

PROGRAM = Program(
    name="stop guard",
    body=(
        Step(
            id=LOOP,
            action=Action.WAIT,
            label="the agent's next stop",
            inputs={"seconds": IDLE_S, "on": "stop"},
        ),
    ),
)


class Guarded(NamedTuple):
    """The agent that a guard belongs to: its own session, and the one whose body it is."""

    agent_session: str
    inside: str | None = None
    #: The token that asked for it.
    owner: Owner | None = None
    #: The guarded folder, in which its session is listed.
    folder: str = ""

    @property
    def about(self) -> About:
        """Build the fields of the session that stores the guard's state, one per agent session."""
        return About(
            kind="guard",
            name=self.agent_session,
            listed_in=self.folder,
            label=inside_label(self.inside),
            budget=Budget(wall_s=_WALL_S),
            # The label of a user has no NUL.
            unique_label=f"\0stop-guard:{self.inside or ''}:{self.agent_session}",
        )

    @property
    def counted_for(self) -> Owner | None:
        """Return the owner of the quota for guards: the caller, or the session around the agent."""
        if self.inside is None:
            return self.owner
        return Owner(f"guards-inside-{self.inside}", Quotas(max_sessions=OPEN_INSIDE))


def inside_label(session: str | None) -> str:
    """Returns a guard's label, `inside <session>`; '' if its agent runs in no session.

    >>> inside_label("0000000a"), inside_label(None)
    ('inside 0000000a', '')
    """
    return f"inside {session}" if session else ""
