"""Events over real HTTP: streams that break off, end, are too slow or too many."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice

import httpx2
import pytest

from leadhand.client.client import Client
from leadhand.models.views.session import SessionView
from tests.http_world import (
    FEW_STREAMS,
    FEW_THREADS,
    HEADERS,
    LOOP,
    TOKEN,
    Served,
    breaking_wire,
    served,
)
from tests.session_driving import add_events, all_events, end
from tests.waiting import wait_until

STREAM = {**HEADERS, "Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def api(module_store_url) -> Iterator[Served]:
    with served(module_store_url) as running:
        yield running


@pytest.fixture(scope="module")
def few(module_store_url) -> Iterator[Served]:
    """An API with as few threads as it may have."""
    with served(module_store_url, threads=FEW_THREADS) as running:
        yield running


def stream(api: Served, session: str, **headers: str) -> str:
    """All that a stream says until it is closed."""
    answer = httpx2.get(
        f"{api.url}/v1/sessions/{session}/events", headers={**STREAM, **headers}, timeout=20
    )
    assert answer.status_code == 200, answer.text
    return answer.text


def frames(text: str) -> list[dict[str, str]]:
    """The frames of a stream's text, without its comments."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[0] != ":")
        if fields:
            found.append(fields)
    return found


def recorded(api: Served, session: str) -> list[tuple[str, str]]:
    """The id and the type of each event of a session."""
    return [(event.id, event.type) for event in all_events(api.engine, session)]


def pairs(told: list[dict[str, str]]) -> list[tuple[str, str]]:
    """The id and the type of each event among these frames."""
    return [(frame["id"], frame["event"]) for frame in told]


def test_a_stream_tells_what_was_then_what_comes_then_the_end(api):
    session = api.submit()
    first, *_ = add_events(api.engine, session, 3)
    before = len(all_events(api.engine, session))
    url = f"{api.url}/v1/sessions/{session}/events"
    with httpx2.stream("GET", url, headers=STREAM) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert answer.headers["Cache-Control"] == "no-store"
        text = ""
        for chunk in answer.iter_text():
            if text.count("\nid:") < before <= (text + chunk).count("\nid:"):
                add_events(api.engine, session, 2)
                end(api.engine, session)
            text += chunk
    told = frames(text)
    assert told[0] == {"retry": "1000"}
    assert pairs(told[1:-1]) == recorded(api, session)
    assert [told[1]["event"], told[-2]["event"]] == ["session.created", "session.ended"]
    written = [json.loads(frame["data"])["fields"].get("n") for frame in told[1:-1]]
    assert [n for n in written if n is not None] == [0, 1, 2, 0, 1]
    assert told[-1]["event"] == "end"
    assert json.loads(told[-1]["data"]) == {"status": "completed"}
    assert "id" not in told[-1]
    [shown] = [json.loads(frame["data"]) for frame in told[1:-1] if frame["id"] == first]
    assert (shown["id"], shown["type"], shown["fields"]) == (first, "step.settled", {"n": 0})


def test_a_stream_of_an_ended_session_ends_at_once(api):
    session = api.submit()
    end(api.engine, session, "failed")
    told = frames(stream(api, session))
    assert told[0].get("event") is None
    assert pairs(told[1:-1]) == recorded(api, session)
    assert [told[1]["event"], told[-2]["event"]] == ["session.created", "session.ended"]
    assert (told[-1]["event"], json.loads(told[-1]["data"])) == ("end", {"status": "failed"})


def test_a_stream_goes_on_after_the_last_event_that_was_seen(api):
    session = api.submit()
    add_events(api.engine, session, 3)
    end(api.engine, session)
    every = frames(stream(api, session))[1:-1]
    rest = frames(stream(api, session, **{"Last-Event-ID": every[1]["id"]}))[1:-1]
    assert rest == every[2:]


def test_a_long_past_is_told_whole_to_whoever_comes_late(api):
    session = api.submit()
    add_events(api.engine, session, 3000)
    past = recorded(api, session)
    assert len(past) > 3000
    with Client(api.url, TOKEN) as client:
        events = client.events(session)
        assert [(event.id, event.type) for event in islice(events, len(past))] == past
        end(api.engine, session)
        rest = [(event.id, event.type) for event in events]
        assert rest == recorded(api, session)[len(past) :]
        assert rest[-1][1] == "session.ended"


def test_whoever_comes_back_too_late_hears_that_something_is_missing(api):
    session = api.submit()
    end(api.engine, session)
    record = recorded(api, session)
    told = frames(stream(api, session, **{"Last-Event-ID": "5-0"}))
    assert told[1]["event"] == "reset"
    mark = json.loads(told[1]["data"])
    assert (mark["first"], mark["session"]["status"]) == (record[0][0], "completed")
    with Client(api.url, TOKEN) as client:
        reset, *events = client.events(session, after="5-0")
        assert (reset.id, reset.type) == ("5-0", "reset")
        assert [(event.id, event.type) for event in events] == record
        assert SessionView.model_validate(reset.fields["session"]) == client.session(session)


