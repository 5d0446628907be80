"""Two sessions side by side."""

from __future__ import annotations

import json
import re

from api import create_app
from app.core.outcomes import Outcome
from app.engine import Engine
from app.sessions.documents import Changes
from app.settings import Settings
from leadhand.flows.documents import FlowRun
from tests.flows import llm
from tests.integration.api.dashboard.conftest import HTMX, sign_in
from tests.session_driving import claim, end, ref_of, run_iteration, settle
from tests.silent_engine import OPERATOR, SECRET, loop, silent_engine
from workers.folders.work_diff import pack_diff

ROW = re.compile(r'<tr( class="differs")?[^>]*><th scope="row">(?:<a[^>]*>)?([^<]*)')


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


def test_iterations_are_compared_with_verdict_and_feedback(browser, engine):
    session = engine.submit.document(loop(task="mend it", max_iterations=3)).session
    run_iteration(engine, session, "retry")
    run_iteration(engine, session, "accept")
    detail = browser.get(f"/ui/sessions/{session}/iterations/1").text
    [url] = re.findall(r'href="(/ui/compare[^"]+)"', detail)
    text = browser.get(url.replace("&amp;", "&")).text
    found = rows(text)
    assert (found["Iteration"], found["Verdict"], found["Loop"]) == (True, True, False)
    assert "Compare two iterations" in text
    assert "/ui/compare?" not in browser.get(f"/ui/sessions/{session}/iterations/0").text
    whole = browser.get(f"/ui/compare?left={session}&right={session}").text
    assert "left_iteration=2&amp;right_iteration=2" in whole


def change_files(engine: Engine, *names: str) -> str:
    """Run a loop of one iteration, whose doer changes these files."""
    session = str(engine.submit.document(loop()).session)
    parts = (
        f"diff --git a/{n} b/{n}\n--- a/{n}\n+++ b/{n}\n@@ -1 +1 @@\n-old\n+{n}\n" for n in names
    )
    work = engine.attempts.work(ref_of(engine, session), claim(engine, session))
    engine.attempts.settle(
        work, Outcome(word="succeeded", digest="git:b"), take=(), worker="w1/1", changed=True,
        patch=pack_diff("git:a", "git:b", "".join(parts)),
    )  # fmt: skip
    settle(engine, session, claim(engine, session))
    return session


def test_files_of_two_iterations_are_paired_by_name(browser, engine):
    left = change_files(engine, "both.py", "left.py")
    right = change_files(engine, "both.py", "right.py")
    text = browser.get(
        f"/ui/compare?left={left}&right={right}&left_iteration=1&right_iteration=1"
    ).text
    pairs = text.split('<div class="pair">')[1:]
    assert ["Not changed" in one for one in pairs] == [False, True, True]
    for session in (left, right):
        assert f"/ui/sessions/{session}/diffs/0/files/0" in pairs[0]


def test_iteration_that_does_not_exist_is_named(browser, engine):
    session = engine.submit.document(loop()).session
    run_iteration(engine, session)
    both = f"/ui/compare?left={session}&right={session}"
    missing = browser.get(f"{both}&left_iteration=1&right_iteration=7")
    assert missing.status_code == 404
    assert "has no iteration 7" in missing.text
    assert browser.get(f"{both}&left_iteration=0&right_iteration=-1").status_code == 404
    assert browser.get(f"{both}&left_iteration=1").status_code == 200


def test_note_is_written_from_the_comparison_and_shown_in_it(browser, engine):
    left, right = (str(engine.submit.document(loop()).session) for _ in range(2))
    url = f"/ui/compare?left={left}&right={right}"
    assert f'action="/ui/sessions/{left}/note"' in browser.get(url).text
    sent = {"note": "the <b>better</b> one"}
    assert browser.post(f"/ui/sessions/{left}/note", headers=HTMX, data=sent).status_code == 200
    assert engine.queries.session(left).note == "the <b>better</b> one"
    text = browser.get(url).text
    assert rows(text)["Note"] is True
    assert "the &lt;b&gt;better&lt;/b&gt; one" in text
    assert "the &lt;b&gt;better" in browser.get(f"/ui/sessions/{left}").text
    browser.post(f"/ui/sessions/{left}/note", headers=HTMX, data={"note": " "})
    assert engine.queries.session(left).note is None


def test_inputs_of_two_runs_are_compared(store_url, tmp_path):
    definition = {"inputs": {"change": None, "depth": "3"}, "steps": [llm("Review it")]}
    (tmp_path / "review.json").write_text(json.dumps(definition))
    engine = silent_engine(store_url, secret=SECRET, flows=(tmp_path,))
    app = create_app(Settings(api_token=OPERATOR, secret=SECRET), engine)
    left, right = (
        engine.submit.flow(
            "review", FlowRun(inputs={"change": one}), idempotency_key=None, owner=None, free=True
        ).session
        for one in ("one", "two")
    )
    text = sign_in(app, OPERATOR).get(f"/ui/compare?left={left}&right={right}").text
    assert rows(text)["Input change"] is True
    app.fanout.close()
