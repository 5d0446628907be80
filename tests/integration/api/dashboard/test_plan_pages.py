"""The board of a plan: a person decides only about what the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient
from pydantic import JsonValue

from api import create_app
from app.domain.ids import SessionRef
from app.domain.outcomes import Outcome
from app.settings import Settings
from tests.engine.plans.plan_world import PlanWorld
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
