"""Local steps over REST: tokens, claims that wait, outcomes once, and refusals."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from api import create_app
from api.steps import LOOK_S, pause_s
from app.security import signatures
from app.settings import Settings
from leadhand.models.views.session import WorkView
from tests.engine.world import World

TOKEN = "the operator's own"
S = "/v1/sessions"
STEPS = [
    {"name": "a", "tool": "local:do"},
    {"name": "b", "tool": "local:do", "arguments": {"x": "${a}"}},
]


@pytest.fixture
def world(store_url: str, tmp_path: Path) -> World:
    return World(store_url, artifacts=tmp_path / "artifacts")


@pytest.fixture
def client(world: World) -> Iterator[FlaskClient]:
    app = create_app(Settings(api_token=TOKEN, secret="s"), world.engine)
    yield app.test_client()
    app.fanout.close()


def said(answer: TestResponse) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.data)
    return found


def post(client: FlaskClient, path: str, body: Any, token: str = TOKEN, **headers: str) -> Any:
    given = {"Authorization": f"Bearer {token}", **headers}
    return client.post(path, json=body, headers=given)


def submit(client: FlaskClient, key: str = "one", *, steps: Any = STEPS) -> dict[str, Any]:
    answer = post(client, S, {"kind": "graph", "steps": steps}, **{"Idempotency-Key": key})
    assert answer.status_code == 202, answer.data
    return said(answer)


def claim(client: FlaskClient, view: Mapping[str, Any], **more: object) -> dict[str, Any]:
    body = {"worker": "w1", "nonce": "nonce-0001", **more}
    return said(post(client, f"{S}/{view['id']}/work/claim", body, view["work_token"]))


def claim_in_thread(
    client: FlaskClient, view: Mapping[str, Any]
) -> tuple[threading.Thread, list[dict[str, Any]]]:
    """Start a claim that waits for a step; returns its thread, and the list that gets its reply."""
    found: list[dict[str, Any]] = []

    def wait() -> None:
        other = client.application.test_client()
        found.append(claim(other, view, nonce="nonce-waits", wait_s=20))

    waiting = threading.Thread(target=wait)
    waiting.start()
    return waiting, found


def named(grant: Mapping[str, Any]) -> dict[str, Any]:
    return {name: grant[name] for name in ("address", "fence", "nonce")}


def test_work_token_claims_beats_and_settles(client: FlaskClient) -> None:
    view = submit(client)
    grant = claim(client, view)["grant"]
    work = f"{S}/{view['id']}/work"
    beat = said(post(client, f"{work}/beat", named(grant), view["work_token"]))
    assert beat["order"] == "ok"
    outcome = {**named(grant), "outcome": "succeeded", "value": {"n": 1}}
    results = [
        said(post(client, f"{work}/settle", outcome, view["work_token"]))["result"] for _ in "12"
    ]
    assert results == ["settled", "repeated"]
    second = claim(client, view, nonce="nonce-0002")["grant"]
    assert second["arguments"] == {"x": {"n": 1}}
    outcome = {**named(second), "outcome": "succeeded"}
    assert said(post(client, f"{work}/settle", outcome, view["work_token"])) == {
        "result": "settled",
        "status": "completed",
    }


def test_long_value_is_the_artifact_that_the_attempt_has_uploaded(client: FlaskClient) -> None:
    view = submit(client)
    grant = claim(client, view)["grant"]
    base, token = f"{S}/{view['id']}", view["work_token"]

    def settle(data: bytes, *, uploads: bool = True) -> TestResponse:
        digest = hashlib.sha256(data).hexdigest()
        part = {"at": 0, "size": len(data), "data": base64.b64encode(data).decode()}
        headers = {"Authorization": f"Bearer {token}"}
        if uploads:
            path = f"{base}/artifacts/{digest}"
            assert client.put(path, json=part, headers=headers).status_code == 200
        outcome = {**named(grant), "outcome": "succeeded", "artifact": digest}
        answer: TestResponse = post(client, f"{base}/work/settle", outcome, token)
        return answer

    # Of another attempt, or of a session whose digest leaked: it does not have the nonce.
    for refused in (
        settle(b'{"nonce": "another", "value": 1}'),
        settle(b"no json"),
        settle(b"not here", uploads=False),
        settle(b'{"nonce": "%s", "value": 1e400}' % grant["nonce"].encode()),
    ):
        assert refused.status_code == 422
    done = settle(b'{"nonce": "%s", "value": {"n": 1}}' % grant["nonce"].encode())
    assert said(done)["result"] == "settled"
    second = claim(client, view, nonce="nonce-0002")["grant"]
    assert second["arguments"] == {"x": {"n": 1}}


@pytest.mark.parametrize("value", ["1e400", "NaN", '"\\ud800"'])
def test_value_that_json_would_change_is_refused(client: FlaskClient, value: str) -> None:
    view = submit(client)
    grant = claim(client, view)["grant"]
    body = json.dumps({**named(grant), "outcome": "succeeded", "value": 7}).replace(
        "7}", f"{value}}}"
    )
    answer = client.post(
        f"{S}/{view['id']}/work/settle",
        data=body,
        headers={"Authorization": f"Bearer {view['work_token']}"},
        content_type="application/json",
    )
    assert answer.status_code in (400, 422), answer.text


def test_same_idempotency_key_gets_the_same_work_token(client: FlaskClient) -> None:
    first, again, other = submit(client), submit(client), submit(client, "other")
    assert first["work_token"] == again["work_token"] != other["work_token"]


def test_work_token_is_in_no_other_view(client: FlaskClient) -> None:
    view = submit(client)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert said(client.get(f"{S}/{view['id']}", headers=headers))["work_token"] is None


def test_resume_returns_the_work_token(client: FlaskClient) -> None:
    view = submit(client)
    assert post(client, f"{S}/{view['id']}/stop", {}).status_code == 202
    assert claim(client, view)["status"] == "stopped"
    resumed = said(post(client, f"{S}/{view['id']}/resume", {}))
    assert resumed["work_token"] == view["work_token"]
    assert claim(client, view)["grant"]["step"] == "a"


def test_claim_waits_for_the_step_that_another_outcome_releases(
    client: FlaskClient, world: World
) -> None:
    view = submit(client)
    grant = claim(client, view)["grant"]
    waiting, found = claim_in_thread(client, view)
    outcome = {**named(grant), "outcome": "succeeded"}
    assert (
        post(client, f"{S}/{view['id']}/work/settle", outcome, view["work_token"]).status_code
        == 200
    )
    waiting.join(timeout=10)
    assert [one["grant"]["step"] for one in found] == ["b"]


def test_claim_that_waits_gets_a_retry_when_it_is_due_without_a_sweep(
    client: FlaskClient, world: World
) -> None:
    steps = [{"name": "a", "tool": "local:do", "retries": 1, "backoff_s": 3, "jitter": 0}]
    view = submit(client, steps=steps)
    grant = claim(client, view)["grant"]
    outcome = {**named(grant), "outcome": "failed", "error": "no"}
    post(client, f"{S}/{view['id']}/work/settle", outcome, view["work_token"])
    assert claim(client, view, nonce="nonce-0002")["next_s"] == 3.0
    world.now += 2_990
    waiting, found = claim_in_thread(client, view)
    world.now += 10
    waiting.join(timeout=10)
    assert [one["grant"]["attempt"] for one in found] == [2]


@pytest.mark.parametrize(
    ("next_s", "left_s", "pause"),
    [(None, 20.0, LOOK_S), (None, 0.5, 0.5), (0.05, 20.0, 0.05), (60.0, 20.0, LOOK_S)],
)
def test_claim_that_waits_looks_again_when_the_next_retry_is_due(
    next_s: float | None, left_s: float, pause: float
) -> None:
    assert pause_s(WorkView(status="active", next_s=next_s), left_s) == pause


@pytest.mark.parametrize("verb", ["claim", "beat", "settle"])
def test_other_tokens_may_not_work(client: FlaskClient, world: World, verb: str) -> None:
    view, other = submit(client), submit(client, "other")
    attempt = signatures.Caller(view["id"], "a", 1, signatures.BODY_SCOPES)
    forged = signatures.mint(signatures.Caller.of_work(view["id"], world.now), secret="another")
    older = signatures.mint(signatures.Caller.of_work(view["id"], world.now - 1), secret="s")
    reads = said(post(client, "/v1/tokens", {"name": "r", "scopes": ["read", "submit"]}))["token"]
    body = {"worker": "w1", "nonce": "nonce-0001"}
    refused = {
        other["work_token"]: 403,
        signatures.mint(attempt, secret="s"): 401,
        forged: 401,
        older: 401,
        reads: 403,
    }
    path = f"{S}/{view['id']}/work/{verb}"
    found = {token: post(client, path, body, token).status_code for token in refused}
    assert found == refused


def test_work_token_may_do_nothing_else(client: FlaskClient) -> None:
    view = submit(client)
    headers = {"Authorization": f"Bearer {view['work_token']}"}
    assert client.get(f"{S}/{view['id']}", headers=headers).status_code == 403
    assert post(client, f"{S}/{view['id']}/stop", {}, view["work_token"]).status_code == 403
    assert post(client, S, {"kind": "graph", "steps": STEPS}, view["work_token"]).status_code == 403


def test_wrong_claim_names_the_field(client: FlaskClient) -> None:
    view = submit(client)
    answer = post(
        client, f"{S}/{view['id']}/work/claim", {"worker": "w", "nonce": "x"}, view["work_token"]
    )
    assert answer.status_code == 422
    assert said(answer)["errors"][0]["field"] == "nonce"


def test_only_graphs_have_local_tools(client: FlaskClient) -> None:
    step = {"type": "tool", "tool": "local:do"}
    answer = post(client, S, {"kind": "flow", "name": "f", "steps": [step]})
    assert answer.status_code == 422
    assert "only graphs have local tools" in answer.text
