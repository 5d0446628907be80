"""Long records on a real Redis: the export is complete, and a trimmed record has a mark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from app.core.program import Program
from app.engine import Engine
from leadhand.client.client import Client
from leadhand.models.views.result import ExportView
from leadhand.models.views.session import SessionView
from tests.integration.api.test_api_process import LOOP, TOKEN, running
from tests.silent_engine import loop, silent_engine

Shown = dict[str, Any]


@pytest.fixture
def engine(store_url) -> Engine:
    return silent_engine(store_url)


@pytest.fixture
def client(tmp_path, store_url, broker_url) -> Iterator[Client]:
    served = running(tmp_path, store_url, LEADHAND_BROKER_URL=broker_url)
    with served as url, Client(url, TOKEN) as client:
        yield client


def key(session: str) -> str:
    return f"lh:{{{session}}}:{session}:events"


def emit(redis: Any, session: str, count: int) -> None:
    """Write events as the scripts do."""
    for n in range(count):
        fields = {"t": "step.settled", "at": n, "a": "loop~1[1]/do", "d": json.dumps({"n": n})}
        redis.xadd(key(session), fields)


def test_an_export_holds_all_of_a_long_record(engine, redis_client):
    session = engine.submit.document(loop(label="nightly")).session
    emit(redis_client, session, 2500)
    exported = engine.queries.export(session)
    ids = [event.id for event in exported.events]
    assert ids == [i for i, _ in redis_client.xrange(key(session))]
    assert len(set(ids)) == len(ids) > 2500
    assert [step.address for step in exported.steps] == ["loop~1[1]/do"]
    at_rest: dict[str, Any] = {"budget": {}, "progress": None}  # their clocks keep running
    assert exported.session.model_copy(update=at_rest) == engine.queries.session(
        session
    ).model_copy(update=at_rest)
    assert exported.result is None
    assert Program.model_validate(exported.program).body[0].id == "loop"


def test_an_export_tells_no_key_that_its_task_holds(engine):
    session = engine.submit.document(loop(task="use sk-inputsecret12345")).session
    exported = engine.queries.export(session)
    assert "sk-inputsecret12345" not in exported.model_dump_json()
    assert "use [redacted]" in json.dumps(exported.program)


def test_an_export_of_what_has_ended_says_how(engine):
    session = engine.submit.document(loop()).session
    engine.control.apply(session, "abort", reason="enough")
    exported = engine.queries.export(session)
    assert exported.result == engine.queries.result(session)
    read = ExportView.model_validate_json(exported.model_dump_json())
    assert read.result is not None
    assert (read.format, read.result.status) == ("leadhand.export/1", "aborted")


@pytest.mark.slow
def test_whoever_comes_after_the_record_was_trimmed_hears_so_first(client, redis_client):
    session = client.submit(LOOP).id
    emit(redis_client, session, 30)
    seen = client.event_page(session, limit=5).items[-1].id
    redis_client.xtrim(key(session), maxlen=10, approximate=False)
    kept = [i for i, _ in redis_client.xrange(key(session))]
    told = [follows(client, session, after) for after in (None, seen, kept[0])]
    view = client.session(session).model_dump(mode="json")
    for events, after in zip(told[:2], ("0-0", seen), strict=True):
        assert (events[0]["type"], events[0]["id"]) == ("reset", after)
        assert SessionView.model_validate(events[0]["fields"]["session"]).id == view["id"]
        assert [event["id"] for event in events[1:]] == kept
    assert [event["id"] for event in told[2]] == kept[1:]


def follows(client: Client, session: str, after: str | None) -> list[Shown]:
    """What a stream brings up to the event that is the last for now."""
    last = client.event_page(session, limit=500).items[-1].id
    events: list[Shown] = []
    for event in client.events(session, after):
        events.append(event.model_dump())
        if event.id == last:
            return events
    return events
