"""The form that runs a flow."""

from __future__ import annotations

import json
import re

from api import create_app
from app.core.program import Step
from app.settings import Settings
from tests.flows import llm, loop
from tests.integration.api.dashboard.conftest import HTMX, sign_in
from tests.silent_engine import OPERATOR, SECRET, silent_engine

EACH = {"type": "tool", "tool": "echo", "label": "fetch", "forEach": "${inputs.urls}"}


def test_relative_folder_is_refused_by_its_field(store_url, tmp_path):
    (tmp_path / "review.json").write_text(json.dumps({"steps": [llm("write")]}))
    engine = silent_engine(store_url, secret=SECRET, flows=(tmp_path,))
    app = create_app(Settings(api_token=OPERATOR, secret=SECRET), engine)
    sent = {"folder": "relative"}
    answer = sign_in(app, OPERATOR).post("/ui/flows/review/runs", data=sent, headers=HTMX)
    assert answer.status_code == 422, answer.text
    assert "working_folder" in answer.text
    app.fanout.close()


def test_page_of_a_flow_draws_its_definition(store_url, tmp_path):
    steps = [llm("write", label="write <it>"), loop(llm("again"), label="polish"), EACH]
    definition = {"inputs": {"urls": None}, "steps": steps}
    (tmp_path / "review.json").write_text(json.dumps(definition))
    (tmp_path / "broken.json").write_text("{")
    engine = silent_engine(store_url, secret=SECRET, flows=(tmp_path,))
    app = create_app(Settings(api_token=OPERATOR, secret=SECRET), engine)
    browser = sign_in(app, OPERATOR)
    assert "/ui/flows/review/drawing.svg" in browser.get("/ui/flows/review").text
    assert "drawing.svg" not in browser.get("/ui/flows/broken").text
    drawn = browser.get("/ui/flows/review/drawing.svg")
    assert (drawn.status_code, drawn.content_type) == (200, "image/svg+xml")
    assert all(f"<title>{word}" in drawn.text for word in ("write &lt;it&gt;", "polish", "fetch"))
    assert browser.get("/ui/flows/broken/drawing.svg").status_code in (404, 409, 422)
    app.fanout.close()


def test_form_has_fields_of_the_types_of_inputs(store_url, tmp_path):
    properties = {
        "count": {"type": "integer", "minimum": 1, "description": "How <b>many</b>"},
        "deep": {"type": "boolean", "default": False},
        "word": {"enum": ["a", "b"]},
        "tags": {"type": "array", "default": ["x"]},
    }
    call = {"type": "tool", "tool": "echo", "arguments": {"n": "${inputs.count}"}}
    definition = {"inputSchema": {"properties": properties}, "steps": [call]}
    (tmp_path / "typed.json").write_text(json.dumps(definition))
    engine = silent_engine(store_url, secret=SECRET, flows=(tmp_path,))
    app = create_app(Settings(api_token=OPERATOR, secret=SECRET), engine)
    browser = sign_in(app, OPERATOR)
    text = browser.get("/ui/flows/typed").text
    assert '<input type="number" name="input.count" step="1" min="1" required>' in text
    assert "How &lt;b&gt;many&lt;/b&gt;" in text
    assert '<option value="true">true</option>' in text
    assert re.findall(r'<option value="([ab])">', text) == ["a", "b"]
    assert "JSON, such as [&#34;a&#34;, &#34;b&#34;]" in text
    sent = {"input.count": "3", "input.deep": "true", "input.word": "b", "input.tags": '["y"]'}
    made = browser.post("/ui/flows/typed/runs", data=sent, headers=HTMX)
    assert made.status_code < 400, made.text
    [view] = engine.queries.sessions().items
    ref = engine.queries.ref(view.id)
    program = engine.registry.program(engine.store.fields(ref)["program"])
    [step] = [node for node in program.body if isinstance(node, Step)]
    assert step.inputs["arguments"] == {"n": 3}
    refused = browser.post("/ui/flows/typed/runs", data={**sent, "input.count": "0"}, headers=HTMX)
    assert refused.status_code == 422
    assert "inputs.count" in refused.text
    app.fanout.close()
