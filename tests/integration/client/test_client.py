"""The client against a real API, over wires and stores that fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from leadhand.client.client import Client
from leadhand.errors import (
    ApiAway,
    BatchStopped,
    ControlRefused,
    IdempotencyConflict,
    RequestInvalid,
    SessionStillRuns,
    SessionUnknown,
    TokenRefused,
    Unavailable,
    WaitTimedOut,
)
from leadhand.models.documents import LoopDocument
from tests.http_world import LOOP, TOKEN, Served, breaking_wire, served
from tests.session_driving import add_worker, claim, end, settle


@pytest.fixture(scope="module")
def api(module_store_url) -> Iterator[Served]:
    with served(module_store_url) as running:
        yield running


@pytest.fixture
def client(api) -> Iterator[Client]:
    with Client(api.url, TOKEN) as client:
        yield client


def test_a_session_from_its_submit_to_its_end(api, client):
    session = client.submit(LoopDocument.model_validate(LOOP)).id
    assert client.session(session).status == "active"
    with pytest.raises(SessionStillRuns) as still:
        client.result(session)
    assert still.value.problem.session_status == "active"
    assert client.ledger(session).items == []
    assert [step.state for step in client.steps(session).items] == ["ready"]
    end(api.engine, session)
    assert client.wait(session).verdict == "accept"
    assert [step.state for step in client.steps(session).items] == ["succeeded"] * 3
    assert [entry.verdict for entry in client.ledger(session).items] == ["accept"]
    assert [event.type for event in client.events(session)][-1] == "session.ended"
    client.delete(session)
    with pytest.raises(SessionUnknown):
        client.session(session)


def test_a_session_is_steered(api, client):
    session = client.submit(LOOP).id
    running = claim(api.engine, session)
    assert client.stop(session).status == "stopping"
    with pytest.raises(ControlRefused) as refused:
        client.stop(session)
    assert refused.value.status == 409
    settle(api.engine, session, running)
    assert client.session(session).status == "stopped"
    assert client.resume(session, max_iterations=5).status == "active"
    claim(api.engine, session)
    assert client.exit(session, "the spec is wrong").status == "exiting"
    assert client.abort(session, "enough").status == "aborting"


def test_later_request_of_many_documents_that_fails_loses_no_session(client):
    documents = [{**LOOP, "task": f"t{number}"} for number in range(102)]
    with pytest.raises(BatchStopped, match=r"^items\.101: max_iterations") as stopped:
        client.submit_many([*documents[:101], {**LOOP, "max_iterations": -1}])
    assert len(stopped.value.items) == 100
    assert isinstance(stopped.value.__cause__, RequestInvalid)
    again = client.submit_many(documents, stopped.value.keys)
    assert [one.session for one in again[:100]] == [one.session for one in stopped.value.items]
    assert [one.created for one in again] == [False] * 100 + [True] * 2


def test_problems_of_later_requests_have_the_numbers_of_their_documents(client):
    many = [*[LOOP] * 100, {**LOOP, "max_iterations": -1}]
    found = client.submit_many(many, mode="each")
    assert found[100].problem is not None
    assert found[100].problem.errors[0].field == "items.100.document.max_iterations"
    with pytest.raises(RequestInvalid):
        client.submit_many(many[100:])


def test_lists_come_in_pages(api, client):
    add_worker(api.engine, "w1")
    for _ in range(3):
        client.submit(LOOP)
    first = client.sessions(limit=2, status="active")
    rest = client.sessions(limit=2, status="active", cursor=first.next)
    assert not {s.id for s in first.items} & {s.id for s in rest.items}
    assert [worker.name for worker in client.workers()] == ["w1"]


def test_each_submit_is_a_session_of_its_own_unless_the_key_says_otherwise(client):
    assert client.submit(LOOP).id != client.submit(LOOP).id
    assert client.submit(LOOP, "mine").id == client.submit(LOOP, "mine").id
    with pytest.raises(IdempotencyConflict):
        client.submit({**LOOP, "task": "another"}, "mine")


def test_what_cannot_be_run_is_told_field_by_field(client):
    with pytest.raises(RequestInvalid) as caught:
        client.submit({"kind": "loop", "task": "x", "checkers": [], "zap": 1})
    assert [error.field for error in caught.value.problem.errors] == ["checkers", "zap"]
    assert "checkers" in str(caught.value)


def test_a_wrong_token_is_refused_at_once(api):
    with Client(api.url, "wrong") as stranger, pytest.raises(TokenRefused):
        stranger.sessions()


@pytest.mark.parametrize("session", ["nope", "../workers", "a/b", "0000000g", ""])
def test_an_id_that_cannot_be_one_is_unknown(client, session):
    with pytest.raises(SessionUnknown):
        client.result(session)
    with pytest.raises(SessionUnknown):
        next(client.events(session))


def test_a_wait_that_takes_too_long_says_so(client):
    session = client.submit(LOOP).id
    with pytest.raises(WaitTimedOut) as caught:
        client.wait(session, timeout=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.status == "active"


def test_a_store_that_comes_back_is_waited_for(api, client):
    api.wire.cut()
    back = threading.Timer(0.5, api.wire.heal)
    back.start()
    try:
        assert client.submit(LOOP).status == "active"
    finally:
        back.join()


def test_a_store_that_stays_away_is_told_of(api):
    api.wire.cut()
    try:
        with Client(api.url, TOKEN, patience_s=0.5) as client, pytest.raises(Unavailable) as caught:
            client.ping()
        assert caught.value.status == 503
    finally:
        api.wire.heal()


def test_an_api_that_is_not_there_is_told_of():
    with Client("http://127.0.0.1:9", "x", patience_s=0.3) as client, pytest.raises(ApiAway) as e:
        client.sessions()
    assert "127.0.0.1:9" in str(e.value)


def test_a_submit_whose_answer_was_lost_makes_one_session(api, client):
    before = len(client.sessions(limit=500).items)
    with breaking_wire(api.port) as wire, Client(wire.url, TOKEN) as unlucky:
        wire.break_after = 5
        healed = threading.Timer(0.25, setattr, args=[wire, "break_after", None])
        healed.start()
        session = unlucky.submit(LOOP)
        healed.join()
        assert wire.connections > 1
    assert len(client.sessions(limit=500).items) == before + 1
    assert client.session(session.id).id == session.id


@pytest.mark.parametrize(("verb", "status"), [("stop", "stopping"), ("abort", "aborting")])
def test_a_control_whose_answer_was_lost_is_not_called_refused(api, client, verb, status):
    session = client.submit(LOOP).id
    claim(api.engine, session)
    with breaking_wire(api.port) as wire, Client(wire.url, TOKEN) as unlucky:
        wire.break_after = 5
        healed = threading.Timer(0.25, setattr, args=[wire, "break_after", None])
        healed.start()
        assert getattr(unlucky, verb)(session).status == status
        healed.join()


def test_a_delete_whose_answer_was_lost_is_not_called_unknown(api, client):
    session = client.submit(LOOP).id
    end(api.engine, session)
    with breaking_wire(api.port) as wire, Client(wire.url, TOKEN) as unlucky:
        wire.break_after = 5
        healed = threading.Timer(0.25, setattr, args=[wire, "break_after", None])
        healed.start()
        unlucky.delete(session)
        healed.join()


def test_the_environment_says_where_the_api_is(api, monkeypatch):
    monkeypatch.setenv("LEADHAND_URL", api.url)
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
    with Client() as client:
        client.ping()


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(api, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with Client(api.url, TOKEN, patience_s=0.1) as client:
        client.ping()
