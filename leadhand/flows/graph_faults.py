"""Lists the errors of an invalid graph, each with its path (pure)."""

from __future__ import annotations

from pydantic import JsonValue, ValidationError

from leadhand.flows.faults import faults_of
from leadhand.graphs.documents import GraphDocument
from leadhand.graphs.faults import GraphMalformed
from leadhand.models.validation_messages import error_details


def faults_of_graph(error: ValidationError, given: JsonValue) -> list[tuple[str, str]]:
    """Returns the errors of an invalid graph, as paths and messages."""
    causes = (one.get("ctx", {}).get("error") for one in error_details(error))
    structural = [
        (fault.path, str(fault).removeprefix(f"{fault.path}: "))
        for cause in causes
        if isinstance(cause, GraphMalformed)
        for fault in cause.faults
    ]
    of_fields = faults_of(error, given, GraphDocument)
    # The errors of the structure are one error of the whole document, whose path is empty.
    return [one for one in of_fields if one[0] or not structural] + structural
