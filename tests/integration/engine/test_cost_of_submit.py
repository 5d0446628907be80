"""A submit over REST takes few round trips to Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis

from api.application import create_app
from app.core.addresses import SessionRef
from app.core.program import Program
from app.core.records import Hint
from app.engine import Engine
from app.settings import Settings
from app.store.store import Store, connect
from benchmarks.cost import Queue

pytestmark = pytest.mark.no_cover

TOKEN = "t0ken"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
DOCUMENT = {"kind": "loop", "task": "t", "checkers": ["true"], "doer": {"command": "true"}}


class ClaimingQueue(Queue):
    """Claims each step that it gets at once, if it has a worker."""

    claim: Callable[[SessionRef, str], object] | None = None

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:
        super().publish(ref, program, hints)
        for hint in hints if self.claim else ():
            assert self.claim is not None
            self.claim(ref, hint.address)


@pytest.fixture
def queue() -> ClaimingQueue:
    return ClaimingQueue()


@pytest.fixture
def engine(store_url: str, queue: ClaimingQueue) -> Engine:
    found = Engine(Store(connect(store_url)), queue, Settings(redis_url=store_url, secret="s"))
    found.guard.check()
    return found


@pytest.fixture
def client(engine: Engine) -> Iterator[FlaskClient]:
    app = create_app(engine.settings.model_copy(update={"api_token": TOKEN}), engine)
    yield app.test_client()
    app.fanout.close()


def submit(client: FlaskClient, key: str) -> dict[str, Any]:
    headers = {**HEADERS, "Idempotency-Key": key}
    response = client.post("/v1/sessions", headers=headers, json=DOCUMENT)
    assert response.status_code == 202, response.text
    found: dict[str, Any] = response.get_json()
    return found


def test_a_submit_over_rest_takes_three_round_trips_to_the_store(
    store_url: str, client: FlaskClient
) -> None:
    """It compares the store and reads the workers, creates the session, and reads its view."""
    submit(client, "first")  # connections are opened and the program is stored
    trips = []
    with Redis.from_url(store_url, decode_responses=True) as redis:
        for key in ("second", "third", "fourth"):
            before = redis.info("stats")["total_reads_processed"]
            submit(client, key)
            trips.append(redis.info("stats")["total_reads_processed"] - before)
    assert min(trips) - 1 == 3, trips  # one is that of the counter; a slow submit may be read twice


def without_times(view: Mapping[str, Any]) -> dict[str, Any]:
    """A view without the times that pass."""
    fixed = {name: value for name, value in view.items() if name != "budget"}
    return fixed | {"progress": {**view["progress"], "elapsed_s": None}}


def test_the_view_of_a_new_session_is_that_of_a_later_read(client: FlaskClient) -> None:
    view = submit(client, "one")
    read = client.get(f"/v1/sessions/{view['id']}", headers=HEADERS).get_json()
    again = submit(client, "one")
    assert without_times(view) == without_times(read) == without_times(again)


def test_the_view_of_a_new_session_has_a_step_that_began_at_once(
    engine: Engine, queue: ClaimingQueue, client: FlaskClient
) -> None:
    """A worker may claim the first step before the view is read."""
    queue.claim = lambda ref, address: engine.attempts.claim(ref, address, nonce="n", worker="w1")
    view = submit(client, "one")
    assert [step["worker"] for step in view["progress"]["running"]] == ["w1"]
