"""The calls that start sessions (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

from leadhand.client.calls import Call
from leadhand.client.origin import Origin
from leadhand.client.paths import flow_path
from leadhand.client.requests import SESSIONS, Document
from leadhand.flows.documents import FlowRun
from leadhand.models.session_environment import FIELDS, REVEALED

_JSON: TypeAdapter[Any] = TypeAdapter(Any)


def submit(fields: Mapping[str, Any], origin: Origin) -> Call:
    """Builds the request that starts a session from a document, with an Idempotency-Key."""
    return _post(SESSIONS, fields, origin)


def run_flow(name: str, fields: Mapping[str, Any], origin: Origin) -> Call:
    """Builds the request that runs a flow of the catalog by name, with its Idempotency-Key."""
    return _post(flow_path(name, "runs"), fields, origin)


def fields_of(given: Document | FlowRun | Mapping[str, Any]) -> dict[str, Any]:
    """Returns a document or flow run as JSON fields, with its environment values in plain text."""
    if not isinstance(given, BaseModel):
        return dict(given)
    is_run = isinstance(given, FlowRun)
    fields = given.model_dump(mode="json", context=REVEALED, exclude_unset=is_run)
    # An older API does not know these.
    return {name: value for name, value in fields.items() if name not in FIELDS or value}


def _post(path: str, fields: Mapping[str, Any], origin: Origin) -> Call:
    content = _JSON.dump_json(dict(fields))
    return Call("POST", path, headers=origin.headers(), params=origin.params(), content=content)
