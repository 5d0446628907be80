"""The program of a Stop guard: one step that is parked between the stops of its agent."""

from __future__ import annotations

from typing import NamedTuple

from app.domain.program import Action, Program, Step
from app.operations.submit import About

#: A guard without a stop for this long ends, completed.
IDLE_S = 7 * 24 * 3600
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

    @property
    def about(self) -> About:
        """The fields of the guard's session; a guard of the same agent is the same session."""
        return About(
            kind="guard",
            name=self.agent_session,
            label=inside_label(self.inside),
            unique_label=f"stop-guard:{self.inside or ''}:{self.agent_session}",
        )


def inside_label(session: str | None) -> str:
    """The label of a guard: the session whose body the agent is.

    >>> inside_label("0000000a"), inside_label(None)
    ('inside 0000000a', '')
    """
    return f"inside {session}" if session else ""
