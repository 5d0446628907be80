"""Events over real HTTP: streams that break off, end, are too slow or too many."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx2
import pytest

from leadhand.client import Client
from leadhand.views import SessionView
from tests.http_world import HEADERS, LOOP, Served, breaking_wire, served
from tests.serve_memory import TOKEN
from tests.waiting import wait_until

STREAM = {**HEADERS, "Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with served() as running:
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


def test_a_stream_tells_what_was_then_what_comes_then_the_end(api):
    session = api.submit()
    api.move(f"tell/{session}/3")
    url = f"{api.url}/v1/sessions/{session}/events"
    with httpx2.stream("GET", url, headers=STREAM) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert answer.headers["Cache-Control"] == "no-store"
        text = ""
        for chunk in answer.iter_text():
            if text.count("\nid:") < 4 <= (text + chunk).count("\nid:"):
                api.move(f"tell/{session}/2")
                api.move(f"end/{session}/completed")
            text += chunk
    told = frames(text)
    assert told[0] == {"retry": "1000"}
    assert [frame["event"] for frame in told[1:]] == [
        "session.created",
        *["step.settled"] * 5,
        "session.completed",
        "end",
    ]
    assert json.loads(told[-1]["data"]) == {"status": "completed"}
    assert "id" not in told[-1]
    first = json.loads(told[2]["data"])
    assert (first["id"], first["fields"]) == (told[2]["id"], {"n": 0})


def test_a_stream_of_an_ended_session_ends_at_once(api):
    session = api.submit()
    api.move(f"end/{session}/failed")
    told = frames(stream(api, session))
    assert [frame.get("event") for frame in told] == [
        None, "session.created", "session.failed", "end",
    ]  # fmt: skip


def test_a_stream_goes_on_after_the_last_event_that_was_seen(api):
    session = api.submit()
    api.move(f"tell/{session}/3")
    api.move(f"end/{session}/completed")
    every = frames(stream(api, session))[1:-1]
    rest = frames(stream(api, session, **{"Last-Event-ID": every[1]["id"]}))[1:-1]
    assert rest == every[2:]


def test_a_long_past_is_told_whole_to_whoever_comes_late(api):
    session = api.submit()
    api.move(f"tell/{session}/3000")
    with Client(api.url, TOKEN) as client:
        events = client.events(session)
        assert len([next(events) for _ in range(3001)]) == 3001
        api.move(f"end/{session}/completed")
        assert [event.type for event in events] == ["session.completed"]


def test_whoever_comes_back_too_late_hears_that_something_is_missing(api):
    session = api.submit()
    api.move(f"end/{session}/completed")
    told = frames(stream(api, session, **{"Last-Event-ID": "5-0"}))
    assert told[1]["event"] == "reset"
    mark = json.loads(told[1]["data"])
    assert (mark["first"], mark["session"]["status"]) == ("1000-0", "completed")
    with Client(api.url, TOKEN) as client:
        events = list(client.events(session, after="5-0"))
        assert [event.type for event in events] == ["reset", "session.created", "session.completed"]
        assert events[0].id == "5-0"
        assert SessionView.model_validate(events[0].fields["session"]) == client.session(session)


def test_a_stream_that_breaks_off_again_and_again_has_neither_gap_nor_double(api):
    session = api.submit()
    count = 120
    with (
        breaking_wire(api.port) as wire,
        Client(wire.url, TOKEN, patience_s=20) as client,
    ):
        wire.break_after = 3000
        seen: list[object] = []

        def follow() -> None:
            seen.extend(event.fields["n"] for event in client.events(session) if event.address)

        watcher = threading.Thread(target=follow)
        watcher.start()
        for _ in range(count // 20):
            api.move(f"tell/{session}/20")
        api.move(f"end/{session}/completed")
        watcher.join(timeout=25)
        assert seen == list(range(20)) * (count // 20)
        assert wire.connections > 3


def test_a_process_that_goes_down_lets_its_streams_go(api):
    with served() as short:
        session = short.submit()
        with httpx2.stream(
            "GET", f"{short.url}/v1/sessions/{session}/events", headers=STREAM, timeout=20
        ) as answer:
            chunks = answer.iter_text()
            wait_until(lambda: "session.created" in next(chunks))
            short.process.send_signal(signal.SIGTERM)
            assert "event: end" not in "".join(chunks)
        short.process.wait(timeout=8)


def test_more_streams_than_threads_to_spare_are_sent_away():
    with served(threads=6, streams=2) as small, ExitStack() as held:
        session = small.submit()
        url = f"{small.url}/v1/sessions/{session}/events"
        for _ in range(2):
            opened = held.enter_context(httpx2.stream("GET", url, headers=STREAM))
            assert opened.status_code == 200
        refused = httpx2.get(url, headers=STREAM)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        assert refused.json()["type"].endswith("too-many-streams")
        assert httpx2.get(url, headers=HEADERS).status_code == 200
        small.move(f"end/{session}/completed")
        wait_until(lambda: httpx2.get(url, headers=STREAM).status_code == 200)


def test_a_head_request_takes_no_stream_for_good():
    with served(threads=6, streams=1) as small:
        session = small.submit()
        url = f"{small.url}/v1/sessions/{session}/events"
        for _ in range(3):
            assert httpx2.head(url, headers=STREAM).status_code == 200


def test_a_client_that_reads_no_more_is_cut_off_and_holds_up_nobody(api):
    session = api.submit()
    with socket.create_connection(("127.0.0.1", api.port)) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lines = [f"GET /v1/sessions/{session}/events HTTP/1.1", "Host: x"]
        lines += [f"{name}: {value}" for name, value in STREAM.items()]
        stuck.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        assert stuck.recv(15) == b"HTTP/1.1 200 OK"
        for _ in range(16):
            api.move(f"tell/{session}/200", size=4000)
        with Client(api.url, TOKEN) as client:
            pages = list(_all_events(client, session))
        assert len(pages) == 1 + 16 * 200
        api.move(f"end/{session}/completed")
        assert len(frames(stream(api, session))) == 1 + len(pages) + 2


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
