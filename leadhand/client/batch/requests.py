"""The calls that submit many documents (pure)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from leadhand.client.calls import Call
from leadhand.errors import local_error
from leadhand.models.problems import Kind
from leadhand.models.views.batch import MOST

#: Whether a refused document refuses all others of its request.
Mode = Literal["all", "each"]


def submit_many(
    documents: Sequence[Mapping[str, Any]], keys: Sequence[str] | None, mode: Mode
) -> Iterator[Call]:
    """The calls that submit the fields of documents, each with as many as one may have.

    Raises RequestInvalid unless there is a key for each document.
    """
    keys = [uuid.uuid4().hex for _ in documents] if keys is None else keys
    if len(keys) != len(documents):
        text = f"there are {len(keys)} keys for {len(documents)} documents; give one for each"
        raise local_error(Kind.INVALID, text, field="idempotency_keys")
    items = [
        {"document": fields, "idempotency_key": key}
        for fields, key in zip(documents, keys, strict=True)
    ]
    for start in range(0, len(items), MOST):
        body = {"items": items[start : start + MOST], "mode": mode}
        yield Call("POST", "/v1/sessions/batch", content=json.dumps(body).encode())
