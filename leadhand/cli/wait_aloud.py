"""Waits for a short session that a command started, and says what it waits for."""

from __future__ import annotations

from leadhand.cli.commands.explain import wait_lines
from leadhand.cli.connect import tell
from leadhand.client.client import Client
from leadhand.errors import WaitTimedOut
from leadhand.models.views import ResultView

#: Seconds between two looks at what it waits for.
_LOOK_S = 3.0


def wait_aloud(client: Client, session: str) -> ResultView:
    """Wait for a session and return its result; report what it waits for, each thing once."""
    told = ""
    while True:
        try:
            return client.wait(session, _LOOK_S)
        except WaitTimedOut:
            line = next(wait_lines(client.explain(session).waits), "")
            if line and line != told:
                tell(f"session {session} waits: {line}")
                told = line
