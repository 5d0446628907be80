"""What the functions that start sessions take as their first argument."""

from __future__ import annotations

from app.context import Context
from app.sessions.queries import Queries
from app.sessions.submit import Submissions


class SessionContext(Context):
    """A context with the services of sessions that other nouns use. The engine adds them."""

    #: Reads sessions.
    queries: Queries
    #: Creates sessions.
    submit: Submissions
