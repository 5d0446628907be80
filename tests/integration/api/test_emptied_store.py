"""Until a sweep notices that Redis was emptied, the API compares by itself before it answers."""

from __future__ import annotations

import re

import redis

from api.application import create_app
from api.store import ALWAYS
from tests.silent_engine import silent_engine

TOKEN = "t0ken"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
LOST = "Redis has lost its data"


def test_emptied_store_is_refused_by_lists_and_tokens_before_a_sweep_notices(
    store_url: str, redis_client: redis.Redis
) -> None:
    """No sweep runs here. The lists of an emptied store are empty, and it knows no token."""
    headers = BEARER
    for kind in ("list", "token"):
        engine = silent_engine(store_url)
        settings = engine.settings.model_copy(update={"api_token": TOKEN})
        engine.guard.check()
        with create_app(settings, engine).test_client() as client:
            assert client.get("/v1/sessions", headers=BEARER).get_json()["items"] == []
            if kind == "token":
                body = {"name": "t", "scopes": ["read"]}
                made = client.post("/v1/tokens", headers=BEARER, json=body).get_json()
                headers = {"Authorization": f"Bearer {made['token']}"}
            redis_client.flushall()
            refused = client.get("/v1/sessions", headers=headers)
            assert (refused.status_code, refused.get_json()["detail"][:23]) == (503, LOST)


def test_no_call_writes_to_an_emptied_store_before_a_sweep_notices(
    store_url: str, redis_client: redis.Redis
) -> None:
    engine = silent_engine(store_url)
    settings = engine.settings.model_copy(update={"api_token": TOKEN})
    engine.guard.check()
    flask = create_app(settings, engine)
    redis_client.flushall()
    writes = [
        (method, re.sub(r"<[^>]*>", "0123abcd", rule.rule))
        for rule in flask.url_map.iter_rules()
        for method in (rule.methods or set()) - {"GET", "HEAD", "OPTIONS"}
        if rule.endpoint not in ALWAYS
    ]
    assert ("POST", "/v1/tokens") in writes
    for method, path in writes:
        with flask.test_client() as client:
            body = {"name": "t", "scopes": ["read"], "concurrency": 1}
            refused = client.open(path, method=method, headers=BEARER, json=body)
            assert refused.status_code == 503, path
            assert path.startswith("/ui") or refused.get_json()["detail"][:23] == LOST, path
            assert redis_client.keys() == []
        engine.guard._state = "known"  # as before anything was noticed
