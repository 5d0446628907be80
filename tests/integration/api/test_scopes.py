"""Who may do what: each route against each scope, and what tokens hold and never tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from api import create_app, events
from api.auth import Visitor
from api.serving import Api
from app.core.records import Grant
from app.engine import Engine
from app.logs import JsonLines
from app.security.api_tokens import Scope
from app.security.signatures import BODY_SCOPES, Caller, mint
from app.settings import Settings
from leadhand.contract.operations import OPERATIONS
from leadhand.errors import QuotaPassed, TokenRefused, TokenUnknown
from leadhand.models.documents import Webhook
from leadhand.models.views.fleet import Quotas
from tests.session_driving import add_event, claim, ref_of, settle
from tests.silent_engine import OPERATOR, SECRET, loop, silent_engine

#: Operations that need no token.
OPEN = {"health.alive", "health.ready", "description.document", "description.page"}
S = "/v1/sessions"
AGENTS = {"kind": "loop", "task": "write it", "checker": "agent: look", "doer": {"agent": "a"}}


#: An hour before a day ends (UTC).
LATE_MS = 1_795_302_000_000


@pytest.fixture
def session(engine: Engine) -> str:
    return str(engine.submit.document(loop()).session)


@pytest.fixture
def app(engine: Engine) -> Iterator[Api]:
    app = create_app(Settings(api_token=OPERATOR, secret=SECRET), engine)
    yield app
    app.fanout.close()


@pytest.fixture
def client(app: Api) -> FlaskClient:
    return app.test_client()


def token_of(engine: Engine, *scopes: Scope, quotas: Quotas | None = None) -> str:
    return engine.tokens.create("test", frozenset(scopes), quotas=quotas).token


def ask(
    client: FlaskClient, method: str, path: str, token: str, body: object = None
) -> TestResponse:
    headers = {"Authorization": f"Bearer {token}"}
    return client.open(path, method=method, headers=headers, json=body)


def body_of(answer: TestResponse) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(answer.data)
    return said


def kept_of(engine: Engine, answer: TestResponse) -> dict[str, str]:
    """The fields of the session that was submitted."""
    assert answer.status_code == 202, answer.text
    return engine.store.fields(ref_of(engine, body_of(answer)["id"]))


def guarded(app: Api, session: str = "00000a11") -> list[tuple[Rule, str, str]]:
    """Each route that needs a token, with a method and a path that reach it."""
    urls = app.url_map.bind("localhost")
    found = []
    for rule in app.url_map.iter_rules():
        if rule.endpoint in OPEN or rule.endpoint.startswith("dashboard."):
            continue
        values = dict.fromkeys(rule.arguments, "x") | {"session": session, "kind": "agent"}
        path = urls.build(rule.endpoint, {n: values[n] for n in rule.arguments})
        found += [(rule, method, path) for method in sorted((rule.methods or set()) - {"OPTIONS"})]
    return found


@pytest.mark.parametrize("scope", Scope)
def test_each_route_is_open_to_its_scope_and_to_no_other(app, client, engine, session, scope):
    token = token_of(engine, scope)
    for rule, method, path in guarded(app, session):
        answer = ask(client, method, path, token)
        opens = OPERATIONS[rule.endpoint].scope is scope
        # A fork and a rerun may also need the right to give commands.
        refused = answer.status_code == 403 and b"exec:free" not in answer.data
        assert refused != opens, (scope, method, path, answer.data)
        if not opens and method != "HEAD":
            assert body_of(answer)["type"] == TokenRefused.kind.uri
            assert str(OPERATIONS[rule.endpoint].scope) in body_of(answer)["detail"]


def test_fleet_wide_routes_need_the_scope_admin(client, engine):
    everything_else = token_of(engine, *(set(Scope) - {Scope.ADMIN}))
    limit, admin = "/v1/limits/agent/claude", token_of(engine, Scope.ADMIN)
    assert ask(client, "PUT", limit, everything_else, {"concurrency": 1}).status_code == 403
    assert ask(client, "PUT", limit, admin, {"concurrency": 1}).status_code == 200
    assert ask(client, "DELETE", limit, everything_else).status_code == 403
    assert ask(client, "GET", limit, everything_else).status_code == 200


def test_each_route_refuses_a_missing_or_unknown_token(app, client, session):
    for token in ("", "lht_", "lht_000000000000_x", "wrong"):
        for _, method, path in guarded(app, session):
            assert ask(client, method, path, token).status_code == 401, (token, method, path)


def test_missing_token_gets_a_hint_and_an_invalid_one_does_not(client):
    none = client.get(S)
    assert "Authorization: Bearer" in body_of(none)["hint"]
    assert none.headers["WWW-Authenticate"] == 'Bearer realm="leadhand"'
    dead = ask(client, "GET", S, "wrong")
    assert "hint" not in body_of(dead)
    assert 'error="invalid_token"' in dead.headers["WWW-Authenticate"]


def test_the_operator_s_token_opens_all(app, client, session):
    for _, method, path in guarded(app, session):
        assert ask(client, method, path, OPERATOR).status_code not in (401, 403), (method, path)


def test_unknown_path_is_reported_to_callers_with_a_token(client, engine):
    token = token_of(engine, Scope.READ)
    assert ask(client, "GET", "/v1/nothing", token).status_code == 404
    assert ask(client, "PATCH", S, token).status_code == 405
    assert ask(client, "GET", "/v1/nothing", "wrong").status_code == 401


def test_route_that_is_no_operation_is_closed_to_all_tokens(app, client, engine):
    app.add_url_rule("/v1/surprise", "surprise", view_func=lambda: "")
    for token in (OPERATOR, token_of(engine, *Scope)):
        assert ask(client, "GET", "/v1/surprise", token).status_code == 403


# Commands of one's own

PHASE = {"name": "one", "task": "t", "checker": "agent: look"}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (AGENTS, None),
        ({**AGENTS, "doer": {"command": "rm -rf /"}}, "doer.command"),
        ({**AGENTS, "doer": {"callable": "os:abort"}}, "doer.callable"),
        ({**AGENTS, "checker": "rm -rf /"}, "checkers.0.command"),
        ({**AGENTS, "checker": ["agent: a", "callable: os:abort"]}, "checkers.1.callable"),
        ({"kind": "workflow", "name": "w", "phases": [PHASE]}, None),
        ({"kind": "workflow", "name": "w", "phases": [PHASE], "doer": {"command": "x"}},
            "doer.command"),
        ({"kind": "workflow", "name": "w", "phases": [PHASE, {**PHASE, "name": "two",
            "doer": {"command": "x"}}]}, "phases.1.doer.command"),
        ({"kind": "workflow", "name": "w", "phases": [{**PHASE, "checker": ["agent: x", "true"]}]},
            "phases.0.checkers.1.command"),
        ({"kind": "graph", "steps": [{"name": "a", "session": {"kind": "loop", "task": "t",
            "checkers": ["agent: x", "true"]}}]}, "steps.0.session.checkers.1.command"),
    ],
)  # fmt: skip
def test_document_with_a_command_needs_the_scope_exec_free(client, engine, document, field):
    answer = ask(client, "POST", S, token_of(engine, Scope.SUBMIT), document)
    if field is None:
        assert answer.status_code == 202
        return
    assert answer.status_code == 403
    said = body_of(answer)
    assert said["field"] == field
    assert "'exec:free'" in said["detail"]
    both = token_of(engine, Scope.SUBMIT, Scope.EXEC_FREE)
    assert engine.queries.sessions().items == []
    assert ask(client, "POST", S, both, document).status_code == 202
    assert len(engine.queries.sessions().items) == 1


def test_a_session_belongs_to_the_token_that_asked_for_it(client, engine):
    quotas = Quotas(max_sessions=3)
    made = engine.tokens.create("ci", frozenset({Scope.SUBMIT}), quotas=quotas)
    theirs = kept_of(engine, ask(client, "POST", S, made.token, AGENTS))
    ours = kept_of(engine, ask(client, "POST", S, OPERATOR, AGENTS))
    assert (theirs["token"], theirs["max_sessions"]) == (made.id, "3")
    assert theirs["webhook"] == ""
    assert not {"token", "max_sessions"} & ours.keys()


@pytest.mark.parametrize(
    ("quotas", "header"),
    [(Quotas(max_sessions=0), None), (Quotas(steps_per_day=0), "3600")],
)
def test_used_up_quota_is_reported_with_retry_after(store_url, quotas, header):
    engine = silent_engine(store_url, clock=lambda: LATE_MS, secret=SECRET)
    client = create_app(Settings(api_token=OPERATOR, secret=SECRET), engine).test_client()
    token = token_of(engine, Scope.SUBMIT, quotas=quotas)
    answer = ask(client, "POST", S, token, AGENTS)
    assert answer.status_code == 429
    assert body_of(answer)["type"] == QuotaPassed.kind.uri
    assert answer.headers.get("Retry-After") == header
    assert engine.queries.sessions().items == []


# Tokens over HTTP


def test_token_is_shown_once_and_grants_its_scopes(client, engine):
    body = {"name": "ci", "scopes": ["read", "submit"], "expires_s": 60,
            "quotas": {"max_sessions": 2}}  # fmt: skip
    made = body_of(ask(client, "POST", "/v1/tokens", OPERATOR, body))
    assert made["token"].startswith(f"lht_{made['id']}_")
    assert ask(client, "GET", S, made["token"]).status_code == 200
    listed = ask(client, "GET", "/v1/tokens", OPERATOR)
    [view] = body_of(listed)["items"]
    assert (view["name"], view["scopes"]) == ("ci", ["read", "submit"])
    assert view["quotas"]["max_sessions"] == 2
    assert view["last_used_at"] is not None
    secret = made["token"].rpartition("_")[2]
    assert secret not in listed.get_data(as_text=True)
    assert "digest" not in listed.get_data(as_text=True)
    assert ask(client, "DELETE", f"/v1/tokens/{made['id']}", OPERATOR).status_code == 204
    assert ask(client, "GET", S, made["token"]).status_code == 401
    again = ask(client, "DELETE", f"/v1/tokens/{made['id']}", OPERATOR)
    assert (again.status_code, body_of(again)["type"]) == (404, TokenUnknown.kind.uri)


def test_webhook_of_a_token_is_shown_without_its_secret(client, engine):
    hook = {"url": "https://h.example/T0KEN", "events": ["failed"], "secret": "known to us both"}
    body = {"name": "ci", "scopes": ["submit"], "webhook": hook}
    made = ask(client, "POST", "/v1/tokens", OPERATOR, body)
    listed = ask(client, "GET", "/v1/tokens", OPERATOR)
    for view in (body_of(made), body_of(listed)["items"][0]):
        assert view["webhook"] == {"host": "h.example", "events": ["failed"], "signed": True}
    for answer in (made, listed):
        assert "known to us both" not in answer.get_data(as_text=True)
        assert "T0KEN" not in answer.get_data(as_text=True)
    kept = kept_of(engine, ask(client, "POST", S, body_of(made)["token"], AGENTS))
    assert Webhook.model_validate_json(kept["webhook"]) == Webhook.model_validate(hook)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scopes": ["read"]}, "name"),
        ({"name": "", "scopes": ["read"]}, "name"),
        ({"name": "x", "scopes": []}, "scopes"),
        ({"name": "x", "scopes": ["root"]}, "scopes.0"),
        ({"name": "x", "scopes": ["read"], "expires_s": 0}, "expires_s"),
        ({"name": "x", "scopes": ["read"], "expires_s": "60"}, "expires_s"),
        ({"name": "x", "scopes": ["read"], "quotas": {"max_sessions": -1}}, "quotas.max_sessions"),
        ({"name": "x", "scopes": ["read"], "quotas": {"money": 1}}, "quotas.money"),
        ({"name": "x", "scopes": ["read"], "digest": "0"}, "digest"),
        ({"name": "x", "scopes": ["read"], "webhook": {}}, "webhook.url"),
        ({"name": "x", "scopes": ["read"], "webhook": {"url": "http://10.0.0.1/"}}, "webhook.url"),
    ],
)
def test_a_token_that_cannot_be_made_names_the_field(client, body, field):
    answer = ask(client, "POST", "/v1/tokens", OPERATOR, body)
    assert (answer.status_code, body_of(answer)["field"]) == (422, field)


# A body's token


@pytest.fixture
def grant(engine: Engine, session: str) -> Grant:
    """An attempt of the session that runs now."""
    return claim(engine, session)


@pytest.fixture
def body_token(session: str, grant: Grant) -> str:
    """The token of the body of that attempt."""
    return mint(Caller(session, grant.address, grant.fence, BODY_SCOPES), secret=SECRET)


def test_step_token_is_invalid_once_its_attempt_has_ended(
    client, engine, session, grant, body_token
):
    for path in ("", "/ledger", "/events", "/steps"):
        assert ask(client, "GET", f"{S}/{session}{path}", body_token).status_code == 200
    settle(engine, session, grant)
    for path in ("", "/ledger", "/events", "/steps", "/result"):
        answer = ask(client, "GET", f"{S}/{session}{path}", body_token)
        assert answer.status_code == 401
        assert "has ended" in body_of(answer)["detail"]
    exit_ = ask(client, "POST", f"{S}/{session}/exit", body_token, {"reason": "x"})
    assert exit_.status_code == 401
    view = engine.queries.session(session)
    assert (view.status, view.reason) == ("active", None)


def test_step_token_grants_its_own_session_only(app, client, session, body_token):
    for rule, method, path in guarded(app, session):
        answer = ask(client, method, path, body_token)
        right = OPERATIONS[rule.endpoint].body_right
        opens = (
            right is not None
            and right.scope in BODY_SCOPES
            and right.reach != "below"
            and not OPERATIONS[rule.endpoint].session_in_query
        )
        assert (answer.status_code != 403) == opens, (method, path)


def test_request_log_has_the_caller_and_not_the_token(client, engine, session, body_token, caplog):
    caplog.set_level("INFO", "leadhand.api")
    made = engine.tokens.create("ci", frozenset({Scope.READ}))
    for token in (OPERATOR, made.token, body_token, "a stranger's"):
        ask(client, "GET", f"{S}/{session}", token)
    told_by = [vars(record)["by"] for record in caplog.records if record.message == "request"]
    assert told_by == ["operator", f"token {made.id}", f"step {session}:loop~1[1]/do", None]
    lines = [JsonLines().format(record) for record in caplog.records]
    assert not [line for line in lines if made.token in line or body_token in line]


def test_step_token_has_no_scope_of_people():
    body = Caller("00000a11", "do", 7, ("read", "exit", "report"))
    assert Visitor(body=body).scopes == frozenset()
    assert Visitor().scopes == frozenset(Scope)


@pytest.mark.parametrize("where", ["query", "body"])
def test_token_in_the_query_or_body_is_not_echoed(client, engine, where):
    made = token_of(engine, Scope.SUBMIT)
    path, body = (f"{S}?who={made}", AGENTS) if where == "query" else (S, {**AGENTS, "who": made})
    answer = ask(client, "POST", path, made, body)
    assert answer.status_code == 422
    assert made not in answer.get_data(as_text=True)


def test_a_stream_ends_with_the_token_that_opened_it(client, engine, session, monkeypatch):
    monkeypatch.setattr(events, "RECHECK_S", 0.0)
    made = engine.tokens.create("watcher", frozenset({Scope.READ}))
    headers = {"Authorization": f"Bearer {made.token}", "Accept": "text/event-stream"}
    answer = client.get(f"{S}/{session}/events", headers=headers, buffered=False)
    stream = answer.iter_encoded()
    assert next(chunk for chunk in stream if b"step.ready" in chunk)
    add_event(engine, session, "step.claimed")
    assert next(chunk for chunk in stream if b"step.claimed" in chunk)
    engine.tokens.revoke(made.id)
    add_event(engine, session, "step.settled")
    assert list(stream) == [b'event: cut\ndata: {"why": "token"}\n\n']
    answer.close()
