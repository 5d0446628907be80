"""Plans over REST, on the real engine: documents, tags, edits, decisions, reports and tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from api import create_app
from app.security.api_tokens import Scope
from app.security.signatures import BODY_SCOPES, Caller, mint
from app.settings import Settings
from leadhand.errors import AnswerUnwanted, NoPlan, PlanChanged, PlanRefused, TaskUnknown
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import DONE, World

TOKEN = "the operator's own"
SECRET = "s"
S = "/v1/sessions"
#: A plan document without faults.
PLAN: dict[str, Any] = {
    "kind": "plan",
    "request": "Build it.",
    "baseline": False,
    "checkers": [{"name": "ok", "command": "true"}],
    "doer": {"command": "true"},
    "tasks": [
        {"id": "parser", "title": "Parse"},
        {"id": "tests", "title": "Test", "dependencies": ["parser"]},
    ],
}
TWO: list[dict[str, Any]] = [{"id": "a"}, {"id": "b", "dependencies": ["a"]}]


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


@pytest.fixture
def client(world: World) -> Iterator[FlaskClient]:
    app = create_app(Settings(api_token=TOKEN, secret=SECRET), world.engine)
    client = app.test_client()
    client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {TOKEN}"
    yield client
    app.fanout.close()


@pytest.fixture
def refining(world: World) -> PlanWorld:
    """A plan whose draft of two tasks waits for a person."""
    plan = PlanWorld(world, TWO, refine=True)
    plan.draft("drafting~1[1]/decompose")
    return plan


@pytest.fixture
def executing(world: World) -> PlanWorld:
    plan = PlanWorld(world, [*TWO, {"id": "c"}], task_retries=0)
    plan.begin()
    return plan


def said(answer: TestResponse) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.data)
    return found


def edit(
    client: FlaskClient, plan: PlanWorld, *operations: dict[str, Any], tag: str | None = None
) -> TestResponse:
    headers = {} if tag is None else {"If-Match": tag}
    body = {"operations": list(operations)}
    return client.patch(f"{S}/{plan.id}/plan", json=body, headers=headers)


def test_plan_document_starts_a_session(client: FlaskClient) -> None:
    answer = client.post(S, json=PLAN)
    assert answer.status_code == 202, answer.text
    session = said(answer)
    assert session["kind"] == "plan"
    plan = said(client.get(f"{S}/{session['id']}/plan"))
    assert (plan["state"], plan["version"], plan["tasks"]) == ("planning", 0, [])
    assert (plan["request"], plan["checkers"]) == ("Build it.", ["ok"])


def faulty(**more: Any) -> dict[str, Any]:
    return {name: value for name, value in {**PLAN, **more}.items() if value is not None}


def task(**more: Any) -> list[dict[str, Any]]:
    return [{"id": "a", "title": "A"}, {"id": "b", "title": "B", **more}]


@pytest.mark.parametrize(
    ("document", "field", "text"),
    [
        (faulty(request=None), "request", "missing"),
        (faulty(checkers=None), "checkers", "give checkers, or unchecked: true"),
        (faulty(checkers=["true"] * 101), "checkers", "100"),
        (
            faulty(checkers=[{"name": "x", "command": "a"}, {"name": "x", "command": "b"}]),
            "checkers", "names must differ",
        ),
        (faulty(taskss=[]), "taskss", "did you mean tasks?"),
        (faulty(at_once=0), "at_once", "1"),
        (faulty(refine="no"), "refine", "true or false"),
        (faulty(on_deadline="start"), "on_deadline", "'stop' or 'approve'"),
        (faulty(tasks=[]), "tasks", "at least 1"),
        (faulty(tasks=task(titel="x")), "tasks.1.titel", "did you mean title?"),
        (faulty(tasks=task(id="B b")), "tasks.1.id", "lower-case letters"),
        (faulty(tasks=task(id="a")), "tasks", "two tasks have the id 'a'"),
        (faulty(tasks=task(dependencies=["aa"])), "tasks", "did you mean 'a'?"),
        (faulty(tasks=task(dependencies=["b"])), "tasks", "b -> b"),
        (faulty(tasks=task(checkers=["okk"])), "tasks[1].checkers", "did you mean 'ok'?"),
        (faulty(cwd="here"), "cwd", "absolute path"),
    ],
)  # fmt: skip
def test_faulty_document_is_refused_by_field(
    client: FlaskClient, document: dict[str, Any], field: str, text: str
) -> None:
    answer = client.post(S, json=document)
    assert answer.status_code == 422, answer.text
    problem = said(answer)
    assert problem["field"] == field
    assert text in f"{problem['detail']}; {problem.get('hint')}"
    assert said(client.get(S))["items"] == []


def test_unknown_kind_names_plan_among_the_kinds(client: FlaskClient) -> None:
    problem = said(client.post(S, json={**PLAN, "kind": "plans"}))
    assert "'plan'" in problem["hint"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"doer": {"agent": "a"}, "checkers": ["true"]}, "checkers.0.command"),
        ({"doer": {"command": "true"}, "checkers": ["agent: look"]}, "doer.command"),
        ({"doer": {"callable": "m:f"}, "checkers": ["agent: look"]}, "doer.callable"),
        ({"doer": {"agent": "a"}, "checkers": ["look.md"]}, "checkers.0.rubric"),
    ],
)
def test_commands_need_the_scope_to_run_any(
    client: FlaskClient, world: World, more: dict[str, Any], field: str
) -> None:
    token = world.engine.tokens.create("ci", frozenset({Scope.SUBMIT})).token
    bearer = {"Authorization": f"Bearer {token}"}
    answer = client.post(S, json={**PLAN, **more}, headers=bearer)
    assert (answer.status_code, said(answer)["field"]) == (403, field)
    assert "exec:free" in said(answer)["detail"]


def test_plan_has_a_strong_tag_of_its_own(client: FlaskClient, refining: PlanWorld) -> None:
    path = f"{S}/{refining.id}/plan"
    answer = client.get(path)
    assert answer.headers["ETag"] == '"plan-1"'
    assert [one["id"] for one in said(answer)["tasks"]] == ["a", "b"]
    again = client.get(path, headers={"If-None-Match": '"plan-1"'})
    assert (again.status_code, again.data, again.headers["ETag"]) == (304, b"", '"plan-1"')
    edit(client, refining, {"op": "drop", "id": "b"})
    now = client.get(path, headers={"If-None-Match": '"plan-1"'})
    assert (now.status_code, now.headers["ETag"]) == (200, '"plan-2"')


def test_edit_with_the_present_tag_is_carried_out(client: FlaskClient, refining: PlanWorld) -> None:
    answer = edit(
        client, refining,
        {"op": "add", "task": {"id": "c", "title": "C", "dependencies": ["b"]}},
        {"op": "change", "id": "a", "title": "First", "agent": "codex"},
        {"op": "move", "id": "c"},
        tag='"plan-1"',
    )  # fmt: skip
    assert (answer.status_code, answer.headers["ETag"]) == (200, '"plan-2"'), answer.text
    tasks = said(answer)["tasks"]
    assert [(one["id"], one["title"], one["agent"]) for one in tasks] == [
        ("c", "C", None), ("a", "First", "codex"), ("b", "Do b", None),
    ]  # fmt: skip
    cleared = said(edit(client, refining, {"op": "change", "id": "a", "agent": None}))
    assert cleared["tasks"][1]["agent"] is None


@pytest.mark.parametrize("tag", ['"plan-1"', 'W/"plan-2"', '"nonsense"', '"plan-1", "plan-7"'])
def test_edit_with_another_tag_gets_the_plan_as_it_is(
    client: FlaskClient, refining: PlanWorld, tag: str
) -> None:
    edit(client, refining, {"op": "change", "id": "a", "title": "First"})
    answer = edit(client, refining, {"op": "drop", "id": "b"}, tag=tag)
    assert (answer.status_code, answer.headers["ETag"]) == (412, '"plan-2"')
    problem = said(answer)
    assert problem["type"] == PlanChanged.kind.uri
    assert problem["plan"] == said(client.get(f"{S}/{refining.id}/plan"))
    assert [one["title"] for one in problem["plan"]["tasks"]] == ["First", "Do b"]


def test_edit_without_or_with_any_tag_is_carried_out(
    client: FlaskClient, refining: PlanWorld
) -> None:
    assert edit(client, refining, {"op": "drop", "id": "b"}).status_code == 200
    other = {"op": "add", "task": {"id": "c", "title": "C"}}
    assert edit(client, refining, other, tag="*").status_code == 200


@pytest.mark.parametrize(
    ("operation", "field", "text"),
    [
        ({"op": "drop", "id": "x"}, "operations.1", "no task x"),
        ({"op": "drop", "id": "a"}, "operations.1", "task b depends on it"),
        ({"op": "add", "task": {"id": "a", "title": "A"}}, "operations.1", "choose another"),
        ({"op": "change", "id": "a", "checkers": ["okk"]}, "operations.1", "did you mean 'ok'?"),
        ({"op": "retry", "id": "a"}, "operations.1", "only a task that failed"),
        ({"op": "change", "id": "a", "dependencies": ["b"]}, None, "cycle"),
    ],
)
def test_refused_operation_is_named_and_none_is_carried_out(
    client: FlaskClient, refining: PlanWorld, operation: dict[str, Any],
    field: str | None, text: str,
) -> None:  # fmt: skip
    answer = edit(client, refining, {"op": "change", "id": "b", "title": "Other"}, operation)
    problem = said(answer)
    assert (answer.status_code, problem["type"]) == (409, PlanRefused.kind.uri), problem
    assert problem.get("field") == field
    assert text in problem["detail"]
    plan = said(client.get(f"{S}/{refining.id}/plan"))
    assert (plan["version"], plan["tasks"][1]["title"]) == (1, "Do b")


@pytest.mark.parametrize(
    ("operation", "field", "hint"),
    [
        ({"op": "remove", "id": "a"}, "operations.0.op", "'drop'"),
        ({"id": "a"}, "operations.0.op", "'drop'"),
        ({"op": "drop"}, "operations.0.id", "add this field"),
        ({"op": "change", "id": "a", "titel": "x"}, "operations.0.titel", "did you mean title?"),
        ({"op": "add", "task": {"id": "c"}}, "operations.0.task.title", "add this field"),
        (
            {"op": "add", "task": {"id": "c", "title": "C", "priority": 10}},
            "operations.0.task.priority", "9",
        ),
    ],
)  # fmt: skip
def test_faulty_operation_is_refused_by_field(
    client: FlaskClient, refining: PlanWorld, operation: dict[str, Any], field: str, hint: str
) -> None:
    answer = edit(client, refining, operation)
    problem = said(answer)
    assert (answer.status_code, problem["field"]) == (422, field), problem
    assert hint in problem["hint"]


def test_draft_is_approved_once(client: FlaskClient, refining: PlanWorld) -> None:
    path = f"{S}/{refining.id}/plan"
    answer = client.post(f"{path}/approve", json={})
    assert (answer.status_code, said(answer)["state"]) == (202, "executing"), answer.text
    again = client.post(f"{path}/approve")
    assert (again.status_code, said(again)["type"]) == (409, AnswerUnwanted.kind.uri)
    refining.park("execute")
    assert said(client.get(path))["tasks"][0]["status"] == "in_progress"


def test_draft_that_changed_since_it_was_read_is_not_approved(
    client: FlaskClient, refining: PlanWorld
) -> None:
    path = f"{S}/{refining.id}/plan"
    seen = {"If-Match": client.get(path).headers["ETag"]}
    assert edit(client, refining, {"op": "change", "id": "b", "title": "New"}).status_code == 200
    late = client.post(f"{path}/approve", json={}, headers=seen)
    assert (late.status_code, said(late)["plan"]["tasks"][1]["title"]) == (412, "New"), late.text
    assert said(client.get(path))["state"] == "refining"
    seen = {"If-Match": client.get(path).headers["ETag"]}
    answer = client.post(f"{path}/approve", json={}, headers=seen)
    assert (answer.status_code, said(answer)["state"]) == (202, "executing"), answer.text


def test_change_is_given_to_the_team_lead(client: FlaskClient, refining: PlanWorld) -> None:
    path = f"{S}/{refining.id}/plan"
    for body in ({}, {"text": "  "}, {"text": 7}):
        assert said(client.post(f"{path}/changes", json=body))["field"] == "text"
    answer = client.post(f"{path}/changes", json={"text": "merge the two"})
    assert (answer.status_code, said(answer)["state"]) == (202, "planning"), answer.text
    grant = refining.world.grant(refining.ref, "drafting~1[2]/decompose")
    work = refining.engine.attempts.work(refining.ref, grant)
    assert work.inputs["change"] == "merge the two"


def test_question_of_a_draft_names_the_commands_of_the_plan(
    client: FlaskClient, refining: PlanWorld
) -> None:
    (question,) = said(client.get("/v1/questions"))["items"]
    assert question["about"] == "plan"
    assert question["answer"] == f"leadhand plan approve {refining.id}"
    (wait,) = said(client.get(f"{S}/{refining.id}/explain"))["waits"]
    assert wait["next"] == [f"leadhand plan approve {refining.id}"]
    (note,) = said(client.get(f"{S}/{refining.id}"))["notes"]
    assert f"leadhand plan show {refining.id}" in note


def test_explain_says_that_a_plan_waits_for_its_tasks(
    client: FlaskClient, executing: PlanWorld
) -> None:
    (wait,) = said(client.get(f"{S}/{executing.id}/explain"))["waits"]
    assert (wait["why"], wait["next"]) == ("plan", [f"leadhand plan show {executing.id}"])


def test_tasks_are_listed_and_shown(client: FlaskClient, executing: PlanWorld) -> None:
    path = f"{S}/{executing.id}/plan/tasks"
    listed = said(client.get(path))
    assert [one["id"] for one in listed["items"]] == ["a", "b", "c"]
    assert said(client.get(f"{path}/a")) == listed["items"][0]
    unknown = client.get(f"{path}/aa")
    assert (unknown.status_code, said(unknown)["type"]) == (404, TaskUnknown.kind.uri)
    assert said(unknown)["hint"] == "did you mean 'a'?"


@pytest.mark.parametrize("path", ["plan", "plan/tasks", "plan/tasks/a", "task"])
def test_session_of_another_kind_has_no_plan(client: FlaskClient, world: World, path: str) -> None:
    session = world.session("/elsewhere").id
    answer = client.get(f"{S}/{session}/{path}")
    assert (answer.status_code, said(answer)["type"]) == (409, NoPlan.kind.uri), answer.text


def body_of(plan: PlanWorld, task_id: str, scopes: tuple[str, ...] = BODY_SCOPES) -> str:
    """The token of the doer of a task's child session."""
    child = plan.child(task_id)
    grant = plan.world.grant(child, "loop~1[1]/do")
    return mint(Caller(child.id, grant.address, grant.fence, scopes), secret=SECRET)


