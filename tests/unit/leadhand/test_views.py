"""The models of API responses: constructing one is strict, parsing one ignores newer fields."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from app.fleet.inventory import inventory_of
from app.security.api_tokens import Scope
from leadhand.contract.operations import OPERATIONS
from leadhand.models import views
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.fleet import TokenView
from leadhand.models.views.result import ResultView
from leadhand.models.views.session import SessionView
from leadhand.models.views.view import Page, View


def subclasses(model: type[View]) -> Iterator[type[View]]:
    for one in model.__subclasses__():
        yield one
        yield from subclasses(one)


assert OPERATIONS  # all views are imported
MODELS = [
    one for one in subclasses(View) if one.__module__.startswith(views.__name__)
    and not issubclass(one, Page)
]  # fmt: skip
NEWER = "field_of_a_newer_version"
#: How deep a model that contains itself is nested.
DEPTH = 3


def sample(annotation: Any, *, newer: bool = False, depth: int = 0) -> Any:
    """A JSON value for the annotation with every field set; `newer` adds one to each model."""
    parts = get_args(annotation)
    origin = get_origin(annotation)
    if origin is Literal:
        return parts[0]
    if origin is Annotated:
        return sample(parts[0], newer=newer, depth=depth)
    if origin in (Union, types.UnionType):
        is_deep = depth > DEPTH and type(None) in parts
        return None if is_deep else sample(parts[0], newer=newer, depth=depth)
    if origin in (list, tuple):
        return [] if depth > DEPTH else [sample(parts[0], newer=newer, depth=depth)]
    if origin is dict:
        return {"key": sample(parts[1], newer=newer, depth=depth)}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields.items()
        found = {n: sample(f.annotation, newer=newer, depth=depth + 1) for n, f in fields}
        return found | ({NEWER: {"a": [1]}} if newer else {})
    return {str: "text", int: 1, float: 0.5, bool: True}.get(annotation, "any")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_parsing_ignores_unknown_fields(model):
    newer, plain = sample(model, newer=True), model(**sample(model))
    assert model.model_validate_json(json.dumps(newer)) == plain
    assert model.model_validate(newer) == plain


def test_parsing_a_page_ignores_unknown_fields():
    page = {"items": [sample(SessionView, newer=True)], "next": None, NEWER: 1}
    read = Page[SessionView].model_validate_json(json.dumps(page))
    assert read.items == [SessionView(**sample(SessionView))]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_constructing_refuses_unknown_fields(model):
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        model(**sample(model), **{NEWER: 1})


def test_constructing_refuses_unknown_fields_of_nested_models():
    with pytest.raises(ValidationError, match=r"phases\.0\.history\.0\."):
        ResultView(**sample(ResultView) | {"phases": sample(ResultView, newer=True)["phases"]})


def test_schema_permits_fields_of_newer_servers():
    assert "additionalProperties" not in SessionView.model_json_schema(mode="serialization")


def test_inventory_of_a_newer_worker_is_read():
    told = {"place": "here", "seen_ms": 1000, NEWER: 1, "agents_here": [], "name": "other"}
    worker = inventory_of("one", json.dumps(told)).worker
    assert (worker.name, worker.place) == ("one", "here")


def test_reason_read_from_json_has_the_whole_chain_and_known_codes():
    lost = Reason(code=ReasonCode.LOST, text="worker w1", at="loop~1[1]/do")
    why = Reason(code=ReasonCode.FAILED_STEP, beneath=lost)
    read = Reason.model_validate_json(why.model_dump_json())
    assert read == why
    assert [(link.code, link.text, link.at) for link in read.chain()] == [
        ("failed_step", "", None),
        ("lost", "worker w1", "loop~1[1]/do"),
    ]
    assert read.root.code is ReasonCode.LOST


def test_client_reads_words_of_a_newer_server():
    read = Reason.model_validate_json('{"code": "tomorrow"}')
    assert read.code == "tomorrow"
    told = sample(TokenView) | {"scopes": [Scope.READ.value, "tomorrow"]}
    assert TokenView.model_validate_json(json.dumps(told)).scopes == ["read", "tomorrow"]
