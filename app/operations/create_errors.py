"""Turns a refused create transition into the error that the caller gets."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from app.domain.records import Reply
from app.errors import ParentRests
from leadhand.errors import LabelTaken, TreeLimitReached


def create_error(
    answer: Reply, label: str, parent: Mapping[str, JsonValue] | None
) -> LabelTaken | ParentRests | TreeLimitReached:
    """Converts the store's reply that refused to create a session to an error, and returns it."""
    if answer.word == "tree_limit" and parent is not None:
        return TreeLimitReached(str(answer.why), answer.limit or 0, str(parent["session"]))
    if answer.word == "label_taken":
        return LabelTaken(label, str(answer.session))
    return ParentRests()
