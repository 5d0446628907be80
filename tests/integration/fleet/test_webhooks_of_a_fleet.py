"""Webhooks as a fleet sends them, with a worker that dies on the way; and as the API takes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from api.application import create_app
from app.settings import Settings
from tasks.webhook_delivery import Deliverer
from tests.fleet import Fleet
from tests.receiver import Receiver, receiver
from tests.silent_engine import silent_engine
from tests.waiting import wait_until

TOKEN = "token of the test"
SECRET = "known to us and to the receiver"


@pytest.fixture
def at() -> Iterator[Receiver]:
    with receiver() as told:
        yield told


@pytest.fixture
def fleet(
    tmp_path: Path, store_url: str, broker_url: str, at: Receiver, monkeypatch
) -> Iterator[Fleet]:
    monkeypatch.setenv("LEADHAND_WEBHOOK_HOSTS", at.host)
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=1.5)
    yield fleet
    fleet.close()


def test_a_worker_tells_of_what_it_completed(fleet: Fleet, at: Receiver) -> None:
    fleet.worker("one")
    session = fleet.loop("echo done", "true", webhook={"url": at.url, "secret": SECRET})
    assert fleet.ended(session).verdict == "accept"
    wait_until(lambda: at.received)
    told = json.loads(at.received[0].body)
    assert (told["session"]["id"], told["session"]["status"]) == (session, "completed")
    assert told["session"]["counters"]["iterations"] == 1
    for log in (*fleet.folder.glob("*.log"), *fleet.folder.glob("spill/**/*")):
        if log.is_file():
            assert SECRET not in log.read_text(errors="replace")


def test_a_deliverer_that_is_killed_while_it_waits_leaves_its_delivery_to_others(
    fleet: Fleet, at: Receiver, redis_client
):
    at.answers.clear()
    worker = fleet.worker("one")
    session = fleet.loop("echo done", "true", webhook={"url": at.url})
    wait_until(lambda: at.received)
    fleet.kill(worker)
    at.answers.set()
    other = Deliverer(fleet.engine)
    other.start()
    [(line, due)] = redis_client.zrange("lh:hooks", 0, -1, withscores=True)
    assert due > fleet.engine.store.now_ms(), "it was its taker's for a while yet"
    redis_client.zadd("lh:hooks", {line: 0})  # that while is over
    wait_until(lambda: len(at.received) == 2)
    wait_until(lambda: not redis_client.exists("lh:hooks"))
    other.stop()
    assert {json.loads(came.body)["session"]["id"] for came in at.received} == {session}
    assert len({came.headers["Leadhand-Delivery"] for came in at.received}) == 1


# The API


@pytest.fixture
def api(store_url: str) -> FlaskClient:
    engine = silent_engine(store_url, secret="s")
    return create_app(Settings(api_token=TOKEN, secret="s"), engine).test_client()


def submit(api: FlaskClient, webhook: object):
    document = {"kind": "loop", "task": "x", "doer": {"command": "true"}, "checkers": ["true"]}
    return api.post(
        "/v1/sessions",
        json={**document, "webhook": webhook},
        headers={"Authorization": f"Bearer {TOKEN}"},
    )


@pytest.mark.parametrize(
    ("webhook", "field", "said"),
    [
        ("https://hooks.example/", "webhook", "object"),
        ({}, "webhook.url", "missing"),
        ({"url": "hooks.example"}, "webhook.url", "cannot be called"),
        ({"url": "http://hooks.example/"}, "webhook.url", "not https"),
        ({"url": "https://127.0.0.1/"}, "webhook.url", "not a public address"),
        ({"url": "https://[::ffff:169.254.169.254]/"}, "webhook.url", "not a public address"),
        ({"url": "https://h.example:6379/"}, "webhook.url", "port 6379"),
        ({"url": "https://h.example/", "events": ["begun"]}, "webhook.events.0", "'ended'"),
        ({"url": "https://h.example/", "events": []}, "webhook.events", "at least 1"),
        ({"url": "https://h.example/", "secret": "h1dden"}, "webhook.secret", "16"),
        ({"url": "https://h.example/", "method": "GET"}, "webhook.method", "no such field"),
    ],
)
def test_a_webhook_that_cannot_be_is_refused_by_its_field(api, webhook, field, said):
    answer = submit(api, webhook)
    assert answer.status_code == 422
    assert answer.json["field"] == field
    assert said in json.dumps(answer.json)
    assert "h1dden" not in answer.text


def test_a_view_shows_neither_the_secret_nor_the_receiver(api):
    answer = submit(api, {"url": "https://h.example/T0KEN", "secret": SECRET})
    assert answer.status_code == 202
    where = answer.headers["Location"]
    for path in (where, f"{where}/events", f"{where}/steps", f"{where}/export", "/v1/sessions"):
        told = api.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
        assert told.status_code == 200, path
        assert SECRET not in told.text
        assert "T0KEN" not in told.text
