"""The board of a plan: a person decides only about what the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient
from pydantic import JsonValue

from api import create_app
from app import folders
from app.core.addresses import SessionRef
from app.core.folders import branch_of
from app.core.outcomes import Outcome
from app.sessions.inbox import send_hint
from app.settings import Settings
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.plans.test_plan_merges import start
from tests.engine.world import World
from tests.integration.api.dashboard.conftest import HTMX, sign_in
from tests.silent_engine import OPERATOR

TWO: list[dict[str, object]] = [{"id": "a"}, {"id": "b", "dependencies": ["a"]}]
EDIT: JsonValue = [
    {"op": "add", "task": {"id": "first", "title": "The part before", "description": "rm -rf it"}},
    {"op": "change", "id": "a", "description": "x" * 900 + " the end", "dependencies": ["first"]},
    {"op": "drop", "id": "b"},
    {"op": "retry", "id": "a"},
]


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


@pytest.fixture
def reader(world: World) -> Iterator[FlaskClient]:
    app = create_app(Settings(api_token=OPERATOR, secret="s"), world.engine)
    yield sign_in(app, OPERATOR)
    app.fanout.close()


def version_in(text: str) -> str:
    [found] = set(re.findall(r'name="version" value="(\d+)"', text))
    return str(found)


def test_edit_of_the_team_lead_is_shown_whole_and_accepted_as_it_was_seen(world, reader):
    plan = PlanWorld(world, TWO, task_retries=0, on_task_failure="replan", proposals="ask")
    plan.begin()
    plan.fail("a")
    replan = plan.task("a").replan
    assert replan is not None
    asked = SessionRef(str(replan.session), plan.id)
    world.settle(
        asked, world.grant(asked, "replan"),
        Outcome(word="succeeded", value={"operations": EDIT, "why": "too big"}),
    )  # fmt: skip
    text = reader.get(f"/ui/plans/{plan.id}").text
    for shown in (
        "Another way for task a", "too big", "Add task first", "The part before", "rm -rf it",
        "Change task a", "the end", "Drop task b", "Run again task a",
    ):  # fmt: skip
        assert shown in text, shown
    [url] = set(re.findall(r'action="(/ui/plans/\w+/proposals/\w+)"', text))
    sent = {"decision": "accept", "version": version_in(text)}
    plan.edit({"op": "change", "id": "b", "title": "Meanwhile"})
    for old in (sent, {"decision": "accept"}):
        late = reader.post(url, data=old, headers=HTMX)
        assert late.status_code == 409
        assert "the plan has changed; look at it again" in late.text
    assert "first" not in plan.statuses()
    sent["version"] = version_in(reader.get(f"/ui/plans/{plan.id}").text)
    assert reader.post(url, data=sent, headers=HTMX).status_code == 200
    assert "first" in plan.statuses()


def test_draft_is_approved_as_it_was_seen(world, reader):
    plan = PlanWorld(world, TWO, refine=True)
    plan.draft("drafting~1[1]/decompose")
    sent = {"version": version_in(reader.get(f"/ui/plans/{plan.id}").text)}
    plan.edit({"op": "change", "id": "b", "title": "Meanwhile"})
    late = reader.post(f"/ui/plans/{plan.id}/approve", data=sent, headers=HTMX)
    assert late.status_code == 409
    assert "the plan has changed; look at it again" in late.text
    assert plan.view.state == "refining"
    sent = {"version": version_in(reader.get(f"/ui/plans/{plan.id}").text)}
    assert reader.post(f"/ui/plans/{plan.id}/approve", data=sent, headers=HTMX).status_code == 200


def test_tasks_are_added_changed_and_removed_in_the_version_that_was_seen(world, reader):
    plan = PlanWorld(world, TWO, refine=True)
    plan.draft("drafting~1[1]/decompose")
    base = f"/ui/plans/{plan.id}"

    def send(path: str, **fields: str) -> int:
        seen = version_in(reader.get(base).text)
        sent = {"version": seen, **fields}
        return int(reader.post(f"{base}/{path}", data=sent, headers=HTMX).status_code)

    assert send("tasks", id="c", title="Third", description="x\r\ny", dependencies="a, b") == 200
    assert plan.seen("c").dependencies == ["a", "b"]
    assert plan.seen("c").description == "x\ny"
    assert send("tasks/b/change", title="Second", description="", dependencies="") == 200
    assert (plan.seen("b").title, plan.seen("b").dependencies) == ("Second", [])
    assert send("tasks/c/drop") == 200
    assert set(plan.statuses()) == {"a", "b"}
    old = {"version": "1", "title": "Late", "description": "", "dependencies": ""}
    late = reader.post(f"{base}/tasks/b/change", data=old, headers=HTMX)
    assert (late.status_code, plan.seen("b").title) == (409, "Second")


def test_edit_that_does_not_fit_names_the_field_and_changes_nothing(world, reader):
    plan = PlanWorld(world, TWO, refine=True)
    plan.draft("drafting~1[1]/decompose")
    base = f"/ui/plans/{plan.id}"
    sent = {"version": version_in(reader.get(base).text), "title": "A", "description": ""}
    for path, more, status, said in (
        ("tasks/a/change", {"dependencies": "b"}, 409, "cycle"),
        ("tasks/a/change", {"dependencies": "nowhere"}, 409, "nowhere"),
        ("tasks/a/change", {"title": ""}, 422, "title"),
        ("tasks", {"id": "not an id!"}, 422, "id"),
    ):
        answer = reader.post(f"{base}/{path}", data={**sent, **more}, headers=HTMX)
        assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert set(plan.statuses()) == {"a", "b"}
    assert plan.seen("a").dependencies == []


def test_failed_task_has_a_button_that_runs_it_again(world, reader):
    plan = PlanWorld(world, [{"id": "a"}, {"id": "other"}], task_retries=0)
    plan.begin()
    plan.fail("a")
    text = reader.get(f"/ui/plans/{plan.id}").text
    url = f"/ui/plans/{plan.id}/tasks/a/retry"
    assert url in text
    assert f"/ui/plans/{plan.id}/tasks/a/change" not in text
    sent = {"version": version_in(text)}
    assert reader.post(url, data=sent, headers=HTMX).status_code == 200
    assert plan.statuses()["a"] != "failed"


def test_board_shows_what_the_team_lead_was_told(world, reader):
    plan = PlanWorld(world, TWO)
    plan.begin()
    send_hint(world.engine, plan.id, "Use <b>one</b> library", by="operator")
    text = reader.get(f"/ui/plans/{plan.id}").text
    assert "Messages to the team lead" in text
    assert "Use &lt;b&gt;one&lt;/b&gt; library" in text


def test_branches_that_are_not_merged_come_first(world, reader, tmp_path):
    plan = start(world, tmp_path)
    names = {task: branch_of(plan.id, task) for task in ("a", "c")}
    for task, branch in names.items():
        made: dict[str, JsonValue] = {"folder": f"/w/{task}", "branch": branch, "base": "beef"}
        folders.record_of_task(plan.engine, {"plan": plan.id, "task": task, "run": 1, **made})
    plan.accept("a")
    plan.land("a")
    text = reader.get(f"/ui/plans/{plan.id}").text
    table = text.partition("branches-title")[2].partition("</table>")[0]
    assert f"1 of {len(re.findall('<tr>', table)) - 1} not merged" in table
    assert re.findall(r"</i>([^<]+)</span>", table) == ["at work", "merged"]
    assert re.findall("|".join(names.values()), table) == [names["c"], names["a"]]
    assert f"leadhand show {plan.id} --diff --unmerged" in text
