"""Parses the documents of requests: loops, workflows, flows, graphs and plans to run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from api import requests
from api.folder import found_here
from api.problem_types import invalid
from api.problems import field_problem
from api.validation_errors import field_problems
from app.engine import Engine
from app.errors import InvalidDocument
from app.operations.submission.flow_checks import rest_of_graph
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


def submitted_document(engine: Engine) -> AnyDocument:
    """Parses the request's body as a loop, workflow, flow, graph or plan to run. Raises Refused."""
    return parse_document(requests.value(), engine)


def parse_document(given: JsonValue, engine: Engine, *, most: int = NAMED) -> AnyDocument:
    """Validates a JSON value as a document to run, of any kind. Raises Refused if it is invalid.

    At most `most` of its errors are named. For an invalid graph the problems include why its valid
    steps could not run here.
    """
    try:
        return _DOCUMENT.validate_python(given)
    except ValidationError as error:
        model = _model_of(given)
        problems = field_problems(error, given, model, most=most)
    if model is GraphDocument:
        # The paths of the structure's errors have brackets, and so have those of the fields.
        of_fields = [
            one.model_copy(update={"field": _INDEX.sub(r"[\1]", one.field)}) for one in problems
        ]
        here = _faults_here(given, engine) if len(of_fields) < most else ()
        problems = (*of_fields, *map(field_problem, here[: most - len(of_fields)]))
    raise invalid(problems)


def _faults_here(given: JsonValue, engine: Engine) -> Sequence[InvalidDocument]:
    """Why the valid steps of an invalid graph could not run here, with its definitions."""
    rest = rest_of_graph(given)
    if rest is None:
        return ()
    try:
        found = found_here(engine, default=rest.cwd or "")
        return engine.flow_checks.faults_at_submit(rest, found)
    except InvalidDocument as error:
        return error.all


def _model_of(given: JsonValue) -> type[BaseModel] | None:
    """The model of a document, by its kind; None if the kind is missing or unknown."""
    kind = given.get("kind") if isinstance(given, dict) else None
    return _MODELS.get(str(kind))
