"""Named locks and values of a tree over REST: replies, refusals, and the tokens that may call."""

from __future__ import annotations

import pytest

from app.core.addresses import SessionRef
from app.core.records import Grant
from app.engine import Engine
from tests.integration.api.test_inbox_api import (
    DO,
    ask,
    attempt_token,
    claim,
    session_token,
    told,
)
from tests.silent_engine import loop

PROBLEM = "urn:leadhand:problem:"


@pytest.fixture
def ref(engine: Engine) -> SessionRef:
    session = str(engine.submit.document(loop()).session)
    return SessionRef(session, session)


@pytest.fixture
def grant(engine: Engine, ref: SessionRef) -> Grant:
    return claim(engine, ref, DO)


def test_a_lock_is_taken_renewed_listed_and_released(client, ref):
    taken = ask(client, "POST", f"{ref.id}/locks", {"name": "src/a.py", "ttl_s": 10})
    found = told(taken)
    assert (taken.status_code, found["state"]) == (200, "held"), found
    body = {"holder": found["holder"], "fence": found["fence"], "ttl_s": 20}
    renewed = ask(client, "PUT", f"{ref.id}/locks/src%2Fa.py", body)
    assert told(renewed)["until"] > found["until"]
    (listed,) = told(ask(client, "GET", f"{ref.id}/locks"))["items"]
    assert (listed["name"], listed["fence"]) == ("src/a.py", found["fence"])
    assert (listed["holder"]["session"], listed["holder"]["by"]) == (ref.id, "operator")
    path = f"{ref.id}/locks/src%2Fa.py?holder={found['holder']}"
    for _ in range(2):  # a repeated call has the reply of the first
        released = ask(client, "DELETE", path)
        assert told(released) == {"name": "src/a.py", "released": True}
    assert told(ask(client, "GET", f"{ref.id}/locks"))["items"] == []
    lost = ask(client, "PUT", f"{ref.id}/locks/src%2Fa.py", body)
    problem = told(lost)
    assert (lost.status_code, problem["type"]) == (409, f"{PROBLEM}lock-lost")
    assert (problem["field"], problem["value"]) == ("holder", found["holder"])
    assert problem["hint"].startswith("stop what the lock protects")


def test_a_taken_lock_is_refused_by_name_or_waited_for(client, ref, grant):
    token = attempt_token(ref, grant)
    mine = told(ask(client, "POST", f"{ref.id}/locks", {"name": "x"}, token=token))
    refused = ask(client, "POST", f"{ref.id}/locks", {"name": "x"})
    problem = told(refused)
    assert (refused.status_code, problem["type"]) == (409, f"{PROBLEM}lock-taken")
    assert (problem["field"], problem["value"]) == ("name", "x")
    assert f"session {ref.id} ({DO}) since" in problem["detail"]
    body = {"name": "x", "queue": True, "holder": "me"}
    waiting = ask(client, "POST", f"{ref.id}/locks", body)
    assert (waiting.status_code, told(waiting)["state"]) == (202, "waiting")
    assert told(waiting)["held_by"]["address"] == DO
    ask(client, "DELETE", f"{ref.id}/locks/x?holder={mine['holder']}", token=token)
    held = ask(client, "POST", f"{ref.id}/locks", body)
    assert (held.status_code, told(held)["fence"]) == (200, mine["fence"] + 1)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "x", "ttl_s": 0}, "ttl_s"),
        ({"name": "x", "ttl_s": 3601}, "ttl_s"),
        ({"name": "x", "holder": "a b"}, "holder"),
        ({"name": "x", "session": "y"}, "session"),
    ],
)
def test_a_wrong_field_of_a_lock_is_named(client, ref, body, field):
    refused = ask(client, "POST", f"{ref.id}/locks", body)
    assert (refused.status_code, told(refused)["field"]) == (422, field)
    assert told(refused)["hint"]


def test_a_value_is_stored_read_listed_and_deleted(client, ref):
    stored = ask(client, "PUT", f"{ref.id}/kv/team%2Fphase", {"value": {"n": [1, None]}})
    assert (stored.status_code, told(stored)["version"]) == (200, 1)
    read = told(ask(client, "GET", f"{ref.id}/kv/team%2Fphase"))
    assert (read["key"], read["value"], read["by"]) == ("team/phase", {"n": [1, None]}, "operator")
    ask(client, "PUT", f"{ref.id}/kv/other", {"value": 2})
    page = told(ask(client, "GET", f"{ref.id}/kv?limit=1"))
    more = told(ask(client, "GET", f"{ref.id}/kv?limit=1&cursor={page['next']}"))
    keys = [one["key"] for one in (*page["items"], *more["items"])]
    assert (keys, more["next"]) == (["other", "team/phase"], None)
    assert told(ask(client, "GET", f"{ref.id}/kv?prefix=team"))["items"][0]["version"] == 1
    assert ask(client, "DELETE", f"{ref.id}/kv/other").status_code == 204
    missing = ask(client, "GET", f"{ref.id}/kv/other")
    assert (missing.status_code, told(missing)["type"]) == (404, f"{PROBLEM}value-unknown")
    assert told(missing)["hint"] == f"`leadhand kv list {ref.id}` lists the keys"


def test_a_version_that_has_changed_is_refused_and_a_repeated_call_is_not(client, ref):
    body = {"value": 1, "if_version": 0}
    for _ in range(2):
        assert ask(client, "PUT", f"{ref.id}/kv/k", body, key="once").status_code == 200
    changed = ask(client, "PUT", f"{ref.id}/kv/k", body, key="again")
    problem = told(changed)
    assert (changed.status_code, problem["type"]) == (412, f"{PROBLEM}value-changed")
    assert (problem["field"], problem["value"]) == ("if_version", "0")
    assert "has version 1" in problem["detail"]
    stale = ask(client, "DELETE", f"{ref.id}/kv/k?if_version=7")
    assert (stale.status_code, told(stale)["type"]) == (412, f"{PROBLEM}value-changed")
    long = ask(client, "PUT", f"{ref.id}/kv/k", {"value": "x" * 65_536})
    assert (long.status_code, told(long)["field"]) == (422, "value")


def test_a_body_uses_its_own_session_with_its_attempt_s_token_only(engine, client, ref, grant):
    attempt, whole = attempt_token(ref, grant), session_token(engine, ref, grant)
    other = str(engine.submit.document(loop(cwd="/tmp")).session)
    put = {"value": 1}
    assert ask(client, "PUT", f"{ref.id}/kv/k", put, token=attempt).status_code == 200
    assert ask(client, "PUT", f"{other}/kv/k", put, token=attempt).status_code == 403
    assert ask(client, "GET", f"{other}/locks", token=attempt).status_code == 403
    assert ask(client, "GET", f"{ref.id}/kv/k", token=whole).status_code == 200
    assert ask(client, "PUT", f"{ref.id}/kv/k", put, token=whole).status_code == 403
    assert ask(client, "POST", f"{ref.id}/locks", {"name": "x"}, token=whole).status_code == 403
    engine.attempts.release(ref, grant, why="drain")
    late = ask(client, "POST", f"{ref.id}/locks", {"name": "x"}, token=attempt)
    assert late.status_code == 401
