"""The arguments of the transitions that create a session (pure)."""

from __future__ import annotations

import json

from pydantic import JsonValue

from app.domain.records import NewSession


def creation_arguments(new: NewSession, store: str | None) -> dict[str, JsonValue]:
    """Builds the arguments that the Lua functions `create` and `steps_fork` have in common."""
    arguments: dict[str, JsonValue] = {
        "root": new.ref.root,
        "program": new.program,
        "fields": dict(new.fields),
        "routes": {path: json.dumps(route) for path, route in new.routes.items()},
        "body": new.body_hash,
        "request": new.request,
        "store": store,
    }
    if new.idempotency_key is not None:
        arguments["key"] = new.idempotency_key
    if new.parent is not None:
        arguments["parent"] = dict(new.parent)
    if new.limits is not None:
        arguments["limits"] = dict(new.limits)
    if new.owner is not None:
        arguments["owner"] = {k: v for k, v in new.owner.items() if v is not None}
    return arguments
