"""Lists the errors of an invalid graph, each with its path (pure)."""

from __future__ import annotations

from pydantic import JsonValue, ValidationError

from leadhand.flows.faults import faults_of
from leadhand.graphs.documents import GraphDocument
from leadhand.graphs.faults import GraphMalformed


def faults_of_graph(error: ValidationError, given: JsonValue) -> list[tuple[str, str]]:
    """Returns all errors of an invalid graph, as paths and messages."""
    for one in error.errors(include_url=False):
        cause = one.get("ctx", {}).get("error")
        if isinstance(cause, GraphMalformed):
            texts = [str(fault).removeprefix(f"{fault.path}: ") for fault in cause.faults]
            paths = [fault.path for fault in cause.faults]
            return list(zip(paths, texts, strict=True))
    return faults_of(error, given, GraphDocument)
