"""The list of sessions: its filters, saved views, and the actions of a row."""

from __future__ import annotations

import re

import pytest

from app.security.api_tokens import Scope
from app.store.tokens import VIEWS
from tests.integration.api.dashboard.conftest import HTMX, SAME, sign_in
from tests.session_driving import end
from tests.silent_engine import loop

ACTION = re.compile(r'action="/ui/sessions/(\w+)/(\w+)"')


def ended(engine, **fields: str) -> str:
    session = str(engine.submit.document(loop(**fields)).session)
    end(engine, session, "completed")
    return session


def save(browser, name: str, address: str) -> None:
    sent = {"name": name, "address": address}
    answer = browser.post("/ui/views", data=sent, headers=SAME)
    assert answer.headers["Location"].startswith("/ui/sessions?"), answer.text


def test_archived_sessions_are_listed_where_they_are_asked_for(browser, engine):
    kept, hidden = ended(engine), ended(engine)
    engine.annotations.annotate(hidden, archived=True)
    listed = {
        query: {one for one in (kept, hidden) if one in browser.get(f"/ui/sessions?{query}").text}
        for query in ("", "archived=no", "archived=any", "archived=only", "archived=nonsense")
    }
    assert listed == {
        "": {kept},
        "archived=no": {kept},
        "archived=any": {kept, hidden},
        "archived=only": {hidden},
        "archived=nonsense": {kept},
    }


def test_row_has_the_actions_that_its_status_allows(browser, engine):
    active = str(engine.submit.document(loop()).session)
    done, hidden = ended(engine), ended(engine)
    engine.annotations.annotate(hidden, archived=True)
    found = set(ACTION.findall(browser.get("/ui/panels/sessions?archived=any").text))
    assert found == {
        (active, "rename"),
        *((done, verb) for verb in ("rename", "archive", "delete")),
        *((hidden, verb) for verb in ("rename", "restore", "delete")),
    }
    answer = browser.post(f"/ui/sessions/{done}/delete", data={"stay": "1"}, headers=HTMX)
    assert "HX-Redirect" not in answer.headers
    assert f"Session {done} is deleted" in answer.text
    assert engine.store.ref(done) is None


def test_reader_has_no_actions_in_the_list_but_views_of_its_own(app, browser, engine):
    ended(engine, label="blue")
    reader = sign_in(app, engine.tokens.create("eve", frozenset({Scope.READ})).token)
    save(browser, "of the operator", "status=failed")
    save(reader, "of eve", "q=blue")
    text = reader.get("/ui/sessions").text
    assert ACTION.findall(text) == []
    assert "of eve" in text
    assert "of the operator" not in text


def test_saved_view_opens_its_filters_until_it_is_deleted(browser):
    save(browser, "blue & failed", "status=failed&status=stopped&q=blue&kind=loop&other=1")
    text = browser.get("/ui/sessions").text
    [url] = re.findall(r'href="([^"]+)">blue &amp; failed<', text)
    assert url == "/ui/sessions?status=failed&amp;status=stopped&amp;kind=loop&amp;q=blue"
    shown = browser.get(url.replace("&amp;", "&")).text
    assert 'aria-current="page">blue &amp; failed' in shown
    assert "Save this view" not in shown
    sent = {"name": "blue & failed"}
    assert browser.post("/ui/views/drop", data=sent, headers=SAME).status_code == 303
    assert "blue &amp; failed" not in browser.get("/ui/sessions").text


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"name": " ", "address": "status=failed"}, "name"),
        ({"name": "all", "address": ""}, "address"),
        ({"name": "all", "address": "status=nonsense"}, "address"),
    ],
)
def test_view_without_a_name_or_filters_is_refused(browser, sent, field):
    answer = browser.post("/ui/views", data=sent, headers=HTMX)
    assert answer.status_code == 422
    assert field in answer.text


def test_number_of_saved_views_is_limited(browser):
    for number in range(VIEWS):
        save(browser, f"view {number}", "status=failed")
    sent = {"name": "one more", "address": "status=failed"}
    refused = browser.post("/ui/views", data=sent, headers=HTMX)
    assert refused.status_code == 409
    assert f"you have {VIEWS} saved views; delete one first" in refused.text
    save(browser, "view 0", "status=stopped")
    text = browser.get("/ui/sessions").text
    assert len(re.findall(r">view \d+<", text)) == VIEWS
    assert 'href="/ui/sessions?status=stopped">view 0<' in text
