"""Quotas of a token: which sessions and steps count, and for how long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from pydantic import JsonValue

from api import create_app
from app.core.program import Action, Program, Step
from app.core.records import NewSession, Reply
from app.engine import Engine
from app.security.api_tokens import DAY_MS, EVERYTHING
from app.sessions.submit import About
from app.settings import Settings
from leadhand.errors import QuotaPassed
from leadhand.models.views.fleet import NewToken, Quotas
from tests.integration.api.tokens.driving import (
    DO,
    LOOP,
    SECRET,
    S,
    carry_out,
    made,
    session_of,
    spent,
    submit,
)
from tests.silent_engine import silent_engine


def test_sessions_that_have_not_ended_are_counted(engine, client, redis_client):
    token = made(engine, max_sessions=2)
    first = session_of(submit(client, token, key="one"))
    session_of(submit(client, token))
    refused = submit(client, token)
    assert refused.status_code == 429
    assert "2 sessions that have not ended" in refused.json["detail"]
    assert "Retry-After" not in refused.headers
    assert session_of(submit(client, token, key="one")) == first
    session_of(submit(client, made(engine)))  # others have quotas of their own
    engine.control.apply(first, "abort")
    session_of(submit(client, token))
    assert submit(client, token).status_code == 429
    for session in redis_client.smembers(f"lh:owned:{token.id}"):
        engine.control.apply(session, "abort")
    assert not redis_client.exists(f"lh:owned:{token.id}")


def test_a_key_of_one_token_is_not_another_s(engine, client):
    """Nor can anybody take the key under which a step will start its child."""
    first, second = made(engine), made(engine)
    mine = session_of(submit(client, first, key="nightly"))
    theirs = session_of(submit(client, second, key="nightly", task="another"))
    assert mine != theirs
    assert session_of(submit(client, first, key="nightly")) == mine
    conflict = submit(client, first, key="nightly", task="another")
    assert conflict.status_code == 422
    assert "'nightly'" in conflict.json["detail"]


def test_a_create_that_is_repeated_because_its_answer_got_lost_counts_once(
    engine: Engine, monkeypatch
):
    """redis-py sends a command again when its connection breaks before the answer."""
    token = made(engine, max_sessions=1)
    create = engine.store.create

    def twice(new: NewSession) -> Reply:
        create(new)
        return create(new)

    monkeypatch.setattr(engine.store, "create", twice)
    program = Program(body=(Step(id="wait", action=Action.WAIT),))
    owner = token_owner(engine, token)
    engine.submit.program(program, About(kind="loop", name="x"), owner=owner, size=10)
    assert spent(engine, token) == (1, 0, 10)


def test_of_many_at_once_no_more_get_in_than_the_quota_has_room_for(engine, client):
    token = made(engine, max_sessions=5)
    app = client.application
    with ThreadPoolExecutor(16) as pool:
        calls = [pool.submit(submit, app.test_client(), token) for _ in range(40)]
    codes = [call.result().status_code for call in calls]
    assert (codes.count(202), codes.count(429)) == (5, 35)
    assert len(engine.queries.sessions(limit=50).items) == 5


def test_a_session_that_was_stopped_counts_until_it_is_deleted(engine, client):
    token = made(engine, max_sessions=1)
    session = session_of(submit(client, token))
    engine.control.apply(session, "stop")
    assert engine.queries.session(session).status == "stopped"
    assert submit(client, token).status_code == 429
    engine.deletion.delete(session)
    session_of(submit(client, token))


def test_a_failed_session_that_is_resumed_counts_again(engine, client):
    token = made(engine)
    session = session_of(submit(client, token, max_iterations=1, checker="false"))
    carry_out(engine, session, DO, "loop~1[1]/check.false", "loop~1[1]/judge")
    assert engine.queries.session(session).status == "failed"
    assert spent(engine, token)[0] == 0
    engine.control.apply(session, "resume", max_iterations=2)
    assert spent(engine, token)[0] == 1


def test_a_day_s_steps_are_counted_and_then_no_session_can_follow(engine, client, redis_client):
    token = made(engine, steps_per_day=3)
    session = session_of(submit(client, token))
    session_of(submit(client, token))
    assert spent(engine, token)[1] == 0
    carry_out(engine, session, DO, "loop~1[1]/check.true", "loop~1[1]/judge")
    assert engine.queries.session(session).status == "completed"
    assert spent(engine, token)[1] == 3
    refused = submit(client, token)
    assert refused.status_code == 429
    assert "3 steps a day" in refused.json["detail"]
    assert 0 < int(refused.headers["Retry-After"]) <= DAY_MS / 1000
    [key] = redis_client.keys("lh:spent:*")
    assert 0 < redis_client.ttl(key) <= 2 * DAY_MS / 1000


def test_a_day_is_over_at_midnight(store_url):
    at = [DAY_MS * 20_000 - 1000]
    engine = silent_engine(store_url, clock=lambda: at[0], secret=SECRET)
    client = create_app(Settings(secret=SECRET), engine).test_client()
    token = engine.tokens.create("ci", EVERYTHING, quotas=Quotas(bytes_per_day=2500))
    session_of(submit(client, token, task="x" * 900))
    refused = submit(client, token, task="x" * 900)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert "2500 bytes a day" in refused.json["detail"]
    at[0] += 1000
    session_of(submit(client, token, task="x" * 900))


def test_a_refused_session_leaves_nothing_behind_and_costs_nothing(engine, client, redis_client):
    token = made(engine, max_sessions=0)
    engine.guard.check()  # writes the id of the store, once
    before = set(redis_client.keys("*"))
    assert submit(client, token, key="one").status_code == 429
    assert {k for k in set(redis_client.keys("*")) - before if "token-uses" not in k} == set()
    assert spent(engine, token) == (0, 0, 0)


def test_a_child_is_its_parent_s_token_s(engine, redis_client):
    token = made(engine)
    document = {**{k: v for k, v in LOOP.items() if k != "checker"}, "checkers": ["true"]}
    inputs: dict[str, JsonValue] = {"document": cast("JsonValue", document)}
    program = Program(body=(Step(id="child", action=Action.CHILD, inputs=inputs),))
    parent = engine.submit.program(
        program, About(kind="loop", name="x"), owner=token_owner(engine, token)
    )
    carry_out(engine, parent.session, "child")
    [child] = redis_client.smembers(f"lh:{{{parent.session}}}:{parent.session}:children")
    assert redis_client.smembers(f"lh:owned:{token.id}") == {parent.session, child}
    assert spent(engine, token)[0] == 2


def token_owner(engine: Engine, token: NewToken) -> Any:
    return engine.tokens.recognise(token.token).owner


def test_sessions_of_the_operator_have_no_owner(engine, client, redis_client):
    answer = client.post(S, json=LOOP, headers={"Authorization": "Bearer the operator's"})
    session_of(answer)
    assert redis_client.keys("lh:owned:*") == []


def test_a_resume_needs_room_among_the_sessions_of_its_token(engine, client):
    token = made(engine, max_sessions=1)
    failed = session_of(submit(client, token, max_iterations=1, checker="false"))
    carry_out(engine, failed, DO, "loop~1[1]/check.false", "loop~1[1]/judge")
    other = session_of(submit(client, token))
    with pytest.raises(QuotaPassed, match="1 sessions that have not ended"):
        engine.control.apply(failed, "resume", max_iterations=2)
    assert engine.queries.session(failed).status == "failed"
    engine.control.apply(other, "abort")
    assert engine.control.apply(failed, "resume", max_iterations=2).status == "active"
    engine.control.apply(failed, "stop")
    assert engine.control.apply(failed, "resume").status == "active"  # it never gave up its place
