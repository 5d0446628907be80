"""What the functions that start, answer or show sessions take as their first argument."""

from __future__ import annotations

from app.context import Context
from app.sessions.answers import Answers, ChildReports
from app.sessions.queries import Queries
from app.sessions.submit import Submissions


class SessionContext(Context):
    """A context with the services of sessions that other nouns use. The engine adds them."""

    submit: Submissions
    queries: Queries
    answers: Answers
    reports: ChildReports