def report(client: FlaskClient, session: str, token: str, **body: object) -> TestResponse:
    bearer = {"Authorization": f"Bearer {token}"}
    return client.post(f"{S}/{session}/reports", json=body, headers=bearer)


PROPOSED = {"task": {"id": "more", "title": "One more", "dependencies": ["a"]}, "why": "it lacks"}


def test_body_reports_about_its_own_task_alone(client: FlaskClient, executing: PlanWorld) -> None:
    token, child = body_of(executing, "a"), executing.child("a").id
    answer = report(
        client, child, token, status="done", pr_url="https://example.org/1", notes="all of it"
    )
    assert answer.status_code == 200, answer.text
    assert said(answer) == {
        "session": executing.id, "task": "a", "status": "completed", "repeated": False,
        "version": executing.view.version,
    }  # fmt: skip
    assert said(report(client, child, token, status="completed", notes="all of it",
                       pr_url="https://example.org/1"))["repeated"]  # fmt: skip
    own = said(client.get(f"{S}/{child}/task", headers={"Authorization": f"Bearer {token}"}))
    assert (own["id"], own["status"], own["verified"]) == ("a", "completed", False)
    for other in (executing.id, "0000000a"):
        assert report(client, other, token, status="failed").status_code == 403
    bearer = {"Authorization": f"Bearer {token}"}
    assert client.get(f"{S}/{executing.id}/plan", headers=bearer).status_code == 403
    assert client.get(f"{S}/{child}/plan", headers=bearer).status_code == 409


