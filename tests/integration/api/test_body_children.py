"""Child sessions over REST: which requests a step token permits."""

from __future__ import annotations

from typing import Any

from flask.testing import FlaskClient

from app.engine import Engine
from app.security.api_tokens import Scope
from app.security.signatures import BODY_SCOPES, Caller, mint
from leadhand.models.views.fleet import Quotas
from tests.session_driving import claim, settle
from tests.silent_engine import OPERATOR, SECRET

S = "/v1/sessions"
COMMANDS = {
    "kind": "loop",
    "task": "t",
    "baseline": False,
    "checker": "true",
    "doer": {"command": "true"},
}
AGENTS = {"kind": "loop", "task": "t", "checker": "agent: look", "doer": {"agent": "a"}}


def ask(
    client: FlaskClient, method: str, path: str, token: str, body: object = None, key: str = ""
) -> Any:
    headers = {"Authorization": f"Bearer {token}"} | ({"Idempotency-Key": key} if key else {})
    return client.open(path, method=method, headers=headers, json=body)


def submit(
    client: FlaskClient, token: str, document: object, query: str = "", key: str = ""
) -> Any:
    answer = ask(client, "POST", f"{S}{query}", token, document, key)
    assert answer.status_code == 202, answer.text
    return answer.json


def body_of(engine: Engine, session: str) -> str:
    """The token of the body of the session's doer, which runs now."""
    grant = claim(engine, session)
    return mint(Caller(session, grant.address, grant.fence, BODY_SCOPES), secret=SECRET)


def parent(client: FlaskClient, engine: Engine, token: str = OPERATOR) -> tuple[str, str]:
    """A session and the token of its body."""
    session = str(submit(client, token, AGENTS)["id"])
    return session, body_of(engine, session)


def test_body_starts_a_child_and_reads_and_controls_it(client, engine):
    session, token = parent(client, engine)
    child = submit(client, token, COMMANDS)
    assert (child["parent"], child["root"], child["depth"]) == (session, session, 1)
    assert submit(client, token, COMMANDS)["id"] == child["id"]
    assert submit(client, token, COMMANDS, key="another")["id"] != child["id"]
    path = f"{S}/{child['id']}"
    for read in ("", "/steps", "/ledger", "/tree", "/explain", "/transcript", "/output"):
        assert ask(client, "GET", path + read, token).status_code == 200, read
    assert ask(client, "GET", f"{S}?parent={session}", token).status_code == 200
    assert ask(client, "POST", f"{path}/exit", token, {"reason": "no"}).status_code == 403
    for verb in ("stop", "resume", "abort"):
        assert ask(client, "POST", f"{path}/{verb}", token, {}).status_code == 202, verb
        assert ask(client, "POST", f"{S}/{session}/{verb}", token, {}).status_code == 403


def test_body_reaches_no_session_beside_or_above_its_own(client, engine):
    session, token = parent(client, engine)
    stranger, _ = parent(client, engine)
    child = submit(client, token, AGENTS)["id"]
    inner = body_of(engine, child)
    for other, by in ((stranger, token), (session, inner), (stranger, inner), ("0" * 8, token)):
        assert ask(client, "GET", f"{S}/{other}", by).status_code == 403
        assert ask(client, "GET", f"{S}/{other}/tree", by).status_code == 403
        assert ask(client, "POST", f"{S}/{other}/abort", by, {}).status_code == 403
        assert ask(client, "GET", f"{S}?parent={other}", by).status_code == 403
    assert ask(client, "GET", S, token).status_code == 403
    both = ask(client, "GET", f"{S}?parent={session}&parent={stranger}", token)
    assert both.status_code != 200


def test_token_of_an_attempt_that_has_ended_starts_nothing(client, engine):
    session = submit(client, OPERATOR, AGENTS)["id"]
    grant = claim(engine, session)
    token = mint(Caller(session, grant.address, grant.fence, BODY_SCOPES), secret=SECRET)
    settle(engine, session, grant)
    answer = ask(client, "POST", S, token, AGENTS)
    assert answer.status_code == 401
    assert "has ended" in answer.json["detail"]


def test_session_that_stops_starts_no_child(client, engine):
    session, token = parent(client, engine)
    assert ask(client, "POST", f"{S}/{session}/stop", OPERATOR, {}).status_code == 202
    answer = ask(client, "POST", S, token, AGENTS)
    assert (answer.status_code, answer.json["type"]) == (
        409,
        "urn:leadhand:problem:control-refused",
    )


