"""Two sessions side by side."""

from __future__ import annotations

import re

from app.operations.step_verbs.documents import Changes
from tests.session_driving import end, run_iteration
from tests.silent_engine import loop

ROW = re.compile(r'<tr( class="differs")?[^>]*><th scope="row">(.*?)(?:<span.*?)?</th>')


def rows(text: str) -> dict[str, bool]:
    """Whether the sessions differ, by fact."""
    return {label: bool(differs) for differs, label in ROW.findall(text)}


def test_what_differs_is_marked(browser, engine):
    first = engine.submit.document(loop(task="mend it", max_iterations=3)).session
    second = engine.submit.document(loop(task="mend it", max_iterations=3)).session
    run_iteration(engine, first, "retry")
    run_iteration(engine, first, "accept")
    end(engine, second, "completed")
    found = rows(browser.get(f"/ui/compare?left={first}&right={second}").text)
    assert found["Task"] is False
    assert found["Status"] is False
    assert found["Iterations"] is True
    assert (found["Iteration 1"], found["Iteration 2"]) == (True, True)


def test_fork_links_to_the_comparison_with_its_origin(browser, engine):
    origin = engine.submit.document(loop()).session
    made = engine.reruns.rerun(origin, Changes()).session
    url = f"/ui/compare?left={origin}&amp;right={made}"
    assert url in browser.get(f"/ui/sessions/{made}").text
    assert "/ui/compare?" not in browser.get(f"/ui/sessions/{origin}").text
    assert browser.get(url.replace("&amp;", "&")).status_code == 200


def test_comparison_without_ids_asks_for_them_and_an_unknown_one_is_named(browser, engine):
    session = engine.submit.document(loop()).session
    assert "Two ids are needed" in browser.get("/ui/compare").text
    assert browser.get(f"/ui/compare?left={session}&right=0000dead").status_code == 404
