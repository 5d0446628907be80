"""The calls that submit many documents (pure)."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from leadhand.client.calls import Call
from leadhand.errors import BatchStopped, LeadhandError, Refused, local_error
from leadhand.models.problems import Kind, Problem
from leadhand.models.views.batch import MOST, BatchItemView

#: Whether a refused document refuses all others of its request.
Mode = Literal["all", "each"]
_ITEM = re.compile(r"^items\.(\d+)")


def keys_of(documents: Sequence[Mapping[str, Any]], keys: Sequence[str] | None) -> list[str]:
    """Returns the given idempotency keys, or new random ones: one for each document.

    Raises RequestInvalid unless there is a key for each document.
    """
    keys = [uuid.uuid4().hex for _ in documents] if keys is None else keys
    if len(keys) != len(documents):
        text = f"there are {len(keys)} keys for {len(documents)} documents; give one for each"
        raise local_error(Kind.INVALID, text, field="idempotency_keys")
    return [*keys]


def numbered(problem: Problem, before: int) -> Problem:
    """Returns a problem with `before` added to the item numbers in its field names (`items.2`).

    >>> numbered(Problem.of(Kind.INVALID, "t", field="items.2.document.task"), 100).field
    'items.102.document.task'
    """

    def name(field: str | None) -> str | None:
        return field and _ITEM.sub(lambda found: f"items.{int(found[1]) + before}", field)

    errors = tuple(one.model_copy(update={"field": name(one.field)}) for one in problem.errors)
    return problem.model_copy(update={"field": name(problem.field), "errors": errors})


def numbered_items(items: Sequence[BatchItemView], before: int) -> list[BatchItemView]:
    """Returns the items of a batch response, with `before` added to item numbers in problems."""
    return [
        one
        if one.problem is None or not before
        else one.model_copy(update={"problem": numbered(one.problem, before)})
        for one in items
    ]


def batch_stopped(
    error: LeadhandError, items: Sequence[BatchItemView], keys: Sequence[str]
) -> BatchStopped:
    """Returns a BatchStopped error (not raised) for a failed request: items before it, all keys."""
    problem = numbered(error.problem, len(items)) if isinstance(error, Refused) else None
    item = _ITEM.match((problem and problem.field) or "")
    why = f"{item[0]}: {problem}" if item else str(error)
    return BatchStopped([*items], [*keys], why)


def submit_many(
    documents: Sequence[Mapping[str, Any]], keys: Sequence[str], mode: Mode
) -> Iterator[Call]:
    """Yields the requests that submit documents with their keys, at most 100 documents in each."""
    items = [
        {"document": fields, "idempotency_key": key}
        for fields, key in zip(documents, keys, strict=True)
    ]
    for start in range(0, len(items), MOST):
        body = {"items": items[start : start + MOST], "mode": mode}
        yield Call("POST", "/v1/sessions/batch", content=json.dumps(body).encode())
