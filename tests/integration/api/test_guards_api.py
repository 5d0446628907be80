"""Stop guards over REST: stops, events, counters, and the tokens that may call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.core.addresses import SessionRef
from app.engine import Engine
from app.security.api_tokens import Scope
from leadhand.models.views.fleet import Quotas
from tests.integration.api.test_inbox_api import DO, attempt_token, claim
from tests.silent_engine import OPERATOR, loop

FAILED = {"name": "build", "outcome": "failed", "output": "error: x"}


class Api:
    """Calls the routes of guards."""

    def __init__(self, client: FlaskClient) -> None:
        self._client = client

    def ask(
        self, path: str, body: object = None, *, token: str = OPERATOR, method: str = "POST"
    ) -> TestResponse:
        headers = {"Authorization": f"Bearer {token}"}
        return self._client.open(f"/v1/guards{path}", method=method, headers=headers, json=body)

    def told(self, path: str, body: object = None, **more: Any) -> dict[str, Any]:
        answer = self.ask(path, body, **more)
        assert answer.status_code == 200, answer.data
        found: dict[str, Any] = json.loads(answer.data)
        return found

    def listed(self, query: str = "", *, token: str = OPERATOR) -> dict[str, Any]:
        return self.told(query, method="GET", token=token)


@pytest.fixture
def api(client: FlaskClient) -> Api:
    return Api(client)


@pytest.fixture
def body(engine: Engine) -> tuple[str, str]:
    """The session of a doer that runs, and the token of its attempt."""
    session = str(engine.submit.document(loop()).session)
    ref = SessionRef(session, session)
    return session, attempt_token(ref, claim(engine, ref, DO))


def test_a_hook_asks_whether_the_gates_may_run_and_brings_their_results(api: Api) -> None:
    begun = api.told("/s-1/stops", {"stop": "one"})
    assert (begun["state"], begun["attempt"], begun["why"]) == ("run", 1, "the first check")
    assert api.listed()["active"] == 1
    assert api.told("/s-1/stops", {"stop": "two"})["state"] == "busy"
    decided = api.told("/s-1/stops", {"stop": "one", "gates": [FAILED]})
    assert (decided["state"], decided["decision"]["decision"]) == ("decided", "block")
    assert api.told("/s-1/stops", {"stop": "one", "gates": []}) == decided
    (guard,) = api.listed("?agent_session=s-1")["items"]
    assert (guard["guard"], guard["retries"]) == (begun["guard"], {"build": 1})
    assert api.listed("?agent_session=s-2")["items"] == []


def test_an_event_ends_the_row_of_blocks(api: Api) -> None:
    api.told("/s-1/stops", {"stop": "one", "gates": [FAILED]})
    assert api.ask("/s-1/events", {"event": "idle"}).status_code == 204
    (guard,) = api.listed()["items"]
    assert (guard["blocks_in_a_row"], guard["overridden"]) == (0, 1)


def test_a_reset_is_for_one_agent_or_for_all(api: Api) -> None:
    for agent in ("s-1", "s-2"):
        api.told(f"/{agent}/stops", {"stop": "one", "gates": [FAILED]})
    assert api.told("/reset", {"agent_session": "s-1"}) == {"reset": 1}
    assert [one["failed_stops"] for one in api.listed()["items"]] == [1, 0]
    assert api.told("/reset", {}) == {"reset": 2}
    assert api.told("/reset", {"agent_session": "s-3"}) == {"reset": 0}


def test_a_body_has_guards_of_its_own_and_cannot_reset_them(
    api: Api, body: tuple[str, str]
) -> None:
    session, token = body
    api.told("/s-1/stops", {"stop": "one", "gates": [FAILED]})
    mine = api.told("/s-1/stops", {"stop": "one", "gates": [FAILED]}, token=token)
    assert mine["decision"]["attempt"] == 1
    (guard,) = api.listed(token=token)["items"]
    assert (guard["guard"], guard["inside"]) == (mine["guard"], session)
    assert api.listed()["total"] == 2
    assert api.ask("/reset", {}, token=token).status_code == 403


def test_scopes_of_tokens_hold_for_guards(api: Api, engine: Engine) -> None:
    reads = engine.tokens.create("r", frozenset({Scope.READ})).token
    submits = engine.tokens.create("s", frozenset({Scope.SUBMIT})).token
    assert api.ask("/s-1/stops", {"stop": "one"}, token=reads).status_code == 403
    assert api.ask("/s-1/stops", {"stop": "one"}, token=submits).status_code == 200
    assert api.listed(token=reads)["total"] == 1
    assert api.ask("/reset", {}, token=submits).status_code == 403


def test_quota_of_a_token_holds_for_guards(api: Api, engine: Engine) -> None:
    scopes = frozenset({Scope.SUBMIT})
    token = engine.tokens.create("s", scopes, quotas=Quotas(max_sessions=1)).token
    assert api.ask("/s-1/stops", {"stop": "one"}, token=token).status_code == 200
    assert api.ask("/s-2/stops", {"stop": "one"}, token=token).status_code == 429
    assert api.ask("/s-1/stops", {"stop": "one"}, token=token).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/a%20b/stops", {"stop": "one"}, "agent"),
        ("/s-1/stops", {}, "stop"),
        ("/s-1/stops", {"stop": "one", "limits": {"stops": 0}}, "limits.stops"),
        ("/s-1/stops", {"stop": "one", "limits": {"stale_s": 59}}, "limits.stale_s"),
        ("/s-1/events", {"event": "nap"}, "event"),
        ("/reset", {"agent_session": "a b"}, "agent_session"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(
    api: Api, path: str, body: object, field: str
) -> None:
    answer = api.ask(path, body)
    problem = json.loads(answer.data)
    assert answer.status_code == 422, problem
    assert field in json.dumps(problem), problem


def test_guards_are_sessions_and_are_listed_by_kind(api: Api, client: FlaskClient) -> None:
    guard = api.told("/s-1/stops", {"stop": "one", "gates": [FAILED]})["guard"]
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    found = json.loads(client.get("/v1/sessions?kind=guard", headers=headers).data)
    assert [one["id"] for one in found["items"]] == [guard]
    ledger = json.loads(client.get(f"/v1/sessions/{guard}/ledger", headers=headers).data)
    assert [one["verdict"] for one in ledger["items"]] == ["retry"]
