"""Everything that the API refuses, with its status, its problem and the way out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import redis
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from api import create_app
from app.engine import Engine
from app.security.signatures import Caller, mint
from app.settings import Settings
from leadhand.errors import (
    ControlRefused,
    IdempotencyConflict,
    Malformed,
    Refused,
    RequestInvalid,
    SessionStillRuns,
    SessionUnknown,
)
from leadhand.models.problems import Kind
from tests.session_driving import add_events, add_worker, all_events, claim, end, ref_of
from tests.silent_engine import engine_without_store, loop, silent_engine

TOKEN = "the operator's own"
SECRET = "signs capabilities"
LOOP = {
    "kind": "loop",
    "task": "write it",
    "baseline": False,
    "checker": "true",
    "doer": {"command": "true"},
}
S = "/v1/sessions"
#: In the tables, the ids of a session that is active and of one that is completed.
ACTIVE, ENDED = "{active}", "{ended}"
OPERATED = Settings(api_token=TOKEN, secret=SECRET)


@pytest.fixture
def engine(store_url) -> Engine:
    engine = silent_engine(store_url, secret=SECRET)
    add_worker(engine, "w1")
    return engine


@pytest.fixture
def active(engine) -> str:
    return str(engine.submit.document(loop()).session)


@pytest.fixture
def ended(engine) -> str:
    session = str(engine.submit.document(loop()).session)
    end(engine, session)
    return session


@pytest.fixture
def client(engine) -> Iterator[FlaskClient]:
    app = create_app(OPERATED, engine)
    yield app.test_client()
    app.fanout.close()


def ask(
    client: FlaskClient,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    *,
    token: str = TOKEN,
) -> TestResponse:
    sent: dict[str, str] = {"Authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        sent["Content-Type"] = "application/json"
    raw = body if isinstance(body, bytes) else json.dumps(body) if body is not None else None
    return client.open(path, method=method, data=raw, headers={**sent, **(headers or {})})


def told(answer: TestResponse) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(answer.data)
    return said


REFUSALS: list[tuple[str, str, object, dict[str, str], int, Kind, dict[str, Any]]] = [
    # method, path, body, headers; status, kind, a part of the problem's detail
    ("GET", f"{S}/deadbeef", None, {}, 404, SessionUnknown.kind, {}),
    ("GET", f"{S}/NOTHEX00", None, {}, 404, SessionUnknown.kind, {}),
    ("GET", f"{S}/{ACTIVE}%0A", None, {}, 404, SessionUnknown.kind, {}),
    ("GET", f"{S}/{ACTIVE}/nothing", None, {}, 404, Refused.kind, {}),
    ("GET", f"{S}/", None, {}, 404, Refused.kind, {}),
    ("GET", "/v1//sessions", None, {}, 404, Refused.kind, {}),
    ("GET", f"{S}/{ACTIVE}/result", None, {}, 409, SessionStillRuns.kind,
        {"session_status": "active"}),
    ("DELETE", f"{S}/{ACTIVE}", None, {}, 409, SessionStillRuns.kind, {}),
    ("POST", f"{S}/{ENDED}/stop", None, {}, 409, ControlRefused.kind,
        {"session_status": "completed"}),
    ("POST", f"{S}/{ACTIVE}/stop", {"now": 1}, {}, 422, RequestInvalid.kind, {"field": "now"}),
    ("POST", f"{S}/{ACTIVE}/exit", None, {}, 422, RequestInvalid.kind, {"field": "reason"}),
    ("POST", f"{S}/{ACTIVE}/exit", {"reason": ""}, {}, 422, RequestInvalid.kind, {"value": '""'}),
    ("POST", f"{S}/{ENDED}/resume", {"max_iterations": True}, {}, 422, RequestInvalid.kind,
        {"field": "max_iterations", "value": "true", "hint": "give a whole number"}),
    ("POST", f"{S}/{ENDED}/resume", {"max_iterations": "4"}, {}, 422, RequestInvalid.kind, {}),
    ("POST", f"{S}/{ACTIVE}/stop", b"[]", {}, 422, RequestInvalid.kind, {"hint": "give an object"}),
    ("POST", f"{S}/{ACTIVE}/stop", b"{}", {"Content-Type": "text/plain"}, 415, Refused.kind,
        {"hint": "send the header 'Content-Type: application/json'"}),
    ("POST", S, LOOP, {"Content-Encoding": "gzip"}, 415, Refused.kind, {}),
    ("POST", S, None, {}, 415, Refused.kind, {}),
    ("POST", S, b"", {"Content-Type": "application/json"}, 400, Malformed.kind,
        {"detail": "the body is no JSON: line 1, column 0: EOF while parsing a value"}),
    ("POST", S, b'{"kind":\n "loop", }', {}, 400, Malformed.kind,
        {"detail": "the body is no JSON: line 2, column 10: trailing comma"}),
    ("POST", S, b'{"a":' * 300, {}, 400, Malformed.kind, {}),
    ("POST", S, b'{"task": "\\ud800"}', {}, 400, Malformed.kind, {}),
    ("POST", S, b'{"task": "\xff"}', {}, 400, Malformed.kind, {}),
    ("POST", S, b'{"timeout_s": NaN}', {}, 400, Malformed.kind, {}),
    ("POST", S, b'{"max_iterations": ' + b"9" * 5000 + b"}", {}, 400, Malformed.kind, {}),
    ("POST", S, b"x" * (4 * 1024 * 1024 + 1), {}, 413, Refused.kind, {}),
    ("POST", S, {"task": "x"}, {}, 422, RequestInvalid.kind,
        {"field": "kind", "hint": "give one of 'loop', 'workflow', 'flow', 'graph', 'plan'"}),
    ("POST", S, {**LOOP, "max_iterations": True}, {}, 422, RequestInvalid.kind,
        {"field": "max_iterations", "value": "true"}),
    ("POST", S, {**LOOP, "after": "x"}, {}, 422, RequestInvalid.kind, {"field": "after"}),
    ("POST", S, {**LOOP, "place": "nowhere"}, {}, 422, RequestInvalid.kind,
        {"field": "place", "value": '"nowhere"',
            "hint": "no worker is at this place; workers are at local"}),
    ("POST", f"{S}?force=1", LOOP, {}, 422, RequestInvalid.kind, {"field": "force"}),
    ("POST", S, LOOP, {"Idempotency-Key": ""}, 400, Malformed.kind, {"field": "Idempotency-Key"}),
    ("POST", S, LOOP, {"Idempotency-Key": "k" * 201}, 400, Malformed.kind, {}),
    ("POST", S, LOOP, {"Idempotency-Key": "k\u00e9"}, 400, Malformed.kind, {}),
    ("POST", S, LOOP, {"Idempotency-Key": "a\tb"}, 400, Malformed.kind, {}),
    ("GET", f"{S}?colour=red", None, {}, 422, RequestInvalid.kind, {"field": "colour"}),
    ("GET", f"{S}?limit=1&limit=2", None, {}, 422, RequestInvalid.kind, {"hint": "give it once"}),
    ("GET", f"{S}?limit=0", None, {}, 422, RequestInvalid.kind, {"field": "limit", "value": '"0"'}),
    ("GET", f"{S}?limit=501", None, {}, 422, RequestInvalid.kind, {}),
    ("GET", f"{S}?limit=many", None, {}, 422, RequestInvalid.kind, {"hint": "give a whole number"}),
    ("GET", f"{S}?status=done", None, {}, 422, RequestInvalid.kind, {"field": "status"}),
    ("GET", f"{S}?cursor=", None, {}, 422, RequestInvalid.kind, {"field": "cursor"}),
    ("GET", f"{S}/{ACTIVE}?x=1", None, {}, 422, RequestInvalid.kind, {"field": "x"}),
    ("GET", "/v1/workers?x=1", None, {}, 422, RequestInvalid.kind, {"field": "x"}),
    ("GET", f"{S}/{ACTIVE}/events?after=1", None, {}, 422, RequestInvalid.kind, {"field": "after"}),
    ("GET", f"{S}/{ACTIVE}/events?after={'9' * 20}-0", None, {}, 422, RequestInvalid.kind, {}),
    ("GET", f"{S}/{ACTIVE}/events", None, {"Last-Event-ID": "12"}, 400, Malformed.kind,
        {"field": "Last-Event-ID"}),
    ("GET", f"{S}/{ACTIVE}/events", None,
        {"Last-Event-ID": "x", "Accept": "text/event-stream"}, 400, Malformed.kind, {}),
    ("GET", f"{S}/deadbeef/events", None, {"Accept": "text/event-stream"}, 404,
        SessionUnknown.kind, {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "kind", "says"),
    REFUSALS,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_done_is_refused_with_its_problem(
    client, active, ended, method, path, body, headers, status, kind, says
):
    answer = ask(client, method, path.format(active=active, ended=ended), body, headers)
    problem = told(answer)
    assert (answer.status_code, problem["type"]) == (status, kind.uri)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["title"]
    assert problem["request_id"] == answer.headers["X-Request-ID"]
    assert {name: problem.get(name) for name in says} == says


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", S, {"GET", "HEAD", "OPTIONS", "POST"}),
        ("PUT", f"{S}/{ACTIVE}", {"GET", "HEAD", "OPTIONS", "DELETE", "PATCH"}),
        ("GET", f"{S}/{ACTIVE}/stop", {"POST", "OPTIONS"}),
        ("POST", "/healthz", {"GET", "HEAD", "OPTIONS"}),
    ],
)
def test_a_wrong_method_hears_of_the_right_ones(client, active, method, path, allowed):
    answer = ask(client, method, path.format(active=active))
    assert answer.status_code == 405
    assert set(answer.headers["Allow"].split(", ")) == allowed
    assert told(answer)["type"] == Refused.kind.uri


def test_every_wrong_field_is_named_at_once(client):
    body = {"kind": "workflow", "name": "", "phases": [{"name": "a", "checker": "true", "x": 1}]}
    problem = told(ask(client, "POST", S, body))
    assert [error["field"] for error in problem["errors"]] == [
        "name",
        "phases.0.task",
        "phases.0.x",
    ]
    assert all(error["hint"] for error in problem["errors"])


KEY = "sk-live-hunter2Hunter2hunter2Hunter2"


def test_a_secret_that_was_sent_is_not_sent_back(client):
    body = {**LOOP, "api_token": "hunter2", "place": [KEY], "cwd": KEY}
    answer = ask(client, "POST", S, body)
    assert answer.status_code == 422
    assert "hunter2" not in answer.get_data(as_text=True)


@pytest.mark.parametrize(
    ("headers", "detail"),
    [
        ({}, "no bearer token was sent"),
        ({"Authorization": "Basic eDp5"}, "no bearer token was sent"),
        ({"Authorization": "Bearer "}, "no bearer token was sent"),
        ({"Authorization": "Bearer wrong"}, "the token is not known"),
        ({"Authorization": "Bearer \u00ff"}, "the token is not known"),
        ({"Authorization": "Bearer lhc1.x.y"}, "its signature is invalid"),
    ],
)
@pytest.mark.parametrize("path", [S, "/v1/nothing", f"{S}/{ACTIVE}/stop"])
def test_without_a_token_nothing_is_told(client, active, path, headers, detail):
    answer = ask(client, "GET", path.format(active=active), headers=headers, token="")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert told(answer)["detail"] == detail


def test_an_api_without_a_token_of_its_own_lets_nobody_in(engine, active):
    client = create_app(Settings(), engine).test_client()
    assert ask(client, "GET", S, headers={"Authorization": "Bearer "}, token="").status_code == 401
    grant = claim(engine, active)
    forged = mint(Caller(active, grant.address, grant.fence, ("read",)), secret="")
    assert ask(client, "GET", f"{S}/{active}", token=forged).status_code == 401


def body(engine: Engine, session: str, *scopes: str) -> Caller:
    """The body of a step of the session that runs now."""
    grant = claim(engine, session)
    return Caller(session, grant.address, grant.fence, scopes)


@pytest.mark.parametrize(
    ("method", "path", "scopes", "status"),
    [
        ("GET", f"{S}/{ACTIVE}", ("read",), 200),
        ("GET", f"{S}/{ACTIVE}/ledger", ("read",), 200),
        ("GET", f"{S}/{ACTIVE}/events", ("read",), 200),
        ("POST", f"{S}/{ACTIVE}/exit", ("read", "exit"), 202),
        ("POST", f"{S}/{ACTIVE}/exit", ("read",), 403),
        ("GET", f"{S}/{ACTIVE}", ("exit",), 403),
        ("POST", f"{S}/{ACTIVE}/abort", ("read", "exit"), 403),
        ("DELETE", f"{S}/{ENDED}", ("read", "exit"), 403),
        ("GET", f"{S}/{ENDED}", ("read", "exit"), 403),
        ("POST", f"{S}/{ENDED}/exit", ("read", "exit"), 403),
        ("GET", S, ("read", "exit"), 403),
        ("POST", S, ("read", "exit"), 403),
        ("GET", "/v1/workers", ("read", "exit"), 403),
    ],
)
def test_a_body_reads_its_own_session_and_may_exit_it(
    client, engine, active, ended, method, path, scopes, status
):
    token = mint(body(engine, active, *scopes), secret=SECRET)
    sent = {"reason": "the spec is wrong"} if path.endswith("exit") else None
    path = path.format(active=active, ended=ended)
    assert ask(client, method, path, sent, token=token).status_code == status


def test_an_exit_says_which_body_called_it(client, engine, active):
    caller = body(engine, active, "read", "exit")
    sent = {"reason": "the spec is wrong"}
    ask(client, "POST", f"{S}/{active}/exit", sent, token=mint(caller, secret=SECRET))
    view = engine.queries.session(active)
    assert view.status == "exiting"
    assert view.reason is not None
    assert (view.reason.code, view.reason.text) == ("exit", "the spec is wrong")
    assert view.reason.at == caller.address == "loop~1[1]/do"


def test_a_store_that_is_away_is_no_fault_of_the_sender(active):
    client = create_app(OPERATED, engine_without_store()).test_client()
    for path in (S, f"{S}/{active}", "/v1/workers", "/readyz"):
        answer = ask(client, "GET", path)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert "127.0.0.1:9" not in answer.get_data(as_text=True)
    assert ask(client, "GET", "/healthz", token="").status_code == 200


def test_a_fault_of_ours_is_told_without_its_insides(
    client, engine, active, redis_client: redis.Redis, caplog
):
    session = engine.store.keys.part(ref_of(engine, active), "session")
    redis_client.hset(session, "created", "no number")
    answer = ask(client, "GET", f"{S}/{active}", headers={"X-Request-ID": "trace-me"})
    assert answer.status_code == 500
    assert told(answer)["request_id"] == "trace-me"
    assert "no number" not in answer.get_data(as_text=True)
    assert "no number" in caplog.text


def test_the_same_key_is_the_same_session_and_with_another_body_refused(client):
    headers = {"Idempotency-Key": "once"}
    first = ask(client, "POST", S, LOOP, headers)
    again = ask(client, "POST", S, LOOP, headers)
    assert first.status_code == again.status_code == 202
    assert first.headers["Location"] == again.headers["Location"] == f"{S}/{told(first)['id']}"
    other = ask(client, "POST", S, {**LOOP, "task": "another"}, headers)
    assert other.status_code == 422
    assert told(other)["type"] == IdempotencyConflict.kind.uri


@pytest.mark.parametrize("given", ["abc-1.2:3", "", "no spaces", "x" * 129])
def test_a_request_id_comes_back_where_it_is_fit_to_be_written_down(client, given):
    answer = ask(client, "GET", "/healthz", headers={"X-Request-ID": given})
    came = answer.headers["X-Request-ID"]
    assert (came == given) == (given == "abc-1.2:3")
    assert came


def test_a_page_tells_where_the_next_one_begins(client, active, ended):
    first = told(ask(client, "GET", f"{S}?limit=1"))
    assert len(first["items"]) == 1
    rest = told(ask(client, "GET", f"{S}?limit=1&cursor={first['next']}"))
    assert len(rest["items"]) == 1
    after = told(ask(client, "GET", f"{S}?limit=1&cursor={rest['next']}"))
    assert (after["items"], after["next"]) == ([], None)
    assert {first["items"][0]["id"], rest["items"][0]["id"]} == {active, ended}


def test_a_page_of_events_goes_on_from_its_last(client, engine, active):
    before = len(all_events(engine, active))
    add_events(engine, active, 5)
    first = told(ask(client, "GET", f"{S}/{active}/events?limit=3"))
    assert len(first["items"]) == 3
    rest = told(ask(client, "GET", f"{S}/{active}/events?limit=300&after={first['next']}"))
    shown = first["items"] + rest["items"]
    assert [event["id"] for event in shown] == [e.id for e in all_events(engine, active)]
    assert [event["fields"]["n"] for event in shown[before:]] == [0, 1, 2, 3, 4]
    assert rest["next"] is None
