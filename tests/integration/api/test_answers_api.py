"""Answers over HTTP: choices, forms, and what each field that does not fit is answered with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from api import create_app
from app.engine import Engine
from app.settings import Settings
from leadhand.errors import RequestInvalid
from tests.flows import flow
from tests.session_driving import claim, ref_of
from tests.silent_engine import silent_engine
from workers.attempt.settle import park

TOKEN = "the operator's own"
FORM = {
    "type": "object",
    "properties": {
        "severity": {"type": "string", "enum": ["low", "high"]},
        "password": {"type": "string", "maxLength": 3},
    },
    "required": ["severity"],
}


@pytest.fixture
def engine(store_url: str) -> Engine:
    return silent_engine(store_url, secret="s")


@pytest.fixture
def client(engine: Engine) -> Iterator[FlaskClient]:
    app = create_app(Settings(api_token=TOKEN, secret="s"), engine)
    client = app.test_client()
    client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {TOKEN}"
    yield client
    app.fanout.close()


@pytest.fixture
def waiting(engine: Engine) -> str:
    default = {"choice": "stop", "fields": {"severity": "low"}}
    rules = {"form": FORM, "choices": ["go", "stop"], "default": default}
    step = {"type": "human", "label": "ask", "question": "well?", **rules}
    session = str(engine.submit.document(flow(step)).session)
    work = engine.attempts.work(ref_of(engine, session), claim(engine, session))
    assert park(engine, work) is None
    return session


def test_each_field_that_does_not_fit_is_named_and_the_step_goes_on_waiting(
    client: FlaskClient, engine: Engine, waiting: str
) -> None:
    given = {"choice": "gone", "fields": {"severity": 7, "password": "hunter2", "more": 1}}
    refused = client.post(f"/v1/sessions/{waiting}/answers", json=given)
    problem = json.loads(refused.data)
    assert (refused.status_code, problem["type"]) == (422, RequestInvalid.kind.uri)
    found = {one["field"]: one for one in problem["errors"]}
    assert [*found] == ["choice", "fields.more", "fields.severity", "fields.password"]
    assert found["choice"] == {
        "field": "choice", "value": '"gone"', "message": "it is none of the choices",
        "hint": "did you mean 'go'?", "place": "body",
    }  # fmt: skip
    assert "hunter2" not in refused.text
    assert engine.queries.session(waiting).status == "waiting"
    missing = client.post(f"/v1/sessions/{waiting}/answers", json={"choice": "go"})
    assert [one["field"] for one in json.loads(missing.data)["errors"]] == ["fields.severity"]


def test_a_question_is_listed_with_what_it_accepts_and_shown_with_who_answered(
    client: FlaskClient, engine: Engine, waiting: str
) -> None:
    [view] = json.loads(client.get(f"/v1/questions?session={waiting}").data)["items"]
    assert (view["form"], view["choices"]) == (FORM, ["go", "stop"])
    assert view["default"] == {"choice": "stop", "fields": {"severity": "low"}}
    made = engine.tokens.create("night shift", scopes=frozenset({"control"}))  # type: ignore[arg-type]
    given: dict[str, Any] = {"choice": "go", "fields": {"severity": "high"}}
    answer = client.post(
        f"/v1/sessions/{waiting}/answers", json=given,
        headers={"Authorization": f"Bearer {made.token}"},
    )  # fmt: skip
    assert answer.status_code == 202
    [step] = json.loads(client.get(f"/v1/sessions/{waiting}/steps").data)["items"]
    assert step["answered_by"] == f"token night shift ({made.id})"
    assert json.loads(engine.store.outcomes(ref_of(engine, waiting))["ask"])["value"] == given
