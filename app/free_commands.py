"""Where a document brings commands or Python of its own, which are the right to run anything."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, JsonValue

from app.references import parse
from leadhand.documents import Checker, Doer
from leadhand.flow_documents import Decision


def free_commands(document: BaseModel) -> Iterator[str]:
    """The fields, as their paths; wherever in a document they stand, of whatever kind it is.

    >>> from leadhand.documents import LoopDocument
    >>> given = {"task": "t", "checkers": ["true", "agent: look"], "doer": {"agent": "a"}}
    >>> list(free_commands(LoopDocument.model_validate(given)))
    ['checkers.0.command']
    """
    yield from _within(document, "")


def fetched_commands(document: BaseModel, written: JsonValue) -> Iterator[str]:
    """Those of them that are not as they were written, but come from an outcome.

    >>> from leadhand.documents import LoopDocument
    >>> given = {"task": "t", "checkers": ["true"], "doer": {"command": "make"}}
    >>> document = LoopDocument.model_validate(given)
    >>> list(fetched_commands(document, {**given, "task": "${plan.text}"}))
    []
    >>> list(fetched_commands(document, {**given, "doer": "${plan.doer}"}))
    ['doer.command']
    """
    return (field for field in free_commands(document) if _is_fetched(written, field))


def _is_fetched(written: JsonValue, field: str) -> bool:
    here = written
    for part in field.split("."):
        if isinstance(here, dict) and part in here:
            here = here[part]
        elif isinstance(here, list) and part.isdigit() and int(part) < len(here):
            here = here[int(part)]
        else:
            break
    # A checker may be written as the text of its command.
    return not isinstance(here, str) or parse(here) is not None


def _within(value: object, path: str) -> Iterator[str]:
    if isinstance(value, (Doer, Checker, Decision)):
        yield from (
            f"{path}{name}"
            for name in ("command", "callable", "rubric")
            if getattr(value, name, None) is not None
        )
    if not isinstance(value, (Doer, Checker)):
        for name, part in _parts(value):
            yield from _within(part, f"{path}{name}.")


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """What lies in a value, by the names that it goes by in a document."""
    match value:
        case BaseModel():
            for name, field in type(value).model_fields.items():
                yield field.alias or name, getattr(value, name)
        case list() | tuple():
            yield from ((str(number), item) for number, item in enumerate(value))
        case dict():
            yield from value.items()
        case _:
            return
