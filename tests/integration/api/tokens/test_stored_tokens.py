"""Tokens in the store: what is kept of one, when it ends, and how often it is read."""

from __future__ import annotations

import json

import pytest
import redis

from app.engine import Engine
from app.errors import CapabilityRefused
from app.security.api_tokens import KEEP_S, Scope, Tokens
from app.store.tokens import TokenStore
from leadhand.errors import TokenUnknown
from tests.integration.api.tokens.driving import SECRET


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def shelf(engine: Engine) -> TokenStore:
    return engine.store.tokens()


def reads(redis_client: redis.Redis) -> int:
    """How often a field of a hash was read, as each look at a token does once."""
    return int(redis_client.info("commandstats").get("cmdstat_hget", {"calls": 0})["calls"])


@pytest.fixture
def tokens(shelf: TokenStore) -> Tokens:
    return Tokens(shelf, secret=SECRET, clock=Clock())


READ = frozenset({Scope.READ})


def test_stored_token_record_grants_nothing(shelf, tokens):
    made = tokens.create("ci", READ)
    [kept] = shelf.all().values()
    assert made.token.split("_", 2)[2] not in kept
    assert made.token.split("_", 2)[2] not in kept
    digest = json.loads(kept)["token"]["digest"]
    for guess in (digest, kept, made.id, f"lht_{made.id}", f"lht_{made.id}_", f"lht_{made.id}_x",
                  f"lht_{made.id}_{digest}", made.token + "x", made.token.upper()):  # fmt: skip
        with pytest.raises(CapabilityRefused):
            tokens.recognise(guess)
    assert tokens.recognise(made.token).name == "ci"


def test_tokens_are_unique(tokens):
    assert len({tokens.create("x", READ).token.split("_", 2)[2] for _ in range(50)}) == 50
    assert len(tokens.create("x", READ).token.split("_", 2)[2]) >= 43


@pytest.mark.parametrize(
    "field", ["scopes", "digest", "expires_ms", "quotas", "id", "name", "webhook"]
)
def test_token_record_with_a_foreign_signature_grants_nothing(shelf, tokens, field):
    made = tokens.create("ci", READ, expires_s=60)
    kept = json.loads(shelf.all()[made.id])
    other = {"scopes": ["admin"], "digest": "0" * 64, "expires_ms": None, "id": "0" * 12,
             "quotas": {"max_sessions": 9}, "name": "root",
             "webhook": {"url": "https://mine.example/"}}[field]  # fmt: skip
    kept["token"][field] = other
    shelf.put(made.id, json.dumps(kept))
    with pytest.raises(CapabilityRefused):
        Tokens(shelf, secret=SECRET, clock=Clock()).recognise(made.token)
    assert tokens.views() == []


def test_a_token_from_before_there_were_webhooks_still_opens(shelf, tokens):
    made = tokens.create("ci", READ)
    kept = json.loads(shelf.all()[made.id])
    del kept["token"]["webhook"]
    shelf.put(made.id, json.dumps(kept))
    assert Tokens(shelf, secret=SECRET, clock=Clock()).recognise(made.token).name == "ci"


def test_a_token_of_another_secret_opens_nothing(shelf, tokens):
    made = Tokens(shelf, secret="a guess").create("mine", frozenset(Scope))
    with pytest.raises(CapabilityRefused):
        tokens.recognise(made.token)
    shelf.put(made.id, "no JSON")
    with pytest.raises(CapabilityRefused):
        tokens.recognise(made.token)


def test_a_token_that_moved_to_another_id_opens_nothing(shelf, tokens):
    made = tokens.create("ci", READ)
    shelf.put("0" * 12, shelf.all()[made.id])
    with pytest.raises(CapabilityRefused):
        tokens.recognise(made.token.replace(made.id, "0" * 12))


def test_a_token_ends_at_its_time(shelf):
    clock = Clock()
    tokens = Tokens(shelf, secret=SECRET, clock=clock)
    made = tokens.create("ci", READ, expires_s=60)
    clock.now += 59.9
    assert tokens.recognise(made.token).id == made.id
    clock.now += 0.2
    with pytest.raises(CapabilityRefused, match="expired"):
        tokens.recognise(made.token)
    assert [view.expired for view in tokens.views()] == [True]


def test_a_token_is_read_once_in_a_while_and_a_revoked_one_lives_no_longer(
    shelf, tokens, redis_client
):
    now = [100.0]
    made = tokens.create("ci", READ)
    elsewhere = Tokens(shelf, secret=SECRET, clock=Clock(), monotonic=lambda: now[0])
    before = reads(redis_client)
    for _ in range(100):
        elsewhere.recognise(made.token)
    assert reads(redis_client) - before == 1
    tokens.revoke(made.id)
    with pytest.raises(CapabilityRefused):
        tokens.recognise(made.token)
    elsewhere.recognise(made.token)  # for KEEP_S at most
    now[0] += KEEP_S
    with pytest.raises(CapabilityRefused):
        elsewhere.recognise(made.token)
    with pytest.raises(TokenUnknown):
        tokens.revoke(made.id)
