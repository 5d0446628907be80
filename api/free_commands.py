"""Where a document brings commands or Python of its own, which are the right to run anything."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from leadhand.documents import Checker, Doer


def free_commands(document: BaseModel) -> Iterator[str]:
    """The fields, as their paths; wherever in a document they stand, of whatever kind it is.

    >>> from leadhand.documents import LoopDocument
    >>> given = {"task": "t", "checkers": ["true", "agent: look"], "doer": {"agent": "a"}}
    >>> list(free_commands(LoopDocument.model_validate(given)))
    ['checkers.0.command']
    """
    yield from _within(document, "")


def _within(value: object, path: str) -> Iterator[str]:
    if isinstance(value, (Doer, Checker)):
        yield from (
            f"{path}{name}" for name in ("command", "callable") if getattr(value, name) is not None
        )
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _within(getattr(value, name), f"{path}{name}.")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _within(item, f"{path}{number}.")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _within(item, f"{path}{name}.")
