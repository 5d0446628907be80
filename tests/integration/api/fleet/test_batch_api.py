"""Many documents in one request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.silent_engine import OPERATOR

BATCH = "/v1/sessions/batch"
HEADERS = {"Authorization": f"Bearer {OPERATOR}"}


@pytest.fixture
def loop(tmp_path: Path) -> dict[str, Any]:
    doer = {"command": "true"}
    return {"kind": "loop", "task": "t", "checkers": ["true"], "cwd": str(tmp_path), "doer": doer}


def post(client: FlaskClient, items: list[dict[str, Any]], mode: str) -> tuple[int, dict[str, Any]]:
    answer = client.post(BATCH, json={"items": items, "mode": mode}, headers=HEADERS)
    return answer.status_code, json.loads(answer.data)


def count(client: FlaskClient) -> int:
    return len(json.loads(client.get("/v1/sessions", headers=HEADERS).data)["items"])


@pytest.mark.parametrize("mode", ["all", "each"])
def test_the_same_keys_get_the_same_sessions(
    client: FlaskClient, loop: dict[str, Any], mode: str
) -> None:
    items = [{"document": loop, "idempotency_key": f"k{n}"} for n in range(3)]
    status, first = post(client, items, mode)
    assert status == 202
    assert [one["created"] for one in first["items"]] == [True] * 3
    _, again = post(client, items, mode)
    assert [one["session"] for one in again["items"]] == [o["session"] for o in first["items"]]
    assert [one["created"] for one in again["items"]] == [False] * 3
    single = client.post("/v1/sessions", json=loop, headers={**HEADERS, "Idempotency-Key": "k1"})
    assert json.loads(single.data)["id"] == first["items"][1]["session"]


BAD = [{"kind": "loop"}, 7, {"kind": "loop", "task": "t", "checkers": ["true"], "cwd": "/nowhere"}]


@pytest.mark.parametrize("bad", BAD)
def test_all_or_none(client: FlaskClient, loop: dict[str, Any], bad: object) -> None:
    status, problem = post(client, [{"document": loop}, {"document": bad}], "all")
    assert status == 422
    assert problem["field"].startswith("items.1.document")
    assert count(client) == 0


@pytest.mark.parametrize("bad", BAD)
def test_each_by_itself(client: FlaskClient, loop: dict[str, Any], bad: object) -> None:
    status, found = post(client, [{"document": bad}, {"document": loop}], "each")
    assert status == 202
    refused, started = found["items"]
    assert refused["session"] is None
    assert refused["problem"]["status"] == 422
    assert refused["problem"]["field"].startswith("items.0.document")
    assert started["problem"] is None
    assert count(client) == 1


def test_a_key_that_belongs_to_another_document_is_a_conflict(
    client: FlaskClient, loop: dict[str, Any]
) -> None:
    items = [
        {"document": loop, "idempotency_key": "k"},
        {"document": {**loop, "task": "other"}, "idempotency_key": "k"},
    ]
    status, found = post(client, items, "all")
    assert status == 202
    assert found["items"][0]["created"]
    problem = found["items"][1]["problem"]
    assert (problem["status"], problem["field"]) == (422, "items.1.idempotency_key")


def test_a_token_without_exec_free_may_not_bring_commands(
    client: FlaskClient, loop: dict[str, Any]
) -> None:
    made = client.post("/v1/tokens", json={"name": "n", "scopes": ["submit"]}, headers=HEADERS)
    token = {"Authorization": f"Bearer {json.loads(made.data)['token']}"}
    answer = client.post(BATCH, json={"items": [{"document": loop}]}, headers=token)
    assert answer.status_code == 403
    assert json.loads(answer.data)["field"].startswith("items.0.document")


def test_a_batch_is_bounded(client: FlaskClient, loop: dict[str, Any]) -> None:
    for items in ([], [{"document": loop}] * 101):
        status, problem = post(client, items, "all")
        assert (status, problem["field"]) == (422, "items")
