"""Bulk actions on all sessions that match the filter of the list."""

from __future__ import annotations

import re

from app.security.api_tokens import Scope
from tests.integration.api.dashboard.conftest import SAME, sign_in
from tests.session_driving import end
from tests.silent_engine import loop


def failed(engine, count: int) -> list[str]:
    made = [str(engine.submit.document(loop(label=f"n{n}")).session) for n in range(count)]
    for session in made:
        end(engine, session, "failed")
    return made


def test_count_comes_first_and_what_changed_is_listed(browser, engine):
    made = failed(engine, 3)
    other = engine.submit.document(loop()).session
    assert "/ui/sessions/bulk" not in browser.get("/ui/sessions").text
    listed = browser.get("/ui/sessions?status=failed").text
    [url] = re.findall(r'href="(/ui/sessions/bulk[^"]*verb=delete)"', listed)
    text = browser.get(url.replace("&amp;", "&")).text
    assert "Delete 3 sessions?" in text
    token = re.findall(r'name="token" value="([^"]+)"', text)[0]
    assert engine.store.ref(made[0]) is not None
    engine.control.apply(made[1], "resume")
    done = browser.post("/ui/sessions/bulk", headers=SAME, data={"verb": "delete", "token": token})
    assert "2 of 3 done" in done.text
    assert f"/ui/sessions/{made[1]}" in done.text
    assert [engine.store.ref(one) is None for one in (*made, other)] == [True, False, True, False]


def test_bulk_without_a_filter_or_a_right_is_refused(app, browser, engine):
    failed(engine, 1)
    assert browser.get("/ui/sessions/bulk?verb=stop").status_code == 422
    assert browser.get("/ui/sessions/bulk?status=failed&verb=destroy").status_code == 422
    made = engine.tokens.create("eve", frozenset({Scope.READ}))
    reader = sign_in(app, made.token)
    assert "/ui/sessions/bulk" not in reader.get("/ui/sessions?status=failed").text
    sent = {"verb": "delete", "token": "b1."}
    assert reader.post("/ui/sessions/bulk", headers=SAME, data=sent).status_code == 403
    assert browser.post("/ui/sessions/bulk", headers=SAME, data=sent).status_code == 422


def test_query_of_the_list_is_the_filter_of_the_bulk_action(browser, engine):
    failed(engine, 3)
    text = browser.get("/ui/sessions/bulk?q=n1&verb=resume").text
    assert "Resume 1 session?" in text


def test_sessions_are_archived_and_restored_in_bulk(browser, engine):
    made = failed(engine, 2)
    at_work = str(engine.submit.document(loop(label="busy")).session)

    def carry_out(query: str, verb: str) -> str:
        url = f"/ui/sessions/bulk?{query}&verb={verb}"
        assert url.replace("&", "&amp;") in browser.get(f"/ui/sessions?{query}").text
        token = re.findall(r'name="token" value="([^"]+)"', browser.get(url).text)[0]
        sent = {"verb": verb, "token": token}
        return str(browser.post("/ui/sessions/bulk", headers=SAME, data=sent).text)

    done = carry_out("kind=loop", "archive")
    assert "2 of 3 done" in done
    assert f"/ui/sessions/{at_work}" in done
    assert {engine.queries.session(one).archived for one in made} == {True}
    assert "2 of 2 done" in carry_out("archived=only", "restore")
    assert {engine.queries.session(one).archived for one in made} == {False}
