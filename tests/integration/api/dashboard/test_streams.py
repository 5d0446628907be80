"""The streams of all routes: their number, their end, and what changes while one begins."""

from __future__ import annotations

from api import create_app
from api.dashboard.access import Access, Hosts
from api.dashboard.routes import make_browsers
from app.settings import Settings
from tests.integration.api.dashboard.conftest import SAME, sign_in
from tests.session_driving import add_event
from tests.silent_engine import OPERATOR, SECRET, loop, silent_engine

STREAM = {"Authorization": f"Bearer {OPERATOR}", "Accept": "text/event-stream"}
SETTINGS = Settings(api_token=OPERATOR, secret=SECRET)


def test_streams_of_all_routes_share_one_limit_and_end_with_the_process(engine):
    app = create_app(SETTINGS, engine, streams=3)
    session = engine.submit.document(loop()).session
    paths = {"/ui/stream": SAME, "/v1/events": STREAM, f"/v1/sessions/{session}/events": STREAM}
    browser = sign_in(app, OPERATOR)
    opened = [browser.get(path, headers=headers) for path, headers in paths.items()]
    assert [one.status_code for one in opened] == [200] * 3
    for path, headers in paths.items():
        assert browser.get(path, headers=headers).status_code == 503
    opened[0].close()
    again = browser.get("/v1/events", headers=STREAM)
    assert again.status_code == 200
    app.end_streams()
    rest = [one.get_data(as_text=True) for one in (opened[1], again)]
    assert all('event: cut\ndata: {"why": "closing"}' in text for text in rest)
    for one in (*opened[1:], again):
        one.close()
    last = browser.get("/ui/stream", headers=SAME)
    assert last.get_data(as_text=True).endswith("event: hello\ndata: {}\n\n")
    last.close()


def test_change_after_the_first_event_is_sent(app, browser, engine):
    answer = browser.get("/ui/stream", headers=SAME)
    chunks = iter(answer.response)
    assert b"event: hello" in next(chunks)
    engine.submit.document(loop())
    assert next(chunks) == b'event: changed\ndata: ["sessions"]\n\n'
    answer.close()


def test_stream_watches_the_sessions_of_all_tabs(browser, engine):
    first, second, other = (engine.submit.document(loop()).session for _ in range(3))
    asked = f"session={first}&session={second}&session={first}&session=0000dead"
    answer = browser.get(f"/ui/stream?{asked}", headers=SAME)
    chunks = iter(answer.response)
    assert b"event: hello" in next(chunks)
    for session in (other, first, second):
        add_event(engine, session)
        if session != other:
            assert next(chunks) == f'event: changed\ndata: ["session:{session}"]\n\n'.encode()
    answer.close()


def test_browser_stays_signed_in_while_redis_is_away(browser):
    cookie = browser.get_cookie("leadhand").value
    away = silent_engine("redis://127.0.0.1:1/0", secret=SECRET)
    access = Access(make_browsers(SETTINGS, away), Hosts(SETTINGS))
    assert access._still(cookie)
