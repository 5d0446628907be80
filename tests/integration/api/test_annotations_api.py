"""Titles and archived sessions: over REST, in lists, and after a resume."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from app.engine import Engine
from tests.session_driving import end
from tests.silent_engine import OPERATOR, loop

HEADERS = {"Authorization": f"Bearer {OPERATOR}"}


@pytest.fixture
def session(engine: Engine) -> str:
    return engine.submit.document(loop(task="mend it")).session


def patch(client: FlaskClient, session: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    answer = client.patch(f"/v1/sessions/{session}", headers=HEADERS, json=body)
    return answer.status_code, answer.get_json()


def listed(client: FlaskClient, query: str = "") -> list[str]:
    page = client.get(f"/v1/sessions{query}", headers=HEADERS).get_json()
    return [view["id"] for view in page["items"]]


def test_a_title_is_shown_and_taken_back(client: FlaskClient, engine: Engine, session: str) -> None:
    status, view = patch(client, session, {"title": "the nightly mend"})
    assert (status, view["renamed"], view["name"]) == (200, "the nightly mend", view["name"])
    assert engine.queries.session(session).title == "the nightly mend"
    assert patch(client, session, {"title": ""})[1]["renamed"] is None
    assert engine.queries.session(session).title == "mend it"


def test_a_title_holds_no_secret(client: FlaskClient, session: str) -> None:
    _, view = patch(client, session, {"title": "use sk-ant-REDACTED"})
    assert "abcdefgh" not in view["renamed"]


def test_an_archived_session_is_hidden_until_it_resumes(
    client: FlaskClient, engine: Engine, session: str
) -> None:
    end(engine, session, "failed")
    assert patch(client, session, {"archived": True})[1]["archived"] is True
    assert listed(client) == []
    assert listed(client, "?archived=only") == listed(client, "?archived=any") == [session]
    assert listed(client, "?status=failed") == []
    engine.control.apply(session, "resume")
    assert listed(client) == [session]
    assert engine.queries.session(session).archived is False


def test_a_session_at_work_is_not_archived(client: FlaskClient, session: str) -> None:
    status, problem = patch(client, session, {"archived": True, "title": "half"})
    assert (status, problem["session_status"]) == (409, "active")
    assert "stop it first" in problem["detail"] + str(problem.get("hint"))
    view = client.get(f"/v1/sessions/{session}", headers=HEADERS).get_json()
    assert (view["archived"], view["renamed"]) == (False, None)


def test_events_say_what_changed(client: FlaskClient, engine: Engine, session: str) -> None:
    patch(client, session, {"title": "one"})
    patch(client, session, {"title": "one"})
    changes = [e.fields for e in engine.queries.events(session) if e.type == "session.annotated"]
    assert [change["title"] for change in changes] == ["one"]


@pytest.mark.parametrize(
    ("body", "field"), [({"title": "x" * 121}, "title"), ({"archived": "maybe"}, "archived")]
)
def test_what_cannot_be_noted_names_its_field(
    client: FlaskClient, session: str, body: dict[str, Any], field: str
) -> None:
    status, problem = patch(client, session, body)
    assert (status, problem["errors"][0]["field"]) == (422, field)


def test_an_unknown_session_is_not_found(client: FlaskClient) -> None:
    assert patch(client, "00000000", {"title": "x"})[0] == 404
