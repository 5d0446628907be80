"""The calls about stacks of workflow sessions (pure)."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from leadhand.client.calls import Call, Param
from leadhand.errors import local_error
from leadhand.models.patterns import NAME, form_of
from leadhand.models.problems import Kind
from leadhand.models.stacks import ACTIVE, WORKFLOW_ID


def stack_path(stack: str, *more: str) -> str:
    """Returns the API path of a stack or a resource of it. Raises RequestInvalid for a bad name.

    >>> stack_path("release.1", "workflows")
    '/v1/stacks/release.1/workflows'
    """
    if not re.fullmatch(NAME, stack):
        hint = f"give {form_of(NAME)}"
        raise local_error(Kind.INVALID, f"stack is {stack[:80]!r}", hint=hint, field="stack")
    return "/".join(("/v1/stacks", quote(stack, safe=""), *more))


def workflow_path(stack: str, workflow: str | None, *more: str) -> str:
    """Returns the API path of a workflow session (None: the active one). Raises WorkflowUnknown.

    >>> workflow_path("s", None, "abort")
    '/v1/stacks/s/workflows/active/abort'
    """
    if workflow is not None and not re.fullmatch(WORKFLOW_ID, workflow):
        hint = "an id is 8 hexadecimal digits; `leadhand stack ls` lists them"
        raise local_error(Kind.WORKFLOW_UNKNOWN, f"Session not found: {workflow[:80]}", hint=hint)
    return stack_path(stack, "workflows", workflow or ACTIVE, *more)


def listing(path: str, **given: Param | None) -> Call:
    """Builds the GET request for a path, with the query parameters that are not None."""
    params = {name: one for name, one in given.items() if one is not None}
    return Call("GET", path, params=params)


def change(path: str, body: Mapping[str, Any], key: str | None = None) -> Call:
    """Builds a POST request with an Idempotency-Key; fields that are None are left out."""
    given = {name: one for name, one in body.items() if one is not None}
    content = json.dumps(given, allow_nan=False).encode()
    return Call("POST", path, headers=idempotent(key), content=content)


def idempotent(key: str | None = None) -> dict[str, str]:
    """Returns the Idempotency-Key header of a request, by default with a new key."""
    return {"Idempotency-Key": key or uuid.uuid4().hex}
