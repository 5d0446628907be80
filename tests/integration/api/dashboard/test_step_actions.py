"""Actions on single steps, and forks and reruns, as a browser sends them."""

from __future__ import annotations

import re

import pytest

from app.security.api_tokens import Scope
from tests.integration.api.dashboard.conftest import HTMX, sign_in
from tests.session_driving import claim, end, run_iteration
from tests.silent_engine import loop

BUDGETS = [
    ({"budget.steps": "many"}, "budget.steps"),
    ({"budget.steps": "2.5"}, "budget.steps"),
    ({"budget.cost_usd": "-1"}, "budget.cost_usd"),
    ({"max_iterations": "0"}, "max_iterations"),
    ({"max_iterations": "some"}, "max_iterations"),
]


def failed(engine, **more) -> str:
    session = engine.submit.document(loop(**more)).session
    end(engine, session, "failed")
    return str(session)


def post(browser, session: str, verb: str, **data: str):
    return browser.post(f"/ui/sessions/{session}/{verb}", headers=HTMX, data=data)


def buttons(text: str, verb: str) -> list[str]:
    """The steps that have a button for this verb."""
    found = re.findall(rf'<form[^>]*/{verb}"[^>]*>(.*?)</form>', text)
    return [step for one in found for step in re.findall(r'name="step" value="([^"]+)"', one)]


@pytest.mark.parametrize(("sent", "field"), BUDGETS)
def test_limit_that_is_none_is_refused_by_its_field(browser, engine, sent, field):
    session = failed(engine)
    answer = post(browser, session, "resume", **sent)
    assert answer.status_code == 422, answer.text
    assert field in answer.text
    assert engine.queries.session(session).status == "failed"


def test_resume_raises_the_limits_of_the_form(browser, engine):
    session = failed(engine, budget={"steps": 20})
    sent = {"max_iterations": "7", "budget.steps": "40", "budget.cost_usd": "2.5", "after": ""}
    assert post(browser, session, "resume", **sent).status_code == 200
    view = engine.queries.session(session)
    assert view.status == "active"
    assert (view.budget["steps"].limit, view.budget["cost_usd"].limit) == (40, 2.5)
    assert view.progress.nodes[0].max_iterations == 7


def test_steps_offer_what_their_state_allows(browser, engine):
    session = failed(engine)
    text = browser.get(f"/ui/sessions/{session}?tab=steps").text
    [step] = [one.address for one in engine.queries.steps(session).items if one.state == "failed"]
    assert buttons(text, "retry") == [step]
    assert buttons(text, "skip") == [step]
    assert post(browser, session, "retry", step=step).status_code == 200
    assert engine.queries.session(session).status == "active"
    text = browser.get(f"/ui/sessions/{session}?tab=steps").text
    assert buttons(text, "retry") == []
    [ready] = [one.address for one in engine.queries.steps(session).items if one.state == "ready"]
    assert buttons(text, "skip") == [ready]


def test_session_resumes_after_a_chosen_step(browser, engine):
    session = engine.submit.document(loop(max_iterations=3)).session
    run_iteration(engine, session, "retry")
    end(engine, session, "stopped")
    text = browser.get(f"/ui/sessions/{session}?tab=steps").text
    offered = re.findall(r'name="after" value="([^"]+)"', text)
    doer = next(one for one in offered if one.endswith("[1]/do"))
    assert post(browser, session, "resume", after=doer).status_code == 200
    view = engine.queries.session(session)
    assert (view.status, view.resumed_after) == ("active", doer)


def test_failed_check_is_skipped_with_a_reason(browser, engine):
    session = failed(engine)
    [step] = [one.address for one in engine.queries.steps(session).items if one.state == "failed"]
    assert post(browser, session, "skip", step=step, reason="not today").status_code == 200
    skipped = [one for one in engine.queries.steps(session).items if one.state == "skipped"]
    assert any("not today" in (one.reason.text if one.reason else "") for one in skipped)


def test_suggestions_of_a_failed_session_are_buttons(browser, engine):
    session = engine.submit.document(loop(max_iterations=1)).session
    run_iteration(engine, session, "retry")
    assert engine.queries.session(session).status == "failed"
    text = browser.get(f"/ui/sessions/{session}").text
    offered = engine.explainer.explain(session).actions
    assert offered[0].arguments == {"max_iterations": 2}
    assert '<input type="hidden" name="max_iterations" value="2">' in text
    assert post(browser, session, "resume", max_iterations="2").status_code == 200
    assert engine.queries.session(session).status == "active"


def test_fork_and_rerun_make_one_session_for_a_form_that_is_sent_twice(browser, engine):
    session = engine.submit.document(loop(task="mend it", max_iterations=3)).session
    run_iteration(engine, session, "retry")
    end(engine, session, "stopped")
    page = browser.get(f"/ui/sessions/{session}/again").text
    keys = re.findall(r'name="key" value="([^"]+)"', page)
    assert len(set(keys)) == 2
    for verb, key, more in (
        ("fork", keys[0], {"folder": "as-is", "label": "again"}),
        ("rerun", keys[1], {"task": "mend that", "label": "anew"}),
    ):
        first, second = (post(browser, session, verb, key=key, **more) for _ in range(2))
        assert first.status_code == 204, first.text
        assert first.headers["HX-Redirect"] == second.headers["HX-Redirect"]
        made = engine.queries.session(first.headers["HX-Redirect"].rpartition("/")[2])
        assert made.made_from is not None
        assert (made.made_from.session, made.made_from.verb) == (session, verb)
        assert made.label == more["label"]
        assert made.task == more.get("task", "mend it")


def test_new_sessions_need_the_scope_submit(app, engine):
    made = engine.tokens.create("bob", frozenset({Scope.READ, Scope.CONTROL}))
    bob = sign_in(app, made.token)
    session = failed(engine)
    text = bob.get(f"/ui/sessions/{session}").text
    assert "/again" not in text
    for verb in ("fork", "rerun"):
        answer = post(bob, session, verb)
        assert answer.status_code == 403
        assert "submit" in answer.text
    assert "submit" in bob.get(f"/ui/sessions/{session}/again").text
    assert len(engine.queries.sessions().items) == 1


def test_command_of_a_rerun_needs_the_right_to_bring_commands(app, engine):
    scopes = frozenset({Scope.READ, Scope.CONTROL, Scope.SUBMIT})
    made = engine.tokens.create("sue", scopes)
    sue = sign_in(app, made.token)
    answer = post(sue, failed(engine), "rerun")
    assert answer.status_code == 403
    assert "exec:free" in answer.text


def test_receipt_names_what_a_stop_ended(browser, engine):
    session = engine.submit.document(loop()).session
    grant = claim(engine, session)
    engine.control.apply(session, "abort")
    text = browser.get(f"/ui/sessions/{session}/receipt").text
    assert grant.address in text
    assert "abort" in text
    assert "w1/1" in text
    page = browser.get(f"/ui/sessions/{session}").text
    assert f'hx-get="/ui/sessions/{session}/receipt"' in page


def test_badge_is_counted_for_each_fragment_that_shows_it(browser, engine, monkeypatch):
    counted: list[int] = []
    count = engine.attention.count

    def counting() -> int:
        counted.append(1)
        return int(count())

    monkeypatch.setattr(engine.attention, "count", counting)
    session = failed(engine)
    for path in (
        f"sessions/{session}/panels/head",
        f"sessions/{session}/panels/tab",
        "panels/inbox",
    ):
        assert browser.get(f"/ui/{path}").status_code == 200
    assert counted == []
    assert "1 need you" in browser.get("/ui/panels/badge").text
    assert len(counted) == 1
