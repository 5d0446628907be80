"""Flows over HTTP: what is answered, refused and needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from api import create_app
from app.compiler.folders import own_folder_of
from app.engine import Engine
from app.settings import Settings
from leadhand.contract.sessions import Resume
from leadhand.errors import AnswerUnwanted, FlowUnknown
from tests.flows import ask, flow, llm
from tests.session_driving import claim, ref_of
from tests.silent_engine import loop, silent_engine
from workers.attempt.settle import park

TOKEN = "the operator's own"
REVIEW = {"description": "Writes and reviews.", "inputs": {"a": "c"}, "steps": [llm()]}


@pytest.fixture
def engine(store_url: str, tmp_path: Path) -> Engine:
    (tmp_path / "review.json").write_text(json.dumps(REVIEW))
    return silent_engine(store_url, secret="s", flows=(tmp_path,))


@pytest.fixture
def client(engine: Engine) -> Iterator[FlaskClient]:
    app = create_app(Settings(api_token=TOKEN, secret="s"), engine)
    client = app.test_client()
    client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {TOKEN}"
    yield client
    app.fanout.close()


def said(answer: TestResponse) -> Any:
    return json.loads(answer.data)


def token(engine: Engine, *scopes: str) -> dict[str, str]:
    made = engine.tokens.create("t", scopes=frozenset(scopes))  # type: ignore[arg-type]
    return {"Authorization": f"Bearer {made.token}"}


def test_flows_are_listed_and_shown(client: FlaskClient) -> None:
    (listed,) = said(client.get("/v1/flows"))["items"]
    assert listed["name"] == "review"
    assert said(client.get("/v1/flows/review"))["description"] == "Writes and reviews."
    unknown = client.get("/v1/flows/other")
    assert (unknown.status_code, said(unknown)["type"]) == (404, FlowUnknown.kind.uri)


def test_a_run_answers_with_its_session(client: FlaskClient, tmp_path: Path) -> None:
    wishes = {"working_folder": str(tmp_path), "title": "mine", "inputs": {"a": "b"}}
    answer = client.post("/v1/flows/review/runs", json=wishes)
    assert answer.status_code == 202, answer.text
    assert (said(answer)["label"], said(answer)["cwd"]) == ("mine", str(tmp_path))
    assert answer.headers["Location"] == f"/v1/sessions/{said(answer)['id']}"
    key = {"Idempotency-Key": "k"}
    first = client.post("/v1/flows/review/runs", json={}, headers=key)
    again = client.post("/v1/flows/review/runs", json={}, headers=key)
    assert said(first)["id"] == said(again)["id"]


@pytest.mark.parametrize(
    ("wishes", "field"),
    [
        ({"working_folder": "here"}, "working_folder"),
        ({"inputs": {"a": 1}}, "inputs.a"),
        ({"surprise": 1}, "surprise"),
        ({"agents": {"x": "no such|name"}}, "agents.x"),
    ],
)
def test_a_run_that_cannot_be_says_which_wish(
    client: FlaskClient, wishes: dict[str, object], field: str
) -> None:
    answer = client.post("/v1/flows/review/runs", json=wishes)
    assert (answer.status_code, said(answer)["field"]) == (422, field)


def test_a_flow_is_checked_without_being_run(client: FlaskClient) -> None:
    assert said(client.post("/v1/flows/validate", json={"steps": [llm()]}))["valid"]
    assert not said(client.post("/v1/flows/validate", json={}))["valid"]


@pytest.mark.parametrize(
    ("steps", "field", "said"),
    [
        ([llm(surprise=1)], "steps.0.surprise", "no such field"),
        ([{"label": "x"}], "steps.0.type", "it is missing"),
        ([{"type": "frob"}], "steps.0.type", "not known"),
        ([{"type": "startLoop", "steps": [llm(identifier="")]}], "steps.0.steps.0.identifier", ""),
        ([ask()], "", "steps[0]: break is used outside a loop"),
    ],
)
def test_a_flow_as_a_document_is_refused_where_it_is_wrong(
    client: FlaskClient, steps: object, field: str, said: str
) -> None:
    answer = client.post("/v1/sessions", json={"kind": "flow", "steps": steps})
    problem = json.loads(answer.data)
    assert (answer.status_code, problem["field"]) == (422, field)
    assert said in problem["errors"][0]["message"]


def test_a_flow_with_commands_of_its_own_needs_the_right_to_run_any(
    client: FlaskClient, engine: Engine
) -> None:
    script = {"type": "if", "command": "rm -rf /", "then": [llm()], "else": [llm()]}
    document = {"kind": "flow", "steps": [script]}
    poor = token(engine, "submit")
    refused = client.post("/v1/sessions", json=document, headers=poor)
    assert (refused.status_code, said(refused)["field"]) == (403, "steps.0.command")
    assert client.post("/v1/flows/review/runs", json={}, headers=poor).status_code == 202


def test_an_answer_that_nobody_waits_for_is_refused(client: FlaskClient, engine: Engine) -> None:
    active = engine.submit.document(loop()).session
    waiting = engine.submit.document(flow({"type": "human", "question": "well?"})).session
    assert (
        park(engine, engine.attempts.work(ref_of(engine, waiting), claim(engine, waiting))) is None
    )
    assert engine.queries.session(waiting).status == "waiting"
    no = client.post(f"/v1/sessions/{active}/answers", json={"text": "42"})
    assert (no.status_code, said(no)["type"]) == (409, AnswerUnwanted.kind.uri)
    for nothing in ({}, {"text": ""}, {"text": " \n"}):
        refused = client.post(f"/v1/sessions/{waiting}/answers", json=nothing)
        assert (refused.status_code, said(refused)["field"]) == (422, "text")
    assert client.post(f"/v1/sessions/{waiting}/answers", json={"text": "42"}).status_code == 202
    assert engine.queries.session(waiting).status == "completed"


@pytest.mark.parametrize(("after", "position"), [(2, "2"), ([2, 0], "2/0"), ("0[2]/1", "0[2]/1")])
def test_a_position_is_a_number_a_list_or_a_text(after: object, position: str) -> None:
    assert Resume.model_validate({"after": after}).position == position


@pytest.mark.parametrize("after", [-1, [], [0, -1], "", 1.5, True, None])
def test_what_is_no_position_is_refused(client: FlaskClient, engine: Engine, after: object) -> None:
    session = engine.submit.document(loop()).session
    answer = client.post(f"/v1/sessions/{session}/resume", json={"after": after})
    assert answer.status_code == 422
    assert said(answer)["field"].startswith("after")


def test_run_of_a_flow_takes_the_options_of_a_worktree(
    client: FlaskClient, engine: Engine, tmp_path: Path
) -> None:
    options = {"copy": [".env"], "prepare": "make"}
    wishes = {"working_folder": str(tmp_path), "worktree": options}
    limited = token(engine, "submit", "read")
    refused = client.post("/v1/flows/review/runs", json=wishes, headers=limited)
    assert (refused.status_code, said(refused)["field"]) == (403, "worktree.prepare")
    copies = {**wishes, "worktree": {"copy": [".env"]}}
    assert client.post("/v1/flows/review/runs", json=copies, headers=limited).status_code == 202
    session = said(client.post("/v1/flows/review/runs", json=wishes))["id"]
    program = engine.registry.program(engine.store.fields(ref_of(engine, session))["program"])
    own = own_folder_of(program, root="")
    assert own is not None
    assert (own.copy_files, own.prepare) == ((".env",), "make")
