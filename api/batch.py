"""Serves the submit of many documents in one request."""

from __future__ import annotations

from typing import cast

from pydantic import JsonValue

from api.auth import allow, current_owner, may_bring_commands
from api.documents import parse_document
from api.folder import folder_of_command
from api.problems import refusal_of
from api.serving import Call, serves
from app.engine import Engine
from app.operations.request_hashes import hash_document
from app.operations.submission.batch import Item, ItemRefused, Result
from app.operations.submission.drafts import Asker, Submitted
from app.security.api_tokens import Owner
from leadhand.contract import submissions
from leadhand.contract.submissions import Batch, BatchItem
from leadhand.errors import Refused
from leadhand.models.problems import Problem
from leadhand.models.validation_messages import NAMED
from leadhand.models.views.batch import BatchItemView, BatchView


@serves(submissions.BATCH)
def submit_batch(engine: Engine, _: Call, asked: Batch) -> BatchView:
    """Creates a session per item of a request (or all or none); returns sessions and problems."""
    all_or_none, free = asked.mode == "all", may_bring_commands(engine)
    parsed: list[Item | Problem] = []
    left = NAMED  # errors that may be named; each invalid item has one
    for number, given in enumerate(asked.items):
        try:
            parsed.append(_item(given, current_owner(), engine, free=free, most=max(1, left)))
        except Refused as refusal:
            refusal.problem = _of_item(refusal.problem, number)
            if all_or_none:
                raise
            parsed.append(refusal.problem)
            left -= len(refusal.problem.errors)
    items = [one for one in parsed if isinstance(one, Item)]
    try:
        results = iter(engine.batches.submit(items, all_or_none=all_or_none))
    except ItemRefused as first:
        whole = refusal_of(first.error)
        whole.problem = _of_item(whole.problem, first.number)
        raise whole from None
    views = [
        _view(next(results), number) if isinstance(one, Item) else BatchItemView(problem=one)
        for number, one in enumerate(parsed)
    ]
    return BatchView(items=views)


def _item(given: BatchItem, owner: Owner | None, engine: Engine, *, free: bool, most: int) -> Item:
    """Parse an item. Raises Refused, with at most `most` errors."""
    document = parse_document(cast("JsonValue", given.document), most=most)
    allow(document, free=free)
    key = given.idempotency_key
    body = hash_document(document, engine.settings.secret)
    return Item(document, Asker(body, key, owner=owner, free=free, folder=folder_of_command()))


def _view(result: Result, number: int) -> BatchItemView:
    if isinstance(result, Submitted):
        return BatchItemView(session=result.session, created=result.created)
    return BatchItemView(problem=_of_item(refusal_of(result).problem, number))


def _of_item(problem: Problem, number: int) -> Problem:
    """A problem of one item, whose fields are named with the item."""

    def name(field: str | None) -> str:
        if field == "Idempotency-Key":
            return f"items.{number}.idempotency_key"
        return f"items.{number}.document" + (f".{field}" if field else "")

    errors = tuple(one.model_copy(update={"field": name(one.field)}) for one in problem.errors)
    return problem.model_copy(update={"field": name(problem.field), "errors": errors})
