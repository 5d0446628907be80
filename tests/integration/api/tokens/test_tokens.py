"""Tokens over a real Redis, created and used over HTTP as programs do it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from flask.testing import FlaskClient

from api import create_app
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.errors import CapabilityRefused
from app.security import signatures
from app.security.api_tokens import EVERYTHING, Scope, Tokens
from app.settings import Settings
from app.store.store import Store
from app.store.tokens import TokenStore
from leadhand.errors import TokenUnknown
from tests.integration.api.tokens.driving import (
    DO,
    LOOP,
    SECRET,
    S,
    made,
    session_of,
    spent,
    submit,
)
from tests.silent_engine import silent_engine


def test_no_key_of_the_operator_s_is_that_of_a_token(engine, client):
    token = made(engine)
    operator = {"Authorization": "Bearer the operator's", "Idempotency-Key": f"{token.id}/k"}
    theirs = session_of(submit(client, token, key="k"))
    ours = session_of(client.post(S, json=LOOP, headers=operator))
    assert ours != theirs
    assert session_of(client.post(S, json=LOOP, headers=operator)) == ours


def test_a_deleted_session_takes_its_key_with_it(engine, client):
    token = made(engine)
    first = session_of(submit(client, token, key="k"))
    assert session_of(submit(client, token, key="k")) == first
    engine.control.apply(first, "abort")
    engine.deletion.delete(first)
    again = session_of(submit(client, token, key="k"))
    assert again != first
    assert session_of(submit(client, token, key="k")) == again


# What is kept


def test_no_token_secret_is_stored_in_redis(engine, client, redis_client):
    token = made(engine)
    session_of(submit(client, token))
    secret = token.token.split("_", 2)[2]
    found: list[object] = []
    for key in redis_client.scan_iter("*"):
        read = {"hash": redis_client.hgetall, "string": redis_client.get,
                "set": redis_client.smembers, "list": lambda k: redis_client.lrange(k, 0, -1),
                "zset": lambda k: redis_client.zrange(k, 0, -1), "stream": redis_client.xrange,
                }[redis_client.type(key)]  # fmt: skip
        found.append((key, read(key)))
    assert token.id in str(found)
    assert secret not in str(found)
    assert SECRET not in str(found)


def test_a_token_written_into_redis_opens_nothing(engine, client, redis_client, store_url):
    mine = silent_engine(store_url, secret="a guess").tokens.create("root", EVERYTHING)
    assert redis_client.hexists("lh:tokens", mine.id)
    assert submit(client, mine).status_code == 401
    ours = made(engine)
    text = json.loads(redis_client.hget("lh:tokens", ours.id))
    text["token"]["quotas"]["max_sessions"] = 1000
    redis_client.hset("lh:tokens", ours.id, json.dumps(text))
    assert submit(client, ours).status_code == 401


def test_revoked_token_is_refused_by_other_processes(engine, client, store_url):
    other = silent_engine(store_url, secret=SECRET).tokens
    token = other.create("ci", frozenset({Scope.READ}))
    headers = {"Authorization": f"Bearer {token.token}"}
    other.revoke(token.id)
    assert client.get(S, headers=headers).status_code == 401
    assert [view.id for view in engine.tokens.views()] == []


def test_create_token_is_idempotent_by_key(engine, client, redis_client):
    admin = {"Authorization": f"Bearer {made(engine).token}", "Idempotency-Key": "deploy-7"}
    wish = {"name": "ci", "scopes": ["submit", "read"], "expires_s": 3600}
    first, again = (client.post("/v1/tokens", json=wish, headers=admin) for _ in range(2))
    assert (first.status_code, first.json) == (201, again.json)
    assert len([view for view in engine.tokens.views() if view.expires_at]) == 1
    assert engine.tokens.recognise(first.json["token"]).id == first.json["id"]
    other = client.post("/v1/tokens", json={**wish, "name": "cd"}, headers=admin)
    assert (other.status_code, other.json["field"]) == (422, "Idempotency-Key")
    kept = [redis_client.get(key) for key in redis_client.scan_iter("lh:token-key:*")]
    assert kept
    assert first.json["token"].split("_", 2)[2] not in str(kept)
    # What was revoked does not come back under its key: that is free again.
    engine.tokens.revoke(first.json["id"])
    anew = client.post("/v1/tokens", json=wish, headers=admin)
    assert anew.json["id"] != first.json["id"]
    with pytest.raises(CapabilityRefused):
        engine.tokens.recognise(first.json["token"])


def test_a_maker_that_died_half_way_leaves_its_key_to_be_asked_with_again(engine, redis_client):
    made = engine.tokens.create("ci", EVERYTHING, key="k")
    redis_client.hdel("lh:tokens", made.id)  # as if it had died before it wrote it
    again = engine.tokens.create("ci", EVERYTHING, key="k")
    assert again.token == made.token
    assert engine.tokens.recognise(again.token).id == made.id


def test_a_token_that_expired_long_ago_is_forgotten(store_url, redis_client):
    now = 1_700_000_000.0
    engine = silent_engine(store_url)  # its end closes the connections
    tokens = Tokens(engine.store.tokens(), secret=SECRET, clock=lambda: now)
    for days in (1, 40):
        tokens.create(f"for {days} days", EVERYTHING, expires_s=days * 24 * 3600)
    now += 20 * 24 * 3600
    tokens.create("in time", EVERYTHING)
    assert redis_client.hlen("lh:tokens") == 3
    now += 20 * 24 * 3600
    tokens.create("late", EVERYTHING)
    assert {view.name for view in tokens.views()} == {"for 40 days", "in time", "late"}


class SlowShelf(TokenStore):
    """A shelf on which something else happens while somebody reads, or before he writes."""

    read = written = staticmethod(lambda: None)

    def get(self, token: str) -> str | None:
        found = super().get(token)
        self.read()
        return found

    def put(self, token: str, text: str) -> None:
        self.written()
        super().put(token, text)


def slow_shelf(store: Store) -> SlowShelf:
    return SlowShelf(store._redis, store.keys, store._translate_errors)


def test_a_token_that_is_revoked_while_it_is_read_opens_nothing_here(store_url):
    shelf = slow_shelf(silent_engine(store_url, secret=SECRET).store)
    tokens = Tokens(shelf, secret=SECRET)
    made = tokens.create("ci", EVERYTHING)

    def revoke() -> None:
        shelf.read = lambda: None
        tokens.revoke(made.id)

    shelf.read = revoke
    for _ in range(2):
        with pytest.raises(CapabilityRefused):
            tokens.recognise(made.token)


def test_a_token_that_is_revoked_while_it_is_made_again_stays_revoked(store_url):
    store = silent_engine(store_url, secret=SECRET).store
    others = Tokens(store.tokens(), secret=SECRET)
    first = others.create("ci", EVERYTHING, key="k")
    shelf = slow_shelf(store)
    shelf.written = lambda: others.revoke(first.id)
    with pytest.raises(TokenUnknown):
        Tokens(shelf, secret=SECRET).create("ci", EVERYTHING, key="k")
    assert others.views() == []


def test_tokens_need_no_more_of_redis_than_the_api_s_user_may_do(redis_client, store_url):
    """That user may run no transactions, and nothing dangerous."""
    acl = Path(__file__).parents[4] / "deploy" / "redis" / "users.acl"
    [line] = [line for line in acl.read_text().splitlines() if line.startswith("user api on ")]
    rights = line.partition("#")[0].split()[3:]
    redis_client.execute_command("ACL", "SETUSER", "api-alone", "on", ">pw", *rights)
    host = urlsplit(store_url)
    url = f"redis://api-alone:pw@{host.hostname}:{host.port}/0"
    try:
        engine = silent_engine(url, secret=SECRET)
        token = made(engine, max_sessions=1)
        client = create_app(Settings(secret=SECRET), engine).test_client()
        session = session_of(submit(client, token))
        assert submit(client, token).status_code == 429
        engine.control.apply(session, "abort")
        assert spent(engine, token)[0] == 0
        engine.tokens.revoke(token.id)
        assert engine.tokens.views() == []
    finally:
        redis_client.execute_command("ACL", "DELUSER", "api-alone")


def test_last_use_of_a_token_is_shown_by_all_processes(engine, client, store_url):
    token = made(engine)
    session_of(submit(client, token))
    [view] = Tokens(engine.store.tokens(), secret=SECRET).views()
    assert view.last_used_at is not None


def test_a_body_s_token_opens_nothing_once_its_step_has_ended(engine, client):
    session = session_of(submit(client, made(engine)))
    ref = SessionRef(session, session)
    first = engine.attempts.claim(ref, DO, nonce="a", worker="w").grants[0]
    token = body_token(session, first.fence)
    assert read(client, session, token) == 200
    assert read(client, session, body_token(session, first.fence + 1)) == 401
    assert read(client, session, body_token(session, 0)) == 401
    engine.attempts.release(ref, first, why="drain")
    assert read(client, session, token) == 401
    second = engine.attempts.claim(ref, DO, nonce="b", worker="w").grants[0]
    assert read(client, session, token) == 401
    token = body_token(session, second.fence)
    assert read(client, session, token) == 200
    work = engine.attempts.work(ref, second)
    engine.attempts.settle(work, Outcome(word="succeeded", text="done"), take=[], worker="w")
    assert read(client, session, token) == 401
    headers = {"Authorization": f"Bearer {token}"}
    assert (
        client.post(f"{S}/{session}/exit", json={"reason": "x"}, headers=headers).status_code == 401
    )
    assert engine.queries.session(session).status == "active"


def test_a_body_s_token_opens_nothing_once_its_session_is_forgotten(engine, client):
    session = session_of(submit(client, made(engine)))
    grant = engine.attempts.claim(SessionRef(session, session), DO, nonce="a", worker="w").grants[0]
    token = body_token(session, grant.fence)
    engine.control.apply(session, "abort")
    engine.attempts.release(SessionRef(session, session), grant, why="cancel")
    engine.deletion.delete(session)
    assert read(client, session, token) == 401


def body_token(session: str, fence: int) -> str:
    caller = signatures.Caller(session, DO, fence, signatures.BODY_SCOPES)
    return signatures.mint(caller, secret=SECRET)


def read(client: FlaskClient, session: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return int(client.get(f"{S}/{session}", headers=headers).status_code)


def test_an_errand_that_was_put_on_the_list_anew_stays_there(engine, redis_client):
    redis_client.zadd("lh:errands", {"stop|x|x|": 5.0})
    seen = engine.store.errand_score("stop|x|x|")
    redis_client.zadd("lh:errands", {"stop|x|x|": 6.0})
    engine.store.remove_errand("stop|x|x|", seen)
    assert engine.store.errand_score("stop|x|x|") == 6.0
    engine.store.remove_errand("stop|x|x|", 6.0)
    assert engine.store.errand_score("stop|x|x|") is None
