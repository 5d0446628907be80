"""Drawings over REST: the states of a session, as SVG and as text."""

from __future__ import annotations

from xml.etree import ElementTree

from flask.testing import FlaskClient

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.engine import Engine
from leadhand.graphs.documents import GraphDocument
from tests.silent_engine import OPERATOR, loop

OPERATORS = {"Authorization": f"Bearer {OPERATOR}"}
STEPS = [
    {"name": "search", "tool": "echo"},
    {"name": "fetch", "tool": "echo", "for_each": ["a", "b"], "depends_on": ["search"]},
    {"name": "report <all>", "tool": "echo", "depends_on": ["fetch"]},
]


def draw(client: FlaskClient, session: str, query: str = "") -> str:
    response = client.get(f"/v1/sessions/{session}/drawing{query}", headers=OPERATORS)
    assert response.status_code == 200, response.text
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    return response.text


def test_graph_shows_what_ran(client: FlaskClient, engine: Engine) -> None:
    document = GraphDocument.model_validate({"steps": STEPS})
    session = engine.submit.document(document).session
    ref = SessionRef(session, session)
    grant = engine.attempts.claim(ref, "search", nonce="n", worker="w").grants[0]
    work = engine.attempts.work(ref, grant)
    engine.attempts.settle(work, Outcome(word="succeeded"), take=[], worker="w")

    root = ElementTree.fromstring(draw(client, session))
    groups = {
        g.attrib["data-node"]: g.attrib["class"] for g in root.iter() if "data-node" in g.attrib
    }
    assert groups == {"search": "succeeded", "fetch": "running", "report-all": "pending"}
    lines = draw(client, session, "?format=text&width=60").splitlines()
    assert lines[0] == "✓ search  succeeded"
    assert lines[2] == "● fetch  running  2 items"
    assert lines[4] == "· report <all>"


def test_loop_shows_its_iteration(client: FlaskClient, engine: Engine) -> None:
    session = engine.submit.document(loop()).session
    text = draw(client, session, "?format=text")
    assert "running  iteration 1 of 3" in text
    assert "○ do  ready" in text


def test_bad_queries_are_named(client: FlaskClient, engine: Engine) -> None:
    session = engine.submit.document(loop()).session
    for query in ("?format=png", "?width=10", "?width=many"):
        path = f"/v1/sessions/{session}/drawing{query}"
        assert client.get(path, headers=OPERATORS).status_code == 422
    assert client.get("/v1/sessions/deadbeef/drawing", headers=OPERATORS).status_code == 404
