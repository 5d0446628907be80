"""The limits of a tree of sessions: its depth, the children of one session, all sessions."""

from __future__ import annotations

from app.errors import LeadhandError
from leadhand.models.problems import Kind


class TreeLimitReached(LeadhandError):
    """A body starts a child session, and a limit of its tree leaves no room for it."""

    kind = Kind.TREE_LIMIT

    def __init__(self, what: str, limit: int, session: str) -> None:
        super().__init__(what, limit, session)
        #: The limit: `depth`, `children` or `sessions`.
        self.what = what
        self.limit = limit
        #: The session whose body starts the child.
        self.session = session

    def __str__(self) -> str:
        text = {
            "depth": f"a child of session {self.session} would be nested deeper than {self.limit}",
            "children": f"session {self.session} has {self.limit} child sessions already",
            "sessions": f"the tree of session {self.session} has {self.limit} sessions already",
        }[self.what]
        return f"{text}, the limit of LEADHAND_TREE_{self.what.upper()}"
