"""Tokens and their quotas over a real Redis, asked for as programs ask: over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from flask.testing import FlaskClient
from pydantic import JsonValue

from api import create_app
from app.domain.ids import SessionRef
from app.domain.outcomes import Outcome
from app.domain.program import Action, Program, Step
from app.domain.records import NewSession, Reply
from app.engine import Engine
from app.errors import CapabilityRefused, QuotaPassed, TokenUnknown
from app.operations.submit import About
from app.security import step_tokens
from app.security.api_tokens import DAY_MS, EVERYTHING, Scope, Tokens
from app.settings import Settings
from app.store.store import Store
from app.store.tokens import TokenStore
from leadhand.models.views import NewToken, Quotas
from tests.silent_engine import silent_engine
from workers.attempt.attempt import Attempts
from workers.attempt.heartbeat import Heartbeats
from workers.registry.agents import AgentBook

SECRET = "of the test"
S = "/v1/sessions"
LOOP = {"kind": "loop", "task": "write it", "checker": "true", "doer": {"command": "true"}}
DO = "loop~1[1]/do"


@pytest.fixture
def engine(store_url: str) -> Engine:
    return silent_engine(store_url, secret=SECRET)


@pytest.fixture
def client(engine: Engine) -> Iterator[FlaskClient]:
    app = create_app(Settings(api_token="the operator's", secret=SECRET), engine)
    yield app.test_client()
    app.fanout.close()


def made(engine: Engine, **quotas: int) -> NewToken:
    return engine.tokens.create("ci", EVERYTHING, quotas=Quotas(**quotas))


def submit(client: FlaskClient, token: NewToken, *, key: str = "", **more: object) -> Any:
    headers = {"Authorization": f"Bearer {token.token}"}
    if key:
        headers["Idempotency-Key"] = key
    return client.post(S, json={**LOOP, **more}, headers=headers)


def session_of(answer: Any) -> str:
    assert answer.status_code == 202, answer.data
    return str(answer.json["id"])


def spent(engine: Engine, token: NewToken) -> tuple[int, int, int]:
    [view] = [view for view in engine.tokens.views() if view.id == token.id]
    return view.spent.sessions, view.spent.steps, view.spent.bytes


def carry_out(engine: Engine, session: str, *addresses: str) -> None:
    attempts = Attempts(
        engine, worker="w/1", agents=lambda: AgentBook.load([]), heart=Heartbeats(engine)
    )
    for address in addresses:
        attempts(SessionRef(session, session), address)


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


def test_no_secret_lies_in_redis(engine, client, redis_client):
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


def test_what_one_process_revokes_opens_nothing_in_another(engine, client, store_url):
    other = silent_engine(store_url, secret=SECRET).tokens
    token = other.create("ci", frozenset({Scope.READ}))
    headers = {"Authorization": f"Bearer {token.token}"}
    other.revoke(token.id)
    assert client.get(S, headers=headers).status_code == 401
    assert [view.id for view in engine.tokens.views()] == []


def test_a_call_that_is_repeated_under_its_key_makes_one_token(engine, client, redis_client):
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
    assert first.json["token"].rpartition("_")[2] not in str(kept)
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
    tokens = Tokens(silent_engine(store_url).store.tokens(), secret=SECRET, clock=lambda: now)
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
    acl = Path(__file__).parents[3] / "deploy" / "redis" / "users.acl"
    [line] = [line for line in acl.read_text().splitlines() if line.startswith("user api on ")]
    rights = line.partition("#")[0].split()[3:]
    redis_client.execute_command("ACL", "SETUSER", "api", "on", ">pw", *rights)
    host = urlsplit(store_url)
    url = f"redis://api:pw@{host.hostname}:{host.port}/0"
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
        redis_client.execute_command("ACL", "DELUSER", "api")


def test_when_a_token_was_used_last_is_told_to_all(engine, client, store_url):
    token = made(engine)
    session_of(submit(client, token))
    [view] = Tokens(engine.store.tokens(), secret=SECRET).views()
    assert view.last_used_at is not None


# Quotas


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


def test_the_operator_s_sessions_are_nobody_s(engine, client, redis_client):
    answer = client.post(S, json=LOOP, headers={"Authorization": "Bearer the operator's"})
    session_of(answer)
    assert redis_client.keys("lh:owned:*") == []


# A body's token


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
    caller = step_tokens.Caller(session, DO, fence, step_tokens.BODY_SCOPES)
    return step_tokens.mint(caller, secret=SECRET)


def read(client: FlaskClient, session: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return int(client.get(f"{S}/{session}", headers=headers).status_code)


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


def test_an_errand_that_was_put_on_the_list_anew_stays_there(engine, redis_client):
    redis_client.zadd("lh:errands", {"stop|x|x|": 5.0})
    seen = engine.store.errand_score("stop|x|x|")
    redis_client.zadd("lh:errands", {"stop|x|x|": 6.0})
    engine.store.remove_errand("stop|x|x|", seen)
    assert engine.store.errand_score("stop|x|x|") == 6.0
    engine.store.remove_errand("stop|x|x|", 6.0)
    assert engine.store.errand_score("stop|x|x|") is None
