"""The sessions that steps of a graph start: loops and workflows (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field, JsonValue

from leadhand.models.documents import LoopDocument, PhaseDocument, WorkflowDocument
from leadhand.models.session_environment import FIELDS

#: Fields that are those of the graph for all sessions of its steps.
_OF_THE_GRAPH = ("cwd", "place", "priority", "webhook", *sorted(FIELDS))
_PART = re.compile(r"[^.\[\]]+")


def _check_fields(document: LoopDocument | WorkflowDocument) -> LoopDocument | WorkflowDocument:
    for name in _OF_THE_GRAPH:
        # Clients send fields that have their default, too.
        if getattr(document, name) != type(document).model_fields[name].get_default():
            raise ValueError(f"{name} is that of the graph; remove it here, and give it there")
    return document


#: The document of a session that a step starts, in the folder and at the place of the graph.
CalledSession: TypeAlias = Annotated[
    Annotated[LoopDocument | WorkflowDocument, Field(discriminator="kind")],
    AfterValidator(_check_fields),
]


def agent_texts(document: LoopDocument | WorkflowDocument) -> dict[str, JsonValue]:
    """Returns the texts for agents in a document by their paths: they may hold references.

    A command holds none: what a step returned could change what the command does.

    >>> given = {"task": "Mend ${item}", "checkers": ["make test", "agent: Is ${item} mended?"]}
    >>> agent_texts(LoopDocument.model_validate(given))
    {'task': 'Mend ${item}', 'checkers[1].prompt': 'Is ${item} mended?'}
    """
    return dict(_texts(document))


def _texts(document: LoopDocument | WorkflowDocument) -> Iterator[tuple[str, JsonValue]]:
    loops: dict[str, LoopDocument | PhaseDocument] = (
        {"": document}
        if isinstance(document, LoopDocument)
        else {f"phases[{number}].": phase for number, phase in enumerate(document.phases)}
    )
    for path, loop in loops.items():
        yield f"{path}task", loop.task
        for number, checker in enumerate(loop.checkers):
            if checker.prompt is not None:
                yield f"{path}checkers[{number}].prompt", checker.prompt


def with_texts(document: JsonValue, texts: Mapping[str, str]) -> JsonValue:
    """Returns a copy of the JSON of a document with these texts at their paths.

    >>> with_texts({"task": "t", "checkers": [{"prompt": "p"}]}, {"checkers[0].prompt": "q"})
    {'task': 't', 'checkers': [{'prompt': 'q'}]}
    """
    for path, text in texts.items():
        document = _with_text(document, _PART.findall(path), text)
    return document


def _with_text(here: JsonValue, parts: list[str], text: str) -> JsonValue:
    if not parts:
        return text
    first, *rest = parts
    if isinstance(here, list):
        at = int(first)
        return [*here[:at], _with_text(here[at], rest, text), *here[at + 1 :]]
    fields = here if isinstance(here, dict) else {}
    return {**fields, first: _with_text(fields.get(first), rest, text)}
