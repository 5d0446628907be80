"""Turns a refused create transition into the error that the caller gets."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from app.domain.records import Reply
from app.errors import LabelTaken, LeadhandError, ParentRests
from leadhand.models.problems import Kind


def create_error(
    answer: Reply, label: str, parent: Mapping[str, JsonValue] | None
) -> LabelTaken | ParentRests | TreeLimitReached:
    """Converts the store's reply that refused to create a session to an error, and returns it."""
    if answer.word == "tree_limit" and parent is not None:
        return TreeLimitReached(str(answer.why), answer.limit or 0, str(parent["session"]))
    if answer.word == "label_taken":
        return LabelTaken(label, str(answer.session))
    return ParentRests(str(parent))


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
