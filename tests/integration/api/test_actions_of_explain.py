"""Each action that `explain` suggests is accepted as its fields are sent over REST."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from app.core.program import Step
from app.engine import Engine
from tests.flows import flow
from tests.session_driving import claim, end, ref_of
from tests.silent_engine import OPERATOR, loop

BEARER = {"Authorization": f"Bearer {OPERATOR}"}
TOOL: dict[str, Any] = {"type": "tool", "tool": "echo", "arguments": {}}
DOCUMENTS: dict[str, Any] = {
    "loop": loop(),
    "workflow": {
        "kind": "workflow",
        "name": "w",
        "doer": {"command": "true"},
        "phases": [
            {"name": "one", "task": "t", "baseline": False, "checkers": [{"command": "true"}]}
        ],
    },
    "flow": flow(TOOL, TOOL).model_dump(mode="json", by_alias=True, exclude_unset=True),
    "graph": {
        "kind": "graph",
        "steps": [{"name": "a", "tool": "papers:search"}, {"name": "b", "tool": "echo"}],
    },
}


def submit(client: FlaskClient, document: Any) -> str:
    given = document if isinstance(document, dict) else document.model_dump(mode="json")
    answer = client.post("/v1/sessions", json=given, headers=BEARER)
    assert answer.status_code == 202, answer.text
    return str(answer.json["id"]) if answer.json else ""


def carry_out(client: FlaskClient, action: dict[str, Any]) -> int:
    url = f"/v1/sessions/{action['session']}/{action['verb']}"
    at = {"step": action["address"]} if action["address"] else {}
    answer = client.post(url, json={**at, **action["arguments"]}, headers=BEARER)
    assert answer.status_code < 400, (action, answer.text)
    return answer.status_code


@pytest.mark.parametrize("status", ["failed", "stopped", "aborted"])
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_suggested_actions_are_accepted(
    client: FlaskClient, engine: Engine, kind: str, status: Any
) -> None:
    document = DOCUMENTS[kind]
    tried = 0
    while True:
        session = submit(client, document)
        end(engine, session, status)
        view: Any = client.get(f"/v1/sessions/{session}/explain", headers=BEARER).json
        assert view["actions"], view
        carry_out(client, view["actions"][tried])
        tried += 1
        if tried == len(view["actions"]):
            break


def test_missing_tool_is_replaced_over_rest(client: FlaskClient, engine: Engine) -> None:
    session = submit(client, DOCUMENTS["graph"])
    grant = claim(engine, session)
    engine.attempts.refuse(
        ref_of(engine, session), grant, why="ToolNotFound: tool 'papers:search' is not known here"
    )
    sent = {"tools": {"papers:search": "echo"}, "folder": "as-is"}
    answer: Any = client.post(f"/v1/sessions/{session}/fork", json=sent, headers=BEARER)
    assert answer.status_code == 202, answer.text
    ref = ref_of(engine, answer.json["id"])
    program = engine.registry.program(engine.store.fields(ref)["program"])
    assert program.step("a").inputs["tool"] == "echo"


def test_rerun_takes_other_checkers(client: FlaskClient, engine: Engine) -> None:
    session = submit(client, DOCUMENTS["loop"])
    end(engine, session, "failed")
    sent = {"checkers": [{"command": "test -f good"}, {"command": "make test"}], "task": "better"}
    answer: Any = client.post(f"/v1/sessions/{session}/rerun", json=sent, headers=BEARER)
    assert answer.status_code == 202, answer.text
    ref = ref_of(engine, answer.json["id"])
    program = engine.registry.program(engine.store.fields(ref)["program"])
    steps = [node for _, node in program.walk() if isinstance(node, Step)]
    checks = [str(step.inputs["checker"]) for step in steps if "checker" in step.inputs]
    assert "test -f good" in checks[0]
    assert "make test" in checks[1]


@pytest.mark.parametrize("checkers", [[], "make test", [{"command": 5}], {"command": "true"}])
def test_rerun_refuses_what_is_no_list_of_checkers(
    client: FlaskClient, engine: Engine, checkers: Any
) -> None:
    session = submit(client, DOCUMENTS["loop"])
    end(engine, session, "failed")
    sent = {"checkers": checkers}
    answer: Any = client.post(f"/v1/sessions/{session}/rerun", json=sent, headers=BEARER)
    assert answer.status_code == 422
    assert "checkers" in answer.text
