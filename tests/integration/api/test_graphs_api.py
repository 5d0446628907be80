"""Graphs over REST, on the real engine: submitted, refused with all faults, and read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from api import create_app
from app.settings import Settings
from tests.engine.graphs.graph_world import GraphWorld
from tests.engine.world import World
from tests.session_driving import add_worker

TOKEN = "the operator's own"
S = "/v1/sessions"


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


@pytest.fixture
def client(world: World) -> Iterator[FlaskClient]:
    app = create_app(Settings(api_token=TOKEN, secret="s"), world.engine)
    client = app.test_client()
    client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {TOKEN}"
    yield client
    app.fanout.close()


def said(answer: TestResponse) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.data)
    return found


def submit(client: FlaskClient, *steps: dict[str, Any], **more: Any) -> TestResponse:
    return client.post(S, json={"kind": "graph", "steps": steps, **more})


def test_a_graph_is_submitted_run_and_read(client: FlaskClient, world: World) -> None:
    steps: list[dict[str, Any]] = [{"name": "b c", "arguments": {"x": "${a.n}"}}, {"name": "a"}]
    graph = GraphWorld(world, steps, label="two")
    graph.run(a=lambda: {"n": 7})
    result = said(client.get(f"{S}/{graph.id}/result"))
    assert result["results"] == {"b c": {"x": 7}, "a": {"n": 7}}
    (listed,) = said(client.get(S, query_string={"kind": "graph"}))["items"]
    assert (listed["id"], listed["kind"], listed["label"]) == (graph.id, "graph", "two")


def test_a_submit_answers_with_the_session(client: FlaskClient) -> None:
    answer = submit(client, {"name": "a", "tool": "noop"})
    assert answer.status_code == 202
    assert said(answer)["kind"] == "graph"


def test_all_faults_of_a_graph_come_in_one_answer(client: FlaskClient) -> None:
    answer = submit(
        client,
        {"name": "a", "tool": "echo", "arguments": {"x": "${b.y}", "z": ["${lost}"]}},
        {"name": "b", "tool": "echo", "depends_on": ["gone"]},
    )
    assert answer.status_code == 422
    assert said(answer)["errors"] == [
        {
            "field": "steps[0].arguments.z[0]", "value": '"${lost}"', "place": "body",
            "message": "there is no step 'lost'",
            "hint": "name a step of this graph, or write $${ for a literal ${",
        },
        {
            "field": "steps[1].depends_on[0]", "value": '"gone"', "place": "body",
            "message": "there is no such step", "hint": "there are: a, b",
        },
    ]  # fmt: skip


def test_errors_come_in_three_answers(client: FlaskClient, world: World) -> None:
    add_worker(world.engine, "w", place="here", tools=[], tools_here=[], schema_version=99)
    of_structure: list[dict[str, Any]] = [
        {"name": "a", "tool": "no:a", "arguments": {"x": "${"}},
        {"name": "c", "tool": "flow:none", "arguments": {"x": "${lost}"}},
    ]
    of_fields: list[dict[str, Any]] = [
        {"name": "b", "tool": "echo", "timeout_s": -1, "surprise": 1, "depends_on": ["c", 7]},
        {"tool": "echo", "session": {"kind": "loop", "task": "t"}},
    ]
    of_workers: list[dict[str, Any]] = [
        {"name": "a", "tool": "no:a"},
        {"name": "b", "tool": "flow:none"},
    ]
    more = {"input_schema": {"properties": {"n": {"type": "integr"}}}}
    cases: list[tuple[list[dict[str, Any]], dict[str, Any], list[str]]] = [
        ([*of_structure, *of_fields], more, [
            "steps[2].depends_on[1]", "steps[2].timeout_s", "steps[2].surprise", "steps[3].name",
            "steps[3].session.checkers"]),
        (of_structure, more, [
            "input_schema.properties.n.type", "steps[0].arguments.x", "steps[1].arguments.x"]),
        (of_workers, {}, ["steps[0].tool", "steps[1].tool"]),
    ]  # fmt: skip
    for steps, fields, expected in cases:
        answer = submit(client, *steps, **fields)
        assert answer.status_code == 422
        assert [one["field"] for one in said(answer)["errors"]] == expected
        graph = {"kind": "graph", "steps": steps, **fields}
        checked = said(client.post("/v1/flows/validate", json=graph))
        assert [one["path"] for one in checked["faults"]] == expected
        batch = client.post(f"{S}/batch", json={"items": [{"document": graph}]})
        named = [one["field"].removeprefix("items.0.document.") for one in said(batch)["errors"]]
        assert named == expected
    assert world.engine.queries.sessions().items == []


def test_missing_inputs_folders_and_tools_come_in_one_answer(
    client: FlaskClient, world: World
) -> None:
    add_worker(world.engine, "w", place="here", tools=[], tools_here=[], schema_version=99)
    answer = submit(
        client,
        {"name": "a", "tool": "no:a"},
        {"name": "b", "tool": "echo", "for_each": "${inputs.many}"},
        {"name": "c", "tool": "flow:none"},
        inputs={"topic": None, "year": None, "many": list(range(10_001))},
        place="elsewhere",
    )
    assert [one["field"] for one in said(answer)["errors"]] == [
        "place", "steps[0].tool", "steps[2].tool", "inputs.topic", "inputs.year",
        "steps[1].for_each",
    ]  # fmt: skip


def test_an_input_without_a_value_is_refused(client: FlaskClient) -> None:
    answer = submit(client, {"name": "a", "tool": "noop"}, inputs={"topic": None})
    (error,) = said(answer)["errors"]
    assert (answer.status_code, error["field"]) == (422, "inputs.topic")


def test_all_that_no_worker_has_is_refused_at_once(client: FlaskClient, world: World) -> None:
    add_worker(world.engine, "w", place="here", tools=[], tools_here=[], schema_version=99)
    answer = submit(client, *({"name": name, "tool": f"no:{name}"} for name in ("a", "b")))
    assert answer.status_code == 422
    assert [one["field"] for one in said(answer)["errors"]] == ["steps[0].tool", "steps[1].tool"]


def test_validation_compares_a_graph_with_the_workers_and_starts_nothing(
    client: FlaskClient, world: World
) -> None:
    add_worker(world.engine, "w", place="here", tools=[], tools_here=[], schema_version=99)

    def faults(*steps: object, **more: object) -> list[tuple[str, str]]:
        graph = {"kind": "graph", "steps": steps, **more}
        found = said(client.post("/v1/flows/validate", json=graph))
        assert found["valid"] == (not found["faults"])
        return [(one["path"], one["message"]) for one in found["faults"]]

    known = {"name": "a", "tool": "echo"}
    assert faults(known, {"name": "b", "tool": "echo", "arguments": {"x": "${a.y}"}}) == []
    unknown = faults({"name": "a", "tool": "no:a"}, {"name": "b", "tool": "no:b"})
    assert [path for path, _ in unknown] == ["steps[0].tool", "steps[1].tool"]
    ((path, message),) = faults({**known, "depends_on": ["gone"]})
    assert (path, "there is no such step" in message) == ("steps[0].depends_on[0]", True)
    assert [path for path, _ in faults({**known, "surprise": 1})] == ["steps[0].surprise"]
    assert world.engine.queries.sessions().items == []


def test_export_has_the_document_with_its_references_as_written(client: FlaskClient) -> None:
    text = "see ${a.y} and $${b}"
    steps = ({"name": "a", "tool": "echo"}, {"name": "b", "tool": "echo", "arguments": {"x": text}})
    session = said(submit(client, *steps))["id"]
    exported = said(client.get(f"/v1/sessions/{session}/export"))
    assert exported["document"]["steps"] == list(steps)
