"""Finds commands, callables and variables in a document, which need the scope `exec:free`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, JsonValue

from app.core.references import parse
from leadhand.flows.documents import Decision
from leadhand.models.documents import Checker, Doer, WorktreeOptions
from leadhand.models.session_environment import FIELDS, WithEnvironment


def free_commands(document: BaseModel) -> Iterator[str]:
    """Yields the paths of all fields of a document that contain a command, a function or variables.

    >>> from leadhand.models.documents import LoopDocument
    >>> given = {"task": "t", "checkers": ["true", "agent: look"], "doer": {"agent": "a"}}
    >>> list(free_commands(LoopDocument.model_validate(given)))
    ['checkers.0.command']
    """
    if isinstance(document, WithEnvironment):
        yield from (name for name in sorted(FIELDS) if getattr(document, name))
    yield from _within(document, "")


def commands_from_outcomes(document: BaseModel, written: JsonValue) -> Iterator[str]:
    """Yields the paths of commands that a child document takes from a step's outcome.

    >>> from leadhand.models.documents import LoopDocument
    >>> given = {"task": "t", "checkers": ["true"], "doer": {"command": "make"}}
    >>> document = LoopDocument.model_validate(given)
    >>> list(commands_from_outcomes(document, {**given, "task": "${plan.text}"}))
    []
    >>> list(commands_from_outcomes(document, {**given, "doer": "${plan.doer}"}))
    ['doer.command']
    """
    return (field for field in free_commands(document) if _is_from_outcome(written, field))


def _is_from_outcome(written: JsonValue, field: str) -> bool:
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
    if isinstance(value, (Doer, Checker, Decision, WorktreeOptions)):
        yield from (
            f"{path}{name}"
            for name in ("command", "callable", "rubric", "prepare")
            if getattr(value, name, None) is not None
        )
    if not isinstance(value, (Doer, Checker)):
        for name, part in _parts(value):
            yield from _within(part, f"{path}{name}.")


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yields the parts of a value with their names in the document."""
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