def test_report_needs_its_scope_and_a_running_attempt(
    client: FlaskClient, executing: PlanWorld
) -> None:
    child = executing.child("a")
    without = body_of(executing, "a", ("read", "exit"))
    assert report(client, child.id, without, status="failed").status_code == 403
    grant = executing.world.grant(executing.child("c"), "loop~1[1]/do")
    caller = Caller(executing.child("c").id, grant.address, grant.fence, BODY_SCOPES)
    token = mint(caller, secret=SECRET)
    executing.world.settle(executing.child("c"), grant, DONE)
    assert report(client, caller.session, token, status="failed").status_code == 401


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "status"),
        ({"status": "nearly"}, "status"),
        ({"status": "completed", "notes": "  "}, "notes"),
        ({"status": "completed", "pr_url": "javascript:alert(1)"}, "pr_url"),
        ({"status": "completed", "pr": "x"}, "pr"),
        ({"status": "completed", "proposals": [{"task": {"id": "x"}}]}, "proposals.0.task.title"),
    ],
)
def test_faulty_report_is_refused_by_field(
    client: FlaskClient, executing: PlanWorld, body: dict[str, Any], field: str
) -> None:
    token, before = body_of(executing, "a"), executing.view
    answer = report(client, executing.child("a").id, token, **body)
    assert (answer.status_code, said(answer)["field"]) == (422, field)
    assert executing.view == before


