"""Parses the documents of requests: loops, workflows, flows, graphs and plans to run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from api import requests
from api.problem_types import invalid
from api.validation_errors import NAMED, field_problems
from leadhand.flows.documents import AnyDocument, FlowDocument
from leadhand.graphs.documents import GraphDocument
from leadhand.models.documents import LoopDocument, WorkflowDocument
from leadhand.models.plans import PlanDocument
from leadhand.models.problems import FieldProblem

_DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
_MODELS: dict[str, type[BaseModel]] = {
    "loop": LoopDocument,
    "workflow": WorkflowDocument,
    "flow": FlowDocument,
    "graph": GraphDocument,
    "plan": PlanDocument,
}
_INDEX = re.compile(r"\.(\d+)(?=\.|$)")


def submitted_document(more: Callable[[JsonValue], Sequence[FieldProblem]]) -> AnyDocument:
    """Parses the request's body as a loop, workflow, flow, graph or plan to run. Raises Refused.

    `more` returns further problems of an invalid graph.
    """
    return parse_document(requests.value(), more)


def parse_document(
    given: JsonValue, more: Callable[[JsonValue], Sequence[FieldProblem]] = lambda _: ()
) -> AnyDocument:
    """Validates a JSON value as a document to run, of any kind. Raises Refused if it is invalid."""
    try:
        return _DOCUMENT.validate_python(given)
    except ValidationError as error:
        model = _model_of(given)
        problems = field_problems(error, given, model)
    if model is GraphDocument:
        # The paths of the structure's errors have brackets, and so have those of the fields.
        paths = [_INDEX.sub(r"[\1]", one.field) for one in problems]
        of_fields = (
            one.model_copy(update={"field": path})
            for one, path in zip(problems, paths, strict=True)
        )
        problems = (*of_fields, *more(given))[:NAMED]
    raise invalid(problems)


def _model_of(given: JsonValue) -> type[BaseModel] | None:
    """The model of a document, by its kind; None if the kind is missing or unknown."""
    kind = given.get("kind") if isinstance(given, dict) else None
    return _MODELS.get(str(kind))
