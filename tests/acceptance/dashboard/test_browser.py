"""The dashboard in a real browser: each click's effect is asserted in the engine's state."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.acceptance.dashboard.conftest import sign_in
from tests.flows import flow
from tests.session_driving import claim, end, ref_of, run_iteration
from tests.silent_engine import loop
from workers.attempt.settle import park

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


def ask(engine) -> str:
    step = {"type": "human", "label": "ask", "question": "Ship it?", "choices": ["ship", "wait"]}
    session = str(engine.submit.document(flow(step)).session)
    work = engine.attempts.work(ref_of(engine, session), claim(engine, session))
    assert park(engine, work) is None
    return session


def test_question_appears_by_itself_and_one_of_two_people_answers_it(chromium, url, page, engine):
    expect(page.get_by_text("Nothing needs you")).to_be_visible()
    expect(page.locator("#live")).to_have_text("Live")
    session = ask(engine)
    expect(page.get_by_role("button", name="ship")).to_be_visible()
    other = sign_in(chromium, url)
    expect(other.get_by_role("button", name="wait")).to_be_visible()
    page.get_by_role("button", name="ship").click()
    expect(page.get_by_text("Your answer is recorded")).to_be_visible()
    expect(other.get_by_text("Nothing needs you")).to_be_visible()
    [answer] = [one.answer for one in engine.queries.steps(session).items if one.answer]
    assert answer["choice"] == "ship"
    assert page.evaluate("window.refused") == []


def test_matrix_opens_an_iteration_and_a_deletion_asks_first(page, url, engine):
    session = engine.submit.document(loop()).session
    run_iteration(engine, session)
    page.goto(f"{url}/ui/sessions/{session}")
    page.locator("button.cell").first.click()
    expect(page.get_by_role("heading", name="Iteration 1")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Cancel").click()
    assert engine.store.ref(session) is not None
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Confirm").click()
    page.wait_for_url("**/ui/sessions")
    assert engine.store.ref(session) is None
    assert page.evaluate("window.refused") == []


def test_exit_asks_for_its_reason(page, url, engine):
    session = engine.submit.document(loop()).session
    page.goto(f"{url}/ui/sessions/{session}")
    page.get_by_role("button", name="Exit").click()
    page.get_by_label("Why does it exit?").fill("enough for today")
    page.get_by_role("button", name="Confirm").click()
    expect(page.locator("#head .pill").first).to_have_text("exited")
    assert engine.queries.session(session).reason.text == "enough for today"


def test_failed_session_is_resumed_by_the_keyboard_alone(page, url, engine):
    session = engine.submit.document(loop()).session
    end(engine, session, "failed")
    page.keyboard.press("i")
    page.wait_for_url("**/ui/inbox")
    expect(page.locator("article")).to_have_count(1)
    page.keyboard.press("a")
    page.wait_for_url(f"**/ui/sessions/{session}")
    page.keyboard.press("r")
    expect(page.locator("#head .pill").first).to_have_text("active")
    assert engine.queries.session(session).status == "active"


def test_hostile_text_runs_nothing(page, url, engine):
    evil = "<img src=x onerror='window.hit=1'><script>window.hit=1</script> [x](javascript:hit())"
    session = engine.submit.document(loop(task=evil)).session
    run_iteration(engine, session)
    for tab in ("overview", "transcript", "steps", "log"):
        page.goto(f"{url}/ui/sessions/{session}?tab={tab}")
        expect(page.locator("#tab")).to_be_visible()
        assert page.evaluate("window.hit") is None
        assert page.evaluate("window.refused") == []