def test_a_stream_that_breaks_off_again_and_again_has_neither_gap_nor_double(api):
    session = api.submit()
    count = 120
    with (
        breaking_wire(api.port) as wire,
        Client(wire.url, TOKEN, patience_s=20) as client,
    ):
        wire.break_after = 3000
        seen: list[tuple[str, str]] = []

        def follow() -> None:
            seen.extend((event.id, event.type) for event in client.events(session))

        watcher = threading.Thread(target=follow)
        watcher.start()
        for _ in range(count // 20):
            add_events(api.engine, session, 20)
        end(api.engine, session)
        watcher.join(timeout=25)
        assert seen == recorded(api, session)
        assert len(seen) > count
        assert wire.connections > 3


@pytest.mark.parametrize("path", ["/v1/events", "/v1/sessions/{}/events"])
def test_process_that_ends_says_so_on_its_streams(module_store_url, path):
    with served(module_store_url) as short:
        url = short.url + path.format(short.submit())
        with httpx2.stream("GET", url, headers=STREAM, timeout=20) as answer:
            chunks = answer.iter_text()
            wait_until(lambda: "retry: " in next(chunks))
            short.process.terminate()
            assert 'event: cut\ndata: {"why": "closing"}' in "".join(chunks)
        assert short.process.wait(timeout=8) == 0


def test_process_ends_although_the_client_of_a_stream_reads_no_more(module_store_url):
    with served(module_store_url) as short:
        session = short.submit()
        add_events(short.engine, session, 60, size=200_000)  # more than the buffers take
        with connect_stuck(short, session):
            short.process.terminate()
            assert short.process.wait(timeout=8) == 0  # less than running calls get


def test_more_streams_than_threads_to_spare_are_sent_away(few):
    with ExitStack() as held:
        session = few.submit()
        url = f"{few.url}/v1/sessions/{session}/events"
        for _ in range(FEW_STREAMS):
            opened = held.enter_context(httpx2.stream("GET", url, headers=STREAM))
            assert opened.status_code == 200
        refused = httpx2.get(url, headers=STREAM)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        assert refused.json()["type"].endswith("too-many-streams")
        assert httpx2.get(url, headers=HEADERS).status_code == 200
        end(few.engine, session)
        wait_until(lambda: httpx2.get(url, headers=STREAM).status_code == 200)


def test_a_head_request_takes_no_stream_for_good(few):
    session = few.submit()
    url = f"{few.url}/v1/sessions/{session}/events"
    for _ in range(FEW_STREAMS + 1):
        assert httpx2.head(url, headers=STREAM).status_code == 200


def test_a_client_that_reads_no_more_is_cut_off_and_holds_up_nobody(api):
    session = api.submit()
    with connect_stuck(api, session):
        for _ in range(16):
            add_events(api.engine, session, 200, size=4000)
        record = recorded(api, session)
        assert len(record) > 16 * 200
        with Client(api.url, TOKEN) as client:
            assert list(_all_events(client, session)) == [event for event, _ in record]
        end(api.engine, session)
        assert pairs(frames(stream(api, session))[1:-1]) == recorded(api, session)


@contextmanager
def connect_stuck(api: Served, session: str) -> Iterator[None]:
    """A client of the session's stream that reads its first bytes only."""
    with socket.create_connection(("127.0.0.1", api.port)) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lines = [f"GET /v1/sessions/{session}/events HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in STREAM.items()]
        stuck.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        assert stuck.recv(15) == b"HTTP/1.1 200 OK"
        yield


def _all_events(client: Client, session: str) -> Iterator[str]:
    after: str | None = None
    while True:
        page = client.event_page(session, after=after, limit=500)
        yield from (event.id for event in page.items)
        if page.next is None:
            return
        after = page.next


def test_a_body_that_is_too_large_is_refused_before_it_is_read(api):
    answer = httpx2.post(
        f"{api.url}/v1/sessions",
        headers={**HEADERS, "Content-Type": "application/json"},
        content=b"x" * (4 * 1024 * 1024 + 1),
    )
    assert answer.status_code == 413
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_real_http_tells_of_wrong_methods_and_types_too(api):
    wrong = httpx2.put(f"{api.url}/v1/sessions", headers=HEADERS)
    assert (wrong.status_code, "POST" in wrong.headers["Allow"]) == (405, True)
    untyped = httpx2.post(f"{api.url}/v1/sessions", headers=HEADERS, content=json.dumps(LOOP))
    assert untyped.status_code == 415