def test_proposal_is_accepted_or_refused_once(client: FlaskClient, executing: PlanWorld) -> None:
    token, child = body_of(executing, "a"), executing.child("a").id
    other = {"task": {"id": "other", "title": "Other"}}
    made = report(client, child, token, status="in_progress", proposals=[PROPOSED, other])
    assert made.status_code == 200, made.text
    path = f"{S}/{executing.id}/plan/proposals"
    accepted = client.post(f"{path}/p1", json={"accept": True})
    assert accepted.status_code == 200, accepted.text
    assert [one["id"] for one in said(accepted)["tasks"]] == ["a", "b", "c", "more"]
    assert accepted.headers["ETag"] == f'"plan-{executing.view.version}"'
    again = client.post(f"{path}/p1", json={"accept": False})
    assert (again.status_code, said(again)["type"]) == (409, PlanRefused.kind.uri)
    refused = said(client.post(f"{path}/p2", json={"accept": False}))
    assert [(one["id"], one["status"]) for one in refused["proposals"]] == [
        ("p1", "accepted"), ("p2", "refused"),
    ]  # fmt: skip
    unknown = said(client.post(f"{path}/p9", json={"accept": True}))
    assert "proposal 'p9'" in unknown["detail"]
    assert said(client.post(f"{path}/p9", json={"accept": "yes"}))["field"] == "accept"


def test_who_edits_is_recorded(client: FlaskClient, executing: PlanWorld, world: World) -> None:
    made = world.engine.tokens.create("ann", frozenset({Scope.CONTROL, Scope.READ}))
    bearer = {"Authorization": f"Bearer {made.token}"}
    body = {"operations": [{"op": "change", "id": "b", "priority": 1}]}
    assert client.patch(f"{S}/{executing.id}/plan", json=body, headers=bearer).status_code == 200
    events = [
        one for one in world.engine.queries.events(executing.id) if one.type == "plan.changed"
    ]
    assert events[-1].fields["by"] == f"token {made.id}"
    assert events[-1].fields["version"] == executing.view.version


def test_secret_of_the_webhook_is_no_part_of_the_program(client: FlaskClient) -> None:
    secret = "a secret of the receiver"
    hook = {"url": "https://example.org/x", "secret": secret}
    session = said(client.post(S, json={**PLAN, "webhook": hook}))["id"]
    assert secret not in client.get(f"{S}/{session}/export").text
