"""Stacks of workflow sessions over REST: replies, refusals, and the tokens that may call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.security.signatures import BODY_SCOPES, Caller, mint
from tests.silent_engine import OPERATOR, SECRET, loop

PROBLEM = "urn:leadhand:problem:"
NEW = {"job_name": "web", "workflow_name": "release", "goal": "ship", "first_step_id": "build"}


def ask(
    client: FlaskClient,
    method: str,
    path: str,
    body: object = None,
    *,
    key: str = "",
    token: str = OPERATOR,
) -> TestResponse:
    headers = {"Authorization": f"Bearer {token}"} | ({"Idempotency-Key": key} if key else {})
    return client.open(f"/v1/stacks{path}", method=method, headers=headers, json=body)


def found(answer: TestResponse) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(answer.data)
    return parsed


def refused(answer: TestResponse) -> tuple[int, str, str]:
    problem = found(answer)
    return answer.status_code, problem["type"].removeprefix(PROBLEM), problem["detail"]


@pytest.fixture
def workflow(client) -> str:
    made = ask(client, "POST", "/s/workflows", {**NEW, "folder": "/work/web", "place": "here"})
    assert made.status_code == 201, made.data
    return str(found(made)["workflow"]["session_id"])


def test_a_workflow_session_is_started_advanced_and_completed(client, workflow):
    at = f"/s/workflows/{workflow}"
    calls = [
        ("active/step-start", {"step_id": "build/all"}),
        (f"{workflow}/step-complete", {"step_id": "build/all", "outputs": {"a": [1]}}),
        (f"{workflow}/advance", {"step_id": "test", "entry_index": 1}),
        (f"{workflow}/quality-attempt", {"step_id": "test"}),
    ]
    answers = [ask(client, "POST", f"/s/workflows/{path}", body) for path, body in calls]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert found(answers[-1])["quality_attempts"] == 1
    shown = found(ask(client, "GET", at))
    assert (shown["current_step_id"], shown["current_entry_index"]) == ("test", 1)
    assert shown == found(ask(client, "GET", "/s/workflows/active"))
    assert found(ask(client, "GET", f"{at}/outputs"))["outputs"] == {"a": [1]}
    done = found(ask(client, "POST", f"{at}/complete", {}))
    assert (done["workflow"]["status"], done["stack"]["depth"]) == ("completed", 0)
    page = found(ask(client, "GET", "/s/workflows?status=completed"))
    assert [one["session_id"] for one in page["items"]] == [workflow]
    assert found(ask(client, "GET", "/s/workflows?status=active"))["items"] == []
    assert found(ask(client, "GET", ""))["items"][0]["folder"] == "/work/web"
    deleted = found(ask(client, "DELETE", at))
    assert (deleted["workflow"], ask(client, "GET", at).status_code) == (None, 404)


def test_stack_shows_the_nested_workflow_sessions_from_the_bottom_to_the_top(client, workflow):
    top = found(ask(client, "POST", "/s/workflows", NEW, key="k"))["workflow"]["session_id"]
    again = found(ask(client, "POST", "/s/workflows", NEW, key="k"))
    assert again["workflow"]["session_id"] == top
    stack = found(ask(client, "GET", "/s"))
    lines = [(one["session_id"], one["parent_id"]) for one in stack["workflows"]]
    assert (lines, stack["depth"]) == ([(workflow, None), (top, workflow)], 2)
    aborted = found(ask(client, "POST", f"/s/workflows/{workflow}/abort", {"reason": "why"}))
    assert aborted["workflow"]["abort_reason"] == "why"
    assert [one["parent_id"] for one in aborted["stack"]["workflows"]] == [None]


def test_refusals_have_the_texts_of_the_seed(client, workflow):
    body = {"step_id": "x"}
    assert refused(ask(client, "POST", "/t/workflows/active/step-start", body)) == (
        409, "stack-empty", "No active workflow session. Use start_workflow to begin one.",
    )  # fmt: skip
    assert refused(ask(client, "POST", "/s/workflows/00000000/step-start", body)) == (
        409, "workflow-not-stacked", "Session '00000000' not found in active stack",
    )  # fmt: skip
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/load")):
        assert refused(ask(client, method, f"/s/workflows/00000000{path}", {})) == (
            404, "workflow-unknown", "Session not found: 00000000",
        )  # fmt: skip
    assert ask(client, "GET", "/s/workflows/none").status_code == 404
    assert refused(ask(client, "GET", "/a%20b"))[:2] == (422, "invalid")
    long = {"step_id": "x", "outputs": {"a": "x" * 70_000}}
    problem = found(ask(client, "POST", f"/s/workflows/{workflow}/step-complete", long))
    assert problem["field"] == "outputs"


def test_load_needs_force_to_replace_the_top_and_imports_a_record(client, engine, workflow):
    record = found(ask(client, "GET", f"/s/workflows/{workflow}"))
    top = found(ask(client, "POST", "/s/workflows", NEW))["workflow"]["session_id"]
    at = f"/s/workflows/{workflow}/load"
    status, kind, text = refused(ask(client, "POST", at, {}))
    assert (status, kind, top in text) == (409, "stack-refused", True)
    loaded = found(ask(client, "POST", at, {"force": True}))
    assert [one["session_id"] for one in loaded["stack"]["workflows"]] == [workflow]
    other = record | {"session_id": "0000000a"}
    assert ask(client, "POST", at, {"record": other}).status_code == 422
    made = ask(client, "POST", "/s/workflows/0000000a/load", {"record": other, "force": True})
    assert found(made)["workflow"]["goal"] == "ship"


def test_a_body_uses_stacks_with_the_token_of_its_attempt_and_deletes_nothing(client, engine):
    session = str(engine.submit.document(loop()).session)
    ref = engine.store.ref(session)
    grant = engine.attempts.claim(ref, "loop~1[1]/do", nonce="n", worker="w").grants[0]
    token = mint(Caller(session, grant.address, grant.fence, BODY_SCOPES), secret=SECRET)
    made = ask(client, "POST", "/s/workflows", NEW, token=token)
    assert made.status_code == 201, made.data
    id_ = found(made)["workflow"]["session_id"]
    assert ask(client, "GET", "/s", token=token).status_code == 200
    assert ask(client, "DELETE", f"/s/workflows/{id_}", token=token).status_code == 403
