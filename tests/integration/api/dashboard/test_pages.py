"""Pages and actions of the dashboard, as a browser without scripts gets them."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from app.core.outcomes import Outcome
from app.security.api_tokens import Scope
from app.sessions.inbox import list_messages
from tests.flows import flow
from tests.integration.api.dashboard.conftest import HTMX, SAME, sign_in
from tests.session_driving import claim, end, ref_of, run_iteration, settle
from tests.silent_engine import loop
from workers.attempt.settle import park

TABS = (
    "overview", "timeline", "transcript", "changes", "output", "steps", "drawing", "tree", "log",
)  # fmt: skip
PAGES = ("inbox", "sessions", "flows", "plans", "fleet", "economics")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202eevil"


@pytest.mark.parametrize("name", PAGES)
def test_page_loads_nothing_from_elsewhere(browser, name):
    answer = browser.get(f"/ui/{name}")
    assert answer.status_code == 200
    policy = answer.headers["Content-Security-Policy"]
    assert policy == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    found = re.findall(r'(?:src|href)="([^"]*)"', answer.text)
    assert found
    assert not [url for url in found if not url.startswith(("/ui", "#"))]


@pytest.mark.parametrize("tab", TABS)
def test_hostile_text_is_shown_as_text(browser, engine, tab):
    document = loop(task=f"# {HOSTILE}", label=None, checkers=["true"])
    session = engine.submit.document(document).session
    end(engine, session, "completed")
    texts = [
        browser.get(path).text for path in ("/ui/sessions", f"/ui/sessions/{session}?tab={tab}")
    ]
    for text in texts:
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    if tab == "overview":
        assert "&lt;script&gt;" in texts[1]


def test_stale_verdict_and_its_recheck_are_marked_among_the_iterations(browser, engine):
    session = engine.submit.document(loop(checkers=["true"])).session
    settle(engine, session, claim(engine, session))
    work = engine.attempts.work(ref_of(engine, session), claim(engine, session))
    done = Outcome(word="succeeded", verdict="accept")
    (judge,) = engine.attempts.settle(work, done, take=["n"], worker="w1/1").grants
    work = engine.attempts.work(ref_of(engine, session), judge)
    stale = done.model_copy(update={"verdict": "retry", "stale": "accept", "recheck": True})
    engine.attempts.settle(work, stale, take=[], worker="w1/1")
    run_iteration(engine, session)
    page = browser.get(f"/ui/sessions/{session}?tab=overview").text
    assert page.count("<small>recheck</small>") == 1
    assert page.count("accept is stale") == 1


def test_card_of_the_evidence_says_on_what_the_acceptance_is_based(browser, engine):
    session = engine.submit.document(loop(checkers=["true"])).session
    counts = {"passed": 2, "failed": 0, "skipped": 1, "collected": 3}
    checks = [
        {"name": "pytest", "verdict": "accept", "counts": counts, "baseline": "red"},
        {"name": HOSTILE, "verdict": "accept", "baseline": "green", "quarantined": ["a::b"]},
        {"name": "net", "verdict": "retry", "flaky": ["a::c"]},
    ]
    value: Any = {
        "checks": checks,
        "changed": {"files": [f"{n:02}.py" for n in range(25)], "count": 25},
        "tests_changed": ["tests/test_a.py"],
    }
    for _ in range(2):
        settle(engine, session, claim(engine, session), value=value)
    page = browser.get(f"/ui/sessions/{session}?tab=overview").text
    card = html.unescape(page[page.index('"evidence-title"') :].partition("</section>")[0])
    for text in (
        "25 files changed: ", "00.py, 01.py, ", " and 5 more", "2 passed, 1 skipped",
        "red before the work", "green before the work",
        "was green before, so it cannot tell whether anything was done",
        "failed in quarantined tests only: a::b", "flaky, so not counted: net",
        "the doer changed tests: tests/test_a.py",
    ):  # fmt: skip
        assert text in card
    assert "<script>alert" not in page


def test_question_is_answered_in_the_inbox_once(app, browser, engine):
    session = ask(engine)
    text = browser.get("/ui/inbox").text
    assert "Which colour?" in text
    [address] = re.findall(r'name="address" value="([^"]+)"', text)
    sent = {"address": address, "text": "green"}
    first = browser.post(f"/ui/sessions/{session}/answers", data=sent, headers=HTMX)
    assert first.status_code == 200
    assert first.headers["HX-Trigger"] == "leadhand-changed"
    made = engine.tokens.create("bob", frozenset({Scope.READ, Scope.CONTROL}))
    bob = sign_in(app, made.token)
    late = bob.post(f"/ui/sessions/{session}/answers", data=sent | {"text": "red"}, headers=HTMX)
    assert late.status_code == 409
    assert "Somebody was faster" in late.text
    assert "operator" in late.text
    steps = engine.queries.steps(session).items
    assert next(one.answer for one in steps if one.address == address) == {"text": "green"}
    assert engine.attention.count() == 0


def test_token_that_only_reads_sees_no_buttons_and_is_refused(app, engine):
    made = engine.tokens.create("eve", frozenset({Scope.READ}))
    reader = sign_in(app, made.token)
    session = ask(engine)
    failed = engine.submit.document(loop()).session
    end(engine, failed, "failed")
    for path in ("/ui/inbox", f"/ui/sessions/{session}", f"/ui/sessions/{failed}"):
        text = reader.get(path).text
        assert set(re.findall(r'<form[^>]* method="post" action="([^"]+)"', text)) <= {
            "/ui/sign-out",
            f"/ui/sessions/{session}/answers",
        }
        assert "<textarea name" not in text
    for verb in ("stop", "abort", "exit", "resume", "hints", "answers", "delete", "retry"):
        answer = reader.post(f"/ui/sessions/{session}/{verb}", headers=HTMX, data={"text": "x"})
        assert answer.status_code == 403, verb
        assert "control" in answer.text
    assert engine.queries.session(session).status == "waiting"


def test_actions_change_the_session(browser, engine):
    session = engine.submit.document(loop()).session
    for verb, status in (("stop", "stopped"), ("resume", "active"), ("abort", "aborted")):
        answer = browser.post(f"/ui/sessions/{session}/{verb}", headers=HTMX)
        assert answer.status_code == 200, answer.text
        assert engine.queries.session(session).status == status
    gone = browser.post(f"/ui/sessions/{session}/delete", headers=HTMX)
    assert gone.headers["HX-Redirect"] == "/ui/sessions"
    assert browser.get(f"/ui/sessions/{session}").status_code == 404


def test_session_is_renamed_archived_and_restored(browser, engine):
    session = engine.submit.document(loop(task="mend it")).session
    browser.post(f"/ui/sessions/{session}/rename", headers=HTMX, data={"title": "nightly"})
    assert "nightly" in browser.get("/ui/sessions").text
    assert browser.post(f"/ui/sessions/{session}/archive", headers=HTMX).status_code == 409
    end(engine, session, "completed")
    for verb, shown in (("archive", False), ("restore", True)):
        assert (
            f'action="/ui/sessions/{session}/{verb}"' in browser.get(f"/ui/sessions/{session}").text
        )
        assert browser.post(f"/ui/sessions/{session}/{verb}", headers=HTMX).status_code == 200
        assert (session in browser.get("/ui/panels/sessions").text) is shown


def test_drawing_may_style_itself_and_load_nothing(browser, engine):
    session = engine.submit.document(loop()).session
    answer = browser.get(f"/ui/sessions/{session}/drawing.svg")
    assert answer.headers["Content-Type"] == "image/svg+xml"
    policy = answer.headers["Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert answer.text.startswith("<svg")


def test_economics_counts_what_ended(browser, engine):
    assert "Nothing ended in this period" in browser.get("/ui/economics").text
    session = engine.submit.document(loop()).session
    end(engine, session, "completed")
    text = browser.get("/ui/economics?days=30").text
    assert re.search(r"<title>[0-9-]+: 1 completed</title>", text)
    assert "100 %" in text
    for numbers in ("Numbers by day", "Costs by day", "Numbers by agent"):
        assert f"<summary>{numbers}</summary>" in text
    assert "<title>iteration 1: 1 of 1 accepted</title>" in text
    assert "n = 1" in text


def test_refused_action_says_why(browser, engine):
    session = engine.submit.document(loop()).session
    end(engine, session, "completed")
    answer = browser.post(f"/ui/sessions/{session}/resume", headers=HTMX)
    assert answer.status_code == 409
    assert answer.headers["HX-Retarget"] == "#notices"
    assert "completed" in answer.text


def test_exit_needs_a_reason(browser, engine):
    session = engine.submit.document(loop()).session
    answer = browser.post(f"/ui/sessions/{session}/exit", headers=HTMX)
    assert answer.status_code == 422
    done = browser.post(f"/ui/sessions/{session}/exit", headers=HTMX, data={"reason": "enough"})
    assert done.status_code == 200
    assert engine.queries.session(session).reason.text == "enough"


def test_hint_reaches_the_inbox_of_the_session(browser, engine):
    session = engine.submit.document(loop()).session
    sent = browser.post(f"/ui/sessions/{session}/hints", headers=HTMX, data={"text": "look there"})
    assert sent.status_code == 200
    [message] = list_messages(engine, session).items
    assert message.text == "look there"
    assert message.sender == "operator"


def test_matrix_opens_the_feedback_of_each_checker(browser, engine):
    session = engine.submit.document(loop(max_iterations=2)).session
    run_iteration(engine, session, "retry")
    text = browser.get(f"/ui/sessions/{session}").text
    [url] = set(re.findall(r'hx-get="(/ui/sessions/\w+/iterations/0)"', text))
    assert "Iteration 1" in browser.get(url).text
    assert browser.get(url.replace("/0", "/7")).status_code == 404


def test_question_shows_what_was_said_before_it(browser, engine):
    session = engine.submit.document(loop()).session
    for _ in range(3):
        run_iteration(engine, session, "retry")
    said = engine.queries.transcript(session, limit=100).items
    text = browser.get(f"/ui/sessions/{session}/newest").text
    assert text.count('<li class="said') == min(4, len(said)) > 0
    assert said[-1].address in text or said[-1].label in text
    asking = ask(engine)
    inbox = browser.get("/ui/inbox").text
    [url] = re.findall(rf'hx-get="(/ui/sessions/{asking}/newest[^"]*)"', inbox)
    assert "Nothing was said" in browser.get(url).text


def test_list_filters_by_the_address(browser, engine):
    done = engine.submit.document(loop(label="blue")).session
    end(engine, done, "completed")
    failed = engine.submit.document(loop(label="red")).session
    end(engine, failed, "failed")
    listed = {
        query: {one for one in (done, failed) if f"/ui/sessions/{one}" in page.text}
        for query in ("", "status=failed", "q=blue", "kind=plan", "status=failed&q=blue")
        if (page := browser.get(f"/ui/panels/sessions?{query}"))
    }
    assert listed == {
        "": {done, failed},
        "status=failed": {failed},
        "q=blue": {done},
        "kind=plan": set(),
        "status=failed&q=blue": set(),
    }
    found = browser.get(f"/ui/sessions?q={failed}")
    assert found.headers["Location"] == f"/ui/sessions/{failed}"


def test_unknown_page_and_unknown_session_are_pages(browser):
    for path in ("/ui/nothing", "/ui/sessions/0000dead", "/ui/plans/0000dead"):
        answer = browser.get(path)
        assert answer.status_code == 404
        assert "To the inbox" in answer.text


def test_emptied_store_is_a_page_too(browser, engine):
    engine.store._redis.flushall()
    assert browser.get("/ui/inbox").status_code in (401, 503)


def ask(engine, **rules) -> str:
    """A session that waits for the answer to a question."""
    step = {"type": "human", "label": "ask", "question": "Which colour?", **rules}
    session = str(engine.submit.document(flow(step)).session)
    work = engine.attempts.work(ref_of(engine, session), claim(engine, session))
    assert park(engine, work) is None
    return session


def test_form_of_a_question_names_the_field_that_does_not_fit(browser, engine):
    form = {
        "type": "object",
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 5, "title": "Size"},
            "colours": {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}},
            "sure": {"type": "boolean"},
            "why": {"type": "object", "properties": {"text": {"type": "string"}}},
        },
        "required": ["size"],
    }
    session = ask(engine, form=form)
    text = browser.get("/ui/inbox").text
    assert set(re.findall(r'name="(field[^"]+)"', text)) == {
        "field.size", "field.colours", "field.sure", "field.why.text",
    }  # fmt: skip
    path = f"/ui/sessions/{session}/answers"
    refused = browser.post(path, headers=HTMX, data={"field.size": "9"})
    assert refused.status_code == 422
    assert "fields.size" in refused.text
    good = {"field.size": "3", "field.colours": ["red", "blue"], "field.why.text": "so"}
    assert browser.post(path, headers=HTMX, data=good).status_code == 200
    [answer] = [one.answer for one in engine.queries.steps(session).items if one.answer]
    assert answer["fields"] == {
        "size": 3, "colours": ["red", "blue"], "sure": False, "why": {"text": "so"},
    }  # fmt: skip


def test_signed_out_reader_sees_nothing_of_a_session(stranger, engine):
    session = engine.submit.document(loop(label="secret-plan")).session
    for path in (f"/ui/sessions/{session}", "/ui/sessions", "/ui/panels/badge", "/ui/stream"):
        answer = stranger.get(path, headers=SAME)
        assert answer.status_code == 401
        assert "secret-plan" not in answer.text


def test_final_actions_ask_before_they_are_sent(browser, engine):
    session = engine.submit.document(loop()).session
    text = browser.get(f"/ui/sessions/{session}").text
    [abort] = re.findall(r'<form[^>]*id="do-abort"[^>]*>', text)
    assert 'hx-confirm="Abort session' in abort
    end(engine, session, "completed")
    [delete] = re.findall(
        r'<form[^>]*id="do-delete"[^>]*>', browser.get(f"/ui/sessions/{session}").text
    )
    assert 'hx-confirm="Delete session' in delete


def test_file_of_a_diff_that_is_not_there_is_no_page(browser, engine):
    session = engine.submit.document(loop()).session
    assert browser.get(f"/ui/sessions/{session}/diffs/7/files/0").status_code == 404
