"""Views of the submission of many documents."""

from __future__ import annotations

from leadhand.models.problems import Problem
from leadhand.models.views.view import View

#: Maximum number of documents of one request.
MOST = 100


class BatchItemView(View):
    """What became of one item: a session, or a problem."""

    #: The id of the session.
    session: str | None = None
    #: Whether this request created it; an earlier one with the same key may have.
    created: bool = False
    #: Why there is no session.
    problem: Problem | None = None


class BatchView(View):
    """What became of each item, in the order of the request."""

    items: list[BatchItemView]
