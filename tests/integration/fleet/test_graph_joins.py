"""The join of a graph travels as the body of a Celery chord; a lost one only delays its step."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.records import Reply
from app.engine import Engine
from app.settings import Settings
from app.store.store import Store, connect
from app.sweep import sweep
from leadhand.graphs.documents import GraphDocument
from tasks.canvas import Canvas, SettledBackend, remember, split_canvas
from tasks.celery_app import make_celery
from tasks.steps import register
from tests.integration.fleet.test_sending import Request, taken

PARTS = ("a", "b", "c")
STEPS = [*({"name": name, "tool": "echo"} for name in PARTS),
         {"name": "report", "tool": "echo", "depends_on": PARTS}]  # fmt: skip


class Session:
    """A graph session whose messages go through a real broker, and whose clock the test winds."""

    def __init__(self, store_url: str, broker_url: str, broker: redis.Redis) -> None:
        self.now = 1_000_000
        self.celery = make_celery(Settings(broker_url=broker_url))
        register(self.celery)
        store = Store(connect(store_url), clock=lambda: self.now)
        self.engine = Engine(store, Canvas(self.celery), Settings(redis_url=store_url, secret="s"))
        self.broker = broker
        document = GraphDocument.model_validate({"steps": STEPS})
        self.id = self.engine.submit.document(document).session
        self.ref = SessionRef(self.id, self.id)

    def messages(self) -> dict[str, Any]:
        """The messages that are at the broker, by address; they are taken off."""
        return {message["body"][0][2]: message for _, message in taken(self.broker)}

    def carry_out(self, address: str) -> Reply:
        """Claim and settle a step."""
        attempts, nonce = self.engine.attempts, uuid.uuid4().hex
        (grant,) = attempts.claim(self.ref, address, nonce=nonce, worker="w").grants
        work = attempts.work(self.ref, grant)
        return attempts.settle(work, Outcome(word="succeeded", value=1), take=[], worker="w")


@pytest.fixture
def session(store_url: str, broker_url: str, broker_client: redis.Redis) -> Iterator[Session]:
    session = Session(store_url, broker_url, broker_client)
    yield session
    session.engine.store.close()


def send_join(celery: Celery, message: Any, answer: Reply) -> None:
    """What a worker does after a step that came in a chord."""
    request: Any = Request(message)
    onward = split_canvas(request, celery, answer.hints)
    assert (onward.letters, onward.rest) == ([], [])  # the backend sends the join, once
    remember(request, answer.hints)
    SettledBackend(celery).on_chord_part_return(request)


def test_a_join_is_sent_as_the_body_of_a_chord_and_its_loss_delays_it_only(
    session: Session,
) -> None:
    header = session.messages()
    assert header.keys() == set(PARTS)
    assert {one["body"][2]["chord"]["args"][2] for one in header.values()} == {"report"}
    for name in PARTS:
        assert session.messages() == {}  # only the last arrival sends the join
        send_join(session.celery, header[name], session.carry_out(name))
    assert session.messages().keys() == {"report"}  # taken off: the message is lost

    sweep(session.engine)
    assert session.messages() == {}
    session.now += 3_100
    sweep(session.engine)
    assert session.messages().keys() == {"report"}
    session.carry_out("report")
    result = session.engine.queries.result(session.id)
    assert (result.status, result.results["report"]) == ("completed", 1)
