"""The bubbles of a transcript: who said what where, how the step ended, and where it resumes."""

from __future__ import annotations

import re

from tests.flows import flow, llm
from tests.flows import loop as flow_loop
from tests.integration.api.dashboard.conftest import HTMX
from tests.session_driving import claim, settle


def bubbles(text: str) -> list[str]:
    """The text of each bubble, without its tags."""
    found = re.findall(r'<li class="said.*?</li>', text, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", one).split()) for one in found]


def test_bubble_says_who_where_and_how_it_ended(browser, engine):
    steps = (flow_loop(llm("Write it", label="write"), label="polish"), llm("Sum up"))
    session = str(engine.submit.document(flow(*steps)).session)
    settle(engine, session, claim(engine, session))
    [said] = bubbles(browser.get(f"/ui/sessions/{session}?tab=transcript").text)
    assert "write" in said
    for part in ("step 1 of 1", "loop depth 1", "iteration 1", "succeeded"):
        assert part in said, part


def test_stopped_session_names_where_it_resumes_and_resumes_after_a_bubble(browser, engine):
    session = str(engine.submit.document(flow(llm("One"), llm("Two"), llm("Three"))).session)
    first, second = (claim_and_settle(engine, session) for _ in range(2))
    url = f"/ui/sessions/{session}?tab=transcript"
    assert "Resume after" not in browser.get(url).text
    engine.control.apply(session, "stop")
    text = browser.get(url).text
    [ready] = [one for one in engine.queries.steps(session).items if one.state == "ready"]
    assert f'It resumes at <span class="mono">{ready.address}</span>' in text
    assert re.findall(r'name="after" value="([^"]+)"', text) == [first, second]
    answer = browser.post(f"/ui/sessions/{session}/resume", headers=HTMX, data={"after": first})
    assert answer.status_code == 200
    view = engine.queries.session(session)
    assert (view.status, view.resumed_after) == ("active", first)
    marked = [one for one in bubbles(browser.get(url).text) if "Resumed after this step" in one]
    assert len(marked) == 1


def claim_and_settle(engine, session: str) -> str:
    grant = claim(engine, session)
    settle(engine, session, grant)
    return str(grant.address)


def test_panel_alone_has_the_bubbles_of_the_page(browser, engine):
    session = str(engine.submit.document(flow(llm("One"), llm("Two"))).session)
    claim_and_settle(engine, session)
    page = bubbles(browser.get(f"/ui/sessions/{session}?tab=transcript").text)
    panel = browser.get(f"/ui/sessions/{session}/panels/tab?tab=transcript", headers=HTMX)
    assert panel.status_code == 200, panel.text
    assert bubbles(panel.text) == page
    assert page