def test_token_without_the_scope_starts_nothing(client, engine):
    session = submit(client, OPERATOR, AGENTS)["id"]
    grant = claim(engine, session)
    token = mint(Caller(session, grant.address, grant.fence, ("read", "exit")), secret=SECRET)
    answer = ask(client, "POST", S, token, AGENTS)
    assert answer.status_code == 403
    assert "'spawn'" in answer.json["detail"]


def test_commands_of_a_child_need_exec_free_of_who_submitted_its_tree(client, engine):
    narrow = engine.tokens.create("n", frozenset({Scope.SUBMIT})).token
    wide = engine.tokens.create("w", frozenset({Scope.SUBMIT, Scope.EXEC_FREE})).token
    _, token = parent(client, engine, narrow)
    refused = ask(client, "POST", S, token, COMMANDS)
    assert refused.status_code == 403
    assert refused.json["field"] == "checkers.0.command"
    assert "without it" in refused.json["hint"]
    child = submit(client, token, AGENTS)["id"]
    inner = body_of(engine, child)
    assert ask(client, "POST", S, inner, COMMANDS).status_code == 403
    _, token = parent(client, engine, wide)
    child = submit(client, token, AGENTS)["id"]
    assert submit(client, body_of(engine, child), COMMANDS)["depth"] == 2


def test_right_to_commands_cannot_be_copied_from_another_session(client, engine):
    narrow = engine.tokens.create("n", frozenset({Scope.SUBMIT})).token
    session, token = parent(client, engine, narrow)
    other, _ = parent(client, engine)
    seal = engine.store.fields(engine.queries.ref(other))["free"]
    assert seal
    key = engine.store.keys.part(engine.queries.ref(session), "session")
    engine.store._redis.hset(key, "free", seal)
    assert ask(client, "POST", S, token, COMMANDS).status_code == 403


def test_children_count_for_the_quota_of_their_tree_s_token(client, engine):
    made = engine.tokens.create("q", frozenset({Scope.SUBMIT}), quotas=Quotas(max_sessions=2))
    _, token = parent(client, engine, made.token)
    submit(client, token, AGENTS, key="1")
    answer = ask(client, "POST", S, token, AGENTS, "2")
    assert (answer.status_code, answer.json["type"]) == (429, "urn:leadhand:problem:quota-passed")


def test_limit_of_a_tree_is_a_problem_that_names_it(client, engine):
    engine.spawner._settings = engine.settings.model_copy(update={"tree_children": 1})
    session, token = parent(client, engine)
    submit(client, token, AGENTS, key="1")
    answer = ask(client, "POST", S, token, AGENTS, "2")
    assert (answer.status_code, answer.json["type"]) == (409, "urn:leadhand:problem:tree-limit")
    assert f"session {session} has 1 child sessions" in answer.json["detail"]
    assert "LEADHAND_TREE_CHILDREN" in answer.json["detail"]


def test_policy_is_for_children_only(client, engine):
    answer = ask(client, "POST", f"{S}?on_parent_end=let-go-on", OPERATOR, AGENTS)
    assert answer.status_code == 422
    assert answer.json["field"] == "on_parent_end"
    _, token = parent(client, engine)
    answer = ask(client, "POST", f"{S}?on_parent_end=forget", token, AGENTS)
    assert (answer.status_code, answer.json["field"]) == (422, "on_parent_end")
    child = submit(client, token, AGENTS, "?on_parent_end=let-go-on")["id"]
    assert engine.store.fields(engine.queries.ref(child))["on_parent_end"] == "let-go-on"


def test_tree_is_bounded_and_says_so(client, engine):
    session, token = parent(client, engine)
    kids = [submit(client, token, AGENTS, key=str(n))["id"] for n in range(4)]
    tree = ask(client, "GET", f"{S}/{session}/tree?limit=3", OPERATOR).json
    assert [one["id"] for one in tree["items"]] == [session, *kids[:2]]
    assert "2 and those below them are left out" in tree["note"]
    assert ask(client, "GET", f"{S}/{session}/tree", OPERATOR).json["note"] is None
    assert ask(client, "GET", f"{S}/{'0' * 8}/tree", OPERATOR).status_code == 404
    assert ask(client, "GET", f"{S}/{session}/tree?limit=0", OPERATOR).status_code == 422
