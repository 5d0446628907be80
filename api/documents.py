"""Parses the documents of requests: loops, workflows, flows, graphs and plans to run."""

from __future__ import annotations

import re

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from api.validation_errors import field_problems
from leadhand.errors import RequestInvalid
from leadhand.flows.documents import AnyDocument, FlowDocument
from leadhand.graphs.documents import GraphDocument
from leadhand.models.documents import LoopDocument, WorkflowDocument
from leadhand.models.plans import PlanDocument
from leadhand.models.validation_messages import NAMED

_DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
_MODELS: dict[str, type[BaseModel]] = {
    "loop": LoopDocument,
    "workflow": WorkflowDocument,
    "flow": FlowDocument,
    "graph": GraphDocument,
    "plan": PlanDocument,
}
_INDEX = re.compile(r"\.(\d+)(?=\.|$)")


def parse_document(given: JsonValue, *, most: int = NAMED) -> AnyDocument:
    """Validates a JSON value as a document to run, of any kind. Raises Refused if it is invalid.

    At most `most` of its errors are named.
    """
    try:
        return _DOCUMENT.validate_python(given)
    except ValidationError as error:
        model = _model_of(given)
        problems = field_problems(error, given, model, most=most)
    if model is GraphDocument:
        # The paths of the structure's errors have brackets, and so have those of the fields.
        problems = tuple(
            one.model_copy(update={"field": _INDEX.sub(r"[\1]", one.field)}) for one in problems
        )
    raise RequestInvalid.of_fields(problems)


def _model_of(given: JsonValue) -> type[BaseModel] | None:
    """The model of a document, by its kind; None if the kind is missing or unknown."""
    kind = given.get("kind") if isinstance(given, dict) else None
    return _MODELS.get(str(kind))
